"""A gate before a listener: it passes what SP programs say over TCP, and can hold a connection at a frame.

A test sets a `Trap` for one kind of frame. The first such frame springs it: that frame and all behind it on
the connection wait, while everything else passes. So the test knows what its programs have said and what not,
whatever the machine's speed. ``release`` lets the frame pass, wholly or cut short.

Frames of sessions and of links are told apart by the protocol in the dialer's SP header: behind a Req they
stand behind a backtrace word.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

from tests.support.waiting import turns

REQ: Final = 48
HEADER: Final = 8
"""Bytes of the SP header that each side says first, and of the size before each frame."""
BACKTRACE: Final = 4


class Trap:
    """Holds the first frame of a kind that passes its gates this way; one that is released holds no more."""

    def __init__(self, kind: int, *, to_listener: bool | None = None) -> None:
        """``to_listener``: only what dialers say (True) or only what they are told (False)."""
        self.kind = kind
        self.to_listener = to_listener
        self.sprung = asyncio.Event()
        self._released = asyncio.Event()
        self._passing = 1.0

    def release(self, passing: float = 1.0) -> None:
        """Let pass so much of what is held, from 0 to 1; after less than all the connection is cut."""
        self._passing = passing
        self._released.set()

    def holds(self, kind: int, to_listener: bool) -> bool:
        return not self._released.is_set() and kind == self.kind and self.to_listener in (None, to_listener)

    async def held(self) -> float:
        """Wait for the release; how much passes."""
        self.sprung.set()
        await self._released.wait()
        return self._passing


class Gate:
    """See the module. Dialers connect to ``url``, and are connected on to the port behind it."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.url = ""
        self.traps: list[Trap] = []
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.url = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await turns(10)  # those accepted just now have their tasks then
        while self._connections:
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await turns()  # what was aborted is closed then

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._join(reader, writer))
        self._connections.add(task)

        def over(_: asyncio.Task[None]) -> None:
            self._connections.discard(task)
            writer.transport.abort()  # a task that is cancelled before its first step closes nothing

        task.add_done_callback(over)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a dialer with the listener behind this gate, until either ends."""
        try:
            behind = await asyncio.open_connection("127.0.0.1", self.behind)
        except OSError:
            return  # nobody listens there now
        protocol: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        ways = [
            asyncio.create_task(self._pass_on(reader, behind[1], True, protocol)),
            asyncio.create_task(self._pass_on(behind[0], writer, False, protocol)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await asyncio.gather(_closed(writer), _closed(behind[1]))

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_listener: bool,
        protocol: asyncio.Future[int],
    ) -> None:
        """One way of a connection until its end."""
        try:
            header = await reader.readexactly(HEADER)
            if to_listener:
                protocol.set_result(int.from_bytes(header[4:6], "big"))
            writer.write(header)
            start = BACKTRACE if await asyncio.shield(protocol) == REQ else 0
            while True:
                head = await reader.readexactly(HEADER)
                (size,) = struct.unpack(">Q", head)
                frame = head + await reader.readexactly(size)
                passing = await self._passing(frame, HEADER + start, to_listener)
                writer.write(frame[: int(len(frame) * passing)])
                await writer.drain()
                if passing < 1:
                    return
        except (asyncio.IncompleteReadError, OSError):
            return

    async def _passing(self, frame: bytes, start: int, to_listener: bool) -> float:
        """How much of a frame passes."""
        if len(frame) < start + 2 or frame[start] & 0xF0 != 0x90:
            return 1.0
        for trap in self.traps:
            if trap.holds(frame[start + 1], to_listener):
                return await trap.held()
        return 1.0


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Written data is sent first, unless nobody reads it and the gate is closed."""
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
