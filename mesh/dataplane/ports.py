"""Output to one pipe: frames ready to be written, bounded by bytes, and what was not written when it closed.

A `Port` collects the frames of one turn and hands them to its pipe in one call. The pipe's connection takes
all waiting data at once. So when no data waits, everything handed over earlier has been written. This tells a
port how many bytes and messages are unwritten, at no cost for each frame.

A port is full when ``bytes_out`` has reached ``bytes_max``. Outlets then keep their blocks until the port
reports room again. Answers to questions need no credit and pass a full port; `mesh.dataplane.sessions` bounds
them.

Pure. A `Turn` collects the work that one input of the exchange leaves for its end.
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
"""A pipe that was not flushed for so long is flushed at once, which shortens the round trip of a lone
message. Under load, frames share the write at the end of the loop turn."""


Job = Callable[[float], bool]
"""Does one step of long work, some milliseconds. False if that was the last step. A job takes its part off
the list before it works, so a job that raises goes on with the next part."""


class Pipe(Protocol):
    """The part of `protocols.pipe.Pipe` that the exchange uses."""

    @property
    def unsent(self) -> int:
        """Data frames that wait for the connection, which takes all of them at once."""

    @property
    def remote_address(self) -> str:
        """The URL of its other end."""

    def send_many(self, frames: Sequence[bytes], /) -> int:
        """Queue as many leading frames as fit; returns how many."""

    def send_control(self, frame: bytes, /) -> None:
        """Queue one frame ahead of data."""

    def notify_writable(self) -> None:
        """Call `Exchange.pipe_writable` once the waiting data was taken."""

    def flush(self) -> None:
        """Write what is queued now instead of at the end of the loop turn."""

    def close(self, reason: str, *, flush: bool = False) -> None: ...


class Blocked(Protocol):
    """Something that waits until a port has room."""

    def resume(self, now: float) -> None:
        """The port has room again."""


class Turn:
    """The work that one input of the exchange leaves for its end."""

    __slots__ = ("dirty", "due", "ends", "first", "jobs", "unread", "waiting")

    def __init__(self) -> None:
        self.dirty: list[Port] = []
        """Ports with frames for their pipes."""
        self.due: list[Ingress] = []
        """Senders that are due a grant of credit."""
        self.first: dict[Pipe, None] = {}
        """Pipes that are written to before all others. Their publishers wait for acknowledgements, and
        writing their blocks for others may take a millisecond."""
        self.ends: list[Callable[[], None]] = []
        """Called at the end of the turn: they send what the turn collected."""
        self.unread: dict[Session, None] = {}
        """Sessions that may have left too many answers unread."""
        self.waiting: dict[Outlet, None] = {}
        """Outlets in which blocks wait. Kept from turn to turn."""
        self.jobs: deque[Job] = deque()
        """Long work; one step of it is done in each loop turn. Kept from turn to turn."""

    def work(self, now: float) -> None:
        """Do one step of the next job."""
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
    """The output side of one pipe. ``messages_in`` counts the messages in a frame given to it."""

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
        """The port is full when ``bytes_out`` reaches this. It grows as the pipe is written."""
        self.blocked: dict[Blocked, None] = {}
        """Outlets that send no blocks because the port is full."""
        self.writes = 0
        """How often everything handed over was found to be written."""
        self.handed_over_at = 0.0
        self._limit = bytes_max
        self._messages_in = messages_in
        self._bytes_handed = 0
        self._messages_handed = 0
        self._messages_written = 0
        self._disowned = 0
        self._disowned_until = 0
        """The value of ``messages_out`` when messages were last disowned."""

    @property
    def full(self) -> bool:
        return self.bytes_out >= self.bytes_max

    def wake(self) -> None:
        """Call this before the first frame goes into an empty ``ready``."""
        self.turn.dirty.append(self)

    def send(self, frame: bytes) -> None:
        """Send a frame that is not a message, in order with the messages."""
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
        """The connection has taken everything that was handed over."""
        self.writes += 1
        self._messages_written = self._messages_handed
        self.bytes_max = self._bytes_handed + self._limit

    def discard(self, prefix: bytes) -> int:
        """Take back the frames with this prefix that were not handed over. Returns the number of messages in
        them."""
        gone = [frame for frame in self.ready if frame.startswith(prefix)]
        if not gone:
            return 0
        self.ready[:] = [frame for frame in self.ready if not frame.startswith(prefix)]
        messages = sum(map(self._messages_in, gone))
        self.messages_out -= messages
        return messages

    def disown(self, messages: int) -> None:
        """At most so many of the last messages are no longer owed to anybody, since their subscribers
        unsubscribed."""
        if self._messages_written >= self._disowned_until:
            self._disowned = 0
        self._disowned += messages
        self._disowned_until = self.messages_out

    def close(self, *, flushed: bool = False) -> tuple[int, int]:
        """The pipe is closed. Returns how many messages were not written, and how many of them, at least, are
        owed to somebody. ``flushed``: the pipe still writes what it was given."""
        if flushed or not self.pipe.unsent:
            self.written()
        self.ready.clear()
        self.blocked.clear()
        lost = self.messages_out - self._messages_written
        self.messages_out = self._messages_written
        disowned = self._disowned if self._messages_written < self._disowned_until else 0
        return lost, max(0, lost - disowned)
