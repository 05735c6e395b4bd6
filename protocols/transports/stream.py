"""A connection over a byte stream: handshake, frames in, coalesced frames out.

Its `Codec` knows what the bytes mean (plain, TLS, WebSocket); this module decides when they move.

States, and what moves between them:

```
OPENING -good handshake->  HELD  --start(pipe)-->  RUNNING  --close()-->  DRAINING
   |                         |                        |                      |
   +---- bad handshake, deadline, EOF, abort(), broken frame, lost link -----+-->  CLOSED
```

* OPENING: the codec's first bytes go out at once. The peer has ``handshake_timeout_s``.
* HELD: the watcher has the connection and decides. Early frames are kept, and reading stops after the first
  run of them. So a peer that is not admitted can make us hold at most one read.
* RUNNING: runs of frames go to the pipe in the loop turn that read them. Output is pulled from the pipe once
  per turn. While the kernel is full nothing is pulled, so the pipe's queue fills and refuses.
* DRAINING: queued output is written, then our direction is closed. Further input is read and discarded:
  closing a TCP socket with unread input resets it, which can destroy what we just wrote. It ends when the
  peer has read to our end and closes too, at the latest after ``linger_s``.

Every end has a reason, and the pipe is told once. A codec's farewell to a peer that broke a rule (an alert, a
close frame) is written before the stream is closed. EOF inside a frame loses that frame and nothing else (NNG
closes so).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

from protocols.errors import HandshakeError, RemoteProtocolError
from protocols.identity import PeerIdentity
from protocols.options import SocketOptions
from protocols.pipe import CLOSED_BY_PEER, CLOSED_HERE, CONNECTION_LOST, CUT_INSIDE_FRAME, Pipe
from protocols.transports.base import Watcher
from protocols.transports.loops import loop_state
from protocols.transports.outgoing import PIECE, Outgoing, limit_hint
from protocols.wire.codec import SMALL, Codec
from protocols.wire.handshake import Greeting


class State(Enum):
    OPENING = "opening"
    HELD = "held"
    RUNNING = "running"
    DRAINING = "draining"
    CLOSED = "closed"


_NO_BUFFER: Final = memoryview(b"")
_NO_FRAMES: Final[list[bytes]] = []  # never changed; most connections have no early frames
OWNER: Final = 1
HELD: Final = 2
UNHEARD: Final = 4
"""Reasons to pause reading, each one bit of a set: the owner wants no more; frames came and nobody wants the
connection yet; the peer does not read our codec's replies.
"""
_RUNNING: Final = State.RUNNING  # a global is found faster than an attribute, and every read needs this


def no_identity(transport: asyncio.Transport) -> None:
    """The ``identify`` of transports whose network knows no identities."""


@dataclass(frozen=True, slots=True)
class StreamKind:
    """The differences between stream transports: the form of an address, socket options, the codec, and the
    peer's identity from the network.
    """

    describe: Callable[[object], str]
    tune: Callable[[asyncio.Transport, SocketOptions], None]
    codec: Callable[[Greeting, SocketOptions], Codec]
    identify: Callable[[asyncio.Transport], PeerIdentity | None] = no_identity


class StreamConnection(asyncio.BufferedProtocol):
    """One stream; see the module."""

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_cause",
        "_closed",
        "_codec",
        "_deadline",
        "_delivering",
        "_early",
        "_early_bytes_in",
        "_early_bytes_out",
        "_flush_scheduled",
        "_gone",
        "_identity",
        "_kind",
        "_large",
        "_last_turn",
        "_loop",
        "_options",
        "_outgoing",
        "_pauses",
        "_pipe",
        "_read_budget",
        "_reads",
        "_reason",
        "_transport",
        "_wakes",
        "_watcher",
        "_writing_paused",
        "local_address",
        "peer",
        "remote_address",
        "state",
    )

    def __init__(
        self, kind: StreamKind, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        self.peer = 0
        self.state = State.OPENING
        self.local_address = ""
        self.remote_address = ""
        self._options = options
        self._watcher = watcher
        self._kind = kind
        self._codec = kind.codec(greeting, options)
        self._loop = asyncio.get_running_loop()
        state = loop_state()
        self._reads = state.reads
        self._wakes = state.wakes
        self._read_budget = max(options.read_budget, 1)
        self._reads.require(self._read_budget)
        self._last_turn = 0
        self._buffer = _NO_BUFFER
        self._early: list[bytes] = _NO_FRAMES
        self._early_bytes_in = 0
        self._early_bytes_out = 0
        self._outgoing: Outgoing | None = None
        self._large = 0  # the size of the last written buffer that was larger than a piece
        self._pipe: Pipe | None = None
        self._reason = ""
        self._cause = ""
        self._identity: PeerIdentity | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._writing_paused = False
        self._flush_scheduled = False
        self._delivering = False
        self._pauses = 0
        self._gone = False
        self._closed: asyncio.Future[None] | None = None  # made by the first caller that waits for it

    def __repr__(self) -> str:
        return f"<StreamConnection {self.state.value} {self.local_address} - {self.remote_address}>"

    # --- Connection: what pipes and endpoints call

    @property
    def descriptor(self) -> int:
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        return -1 if sock is None else int(sock.fileno())

    @property
    def identity(self) -> PeerIdentity | None:
        return self._identity or self._codec.identity

    def start(self, pipe: Pipe) -> None:
        """Deliver to ``pipe`` from the next loop turn on, early frames first."""
        assert self._pipe is None, "a connection serves one pipe"
        self._pipe = pipe
        if self.state is not State.HELD:  # it ended before its owner was asked
            self._loop.call_soon(self._end_late_pipe)
            return
        self.state = State.RUNNING
        pipe.bytes_in += self._early_bytes_in
        pipe.bytes_out += self._early_bytes_out
        if self._early:
            self._loop.call_soon(self._deliver_early)
        else:
            self._resume(HELD)

    def adopt(self, options: SocketOptions) -> None:
        """Continue with the options of another endpoint, to which the handshake assigned the connection."""
        self._options = options
        self._read_budget = max(options.read_budget, 1)
        self._reads.require(self._read_budget)
        if self._transport is not None:
            self._kind.tune(self._transport, options)

    def flush_soon(self) -> None:
        if not self._flush_scheduled and not self._writing_paused:
            self._flush_scheduled = True
            if not self._delivering:
                self._loop.call_soon(self._flush)

    def write_now(self, frame: bytes) -> bool:
        pipe, transport = self._pipe, self._transport
        if self.state is not _RUNNING or self._writing_paused or pipe is None or transport is None:
            return False
        if transport.is_closing():
            return False
        if len(frame) < SMALL:
            data = self._codec.encode_small(frame)
            pipe.bytes_out += len(data)
            transport.write(data)
        else:
            self._write_out(self._codec.encode((frame,)), pipe, transport)
        return True

    def flush_now(self) -> None:
        pipe, transport = self._pipe, self._transport
        if self.state is _RUNNING and not self._writing_paused and pipe is not None and transport is not None:
            self._write_queued(pipe, transport)  # the flush that was scheduled finds nothing left

    def pause_reading(self) -> None:
        self._pause(OWNER)

    def resume_reading(self) -> None:
        self._resume(OWNER)

    def close(self) -> None:
        """Write what is queued, then end; `abort` follows by itself after ``linger_s``."""
        if self.state is not State.RUNNING:
            if self.state is not State.DRAINING:
                self.abort()
            return
        self.state = State.DRAINING
        linger_s = self._pipe.linger_s if self._pipe is not None else self._options.linger_s
        if linger_s is not None:
            self._deadline = self._loop.call_later(linger_s, self.abort)
        self._read_to_the_end()
        if not self._writing_paused:
            self._flush()

    def abort(self, error: RemoteProtocolError | None = None) -> None:
        transport = self._transport
        if error is None:
            error = HandshakeError("closed by this end", reason=CLOSED_HERE)
        self._end(error, str(error), error.reason)
        if transport is not None:
            transport.abort()

    def abort_soon(self) -> None:
        self._loop.call_soon(self.abort)

    async def wait_closed(self) -> None:
        if self._gone:
            return
        if self._closed is None:
            self._closed = self._loop.create_future()
        await asyncio.shield(self._closed)

    # --- asyncio.BufferedProtocol: what the event loop calls

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, base)  # uvloop's transport does not inherit from it
        if self.state is State.CLOSED:  # aborted while it was being made
            transport.abort()
            return
        self._transport = transport
        self.local_address = self._kind.describe(transport.get_extra_info("sockname"))
        self.remote_address = self._kind.describe(transport.get_extra_info("peername"))
        self._identity = self._kind.identify(transport)
        self._kind.tune(transport, self._options)
        self._deadline = self._loop.call_later(self._options.handshake_timeout_s, self._handshake_late)
        self._watcher.connection_opened(self)
        if self.state is not State.OPENING:
            return  # not wanted; the peer must not mistake this for a handshake
        self._write(self._codec.begin())
        if self._codec.failure is not None:
            self._fail(self._codec.failure)

    def get_buffer(self, sizehint: int) -> memoryview:
        reads = self._reads
        size = reads.take(self._last_turn)
        self._last_turn = reads.turn
        if size > self._read_budget:
            size = self._read_budget
        if size != len(self._buffer):
            self._buffer = reads.buffer[:size]
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        chunk: memoryview = self._buffer[:nbytes]
        if self.state is not _RUNNING:
            self._read_otherwise(chunk)
            return
        codec, pipe = self._codec, self._pipe
        assert pipe is not None
        pipe.bytes_in += nbytes
        frames = codec.receive(chunk)
        if frames:
            self._deliver(pipe, frames)
            if self.state is not _RUNNING:
                return  # the receiver of the frames closed it; the reply went out before our farewell
        if codec.failure is not None:
            self._fail(codec.failure)
        elif codec.reply:
            self._answer()
        if codec.ended:
            self._hear_goodbye()

    def eof_received(self) -> bool:
        if self.state is State.OPENING:
            self._end(self._ended_early("the peer closed"), CLOSED_BY_PEER, CLOSED_BY_PEER)
        elif self._codec.inside_frame:
            self._end(None, "closed by the peer inside a frame", CUT_INSIDE_FRAME)
        else:
            self._end(None, CLOSED_BY_PEER, CLOSED_BY_PEER)
        self._abort_later()  # asyncio now writes its buffer and closes
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        reason = cause = CLOSED_BY_PEER
        if exc is not None:
            cause = CONNECTION_LOST
            reason = f"connection lost: {(exc.strerror if isinstance(exc, OSError) else None) or exc}"
            reason += limit_hint(self._large)
        self._end(self._ended_early(reason), reason, cause)
        self._cancel_deadline()
        self._transport = None
        self._report_gone()

    def _ended_early(self, how: str) -> HandshakeError:
        return HandshakeError(f"{how} after {self._codec.progress()}", reason="closed")

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        pipe, transport = self._pipe, self._transport
        self._resume(UNHEARD)
        if pipe is None:
            return
        if self._outgoing is not None and transport is not None:
            self._write_on(self._outgoing, pipe, transport)
        self._flush()

    # --- handshake

    def _handshake_late(self) -> None:
        waited = self._options.handshake_timeout_s
        self._fail(HandshakeError(f"{self._codec.progress()} after {waited:g} s", reason="timeout"))

    def _read_otherwise(self, chunk: memoryview) -> None:
        """Handle input in any state but RUNNING; DRAINING and CLOSED discard it."""
        codec = self._codec
        if self.state is State.OPENING:
            self._early_bytes_in += len(chunk)
            frames = codec.receive(chunk)
            if codec.peer:
                self._answer()
                self._become_held()
                self._keep_early(frames)
        elif self.state is State.HELD:
            self._early_bytes_in += len(chunk)
            self._keep_early(codec.receive(chunk))
        if self.state is State.DRAINING or self.state is State.CLOSED:
            return
        if codec.failure is not None:
            self._fail(codec.failure)
        else:
            self._answer()
        if codec.ended:
            self._hear_goodbye()

    def _become_held(self) -> None:
        self._cancel_deadline()
        self.peer = self._codec.peer
        self.state = State.HELD
        self._watcher.connection_ready(self)

    def _answer(self) -> None:
        """Write the codec's replies to what the peer sent.

        If the peer does not read them, stop reading from it: otherwise the replies kept for it would grow
        with each ping.
        """
        reply, self._codec.reply = self._codec.reply, b""
        self._write(reply)
        if reply and self._writing_paused:
            self._pause(UNHEARD)

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if not data or transport is None or transport.is_closing():
            return
        if self._outgoing is not None and self._outgoing.inside_buffer:
            self._outgoing.owe(data)
            return
        transport.write(data)
        if self._pipe is not None:
            self._pipe.bytes_out += len(data)
        else:
            self._early_bytes_out += len(data)

    # --- frames

    def _keep_early(self, frames: list[bytes]) -> None:
        """Keep frames that came with the handshake or right after it, until there is a pipe."""
        if self.state is State.RUNNING:  # the owner started the pipe as soon as it heard of the peer
            assert self._pipe is not None
            if frames:
                self._deliver(self._pipe, frames)
        elif self.state is State.HELD:
            self._early = self._early + frames
            if frames or self._codec.inside_frame:
                self._pause(HELD)

    def _deliver(self, pipe: Pipe, frames: list[bytes]) -> None:
        """Hand over a run, and run the tasks that wait for it.

        Their answers and the owner's are written at once, which saves a loop turn.
        """
        wakes = self._wakes
        self._delivering = not self._flush_scheduled
        wakes.open = True
        try:
            pipe.deliver(frames)
        finally:
            wakes.open = False
            if wakes.noted:
                wakes.run()
            if self._delivering:
                self._delivering = False
                if self._flush_scheduled:
                    self._flush()

    def _deliver_early(self) -> None:
        pipe = self._pipe
        frames, self._early = self._early, _NO_FRAMES
        if pipe is None or not frames:
            return
        pipe.deliver(frames)
        self._resume(HELD)

    def _flush(self) -> None:
        """Write everything the pipe holds, in one go."""
        self._flush_scheduled = False
        pipe, transport = self._pipe, self._transport
        if pipe is None or transport is None or self.state is State.CLOSED or self._writing_paused:
            return
        self._write_queued(pipe, transport)
        if self.state is State.DRAINING and not pipe.queued and self._outgoing is None:
            if not transport.is_closing():
                self._close_own_direction(transport)
        else:
            pipe.output_written()

    def _write_queued(self, pipe: Pipe, transport: asyncio.Transport) -> None:
        frames = pipe.take_output()
        if frames and not transport.is_closing():
            self._write_out(self._codec.encode(frames), pipe, transport)

    def _write_out(self, encoded: Iterable[bytes], pipe: Pipe, transport: asyncio.Transport) -> None:
        """Write the codec's output, as far as the kernel has room."""
        buffers = iter(encoded)
        for data in buffers:
            if len(data) > PIECE:
                self._large = len(data)
                self._write_on(Outgoing(data, buffers), pipe, transport)
                return
            pipe.bytes_out += len(data)
            transport.write(data)
            if self._writing_paused:
                self._outgoing = Outgoing(b"", buffers)
                return

    def _write_on(self, outgoing: Outgoing, pipe: Pipe, transport: asyncio.Transport) -> None:
        """Write until the kernel has no room again; the rest then waits for `resume_writing`."""
        self._outgoing = outgoing
        while not self._writing_paused and not transport.is_closing():
            piece = outgoing.next_piece()
            if piece is None:
                self._outgoing = None
                return
            pipe.bytes_out += len(piece)
            transport.write(piece)

    def _close_own_direction(self, transport: asyncio.Transport) -> None:
        self._answer()
        self._write(self._codec.end())
        self._half_close(transport)

    def _half_close(self, transport: asyncio.Transport) -> None:
        if not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:  # the peer has reset it, and the loop has not noticed yet
            transport.abort()

    # --- ends

    def _fail(self, error: RemoteProtocolError) -> None:
        """The peer broke a rule."""
        # A peer would not understand a farewell inside a half-written buffer.
        inside_buffer = self._outgoing is not None and self._outgoing.inside_buffer
        last_words = bool(self._codec.reply) and not inside_buffer
        self._answer()
        transport = self._transport
        self._end(error, str(error), error.reason)
        if transport is None:
            return
        if not last_words:
            transport.abort()
            return
        # As in DRAINING: closing with unread input would reset the stream and destroy our farewell.
        self._abort_later()
        self._read_to_the_end()
        self._half_close(transport)

    def _abort_later(self) -> None:
        """Limit how long a peer that never reads can keep the connection open after an end that it caused."""
        self._cancel_deadline()
        linger_s = self._options.linger_s
        bound_s = self._options.handshake_timeout_s if linger_s is None else linger_s
        self._deadline = self._loop.call_later(bound_s, self.abort)

    def _hear_goodbye(self) -> None:
        """The codec received the peer's farewell: the same as the end of the stream."""
        words = self._codec.last_words
        if words and self.state in (State.HELD, State.RUNNING):
            self._end(None, f"{CLOSED_BY_PEER}: {words}", CLOSED_BY_PEER)
        self.eof_received()
        if self._transport is not None:
            self._transport.close()

    def _end(self, error: RemoteProtocolError | None, reason: str, cause: str) -> None:
        """Tell everybody, once. Before ``ready`` every end is an error, after it only the peer's faults
        are.
        """
        before, self.state = self.state, State.CLOSED
        if before is State.CLOSED:
            return
        self._cancel_deadline()
        self._outgoing = None
        if before is State.OPENING:
            assert isinstance(error, HandshakeError)
            self._watcher.connection_failed(self, error)
        else:
            self._reason = reason
            self._cause = cause
            self._end_pipe()
            self._watcher.connection_ended(self, None if isinstance(error, HandshakeError) else error)
        if self._transport is None:
            self._report_gone()

    def _report_gone(self) -> None:
        if not self._gone:
            self._gone = True
            self._watcher.connection_gone(self)
        if self._pipe is not None:
            self._pipe.connection_gone()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _end_pipe(self) -> None:
        if self._pipe is not None:
            self._deliver_early()
            self._pipe.connection_lost(self._reason, self._cause)

    def _end_late_pipe(self) -> None:
        """End the pipe of an owner that came after the end."""
        self._end_pipe()
        if self._gone and self._pipe is not None:
            self._pipe.connection_gone()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _pause(self, reason: int) -> None:
        """Read no further while this reason lasts."""
        if not self._pauses and self._transport is not None and self.state is not State.DRAINING:
            self._transport.pause_reading()
        self._pauses |= reason

    def _resume(self, reason: int) -> None:
        """End this reason; when the last one ends, reading goes on."""
        if self._pauses & reason:
            self._pauses &= ~reason
            if not self._pauses and self._transport is not None:
                self._transport.resume_reading()

    def _read_to_the_end(self) -> None:
        """Read and discard the peer's remaining input: its EOF comes after it."""
        if self._pauses and self._transport is not None:
            self._transport.resume_reading()
        self._pauses = 0
