"""One peer, as patterns and sockets see it: an output queue, counters and a way to close.

A pipe joins three parties and knows none of them by class:

* its `Connection` (a transport's side) *pulls* output. When frames are queued, the pipe calls
  ``connection.flush_soon()`` once, and the connection takes everything at the end of the loop turn with
  ``take_output()``. So one turn costs one write, however many messages it produced.
* its `PipeOwner` (a socket) gets whole runs of frames, never one at a time.
* its users ``send`` to it: a full queue refuses, it never grows.

A frame is a whole SP payload, header words and body, without the transport's length prefix. The queue holds
``send_queue`` frames (newest refused, counted in ``refused``); control frames go ahead of data. A weighed
pipe is also full once it holds `HEAVY_BYTES_MAX` of frames above `LIGHT_MAX`: a queue of 1024 bodies of a
megabyte is full long before there are 1024.

Reading from a peer stops while there is any reason to pause it (`INBOX_FULL` and the like), and goes on when
the last one has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from protocols.errors import RemoteProtocolError
from protocols.identity import PeerIdentity

CLOSED_HERE: Final = "closed here"
CLOSED_BY_PEER: Final = "closed by the peer"
CUT_INSIDE_FRAME: Final = "cut inside a frame"
CONNECTION_LOST: Final = "connection lost"
BAD_MESSAGE: Final = "bad message"
NOT_READING: Final = "not reading"
"""Why pipes end, as words for counters (`Pipe.close_cause`). If the peer broke a rule of its codec, the cause
is the reason of that error: ``bad frame``, ``too large`` and those of TLS and WebSocket.
"""

CONTROL_MAX: Final = 4096
"""The most control frames that are queued. A peer that does not read, so that more pile up, loses its
pipe.
"""

LIGHT_MAX: Final = 4096
"""Only the number of frames up to this size is bounded (4 MiB in the default queue of 1024)."""
HEAVY_BYTES_MAX: Final = 16 << 20
"""Bytes of larger frames that one pipe holds; one frame is always taken, however large."""

INBOX_FULL: Final = 1
HELD: Final = 2
PARKED: Final = 4
"""Reasons to pause reading, each one bit of a set: nobody takes what the peer sent; a device holds a run of
the peer's; a device parks answers that the peer does not take.
"""


def heavy_bytes(frames: Iterable[bytes]) -> int:
    return sum(size for size in map(len, frames) if size > LIGHT_MAX)


class Connection(Protocol):
    """The transport's side of a pipe: an open duplex channel of frames whose handshake is complete."""

    @property
    def peer(self) -> int:
        """The peer's protocol number, from its header."""

    @property
    def local_address(self) -> str: ...

    @property
    def remote_address(self) -> str: ...

    @property
    def identity(self) -> PeerIdentity | None:
        """The peer's identity, if the transport can tell."""

    @property
    def descriptor(self) -> int:
        """The number of its file descriptor; -1 without one."""

    def start(self, pipe: Pipe) -> None:
        """Deliver frames to ``pipe`` from now on, beginning with those that arrived early."""

    def flush_soon(self) -> None:
        """Take the pipe's output once, at the end of this loop turn (later if the kernel is full).

        Write the result of ``pipe.take_output()``, then call ``pipe.output_written()``.
        """

    def write_now(self, frame: bytes) -> bool:
        """Write one frame past the pipe's queue, which is empty.

        Returns False, and writes nothing, if that would have to wait.
        """

    def flush_now(self) -> None:
        """Do at once what `flush_soon` has scheduled, if the kernel has room. The owner hears of the room
        later.
        """

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Close once all taken and queued output has been written."""

    def abort(self, error: RemoteProtocolError | None = None) -> None:
        """Drop the connection now. An ``error`` means that the peer broke a rule.

        The place where the connection was made counts and logs the error.
        """

    def abort_soon(self) -> None:
        """Call `abort` in a later loop turn, for callers that may be inside a callback of the owner."""

    def wait_closed(self) -> Awaitable[None]:
        """Return once nothing is left of the connection: all written and the peer gone, or aborted."""


class PipeOwner(Protocol):
    """The methods that a socket offers to its pipes."""

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        """Frames arrived, in order. The owner may keep the list."""

    def pipe_writable(self, pipe: Pipe) -> None:
        """A pipe that refused a frame has room again."""

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        """The pipe takes and delivers nothing more. Called exactly once."""

    def pipe_gone(self, pipe: Pipe) -> None:
        """Nothing is left of the pipe's connection, which may have drained until now."""


