"""A socket reduced to the needs of endpoints, and waiting for a condition instead of for time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from protocols.dialling import dial_once
from protocols.errors import PipeRefused
from protocols.listening import Listener
from protocols.options import SocketOptions
from protocols.pipe import Connection, Pipe
from protocols.wire.handshake import PEER_OF, ProtocolNumber
from tests.support.certificates import config
from tests.support.waiting import until as until


class FakeSocket:
    """Keeps its calls. ``refusing`` makes it refuse every peer."""

    def __init__(
        self, protocol: ProtocolNumber = ProtocolNumber.PAIR0, options: SocketOptions | None = None
    ) -> None:
        self.protocol = int(protocol)
        self.peer = int(PEER_OF[protocol])
        self.options = options or SocketOptions(reconnect_min_s=0.01, reconnect_max_s=0.05)
        self.rng = random.Random(1)
        self.pipes: list[Pipe] = []
        self.all_pipes: list[Pipe] = []
        self.received: list[bytes] = []
        self.runs: list[int] = []
        self.lost: list[str] = []
        self.writable = 0
        self.refusing = False
        self.inside_attach = False

    def attach(self, connection: Connection, *, url: str, dialed: bool) -> Pipe:
        if self.refusing:
            raise PipeRefused("no peer is wanted here")
        self.inside_attach = True
        limit = self.options.send_queue
        pipe = Pipe(len(self.all_pipes) + 1, connection, self, url=url, dialed=dialed, limit=limit)
        self.pipes.append(pipe)
        self.all_pipes.append(pipe)
        connection.start(pipe)
        self.inside_attach = False
        return pipe

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        assert not self.inside_attach, "frames may not arrive while the pipe is being attached"
        assert not pipe.closed
        self.runs.append(len(frames))
        self.received += frames

    def pipe_writable(self, pipe: Pipe) -> None:
        self.writable += 1

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        self.pipes.remove(pipe)
        self.lost.append(reason)

    def pipe_gone(self, pipe: Pipe) -> None: ...

    async def aclose(self) -> None:
        for pipe in list(self.pipes):
            pipe.close("the test is over")
        for pipe in self.all_pipes:
            await pipe.connection.wait_closed()


def listen_url(scheme: str, folder: Path) -> str:
    return {
        "tcp": "tcp://127.0.0.1:0",
        "ipc": f"ipc://{folder / 'here.sock'}",
        "inproc": "inproc://here",
    }[scheme]


@asynccontextmanager
async def listening(
    url: str, options: SocketOptions | None = None
) -> AsyncIterator[tuple[FakeSocket, Listener]]:
    """A socket with one listener, until the block ends."""
    owner = FakeSocket(options=options)
    listener = Listener(owner, url)
    await listener.start()
    try:
        yield owner, listener
    finally:
        await listener.aclose()
        await owner.aclose()


async def assert_gets_through(owner: FakeSocket, url: str, options: SocketOptions | None = None) -> None:
    """A good peer is served; by default it trusts the tests' authority."""
    before = len(owner.received)
    dialer = FakeSocket(options=options or SocketOptions(tls=config()))
    pipe = await dial_once(dialer, url, 5.0)
    pipe.send(b"a good peer")
    await until(lambda: len(owner.received) > before)
    await dialer.aclose()


class RawPeer:
    """A peer that writes any bytes it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_all(self) -> bytes:
        """Everything until the other end closes or resets."""
        parts = []
        try:
            while part := await self.reader.read(65536):
                parts.append(part)
        except ConnectionError:
            pass
        return b"".join(parts)

    async def aclose(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


@asynccontextmanager
async def raw_peer(url: str) -> AsyncIterator[RawPeer]:
    """Dial a tcp or ipc URL with a plain stream."""
    scheme, _, address = url.partition("://")
    if scheme == "ipc":
        streams = await asyncio.open_unix_connection(address)
    else:
        host, _, port = address.rpartition(":")
        streams = await asyncio.open_connection(host, int(port))
    peer = RawPeer(*streams)
    try:
        yield peer
    finally:
        await peer.aclose()
