"""The interface of a pattern: a pure machine between the pipes of one socket and its readers and writers.

The shell (`protocols.socket`, `protocols.context`) and a pattern talk in one loop turn, without waiting:

* The shell reports pipes: ``pipe_attached``, ``pipe_detached``, ``pipe_writable`` and, with a whole run of
  frames, ``received``. It also reports time: ``deadline_reached``, no earlier than ``next_deadline()`` said.
* Readers and writers go through a *lane*: the socket's own, or that of a context. The caller must wait when
  ``put`` or ``send`` returns False, or ``take`` or ``recv`` returns None.
* The pattern calls ``lane.readable(count)`` and ``lane.writable()`` when waiting may be over. A woken waiter
  asks again. Nothing is handed to a waiter, so cancelling one loses no message.

There are two kinds of lane. A `QueueLane` has no state but its queue (pair, bus, pub/sub, push/pull). The
shell pops its inbox directly, without a call. A `StateLane` follows the turns of a conversation (req/rep,
survey) and is given the time.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, Generic, TypeVar

from protocols.errors import NotSupported, PipeRefused, StateError
from protocols.options import SocketOptions
from protocols.pipe import HEAVY_BYTES_MAX, INBOX_FULL, LIGHT_MAX, Pipe, heavy_bytes
from protocols.wire.handshake import PEER_OF, ProtocolNumber, protocol_name

T = TypeVar("T")


def nobody_reads(count: int) -> None:
    """The ``readable`` of a lane that has no shell yet."""


def nobody_writes() -> None:
    """The ``writable`` of a lane that has no shell yet."""


class Lane:
    """One reader's and writer's access to a pattern."""

    def __init__(self) -> None:
        self.readable: Callable[[int], None] = nobody_reads
        """Called by the pattern: up to ``count`` waiting readers should ask again."""
        self.writable: Callable[[], None] = nobody_writes
        """Called by the pattern: waiting writers should ask again."""

    def close(self) -> None:
        """Drop everything that this lane has under way."""


class QueueLane(Lane):
    """A lane with an inbox and a queue for output."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: deque[bytes] = deque()
        """The bodies that may be taken. The shell pops them directly and calls `emptied` after the last. If
        it finds the inbox empty, it calls `take`.
        """

    def take(self) -> bytes | None:
        """Return the next body, or None: wait. Raises `NotSupported`."""
        return self.inbox.popleft() if self.inbox else None

    def origin(self) -> Pipe:
        """The peer that sent the last body taken; ask at once. Raises `NotSupported`."""
        raise NotSupported("this pattern only sends")

    def emptied(self) -> None:
        """The shell took the last body of the inbox: paused peers may go on."""

    def put(self, body: bytes) -> bool:
        """Send one body; False means: wait until ``writable``. Raises `NotSupported`."""
        raise NotSupported("this pattern only receives")

    def put_many(self, bodies: Sequence[bytes]) -> int:
        """Send as many leading bodies as there is room for; return their number."""
        return len(bodies) if all(map(self.put, bodies)) else 0  # overridden wherever `put` may refuse


