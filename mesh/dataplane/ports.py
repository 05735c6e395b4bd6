"""Output to one pipe: frames ready to be written, bounded by bytes, and what was not written when it closed.

A `Port` collects the frames of one turn and hands them to its pipe in one call. The pipe's connection takes
all data that waits at once. So when no data waits, everything handed over before has been written: by that
a port knows how many bytes and messages are unwritten, with nothing to do for each frame.

A port is full when ``bytes_out`` has reached ``bytes_max``. Outlets then keep their blocks, and hear when
there is room again. Answers to questions are not under credit and pass a full port;
`mesh.dataplane.sessions` bounds them.

Pure. `Turn` is what one input of the exchange leaves to be done at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from mesh.dataplane.credit import Ingress
    from mesh.dataplane.outlets import Outlet
    from mesh.dataplane.sessions import Session

LONE_S: Final = 0.0002
"""A pipe is written to at once when that has not happened for so long: a lone message's round trip counts.
In a crowd frames share the write at the end of the loop turn."""


Job = Callable[[float], bool]
"""Does one step of long work, some milliseconds; False: it was the last. It takes its part before it does it,
so that one that raises goes on with the next."""


class Pipe(Protocol):
    """What the exchange needs of a pipe (`protocols.pipe.Pipe` has it)."""

    @property
    def unsent(self) -> int:
        """Data frames that wait for the connection, which takes all of them at once."""

    @property
    def remote_address(self) -> str:
        """Where its other end is, as a URL."""

    def send_many(self, frames: Sequence[bytes], /) -> int:
        """Queue as many leading frames as fit; returns how many."""

    def send_control(self, frame: bytes, /) -> None:
        """Queue one frame ahead of data."""

    def notify_writable(self) -> None:
        """Have `Exchange.pipe_writable` called once the data that waits was taken."""

    def flush(self) -> None:
        """Write what is queued now instead of at the end of the loop turn."""

    def close(self, reason: str, *, flush: bool = False) -> None: ...


class Blocked(Protocol):
    """Who waits for a port to have room."""

    def resume(self, now: float) -> None:
        """It has room again."""


class Turn:
    """What one input of the exchange leaves to be done at its end."""

    __slots__ = ("dirty", "due", "ends", "first", "jobs", "unread", "waiting")

    def __init__(self) -> None:
        self.dirty: list[Port] = []
        """Ports with frames for their pipes."""
        self.due: list[Ingress] = []
        """Senders that are owed a grant of credit."""
        self.first: dict[Pipe, None] = {}
        """Pipes that are written to before all others: a publisher waits for an acknowledgement, and what its
        blocks become for others may take a millisecond to write."""
        self.ends: list[Callable[[], None]] = []
        """To be called at its end: they say what gathered in it."""
        self.unread: dict[Session, None] = {}
        """Sessions that may have left too many answers unread."""
        self.waiting: dict[Outlet, None] = {}
        """Outlets in which blocks wait; kept from turn to turn."""
        self.jobs: deque[Job] = deque()
        """Long work, of which one step is done in a loop turn; kept from turn to turn."""

    def work(self, now: float) -> None:
        """Do a step of the job whose turn it is."""
        jobs = self.jobs
        if not jobs:
            return
        job, more = jobs.popleft(), True
        try:
            more = job(now)
        finally:
            if more:
                jobs.append(job)


class Port:
    """The output side of one pipe. ``messages_in`` counts the messages in a frame that it was given."""

    __slots__ = (
        "_bytes_handed",
        "_disowned",
        "_disowned_until",
        "_limit",
        "_messages_handed",
        "_messages_in",
        "_messages_written",
        "blocked",
        "bytes_max",
        "bytes_out",
        "handed_over_at",
        "messages_out",
        "pipe",
        "ready",
        "turn",
        "writes",
    )

    def __init__(self, turn: Turn, pipe: Pipe, bytes_max: int, messages_in: Callable[[bytes], int]) -> None:
        self.turn = turn
        self.pipe = pipe
        self.ready: list[bytes] = []
        """Frames for the pipe, handed over at the end of the turn. Always the same list."""
        self.messages_out = 0
        """Messages that were put into ``ready``, cumulative."""
        self.bytes_out = 0
        self.bytes_max = bytes_max
        """The port is full when ``bytes_out`` has come this far; moved on as the pipe is written."""
        self.blocked: dict[Blocked, None] = {}
        """Those who send no blocks because the port is full."""
        self.writes = 0
        """How often everything handed over was seen to be written."""
        self.handed_over_at = 0.0
        self._limit = bytes_max
        self._messages_in = messages_in
        self._bytes_handed = 0
        self._messages_handed = 0
        self._messages_written = 0
        self._disowned = 0
        self._disowned_until = 0
        """How far ``messages_out`` had come when some were disowned last."""

    @property
    def full(self) -> bool:
        return self.bytes_out >= self.bytes_max

    def wake(self) -> None:
        """To be called before the first frame goes into an empty ``ready``."""
        self.turn.dirty.append(self)

    def send(self, frame: bytes) -> None:
        """A frame that is no message, in order with the messages."""
        if not self.ready:
            self.wake()
        self.ready.append(frame)

    def hand_over(self, now: float) -> None:
        """Give the frames of this turn to the pipe."""
        frames, pipe = self.ready, self.pipe
        if not frames:
            return
        if not pipe.unsent:
            self.written()
        taken = pipe.send_many(frames)
        if taken == len(frames):
            frames.clear()
            self._bytes_handed = self.bytes_out
            self._messages_handed = self.messages_out
        else:
            del frames[:taken]
            self._messages_handed = self.messages_out - sum(map(self._messages_in, frames))
            self.bytes_max = self._bytes_handed  # full until it is written
        if self.blocked or self.bytes_out >= self.bytes_max:
            pipe.notify_writable()
        elif now - self.handed_over_at > LONE_S:
            self.handed_over_at = now
            pipe.flush()

    def written(self) -> None:
        """All that was handed over has been taken by the connection."""
        self.writes += 1
        self._messages_written = self._messages_handed
        self.bytes_max = self._bytes_handed + self._limit

    def discard(self, prefix: bytes) -> int:
        """Take back the frames that begin so and were not handed over; returns the messages in them."""
        gone = [frame for frame in self.ready if frame.startswith(prefix)]
        if not gone:
            return 0
        self.ready[:] = [frame for frame in self.ready if not frame.startswith(prefix)]
        messages = sum(map(self._messages_in, gone))
        self.messages_out -= messages
        return messages

    def disown(self, messages: int) -> None:
        """So many of the last messages at most are owed to nobody any more: who wanted them unsubscribed."""
        if self._messages_written >= self._disowned_until:
            self._disowned = 0
        self._disowned += messages
        self._disowned_until = self.messages_out

    def close(self, *, flushed: bool = False) -> tuple[int, int]:
        """The pipe is closed: returns the messages that were not written, and how many of them at least are
        owed to somebody. ``flushed``: what it was given is still written."""
        if flushed or not self.pipe.unsent:
            self.written()
        self.ready.clear()
        self.blocked.clear()
        lost = self.messages_out - self._messages_written
        self.messages_out = self._messages_written
        disowned = self._disowned if self._messages_written < self._disowned_until else 0
        return lost, max(0, lost - disowned)