@dataclass(frozen=True, slots=True)
class PipeStatistics:
    """A snapshot of one pipe's counters; frames and bytes are cumulative, ``queued`` is current."""

    frames_in: int
    bytes_in: int
    frames_out: int
    bytes_out: int
    refused: int
    queued: int


class Pipe:
    """One attached peer.

    ``id`` is 31 bits, not zero and unique among its socket's pipes. ``url`` is the address that was dialled
    or listened on. A ``closed`` pipe takes and delivers nothing more. The owner is told once, in the same
    call, except for a pipe that `send_control` gave up: then it is told in a later loop turn.
    """

    __slots__ = (
        "_control",
        "_frames_in",
        "_heavy_bytes",
        "_limit",
        "_output",
        "_pauses",
        "_scheduled",
        "_starved",
        "_told",
        "_weighed",
        "bytes_in",
        "bytes_out",
        "close_cause",
        "close_reason",
        "closed",
        "connection",
        "context",
        "dialed",
        "frames_out",
        "id",
        "linger_s",
        "owner",
        "refused",
        "url",
        "view",
    )

    def __init__(
        self,
        id: int,
        connection: Connection,
        owner: PipeOwner,
        *,
        url: str,
        dialed: bool,
        limit: int,
        weighed: bool = True,
    ) -> None:
        self.id = id
        self.connection = connection
        self.owner = owner
        self.url = url
        self.dialed = dialed
        self.closed = False
        self.close_cause = ""
        """One of a few fixed words, for counters; empty while the pipe is open."""
        self.close_reason = ""
        """The same as a sentence, for people."""
        self.linger_s: float | None = 1.0
        """Seconds that closing with ``flush`` waits; None means no limit."""
        self.context: object = None  # the owner's own record for this peer, which saves a dict look-up
        self.view: object = None  # the view that users see, made on demand (`protocols.pipe_view`)
        self.refused = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._frames_in = 0
        self.frames_out = 0
        self._limit = limit
        self._weighed = weighed
        self._heavy_bytes = 0
        self._pauses = 0
        self._output: list[bytes] = []
        self._control: list[bytes] = []
        self._scheduled = False
        self._starved = False
        self._told = False  # True once the owner knows that this is the end

    # --- what holders of the pipe call

    @property
    def peer(self) -> int:
        """The peer's protocol number."""
        return self.connection.peer

    @property
    def remote_address(self) -> str:
        return self.connection.remote_address

    @property
    def local_address(self) -> str:
        return self.connection.local_address

    @property
    def identity(self) -> PeerIdentity | None:
        """The peer's identity, if the transport can tell: its certificate, or its process over ipc."""
        return self.connection.identity

    @property
    def full(self) -> bool:
        """True when ``send`` would refuse."""
        return self.closed or len(self._output) >= self._limit

    @property
    def paused(self) -> bool:
        """True if there is a reason not to read from this peer."""
        return bool(self._pauses)

    @property
    def queued(self) -> int:
        """Frames that wait for the connection."""
        return len(self._output) + len(self._control)

    @property
    def unsent(self) -> int:
        """The number of data frames that wait; the others are control frames."""
        return len(self._output)

    @property
    def taken(self) -> int:
        """Frames taken so far, including those that wait."""
        return self.frames_out + len(self._output) + len(self._control)

    def send(self, frame: bytes) -> bool:
        """Queue one frame; return False (and count it) when the queue is full or the pipe closed."""
        if self._weighed and len(frame) > LIGHT_MAX and not self._weigh(len(frame)):
            return False
        if len(self._output) >= self._limit or self.closed:
            self._refuse(1)
            return False
        self._output.append(frame)  # looked up again: a signal handler may have sent, and all been taken
        if not self._scheduled:
            self._scheduled = True
            self.connection.flush_soon()
        return True

    def send_now(self, frame: bytes) -> bool:
        """Like `send`, but written in this call if possible: for a frame that shares its write with no other.

        It saves the loop turn in which `send` waits for more frames (a quarter of a round trip).
        """
        if self._scheduled or self.closed or not self.connection.write_now(frame):
            return self.send(frame)
        self.frames_out += 1
        return True

    def send_many(self, frames: Sequence[bytes]) -> int:
        """Queue as many leading frames as there is room for; return how many."""
        if self._weighed and frames and max(map(len, frames)) > LIGHT_MAX:
            return self._send_one_by_one(frames)
        room = 0 if self.closed else self._limit - len(self._output)
        taken = min(room, len(frames))
        if taken > 0:
            piece = frames if taken == len(frames) else islice(frames, taken)
            self._output += piece  # no call in between, as in `send`
            self._flush_soon()
        if taken < len(frames):
            self._refuse(len(frames) - max(taken, 0))
        return max(taken, 0)

    def send_all(self, frames: Sequence[bytes]) -> bool:
        """Queue all frames or none; return False (and count them) if there is not room for all."""
        heavy = heavy_bytes(frames) if self._weighed else 0
        too_heavy = heavy and self._heavy_bytes and self._heavy_bytes + heavy > HEAVY_BYTES_MAX
        if too_heavy or self.closed or len(frames) > self._limit - len(self._output):
            self._refuse(len(frames))
            return False
        if frames:
            self._output += frames
            self._heavy_bytes += heavy
            self._flush_soon()
        return True

    def displace(self, frames: Sequence[bytes]) -> int:
        """Queue these frames in place of the oldest; return how many were dropped."""
        if self.closed:
            return len(frames)
        output = self._output
        output += frames
        oldest = max(len(output) - self._limit, 0)
        if self._weighed:
            heavy = self._heavy_bytes + heavy_bytes(frames) - heavy_bytes(output[:oldest])
            while heavy > HEAVY_BYTES_MAX and oldest < len(output) - 1:
                heavy -= heavy_bytes(output[oldest : oldest + 1])
                oldest += 1
            self._heavy_bytes = heavy
        del output[:oldest]
        self._flush_soon()
        return oldest

    def make_room(self, count: int) -> None:
        """Write what is queued now if ``count`` frames would not fit beside it.

        For callers that pass on what peers send: several peers may be read in one loop turn, each with a
        queue full.
        """
        if self._output and len(self._output) + count > self._limit:
            self.flush()

    def send_control(self, frame: bytes) -> None:
        """Queue a frame ahead of all data. A peer that lets `CONTROL_MAX` of them pile up loses its pipe.

        This never calls the owner back, which sends control frames in the middle of its own work.
        """
        if self.closed:
            return
        if len(self._control) >= CONTROL_MAX:
            self.closed = True
            self.close_cause = NOT_READING
            self.close_reason = f"{CONTROL_MAX} control frames unread"
            self.connection.abort_soon()
            return
        self._control.append(frame)
        self._flush_soon()

    def flush(self) -> None:
        """Write what is queued now, not at the end of the loop turn: for a single message that somebody waits
        for.
        """
        if self._scheduled and not self._starved and not self.closed:
            self.connection.flush_now()

    def notify_writable(self) -> None:
        """Call the owner's ``pipe_writable`` once the waiting data has been taken, as after a refusal.

        If no data waits, nothing is called.
        """
        if self._output:
            self._starved = True

    def pause(self, reason: int) -> None:
        """Stop reading from this peer while this reason lasts; TCP then slows the peer down."""
        if not self._pauses and not self.closed:
            self.connection.pause_reading()
        self._pauses |= reason

    def resume(self, reason: int) -> None:
        """End this reason; when the last one ends, reading goes on."""
        if not self._pauses:
            return
        self._pauses &= ~reason
        if not self._pauses and not self.closed:
            self.connection.resume_reading()

    def close(self, reason: str, *, flush: bool = False) -> None:
        """Drop the peer now, or with ``flush`` once everything queued has been written."""
        if self._told:
            return
        self.connection_lost(reason, CLOSED_HERE)  # first: records our reason, and stops further queueing
        if flush:
            self.connection.close()
        else:
            self.connection.abort()

    def reject(self, sentence: str) -> None:
        """Drop the peer now: it broke a rule of the pattern, as ``sentence`` says."""
        if self._told:
            return
        self.connection_lost(sentence, BAD_MESSAGE)
        self.connection.abort(RemoteProtocolError(sentence, reason=BAD_MESSAGE))

    def statistics(self) -> PipeStatistics:
        return PipeStatistics(
            self._frames_in, self.bytes_in, self.frames_out, self.bytes_out, self.refused, self.queued
        )

    # --- what the connection calls

    def take_output(self) -> list[bytes]:
        """Take everything queued, control frames first; the queue is empty afterwards. `output_written`
        follows.
        """
        output: list[bytes] = []
        self.move_output(output)
        self.frames_out += len(output)
        return output

    def move_output(self, taken: list[bytes]) -> None:
        """Take everything queued, and append it to ``taken``. The caller counts these frames in
        ``frames_out``.

        Each frame is in the queue or in ``taken``, wherever Ctrl-C or a signal handler interrupts this call.
        """
        nothing: list[bytes] = []
        no_control: list[bytes] = []
        # No call and no new object until the queue is empty: a signal handler could run there.
        taken += self._control
        taken += self._output
        self._control = no_control
        self._output = nothing
        self._scheduled = False
        self._heavy_bytes = 0

    def output_written(self) -> None:
        """The taken output is on its way: tell an owner that was refused about the room."""
        if self._starved:
            self._starved = False
            if not self.closed:
                self.owner.pipe_writable(self)

    def look_again(self) -> None:
        """An interrupted call may have used the pipe: tell the owner about room once more after the next
        `take_output`.
        """
        self._starved = True

    def deliver(self, frames: list[bytes]) -> None:
        """A run of frames arrived."""
        self._frames_in += len(frames)
        if not self.closed:
            self.owner.pipe_received(self, frames)

    def connection_lost(self, reason: str, cause: str = CONNECTION_LOST) -> None:
        """The connection ended, by either side. The owner is told once.

        ``reason`` is a sentence, ``cause`` one of the words above.
        """
        if self._told:
            return
        self._told = True
        if not self.closed:
            self.closed = True
            self.close_cause = cause
            self.close_reason = reason
        self.owner.pipe_closed(self, self.close_reason)

    def connection_gone(self) -> None:
        """Nothing is left of the connection; follows `connection_lost`."""
        self.owner.pipe_gone(self)

    # ---

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.connection.flush_soon()

    def _weigh(self, size: int) -> bool:
        """Return True if a large frame may be queued; its weight then counts."""
        too_heavy = self._heavy_bytes and self._heavy_bytes + size > HEAVY_BYTES_MAX
        if too_heavy or self.full:
            self._refuse(1)
            return False
        self._heavy_bytes += size
        return True

    def _send_one_by_one(self, frames: Sequence[bytes]) -> int:
        for sent, frame in enumerate(frames):
            if not self.send(frame):
                self.refused += len(frames) - sent - 1
                return sent
        return len(frames)

    def _refuse(self, count: int) -> None:
        self.refused += count
        self._starved = True