class StateLane(Lane, ABC):
    """One conversation."""

    timed: ClassVar[bool] = True
    """True if sending may set a deadline."""
    exclusive: ClassVar[bool] = False
    """True if only one `recv` may wait at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        """Counts requests, surveys, or questions taken. A call that waits in an earlier epoch has been
        superseded.
        """

    @abstractmethod
    def send(self, body: bytes, now: float, epoch: int | None = None) -> bool:
        """Send a body; False means: wait until ``writable``, then call again.

        The call after a wait passes the ``epoch`` in which it began to wait, so that it can only finish what
        it began. Raises `StateError`, also when that epoch is over.
        """

    def origin(self) -> Pipe:
        """The peer that sent the last body from `recv`; ask at once."""
        raise AssertionError("a lane that gives bodies knows where they came from")

    def check_epoch(self, epoch: int | None) -> None:
        """Raise `StateError` for a sender that waited in an earlier epoch than this."""
        if epoch is not None and epoch != self.epoch:
            raise StateError("replaced: this conversation went on while send waited for room")

    @abstractmethod
    def recv(self, now: float, waited: bool) -> bytes | None:
        """Return the next body, or None: wait until ``readable``.

        ``waited`` is true for a reader that has waited, false for a new one. Raises `StateError`. For a
        reader that waited, it raises `Timeout` when what it waited for is over.
        """


class Pattern(ABC):
    """One protocol role. The shell calls all hooks in loop turns.

    A hook may not wait, and may raise only where its docstring says so. It may not keep a list that it is
    given, except ``frames``, which it owns.
    """

    protocol: ProtocolNumber
    lane: Lane
    """The lane of the socket itself."""
    hears_time: ClassVar[bool] = False
    """True if `received` uses ``now``; otherwise ``now`` may be 0."""
    shared_inbox: ClassVar[bool] = False
    """True if all lanes take from one queue, so that a message needs to wake only one of all readers."""

    deadlines_ascend: ClassVar[bool] = False
    """True if a new deadline is never earlier than an existing one, so that a timer that is set stays
    valid.
    """

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        self.options = options
        self.rng = rng
        self.drops: dict[str, int] = {}
        """The number of messages given up, by reason."""

    @property
    def peer(self) -> ProtocolNumber:
        """The protocol of our peers."""
        return PEER_OF[self.protocol]

    @property
    def name(self) -> str:
        return protocol_name(self.protocol)

    def open_lane(self) -> Lane:
        """Open a lane for a context. Raises `NotSupported`."""
        raise NotSupported(f"{self.name} sockets have no contexts")

    @abstractmethod
    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        """A peer has attached and may be sent to at once. Raises `PipeRefused`: then it never was
        attached.
        """

    @abstractmethod
    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        """The peer is gone. Called once for each peer that was attached."""

    @abstractmethod
    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        """A run of frames arrived, at least one."""

    @abstractmethod
    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        """A pipe that refused a frame has room again."""

    def next_deadline(self) -> float | None:
        """The time at which `deadline_reached` must be called unless something else happens first."""
        return None

    def deadline_reached(self, now: float) -> None:
        """The time is ``now``, which may be later than the deadline."""
        raise AssertionError(f"{self.name} has no deadlines")

    def count_lost(self, pipe: Pipe) -> None:
        """Count messages lost because the peer left, by its own doing, before we could send them."""
        self.count_drop("peer lost", pipe.queued)

    def count_drop(self, reason: str, count: int = 1) -> None:
        if count:
            self.drops[reason] = self.drops.get(reason, 0) + count

    def give_up(self, count: int, reason: str) -> int:
        """How many messages without room are dropped and counted: with ``best_effort`` all, otherwise
        none.
        """
        if not self.options.best_effort:
            return 0
        self.count_drop(reason, count)
        return count


ORPHANS_MAX: Final = 64
"""The number of runs that an inbox keeps from peers that filled it and left. Beyond that, no new peer is
admitted until it is read.

