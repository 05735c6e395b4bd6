"""A connection over a stream, driven by the I/O thread of a blocking socket.

The counterpart of `protocols.transports.stream` without an event loop. Every function is called with the
socket's lock: by its I/O thread when the kernel has events, and by a calling thread at the end of a call, to
write what that call queued.

Only the I/O thread ends a stream. A calling thread may be inside a loop of its pattern over all peers, and
Ctrl-C or a signal handler may interrupt it anywhere. It only notes an error; the I/O thread acts on it.

Python checks for signals at the beginning of a function, after a call of C code, and when a loop repeats. So
a single step both hands bytes to the kernel and records how many it took (`_write`). Frames stay in
``_encoding`` until all their bytes are in ``_unsent``, which holds whole frames only. The I/O thread
completes what an interrupted call left undone (`look_again`).

```
OPENING -good handshake-> RUNNING --close()--> DRAINING
   |                         |                    |
   +---- bad handshake, deadline, EOF, abort, broken frame, lost link ----> CLOSED
```
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from enum import Enum
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE
from typing import Final, Protocol

from protocols.errors import HandshakeError, RemoteProtocolError
from protocols.identity import PeerIdentity
from protocols.pipe import CLOSED_BY_PEER, CLOSED_HERE, CONNECTION_LOST, CUT_INSIDE_FRAME, Pipe
from protocols.transports.outgoing import PIECE, limit_hint
from protocols.wire.codec import Codec

READ_SIZE: Final = 65536
REPLIES_MAX: Final = 1 << 20
"""Bytes that a codec may owe to a peer that does not read them."""
HALF_ENCODED: Final = "an interrupt came while a message was encoded"


class State(Enum):
    OPENING = "opening"
    RUNNING = "running"
    DRAINING = "draining"
    CLOSED = "closed"


class Mover(Protocol):
    """The I/O thread, as its streams see it."""

    def watch(self, stream: Stream, events: int) -> None:
        """Call the stream when it is readable or writable; 0 ends this."""

    def flush_at_the_end(self, stream: Stream) -> None:
        """Call ``stream.flush()`` at the end of this call or this round of events."""

    def call_at(self, deadline: float, callback: Callable[[], None]) -> None: ...

    def time(self) -> float: ...


class Stream:
    """See the module. ``opened`` is called when the handshake of an accepted stream is complete."""

    def __init__(
        self,
        mover: Mover,
        sock: socket.socket,
        codec: Codec,
        *,
        local_address: str,
        remote_address: str,
        identity: PeerIdentity | None,
        opened: Callable[[Stream], None] | None = None,
    ) -> None:
        self.sock = sock
        self.local_address = local_address
        self.remote_address = remote_address
        self.state = State.RUNNING if opened is None else State.OPENING
        self.on_end: Callable[[Stream], None] | None = None
        self.failure: RemoteProtocolError | None = None
        """The rule that the peer broke."""
        self.bytes_before: tuple[int, int] = (0, 0)
        """Bytes received and sent before there was a pipe."""
        self._mover = mover
        self._codec = codec
        self._identity = identity
        self._opened = opened
        self._pipe: Pipe | None = None
        self._unsent = bytearray()
        self._large = 0  # the size of the last written buffer that was larger than a piece
        self._owed = 0  # bytes of replies added to `_unsent` since it was last empty
        self._encoding: list[bytes] = []  # taken from the pipe, and not in `_unsent` yet
        self._paused = False
        self._finished = False  # our direction is closed
        self._watched = 0
        if opened is not None:
            self._owe(codec.begin())
            if codec.failure is not None:
                self._fail(codec.failure)
                return
            self._write()
        self._watch()

    # --- Connection: what pipes call

    @property
    def peer(self) -> int:
        return self._codec.peer

    @property
    def identity(self) -> PeerIdentity | None:
        return self._identity or self._codec.identity

    @property
    def descriptor(self) -> int:
        return self.sock.fileno()

    def start(self, pipe: Pipe) -> None:
        self._pipe = pipe
        received, sent = self.bytes_before
        pipe.bytes_in += received
        pipe.bytes_out += sent

    def flush_soon(self) -> None:
        self._mover.flush_at_the_end(self)

    def write_now(self, frame: bytes) -> bool:
        """Write nothing: the end of the call does that."""
        return False

    def flush_now(self) -> None:
        if self.state is State.RUNNING:
            self._write_queued()

    def pause_reading(self) -> None:
        self._paused = True
        self._watch()

    def resume_reading(self) -> None:
        self._paused = False
        self._watch()

    def close(self) -> None:
        if self.state is not State.RUNNING or self._pipe is None:
            self.abort()
            return
        self.state = State.DRAINING
        if self._pipe.linger_s is not None:
            self._mover.call_at(self._mover.time() + self._pipe.linger_s, self.abort)
        self._mover.flush_at_the_end(self)

    def abort(self, error: RemoteProtocolError | None = None) -> None:
        if error is None:
            self._end("closed by this end", CLOSED_HERE)
        else:
            self.failure = error
            self._end(str(error), error.reason)

    def abort_soon(self) -> None:
        self._mover.call_at(self._mover.time(), self.abort)

    async def wait_closed(self) -> None:
        raise AssertionError("nobody awaits here")

    # --- what the I/O thread calls

    def flush(self) -> None:
        """Write what is queued, as far as the kernel takes it; then tell the owner of the room."""
        if self.state is State.CLOSED or not self._write() or self._pipe is None:
            return
        self._write_queued()
        if self._encoding:  # the interrupted call, or the I/O thread, goes on with it
            return
        if self.state is State.RUNNING:
            self._pipe.output_written()
        elif self.state is State.DRAINING and not self._unsent and not self._pipe.queued:
            self._finish()

    def happened(self, events: int) -> None:
        """Handle events from the kernel."""
        if self._encoding:
            self.look_again()
        if events & EVENT_READ:
            self._read()
        if events & EVENT_WRITE:
            self.flush()

    def look_again(self) -> None:
        """In the I/O thread: Ctrl-C interrupted a call of another thread."""
        pipe = self._pipe
        if self.state is State.CLOSED or pipe is None:
            return
        if self._encoding and not self._codec.repeatable:
            self._end(HALF_ENCODED, CLOSED_HERE)
            return
        if self._encoding:
            self._encode(pipe)
        self._paused = pipe.paused
        self._watched = -1
        self._watch()
        pipe.look_again()
        self._mover.flush_at_the_end(self)

    def late(self, waited_s: float) -> None:
        """The time for the handshake is over."""
        if self.state is State.OPENING:
            sentence = f"{self._codec.progress()} after {waited_s:g} s"
            self._fail(HandshakeError(sentence, reason="timeout"))

    def early(self, frames: list[bytes]) -> None:
        """The frames that came with the handshake."""
        if frames and self._pipe is not None:
            self._pipe.deliver(frames)

    # ---

    def _read(self) -> None:
        if self.state is State.CLOSED:
            return
        try:
            data = self.sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(f"connection lost: {error.strerror or error}", CONNECTION_LOST)
            return
        if not data:
            inside = self._codec.inside_frame
            self._end(
                "closed by the peer inside a frame" if inside else CLOSED_BY_PEER,
                CUT_INSIDE_FRAME if inside else CLOSED_BY_PEER,
            )
            return
        if self.state is State.DRAINING:
            return  # discard it: nobody reads it any more
        if self._pipe is None:
            self.bytes_before = self.bytes_before[0] + len(data), self.bytes_before[1]
        else:
            self._pipe.bytes_in += len(data)
        frames = self._codec.receive(data)
        if self.state is State.OPENING and self._codec.peer:
            self.state = State.RUNNING
            assert self._opened is not None
            self._answer()
            self._opened(self)
        if frames and self._pipe is not None:
            self._pipe.deliver(frames)
        if self.state is State.CLOSED or self.state is State.DRAINING:
            return  # the receiver of these frames closed the stream
        self._answer()
        if self._codec.failure is not None:
            self._fail(self._codec.failure)
        elif self._codec.ended:
            words = self._codec.last_words
            self._end(f"{CLOSED_BY_PEER}: {words}" if words else CLOSED_BY_PEER, CLOSED_BY_PEER)

    def _answer(self) -> None:
        """Write what the codec owes. If the peer reads none of it, stop reading from the peer."""
        reply, self._codec.reply = self._codec.reply, b""
        self._owe(reply)
        self._owed += len(reply)
        self._write()

    def _owe(self, data: bytes) -> None:
        self._unsent += data
        if self._pipe is None:
            self.bytes_before = self.bytes_before[0], self.bytes_before[1] + len(data)
        else:
            self._pipe.bytes_out += len(data)

    def _write_queued(self) -> None:
        """Write until the queue is empty or the kernel is full. A signal handler may queue more meanwhile."""
        pipe, frames = self._pipe, self._encoding
        if pipe is None or frames:  # in a signal handler, or after Ctrl-C ended a call
            return
        while not self._unsent:
            pipe.move_output(frames)
            if not frames:
                return
            self._encode(pipe)
            self._write()

    def _encode(self, pipe: Pipe) -> None:
        """Move the frames to `_unsent`, all of them in one step."""
        encoded = bytearray()
        for part in self._codec.encode(self._encoding):
            encoded += part
            if len(part) > PIECE:
                self._large = len(part)
        size, count = len(encoded), len(self._encoding)
        # No call from here on.
        self._unsent += encoded
        pipe.bytes_out += size
        pipe.frames_out += count
        del self._encoding[:]

    def _write(self) -> bool:
        """Give the kernel what it takes; return False while something is left."""
        unsent = self._unsent
        try:
            while unsent:
                for taken in map(self.sock.send, (unsent,)):  # no signal comes between these two steps
                    del unsent[:taken]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lost(error)
            return False
        if not unsent:
            self._owed = 0
        self._watch()
        return not unsent

    def _lost(self, error: OSError) -> None:
        """Nothing more can be written: end the stream once no call is under way."""
        self._mover.call_at(self._mover.time(), partial(self._end_lost, error))

    def _end_lost(self, error: OSError) -> None:
        """Nothing more can be written, but the peer's reason for leaving may still be readable."""
        codec = self._codec
        with contextlib.suppress(OSError):
            while not codec.ended and codec.failure is None and (data := self.sock.recv(READ_SIZE)):
                codec.receive(data)
        if codec.ended and codec.last_words:
            self._end(f"{CLOSED_BY_PEER}: {codec.last_words}", CLOSED_BY_PEER)
        else:
            self._end(f"connection lost: {error.strerror or error}", CONNECTION_LOST)

    def _finish(self) -> None:
        """All is written: send the codec's farewell, close our direction and wait for the peer to close its
        own.
        """
        if not self._finished:
            self._finished = True
            self._owe(self._codec.end())
            if not self._write():
                return  # `flush` comes here again
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def _fail(self, error: RemoteProtocolError) -> None:
        """The peer broke a rule: write the codec's farewell if the kernel takes it."""
        self._unsent += self._codec.reply
        with contextlib.suppress(OSError):
            if self._unsent:
                self.sock.send(self._unsent)
        self.failure = error
        self._end(str(error), error.reason)

    def _watch(self) -> None:
        """Have the I/O thread watch for what this stream needs.

        A signal handler may send within `watch`, and need more. So record what is watched after the call,
        and compare again.
        """
        while (wanted := self._needed()) != self._watched:
            self._mover.watch(self, wanted)
            self._watched = wanted

    def _needed(self) -> int:
        if self.state is State.CLOSED:
            return 0
        held = self._paused and self.state is State.RUNNING
        unheard = self._owed > REPLIES_MAX
        return (0 if held or unheard else EVENT_READ) | (EVENT_WRITE if self._unsent else 0)

    def _end(self, reason: str, cause: str) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        if cause == CONNECTION_LOST:
            reason += limit_hint(self._large)
        self._watch()
        self.sock.close()
        if self._pipe is not None:
            self._pipe.connection_lost(reason, cause)
            self._pipe.connection_gone()
        if self.on_end is not None:
            self.on_end(self)
