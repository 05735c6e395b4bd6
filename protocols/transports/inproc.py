"""``inproc://name``: two sockets on one event loop; lists of frames are handed across, nothing is copied.

The contract is that of a stream, with one difference that callers must not rely on: no frame is ever lost
between the ends. A side that has not started or has paused reading takes nothing, so the other's pipe fills
and refuses.
"""

from __future__ import annotations

import asyncio

from protocols.errors import (
    AddressError,
    AddressInUse,
    ConnectionRefused,
    HandshakeError,
    RemoteProtocolError,
)
from protocols.options import SocketOptions
from protocols.pipe import CLOSED_BY_PEER, CLOSED_HERE, Pipe
from protocols.transports.base import Binding, Watcher
from protocols.transports.loops import LoopState, loop_state
from protocols.wire.handshake import Greeting


def parse_name(address: str) -> str:
    if not address:
        raise AddressError("inproc:// needs a name, as in inproc://name")
    return address


class InprocTransport:
    """See the module. Names live as long as the loop and their listener."""

    def check(self, address: str) -> None:
        parse_name(address)

    check_dialable = check

    def is_wildcard(self, address: str) -> bool:
        return False

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        name = parse_name(address)
        binding = loop_state().inproc.get(name)
        if binding is None:
            raise ConnectionRefused(f"nobody listens at inproc://{name}")
        binding.accept(greeting, options, watcher)

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> Binding:
        name = parse_name(address)
        state = loop_state()
        if name in state.inproc:
            raise AddressInUse(f"inproc://{name} is in use in this process; choose another name")
        binding = state.inproc[name] = InprocBinding(name, state, greeting, options, watcher)
        return binding


class InprocBinding:
    """A name with an open listener."""

    def __init__(
        self, name: str, state: LoopState, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        self.url = f"inproc://{name}"
        self._name = name
        self._state = state
        self._greeting = greeting
        self._options = options
        self._watcher = watcher

    def accept(self, greeting: Greeting, options: SocketOptions, watcher: Watcher) -> None:
        """Join a dialler to this listener; the handshake is two numbers, compared at once."""
        dialer = InprocConnection(watcher, self.url)
        listener = InprocConnection(self._watcher, self.url)
        dialer.join(listener)
        watcher.connection_opened(dialer)
        self._watcher.connection_opened(listener)
        try:
            listener_number = self._greeting.answer(greeting.own)
            greeting.answer(listener_number)
        except HandshakeError as error:
            listener.fail(error)
            # Another socket may listen here soon, so the dialer does not use its longest pause.
            dialer.fail(HandshakeError(f"the listener refused it: {error}", reason="closed"))
            return
        listener.open(greeting.own)
        dialer.open(listener_number)

    def close(self) -> None:
        if self._state.inproc.get(self._name) is self:
            del self._state.inproc[self._name]


class InprocConnection:
    """One end. ``_other`` is the end that receives our output."""

    def __init__(self, watcher: Watcher, url: str) -> None:
        self.peer = 0
        self.local_address = url
        self.remote_address = url
        self._watcher = watcher
        self._deadline: asyncio.TimerHandle | None = None
        self._other: InprocConnection = self
        self._loop = asyncio.get_running_loop()
        self._pipe: Pipe | None = None
        self._ready = False
        self._draining = False
        self._ended = False
        self._paused = False
        self._flush_scheduled = False
        self._closed: asyncio.Future[None] = self._loop.create_future()

    def join(self, other: InprocConnection) -> None:
        self._other = other
        other._other = self

    def open(self, peer: int) -> None:
        if self._ended:
            return
        self.peer = peer
        self._ready = True
        self._watcher.connection_ready(self)

    def fail(self, error: HandshakeError) -> None:
        self._end(error, str(error), error.reason)

    # --- Connection

    @property
    def identity(self) -> None:
        """The peer is this process."""

    @property
    def descriptor(self) -> int:
        return -1

    def start(self, pipe: Pipe) -> None:
        assert self._pipe is None, "a connection serves one pipe"
        self._pipe = pipe
        if self._ended:  # it ended before its owner was asked
            self._loop.call_soon(self._end_pipe, CLOSED_BY_PEER, CLOSED_BY_PEER)
        else:
            self._other.flush_soon()

    def flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def write_now(self, frame: bytes) -> bool:
        """Return False, for the reason of `flush_now`."""
        return False

    def flush_now(self) -> None:
        """Do nothing: the other end is in this loop, and must not be called from inside a ``send``."""

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._other.flush_soon()

    def close(self) -> None:
        """End once the other side has taken what is queued; `abort` follows by itself after ``linger_s``."""
        if self._draining:
            return
        if self._pipe is None or self._ended:
            self.abort()
            return
        self._draining = True
        linger_s = self._pipe.linger_s
        if linger_s is not None:
            self._deadline = self._loop.call_later(linger_s, self.abort)
        self.flush_soon()

    def abort(self, error: RemoteProtocolError | None = None) -> None:
        if error is None:
            error = HandshakeError("closed by this end", reason=CLOSED_HERE)
        self._end(error, str(error), error.reason)
        other = self._other
        if not other._ended:
            # In a later turn, like a stream: the caller may be inside the other's callback.
            error = HandshakeError("the peer closed", reason="closed")
            self._loop.call_soon(other._end, error, CLOSED_BY_PEER, CLOSED_BY_PEER)

    def abort_soon(self) -> None:
        self._loop.call_soon(self.abort)

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    # ---

    def _flush(self) -> None:
        self._flush_scheduled = False
        pipe, other = self._pipe, self._other
        if pipe is None or self._ended:
            return
        if not other._takes_frames():
            return  # `start` or `resume_reading` of the other end flushes again
        frames = pipe.take_output()
        if frames and other._pipe is not None:
            size = sum(map(len, frames))
            pipe.bytes_out += size
            other._pipe.bytes_in += size
            other._pipe.deliver(frames)
        pipe.output_written()
        if self._draining and not pipe.queued:
            self.abort()

    def _takes_frames(self) -> bool:
        if self._draining or self._ended:
            return True  # nobody reads any more: drop further frames, as a closed stream would
        return self._pipe is not None and not self._paused

    def _end(self, error: RemoteProtocolError, reason: str, cause: str) -> None:
        if self._ended:
            return
        self._ended = True
        if self._deadline is not None:
            self._deadline.cancel()
        if not self._ready:
            assert isinstance(error, HandshakeError)
            self._watcher.connection_failed(self, error)
        else:
            self._end_pipe(reason, cause)
            self._watcher.connection_ended(self, None if isinstance(error, HandshakeError) else error)
        self._watcher.connection_gone(self)
        if not self._closed.done():
            self._closed.set_result(None)

    def _end_pipe(self, reason: str, cause: str) -> None:
        if self._pipe is not None:
            self._pipe.connection_lost(reason, cause)
            self._pipe.connection_gone()
