"""Nodes and wires for the machines: a pattern as its socket would run it, and the connection between two of
them.

Nothing moves by itself. A machine flushes a node's pipes when it likes (the end of a loop turn), carries any
number of frames over a wire, holds a wire as a full kernel buffer would, cuts it, and lets time pass.

Every node keeps a *ledger*, and `Node.check` is the law of conservation. Each message that a pattern was
given to send has gone out, is queued or is counted among its drops. Each message that arrived was read, waits
in an inbox or is counted too.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from hypothesis import Phase, settings

from protocols.errors import PipeRefused, RemoteProtocolError
from protocols.options import SocketOptions
from protocols.patterns.base import ORPHANS_MAX, Pattern, QueueLane
from protocols.pipe import Pipe

QUEUE = 2
"""The capacity of every queue in messages: small ones are full more often."""
RUN_MAX = 3
"""The most frames that arrive together."""

EXAMPLES = os.environ.get("MANGROVE_EXAMPLES")
MACHINE = settings(
    max_examples=int(EXAMPLES or 60),
    stateful_step_count=30,
    deadline=None,
    # Shrinking a failure may take minutes: `make machines` does it, `make test` only reports that there is
    # one.
    phases=list(Phase) if EXAMPLES else [Phase.explicit, Phase.reuse, Phase.generate],
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0


class Cable:
    """One end of a wire: the connection of one pipe."""

    identity = None

    def __init__(self, peer: int, name: str) -> None:
        self.peer = peer
        self.local_address = f"{name}:here"
        self.remote_address = f"{name}:there"
        self.pipe: Pipe | None = None
        self.sent: deque[bytes] = deque()
        self.frames_out = 0
        self.due = False
        self.held = False
        self.paused = False
        self.ended = False

    def start(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def flush_soon(self) -> None:
        self.due = True

    def write_now(self, frame: bytes) -> bool:
        if self.held or self.ended or self.pipe is None:
            return False
        self.frames_out += 1
        self.sent.append(frame)
        return True

    def flush_now(self) -> None:
        if self.pipe is not None:
            self.flush()

    def flush(self) -> None:
        """The end of a loop turn; a full kernel takes nothing and asks again when it has room."""
        if self.held or self.ended or self.pipe is None:
            return
        self.due = False
        frames = self.pipe.take_output()
        self.frames_out += len(frames)
        self.sent += frames
        self.pipe.output_written()

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.abort()

    def abort(self, error: RemoteProtocolError | None = None) -> None:
        self.ended = True

    def abort_soon(self) -> None:
        self.ended = True

    async def wait_closed(self) -> None: ...


class Waiting:
    """Readers or writers of one lane, as `protocols.context` has them: woken, they check again."""

    def __init__(self) -> None:
        self.asleep = 0
        self.awake = 0

    def wake(self, count: int = 1 << 30) -> None:
        count = min(count, self.asleep)
        self.asleep -= count
        self.awake += count

    def cancel_one(self) -> None:
        """One that was woken does not check; the next does, if there is one."""
        if self.awake:
            self.awake -= 1
            self.wake(1)


class Node:
    """A pattern with its pipes, run as a socket runs it."""

    out_drops: tuple[str, ...] = ("peer lost",)
    in_drops: tuple[str, ...] = ()
    other_drops: tuple[str, ...] = ()
    """Reasons of drops that stand for no message sent or received here."""

    def __init__(self, pattern: Pattern, clock: Clock, *, limit: int, weighed: bool = True) -> None:
        self.pattern = pattern
        self.clock = clock
        self.limit = limit
        self.weighed = weighed
        self.pipes: dict[int, Pipe] = {}
        self.attached = 0
        self.offered = 0
        self.arrived = 0
        self.read = 0
        self._gone_out = 0

    # --- the socket's part

    def attach(self, cable: Cable) -> Pipe:
        self.attached += 1
        pipe = Pipe(
            self.attached,
            cable,
            self,
            url="fake://",
            dialed=True,
            limit=self.limit,
            weighed=self.weighed,
        )
        self.pattern.pipe_attached(pipe, self.clock.now)
        self.pipes[pipe.id] = pipe
        cable.start(pipe)
        return pipe

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        self.note_arrival(frames)
        self.pattern.received(self.pipes[pipe.id], frames, self.clock.now)

    def pipe_writable(self, pipe: Pipe) -> None:
        self.pattern.pipe_writable(self.pipes[pipe.id], self.clock.now)

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        gone = self.pipes.pop(pipe.id)
        self._gone_out += self._cable(gone).frames_out
        self.pattern.count_lost(gone)
        self.pattern.pipe_detached(gone, self.clock.now)

    def pipe_gone(self, pipe: Pipe) -> None: ...

    # --- the ledger

    def note_arrival(self, frames: list[bytes]) -> None:
        self.arrived += len(frames)

    def drops(self, reasons: Sequence[str]) -> int:
        return sum(self.pattern.drops.get(reason, 0) for reason in reasons)

    def waiting_in(self) -> int:
        """Messages in the inbox."""
        lane: Any = self.pattern.lane
        return len(lane.inbox)

    def check_run_taken(self, cable: Cable) -> None:
        """Hook for checks right after a run arrived by this cable."""

    def check(self) -> None:
        assert set(self.pattern.drops) <= {*self.out_drops, *self.in_drops, *self.other_drops}, (
            self.pattern.drops
        )
        self.check_pipes()
        out = self._gone_out + sum(self._cable(pipe).frames_out for pipe in self.pipes.values())
        queued = sum(pipe.queued for pipe in self.pipes.values())
        assert self.offered == out + queued + self.drops(self.out_drops), (
            "something sent was not accounted for"
        )
        unread = self.waiting_in()
        assert self.arrived == self.read + unread + self.drops(self.in_drops), "something received was not"

    def check_pipes(self) -> None:
        for pipe in self.pipes.values():
            assert pipe.queued <= self.limit
            cable = self._cable(pipe)
            assert not pipe.queued or cable.due or cable.ended, "frames are queued and nobody will flush them"

    @staticmethod
    def _cable(pipe: Pipe) -> Cable:
        assert isinstance(pipe.connection, Cable)
        return pipe.connection


class QueueNode(Node):
    """A node with one reader's and writer's lane, and how many wait there."""

    spreads = False
    """True if each message goes to all pipes."""
    stops_reading = False
    """True if a full inbox pauses its peers."""

    def __init__(self, pattern: Pattern, clock: Clock, *, limit: int, weighed: bool = True) -> None:
        super().__init__(pattern, clock, limit=limit, weighed=weighed)
        assert isinstance(pattern.lane, QueueLane)
        self.lane = pattern.lane
        self.readers = Waiting()
        self.writers = Waiting()
        self.lane.readable = self.readers.wake
        self.lane.writable = self.writers.wake

    def put(self, body: bytes) -> bool:
        copies = len(self.pipes) if self.spreads else 1
        taken = self.lane.put(body)
        self.offered += copies * taken
        return taken

    def put_many(self, bodies: list[bytes]) -> int:
        copies = len(self.pipes) if self.spreads else 1
        taken = self.lane.put_many(bodies)
        self.offered += copies * taken
        return taken

    def write(self, body: bytes, *, woken: bool) -> bool:
        """A writer comes, or checks again; False means that it waits."""
        self.writers.awake -= woken
        taken = self.put(body)
        self.writers.asleep += not taken
        return taken

    def take(self, *, woken: bool) -> bytes | None:
        """A reader comes, or checks again; None means that it waits."""
        self.readers.awake -= woken
        body = self.lane.take()
        if body is None:
            self.readers.asleep += 1
        else:
            self.read += 1
        return body

    def check_run_taken(self, cable: Cable) -> None:
        if self.stops_reading and len(self.lane.inbox) >= self.pattern.options.recv_queue:
            assert cable.paused or cable.ended, "a full inbox reads on"

    def check(self) -> None:
        super().check()
        if not self.readers.awake and self.readers.asleep:
            assert not self.lane.inbox, "a reader sleeps beside a full inbox"
            assert not any(self._cable(pipe).paused for pipe in self.pipes.values()), (
                "readers wait, none reads"
            )
        if not self.writers.awake and self.writers.asleep:
            assert all(pipe.full for pipe in self.pipes.values()), "a writer sleeps beside a pipe with room"
        options = self.pattern.options
        bound = options.recv_queue
        if self.stops_reading:
            bound += RUN_MAX * (len(self.pipes) + ORPHANS_MAX)
        assert len(self.lane.inbox) <= bound, "an inbox grew beyond its bound"


class Wire:
    """Two cables that are the ends of one connection. ``refused`` if one side refused the other."""

    def __init__(self, first: Node, second: Node, name: str) -> None:
        self.nodes = (first, second)
        self.ends = (
            Cable(int(first.pattern.peer), name),
            Cable(int(second.pattern.peer), name),
        )
        self.refused = False
        self.carried: tuple[list[bytes], list[bytes]] = ([], [])
        try:
            for node, cable in zip(self.nodes, self.ends, strict=True):
                node.attach(cable)
        except PipeRefused:
            self.refused = True
            self.cut()

    @property
    def alive(self) -> bool:
        return not any(cable.ended for cable in self.ends)

    def carry(self, end: int, count: int) -> int:
        """Deliver frames that ``end`` sent to the other; none while that one does not read."""
        source, target = self.ends[end], self.ends[1 - end]
        if not self.alive or target.paused or target.pipe is None:
            return 0
        run = [source.sent.popleft() for _ in range(min(count, len(source.sent)))]
        if run:
            self.carried[end].extend(run)
            target.pipe.deliver(run)
            self.nodes[1 - end].check_run_taken(target)
        return len(run)

    def inject(self, end: int, frames: list[bytes]) -> None:
        """A message to ``end`` that none of our patterns would send."""
        cable = self.ends[end]
        if self.alive and not cable.paused and cable.pipe is not None:
            cable.pipe.deliver(frames)

    def cut(self) -> None:
        """The connection is lost; both ends are told."""
        for cable in self.ends:
            cable.ended = True
            if cable.pipe is not None:
                cable.pipe.connection_lost("the wire was cut")

    def tell_ends(self) -> None:
        """If one end closed it, the other is told."""
        if not self.alive:
            self.cut()


def options(**chosen: Any) -> SocketOptions:
    return SocketOptions(**{"send_queue": QUEUE, "recv_queue": QUEUE, **chosen})


def rng() -> random.Random:
    return random.Random(5)
