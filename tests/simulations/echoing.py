"""Small programs to run in worlds: an echo server and clients that record what they see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from simulations.world import Main, Process, World

PORT = 7000


class Recorder(asyncio.Protocol):
    """Keeps all its events, as words and bytes."""

    def __init__(self, *, keep_open: bool = False) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.chunks: list[int] = []
        self.error: BaseException | None = None
        self.transport: Any = None
        self.keep_open = keep_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.chunks.append(len(data))

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keep_open

    def connection_lost(self, error: BaseException | None) -> None:
        self.error = error
        self.events.append("lost")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class BufferedRecorder(asyncio.BufferedProtocol):
    """The same through a buffer of 10 bytes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.buffer = bytearray(10)
        self.lost = False

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]

    def connection_lost(self, error: BaseException | None) -> None:
        self.lost = True


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


def serve(factory: Callable[[], asyncio.BaseProtocol], port: int = PORT) -> Main:
    """A server that exposes the list of its protocols and ends when it is asked to."""

    async def main(process: Process) -> None:
        protocols: list[asyncio.BaseProtocol] = []

        def make() -> asyncio.BaseProtocol:
            protocols.append(factory())
            return protocols[-1]

        server = await asyncio.get_running_loop().create_server(make, "0.0.0.0", port)
        process.exposed = protocols
        await process.stopping.wait()
        server.close()

    return main


def dial(
    host: str, then: Callable[[Process, Any, Any], Coroutine[Any, Any, None]] | None = None, port: int = PORT
) -> Main:
    """A client that exposes its `Recorder`, or the error of connecting, and then does more."""

    async def main(process: Process) -> None:
        try:
            transport, recorder = await process.loop.create_connection(Recorder, host, port)
        except OSError as error:
            process.exposed = error
            await process.stopping.wait()
            return
        process.exposed = recorder
        if then is not None:
            await then(process, transport, recorder)
        await process.stopping.wait()

    return main


def wait_exposed(world: World, *names: str) -> None:
    """Let time pass until these processes have exposed something."""
    world.run_until(
        lambda: all(world.node(name).exposed is not None for name in names), timeout_s=200, what="exposure"
    )
