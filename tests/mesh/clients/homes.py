"""A broker for tests that keeps one durable subscription in memory, with the real `WorkQueue`.

It speaks a home's part of a session, over anything behind a pipe. With another address it is an entry, which
names the home.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mesh.wire import blocks
from mesh.wire.capabilities import SESSION
from mesh.wire.durable_frames import BACK_OFF, REDELIVERED, SUSPECT, Durable, work_head
from mesh.wire.session_frames import DATA, DATA_SIZE, Kind, decode, encode
from mesh.work.options import WorkOptions
from mesh.work.orders import Bury, Deliver, Fetch, Load
from mesh.work.queue import WorkQueue

PUBLISHER, BOOT = 5, 6


class Pipe(Protocol):
    def send_many(self, frames: Sequence[bytes]) -> int: ...


@dataclass
class Row:
    row: int
    count: int
    block: bytes
    parts: tuple[int, ...] = ()
    floor: int = 0
    bitmap: bytes = b""
    attempts: dict[int, int] = field(default_factory=dict)


def forgets_pieces(home: Home) -> list[int]:
    """A home that says of each body that it takes long, loses the first copy of its pieces, and stores the
    body when they come again. Returns the offsets of the pieces, as they come."""
    came: list[int] = []
    received = home._received

    def forget(pipe: Any, prefix: bytes, frame: bytes) -> None:
        if frame[5] != DATA:
            received(pipe, prefix, frame)
            return
        came.append(blocks.offset_of(frame, 4 + DATA_SIZE))
        number = blocks.HEAD.unpack_from(frame, 4 + DATA_SIZE)[6]
        if came.count(0) == 1:
            pipe.send_many([prefix + encode(Durable.PENDING, number, number, [], [home.name])])
        elif blocks.is_last_piece(frame, 4 + DATA_SIZE):
            pipe.send_many([prefix + encode(Kind.ACK, blocks.STORED, [[number, number]], [], [home.name])])

    home._received = forget  # type: ignore[method-assign]
    return came


class Consumer:
    def __init__(self, id: int, pipe: Any, prefix: bytes, number: int) -> None:
        self.id, self.pipe, self.prefix, self.number = id, pipe, prefix, number


class Home:
    """A home or an entry. ``detach`` answers each ATTACH while it is set: (reason, sentence, URL)."""

    def __init__(self, clock: Callable[[], float], name: str = "home", attempts_max: int = 3) -> None:
        self.clock = clock
        self.name = name
        self.detach: tuple[str, str, str] | None = None
        self.silent = False
        """True if ATTACH gets no answer."""
        self.unreached: list[str] = []
        self.attached: list[list[Any]] = []
        """The fields of each ATTACH."""
        self.settling: list[list[Any]] = []
        """Each DONE, RETRY, DROP and DETACH, as it came."""
        self.dead: list[tuple[bytes, str]] = []
        self.rows: list[Row] = []
        self.pipes: list[Any] = []
        self.queue = WorkQueue(WorkOptions(attempts_max=attempts_max))
        self._consumers: dict[int, Consumer] = {}
        self._ids = 0
        self._sequence = 0

    # ------------------------------------------------------------------ what a test does

    def publish(self, *bodies: bytes, topic: str = "jobs.a", headers: list[bytes] | None = None) -> int:
        """Store a block; returns its row."""
        sealed = blocks.seal(
            topic.encode(),
            bodies,
            publisher=PUBLISHER,
            boot=BOOT,
            sequence=self._sequence + 1,
            level=blocks.STORED,
            headers=headers,
        )
        self._sequence += len(bodies)
        return self.store(sealed, len(bodies))

    def store(self, sealed: bytes, count: int) -> int:
        row = Row(len(self.rows) + 1, count, sealed)
        self.rows.append(row)
        self.queue.committed([row])
        self.work()
        return row.row

    def send(self, *frames: bytes) -> None:
        """Send a frame to every consumer, as its home; each begins behind the backtrace."""
        for consumer in self._consumers.values():
            consumer.pipe.send_many([consumer.prefix + frame for frame in frames])

    @property
    def done(self) -> list[tuple[int, int, int]]:
        """(row, first, bitmap) of everything that was reported done."""
        return [
            (row, first, int.from_bytes(bitmap, "little"))
            for kind, *fields in self.settling
            if kind == Durable.DONE
            for row, first, bitmap in fields[1]
        ]

    @property
    def left(self) -> int:
        """Messages that are not settled."""
        return sum(row.count for row in self.rows) - self.queue.counters.settled - len(self.dead)

    # ------------------------------------------------------------------ what a socket calls

    def pipe_attached(self, pipe: Any) -> None:
        self.pipes.append(pipe)

    def pipe_detached(self, pipe: Any, reason: str) -> None:
        self.pipes.remove(pipe)
        self._over(pipe, died=True)

    def pipe_writable(self, pipe: Any) -> None:
        pass

    def frames_received(self, pipe: Any, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self._received(pipe, frame[:4], frame)
        self.work()

    # ------------------------------------------------------------------ a home's part

    def _received(self, pipe: Any, prefix: bytes, frame: bytes) -> None:
        def say(kind: int, *fields: object) -> None:
            pipe.send_many([prefix + encode(kind, *fields)])

        if frame[5] == DATA:
            block = blocks.open_block(frame, 4 + DATA_SIZE)
            self.store(frame[4 + DATA_SIZE :], len(block.bodies))
            last = block.sequence + len(block.bodies) - 1
            say(Kind.ACK, block.level, [[block.sequence, last]], [], [self.name])
            return
        match decode(frame, 4):
            case [Kind.HELLO, *_]:
                credit = 1 << 20, 1 << 30
                offer = SESSION.packed()
                say(Kind.WELCOME, SESSION.newest, 9, self.name, "mesh", 1, *credit, offer)
            case [Kind.PING, stamp]:
                say(Kind.PONG, stamp)
            case [Kind.BYE, _]:
                self._over(pipe, died=False)
            case [Durable.ATTACH, number, *fields]:
                self.attached.append([number, *fields])
                if self.detach is not None:
                    say(Durable.DETACHED, number, *self.detach)
                elif not self.silent:
                    self._ids += 1
                    waiting = sum(row.count for row in self.rows)
                    say(Durable.ATTACHED, number, waiting, self.unreached)
                    self._consumers[self._ids] = Consumer(self._ids, pipe, prefix, number)
                    self.queue.attach(self._ids, fields[2])
            case [Durable.DETACH | Durable.DONE | Durable.RETRY | Durable.DROP as kind, number, *fields]:
                self.settling.append([kind, number, *fields])
                self._settle(pipe, kind, number, fields)

    def _settle(self, pipe: Any, kind: Durable, number: int, fields: list[Any]) -> None:
        now = self.clock()
        for consumer in [one for one in self._consumers.values() if (one.pipe, one.number) == (pipe, number)]:
            match [kind, *fields]:
                case [Durable.DETACH]:
                    del self._consumers[consumer.id]
                    self.queue.detach(consumer.id, now, died=False)
                case [Durable.DONE, settled]:
                    for row, first, bitmap in settled:
                        self.queue.done(consumer.id, row, first, int.from_bytes(bitmap, "little"), now)
                case [Durable.RETRY, row, index, after_ms]:
                    after_s = None if after_ms == BACK_OFF else after_ms / 1000
                    self.queue.retry(consumer.id, row, index, now, after_s)
                case [Durable.DROP, row, index, reason]:
                    self.queue.drop(consumer.id, row, index, now, reason)

    def _over(self, pipe: Any, *, died: bool) -> None:
        for consumer in [one for one in self._consumers.values() if one.pipe is pipe]:
            del self._consumers[consumer.id]
            self.queue.detach(consumer.id, self.clock(), died=died)
        self.work()

    def work(self) -> None:
        """Run all due work."""
        while orders := self.queue.orders(self.clock()):
            for order in orders:
                match order:
                    case Deliver():
                        self._deliver(order)
                    case Bury():
                        row = self.rows[order.row - 1]
                        (body,) = blocks.open_block(blocks.cut(row.block, order.index, 1)).bodies
                        self.dead.append((body, order.reason))
                    case Load():
                        rows = [row for row in self.rows if row.row > order.after_row][: order.rows_max]
                        self.queue.loaded(rows, rows[-1].row if rows else 0)
                    case Fetch():
                        self.queue.fetched(order.row, self.rows[order.row - 1].block)

    def _deliver(self, order: Deliver) -> None:
        consumer = self._consumers[order.consumer]
        block = blocks.cut(order.block, order.first, order.count)
        flags = REDELIVERED * order.redelivered | SUSPECT * order.suspect
        head = work_head(consumer.number, order.row, order.first, order.attempt, flags, len(block))
        consumer.pipe.send_many([consumer.prefix + head + block])