Without this bound, peers could fill memory by repeatedly connecting, sending as much as one read takes, and
leaving.
"""


class Intake(Generic[T]):
    """An inbox of ``limit`` items that stops reading from peers instead of dropping.

    A peer whose run fills the inbox is paused. It goes on when the inbox is empty, or when another peer's run
    has come and there is room: the inbox may never be empty while that other peer sends. The bound may be
    exceeded by one run for each peer (what one read of ``read_budget`` bytes holds), and by `ORPHANS_MAX`
    runs of peers that left. `HEAVY_BYTES_MAX` of large frames fill it too. Only the first frame of a run can
    be larger than a read, so only that one is weighed.
    """

    def __init__(self, limit: int) -> None:
        self.inbox: deque[T] = deque()
        self._limit = limit
        self._paused: dict[int, Pipe] = {}
        self._heavy_bytes = 0  # since it was last found empty
        self._orphans = 0

    def admit(self) -> None:
        """Check a new peer. Raises `PipeRefused` while too many peers have filled the inbox and left."""
        if self._orphans >= ORPHANS_MAX:
            raise PipeRefused(f"{self._orphans} peers filled the inbox and left; nobody has read it since")

    def discard(self, pipe: Pipe) -> None:
        """A peer left; its messages stay."""
        if self._paused.pop(pipe.id, None) is not None:
            self._orphans += 1

    def add(self, pipe: Pipe, items: Sequence[T], first_size: int) -> None:
        """Add a peer's run, given the size of its first frame."""
        self.inbox += items
        if first_size > LIGHT_MAX:
            self._heavy_bytes += first_size
        if len(self.inbox) >= self._limit or self._heavy_bytes >= HEAVY_BYTES_MAX:
            self._paused[pipe.id] = pipe
            pipe.pause(INBOX_FULL)
        elif self._paused or self._orphans:
            self._read_on()

    def take(self) -> T | None:
        """Return the next item, or None. Taking the last one resumes the peers, since other readers may wait
        for more.
        """
        inbox = self.inbox
        item = inbox.popleft() if inbox else None
        if not inbox:
            self.resume()
        return item

    def resume(self) -> None:
        """Resume reading: the inbox is empty."""
        self._heavy_bytes = 0
        if self._paused or self._orphans:
            self._read_on()

    def _read_on(self) -> None:
        """Resume the paused peers if the inbox is below its limit, counting messages of peers that left."""
        self._orphans = 0
        for pipe in list(self._paused.values()):  # each stays listed until it resumes: Ctrl-C may end this
            pipe.resume(INBOX_FULL)
            self._paused.pop(pipe.id, None)


class Origins:
    """Records which peer sent which body of an inbox, once for each run, so that only bodies are queued.

    Positions count all bodies ever added; removed bodies are the first ones.
    """

    __slots__ = ("_added", "_inbox", "_runs")

    def __init__(self, inbox: deque[bytes]) -> None:
        self._inbox = inbox
        self._added = 0
        self._runs: deque[list[Any]] = deque()  # the position after the run, and its peer

    def add(self, pipe: Pipe, count: int) -> None:
        """Record that this peer added ``count`` bodies at the inbox's end."""
        self._added += count
        runs = self._runs
        if runs and runs[-1][1] is pipe:
            runs[-1][0] = self._added
        else:
            gone = self._added - count - len(self._inbox)
            while len(runs) > 1 and runs[0][0] <= gone:
                runs.popleft()
            runs.append([self._added, pipe])

    def last(self) -> Pipe:
        """The peer that sent the last body taken."""
        position = self._added - len(self._inbox) - 1
        runs = self._runs
        while runs[0][0] <= position:
            runs.popleft()
        pipe: Pipe = runs[0][1]
        return pipe

    def keep(self, wanted: Callable[[bytes], bool]) -> int:
        """Keep only the wanted bodies of the inbox; return the number removed."""
        before = list(self._inbox)
        pipes = self._pipes(len(before))
        self._inbox.clear()
        self._runs.clear()
        for body, pipe in zip(before, pipes, strict=True):
            if wanted(body):
                self._inbox.append(body)
                self.add(pipe, 1)
        return len(before) - len(self._inbox)

    def _pipes(self, count: int) -> list[Pipe]:
        pipes: list[Pipe] = []
        position = self._added - count
        for end, pipe in self._runs:
            pipes += [pipe] * max(end - position, 0)
            position = max(end, position)
        return pipes


