"""A home without its broker: a `WorkQueue` beside a journal in memory, which carries out the queue's
orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mesh.wire.blocks import cut, open_block, seal
from mesh.work.masks import span, unpacked
from mesh.work.options import WorkOptions
from mesh.work.orders import Attempts, Bury, Deliver, Fetch, Load, Settle
from mesh.work.queue import WorkQueue

Message = tuple[int, int]
"""Row and index."""


@dataclass
class Kept:
    """A row of the journal."""

    row: int
    block: bytes
    count: int
    parts: tuple[int, ...] = ()
    floor: int = 0
    bitmap: bytes = b""
    attempts: dict[int, int] = field(default_factory=dict)

    @property
    def settled(self) -> int:
        return unpacked(self.floor, self.bitmap) & span(0, self.count)


class Home:
    """Reads are answered at once, or by ``answer`` if ``slow``. ``early``: with the rows that were there when
    they were ordered."""

    def __init__(
        self, options: WorkOptions | None = None, *, slow: bool = False, early: bool = False
    ) -> None:
        self.options = options or WorkOptions()
        self.queue = WorkQueue(self.options)
        self.now = 0.0
        self.slow = slow
        self.early = early
        self.ahead = True
        self.kept: dict[int, Kept] = {}
        self.counts: dict[int, int] = {}
        self.damaged: set[int] = set()
        self.delivered: list[Deliver] = []
        self.buried: list[Bury] = []
        self.reads: list[Load | Fetch] = []
        self._found: dict[int, tuple[list[Kept], int]] = {}  # by the row behind which it was read
        self.loads = self.fetches = 0
        self._sequence = 1

    def store(self, *counts: int, size: int = 8, row: int = 0, tell: bool = True) -> list[int]:
        """Store blocks of so many messages each. Returns their rows."""
        new = []
        for count in counts:
            row = (max(self.counts) if self.counts else row) + 1
            bodies = [f"{row}.{index}".encode().ljust(size, b".") for index in range(count)]
            block = seal(b"jobs.mail", bodies, publisher=1, boot=2, sequence=self._sequence, level=1)
            self._sequence += count
            self.counts[row] = count
            self.kept[row] = Kept(row, block, count)
            new.append(row)
        if tell:
            self.queue.committed([self.kept[row] for row in new])
        return new

    def run(self, after_s: float = 0.0, *, commit: bool = False) -> list[Deliver]:
        """Let time pass in steps, as a loop would. Returns the deliveries of that time."""
        until = self.now + after_s
        before = len(self.delivered)
        before_s = self.now
        self.step(commit=commit)
        while (due := self.queue.next_due) is not None and due <= until:
            assert due > self.now or self.now == before_s, "a moment that comes again and again"
            self.now = max(self.now, due)
            self.step()
        self.now = until
        return self.delivered[before:]

    def step(self, *, commit: bool = False) -> None:
        """Carry out orders until there are none."""
        while orders := self.queue.orders(self.now, commit=commit, ahead=self.ahead):
            for order in orders:
                match order:
                    case Deliver():
                        self.receive(order)
                    case Load() | Fetch():
                        self.reads.append(order)
                        if self.early and isinstance(order, Load):
                            self._found[order.after_row] = self.read(order)
                    case Settle():
                        self._settle(order)
                    case Attempts():
                        self.kept[order.row].attempts = dict(order.attempts)
                    case Bury():
                        assert order.row in self.kept, "a dead letter is copied before its row goes"
                        self.bury(order)
            if not self.slow:
                self.answer()

    def answer(self, number: int | None = None) -> None:
        """Let the journal answer: all reads, or the first few."""
        asked = self.reads[:number]
        del self.reads[: len(asked)]
        for order in asked:
            if isinstance(order, Fetch):
                self.fetches += 1
                if order.row in self.kept and order.row not in self.damaged:
                    self.queue.fetched(order.row, self.kept[order.row].block)
                else:  # damaged, or settled meanwhile
                    self.queue.unreadable(order.row, self.now)
            else:
                self.loads += 1
                self.queue.loaded(*(self._found.pop(order.after_row, None) or self.read(order)))

    @property
    def fetches_asked(self) -> list[Fetch]:
        return [order for order in self.reads if isinstance(order, Fetch)]

    def read(self, load: Load) -> tuple[list[Kept], int]:
        rows: list[Kept] = []
        size = through = 0
        for row in range(load.after_row + 1, max(self.counts, default=0) + 1):
            if row in self.kept:
                size += len(self.kept[row].block)
                if len(rows) == load.rows_max or (rows and size > load.bytes_max):
                    break
                through = row
                if row not in self.damaged:
                    rows.append(self.kept[row])
        return rows, through

    def receive(self, order: Deliver) -> None:
        """Subclasses with a model of allowed deliveries override it."""
        opened = open_block(cut(order.block, order.first, order.count))
        expected = [f"{order.row}.{order.first + index}".encode() for index in range(order.count)]
        assert [body.rstrip(b".") for body in opened.bodies] == expected
        self.delivered.append(order)

    def bury(self, order: Bury) -> None:
        self.buried.append(order)

    def _settle(self, order: Settle) -> None:
        if order.whole:
            del self.kept[order.row]
        else:
            kept = self.kept[order.row]
            kept.floor, kept.bitmap = order.floor, order.bitmap

    def restart(self) -> None:
        """Kill and start again: everything that was not committed is forgotten."""
        self.queue = WorkQueue(self.options)
        self.reads = []
        self._found = {}

    # --- the words of consumers, in short form

    def attach(self, *consumers: int, window: int = 1) -> None:
        for consumer in consumers:
            self.queue.attach(consumer, window)

    def done(self, *orders: Deliver) -> None:
        for order in orders:
            self.queue.done(order.consumer, order.row, order.first, span(0, order.count), self.now)

    def settled(self) -> list[Message]:
        """The messages that the journal has as settled, dead letters among them."""
        return [
            (row, index)
            for row, count in self.counts.items()
            for index in range(count)
            if row not in self.kept or self.kept[row].settled >> index & 1
        ]


def messages(orders: Sequence[Deliver]) -> list[Message]:
    """The messages that were delivered."""
    return [(order.row, order.first + index) for order in orders for index in range(order.count)]
