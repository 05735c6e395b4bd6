"""Two real sockets over a link that a test can watch, hold and cut; or one socket and a scripted peer.

Frames cross in loop turns of their own, as over a stream, but in memory: what a test sees is what the
pattern did, byte for byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from protocols import RawSocket, Socket
from protocols.errors import RemoteProtocolError
from protocols.patterns.base import Pattern
from protocols.pipe import Pipe


def made(kind: type[Socket], raw: bool, **arguments: Any) -> Any:
    """A socket of this kind, raw or not."""
    return RawSocket(kind, **arguments) if raw else kind(**arguments)


class FakeConnection:
    """One end. ``taken`` holds what its pipe was asked for, ``deliver`` says where that goes."""

    def __init__(self, peer: int, name: str = "fake") -> None:
        self.peer = peer
        self.local_address = f"{name}:local"
        self.remote_address = f"{name}:remote"
        self.pipe: Pipe | None = None
        self.taken: list[bytes] = []
        self.held = False
        self.paused = False
        self.closing = False
        self.ended = False
        self.is_full: Callable[[], bool] | None = None
        self.on_taken: Callable[[list[bytes]], None] | None = None
        self.on_resumed: Callable[[], None] | None = None
        self.on_ended: Callable[[], None] | None = None

    # --- what a pipe calls

    def start(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def flush_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.flush)

    def write_now(self, frame: bytes) -> bool:
        if self.pipe is None or self.closing or not self._takes():
            return False
        self._take([frame])
        return True

    def flush_now(self) -> None:
        if self.pipe is not None:
            self.flush()

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        if self.on_resumed is not None:
            self.on_resumed()

    def close(self) -> None:
        self.closing = True
        asyncio.get_running_loop().call_soon(self.flush)

    def abort(self, error: RemoteProtocolError | None = None) -> None:
        if not self.ended:
            self.ended = True
            if self.on_ended is not None:
                self.on_ended()

    def abort_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.abort)

    async def wait_closed(self) -> None:
        while not self.ended:
            await asyncio.sleep(0.001)

    # --- what a test calls

    def flush(self) -> None:
        """Take what is queued, unless the link is held."""
        if self.pipe is None or not self._takes():
            return
        self._take(self.pipe.take_output())
        self.pipe.output_written()
        if self.closing and not self.pipe.queued:
            self.abort()

    def _takes(self) -> bool:
        return not (self.held or self.ended or (self.is_full is not None and self.is_full()))

    def _take(self, frames: list[bytes]) -> None:
        self.taken += frames
        if frames and self.on_taken is not None:
            self.on_taken(frames)

    def hold(self) -> None:
        """Be a kernel buffer that is full."""
        self.held = True

    def release(self) -> None:
        self.held = False
        self.flush()


class Peer:
    """A scripted peer of one socket: says any frames, keeps what it hears in ``heard``."""

    def __init__(self, socket: Socket, *, reads: bool = True, name: str = "peer") -> None:
        self.connection = FakeConnection(socket.peer, name)
        self.connection.held = not reads
        self.pipe = socket._core.attach(self.connection, url=f"fake://{name}", dialed=False)

    @property
    def heard(self) -> list[bytes]:
        return self.connection.taken

    def say(self, *frames: bytes) -> None:
        """A run of frames arrives at the socket."""
        self.pipe.deliver(list(frames))

    def hang_up(self, reason: str = "the peer hung up") -> None:
        self.connection.abort()
        self.pipe.connection_lost(reason)


class Link:
    """Joins two sockets. ``a`` and ``b`` are the ends' connections, to hold or to read back.

    Each direction carries one run at a time: while its reader pauses nothing more is taken, as with a stream.
    """

    def __init__(self, first: Socket, second: Socket) -> None:
        self.a = FakeConnection(first.peer, "a")
        self.b = FakeConnection(second.peer, "b")
        self._join(self.a, self.b)
        self._join(self.b, self.a)
        self.first = first._core.attach(self.a, url="fake://a", dialed=True)
        self.second = second._core.attach(self.b, url="fake://b", dialed=False)

    def cut(self, reason: str = "the link was cut") -> None:
        for connection, pipe in ((self.a, self.first), (self.b, self.second)):
            connection.ended = True
            pipe.connection_lost(reason)

    def _join(self, here: FakeConnection, there: FakeConnection) -> None:
        run: list[bytes] = []

        def taken(frames: list[bytes]) -> None:
            run.extend(frames)
            asyncio.get_running_loop().call_soon(arrive)

        def arrive() -> None:
            if run and there.pipe is not None and (here.ended or not there.paused):
                frames = run[:]
                run.clear()
                there.pipe.deliver(frames)
                here.flush()

        def resumed() -> None:
            asyncio.get_running_loop().call_soon(arrive)

        def ended() -> None:
            arrive()
            there.ended = True
            if there.pipe is not None:
                asyncio.get_running_loop().call_soon(there.pipe.connection_lost, "closed by the peer")

        here.is_full = lambda: bool(run)
        here.on_taken = taken
        there.on_resumed = resumed
        here.on_ended = ended


class Plug:
    """A pipe on a pattern without any socket, for tests that bring their own time."""

    def __init__(
        self,
        pattern: Pattern,
        id: int = 1,
        *,
        limit: int = 4,
        now: float = 0.0,
        weighed: bool = False,
    ) -> None:
        self.pattern = pattern
        self.now = now
        self.connection = SilentConnection(int(pattern.peer))
        self.pipe = Pipe(
            id, self.connection, self, url="fake://plug", dialed=True, limit=limit, weighed=weighed
        )
        self.reasons: list[str] = []
        pattern.pipe_attached(self.pipe, now)

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        self.pattern.received(self.pipe, frames, self.now)

    def pipe_writable(self, pipe: Pipe) -> None:
        self.pattern.pipe_writable(self.pipe, self.now)

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        self.reasons.append(reason)
        self.pattern.pipe_detached(self.pipe, self.now)

    def pipe_gone(self, pipe: Pipe) -> None: ...

    def say(self, *frames: bytes, now: float = 0.0) -> None:
        self.now = now
        self.pipe.deliver(list(frames))

    def take(self) -> list[bytes]:
        """The queued data for the peer, which is taken out of the queue."""
        return self.pipe.take_output()

    def lose(self, now: float = 0.0) -> None:
        self.now = now
        self.pipe.connection_lost("lost")


class SilentConnection(FakeConnection):
    """Takes nothing by itself; there is no event loop."""

    def flush_soon(self) -> None:
        pass

    def write_now(self, frame: bytes) -> bool:
        return False

    def flush_now(self) -> None:
        pass

    def close(self) -> None:
        pass