class LossyInbox:
    """An inbox of ``limit`` bodies that drops: the oldest of all (``prefer_new``), or the newest.

    It holds `HEAVY_BYTES_MAX` of large bodies, or one. Only the first body of a run can be larger than a
    read, so only that one is weighed on arrival. When the limit seems near, it counts what readers have taken
    meanwhile.
    """

    def __init__(self, limit: int, *, prefer_new: bool) -> None:
        self.inbox: deque[bytes] = deque()
        self.origins = Origins(self.inbox)
        self._limit = limit
        self._prefer_new = prefer_new
        self._heavy_bytes = 0  # an upper bound of what is there

    def add(self, pipe: Pipe, bodies: list[bytes]) -> int:
        """Add a peer's run of at least one body; return how many bodies were dropped in all."""
        inbox = self.inbox
        if len(bodies[0]) > LIGHT_MAX and self._too_heavy(len(bodies[0])):
            return self._drop_old(pipe, bodies) if self._prefer_new else len(bodies)
        excess = len(inbox) + len(bodies) - self._limit
        if excess <= 0:
            inbox += bodies
            self.origins.add(pipe, len(bodies))
            return 0
        if self._prefer_new:
            return self._drop_old(pipe, bodies)
        kept = max(self._limit - len(inbox), 0)
        if kept:
            inbox += islice(bodies, kept)
            self.origins.add(pipe, kept)
        return excess

    def _too_heavy(self, size: int) -> bool:
        self._heavy_bytes += size
        if self._heavy_bytes <= HEAVY_BYTES_MAX:
            return False
        present = heavy_bytes(self.inbox)
        too_heavy = present > 0 and present + size > HEAVY_BYTES_MAX
        self._heavy_bytes = present if too_heavy and not self._prefer_new else present + size
        return too_heavy

    def _drop_old(self, pipe: Pipe, bodies: list[bytes]) -> int:
        inbox = self.inbox
        inbox += bodies
        self.origins.add(pipe, len(bodies))
        dropped = 0
        while len(inbox) > self._limit or (self._heavy_bytes > HEAVY_BYTES_MAX and len(inbox) > 1):
            size = len(inbox.popleft())
            self._heavy_bytes -= size if size > LIGHT_MAX else 0
            dropped += 1
        return dropped


class Rotation:
    """Pipes that have room, in turn: each frame goes to the one that waited longest."""

    def __init__(self) -> None:
        self._pipes: dict[int, Pipe] = {}
        self._ready: deque[Pipe] = deque()
        self.only: Pipe | None = None
        """The only pipe, full or not, if there is just one: the fast path of `send`."""

    def add(self, pipe: Pipe) -> None:
        """Add a pipe that is new or has room again."""
        self._pipes[pipe.id] = pipe
        if pipe not in self._ready:
            self._ready.append(pipe)
        self._find_only()

    def discard(self, pipe: Pipe) -> None:
        self._pipes.pop(pipe.id, None)
        if pipe in self._ready:
            self._ready.remove(pipe)
        self._find_only()

    @property
    def deserted(self) -> bool:
        """True if there is no pipe at all, full or not."""
        return not self._pipes

    def _find_only(self) -> None:
        self.only = next(iter(self._pipes.values())) if len(self._pipes) == 1 else None

    def send_alone(self, frame: bytes) -> Pipe | None:
        """Like `send`, for a frame that shares its write with no other (`Pipe.send_now`)."""
        only = self.only
        if only is not None:
            return only if only.send_now(frame) else None
        pipe = self.send(frame)
        if pipe is not None:
            pipe.flush()
        return pipe

    def send(self, frame: bytes) -> Pipe | None:
        """Queue a frame on the next pipe with room; return None if there is none."""
        only = self.only
        if only is not None:
            return only if only.send(frame) else None
        ready = self._ready
        while ready:
            pipe = ready[0]
            if pipe.send(frame):
                if len(ready) > 1:
                    ready.rotate(-1)
                return pipe
            if ready and ready[0] is pipe:  # otherwise a signal handler was here
                ready.popleft()  # `pipe_writable` adds it again
        return None

    def deal(self, frames: Sequence[bytes]) -> int:
        """Queue leading frames, in one slice for each ready pipe; return how many found room."""
        if self.only is not None:
            return self.only.send_many(frames)
        taken = 0
        while self._ready and taken < len(frames):
            share = -(-(len(frames) - taken) // len(self._ready))
            for pipe in list(self._ready):
                piece = frames[taken : taken + share]
                queued = pipe.send_many(piece)
                taken += queued
                if queued < len(piece):
                    if pipe in self._ready:
                        self._ready.remove(pipe)
                else:
                    self._ready.rotate(-1)
                if taken == len(frames):
                    break
        return taken
