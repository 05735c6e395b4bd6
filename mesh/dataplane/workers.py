"""Consumers of durable subscriptions: turns the orders of their queues into frames and entries. Pure.

An `Attachment` is one session's place at one subscription. Its window bounds the unsettled messages that it
may hold, in messages and bytes; its `WorkQueue` enforces that. Nothing waits here for a slow connection: once
its port is full, the window is 0 and the messages go to other consumers.

A large body is read from the journal in parts of a few pieces. The next part is read when the port has room.
Messages ordered behind it keep their place but not their bytes, which are read again later. The window is 0
until all of them are sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

from mesh.dataplane.damage import DamagedRows
from mesh.dataplane.durables import Durable
from mesh.dataplane.home_journal import HomeJournal
from mesh.dataplane.ports import Port
from mesh.dataplane.sessions import Session
from mesh.dataplane.settling import Settling
from mesh.journal import records
from mesh.wire import blocks
from mesh.wire.durable_frames import BACK_OFF, DEAD_PREFIX, REDELIVERED, SUSPECT, work_head
from mesh.work.orders import Attempts, Bury, Deliver, Fetch, Load, Settle
from mesh.work.queue import WorkQueue

AHEAD_BYTES_MAX: Final = 64 << 20
"""Bytes that all queues together read ahead. Beyond them a queue reads only when it has nothing left, one
block at a time. So many subscriptions with slow consumers cannot fill the memory."""
COUNT_PAUSE_S: Final = 1.0
"""From one count of a subscription's waiting rows to the next, at least. Consumers that keep up read all rows
many times a second."""
COUNTED_PER_S: Final = 10_000
"""Waiting messages of a subscription that are counted in a second at most: some 1 % of the journal's time."""
PIECES_AT_ONCE: Final = 8
"""Pieces of a large body that are read together: some 512 KiB."""


class Attachment:
    """A session that works on a subscription, or waits to.

    ``consumer`` is its number in the queue, 0 before it has begun.
    """

    __slots__ = (
        "blocked",
        "bytes_max",
        "consumer",
        "deferred",
        "durable",
        "number",
        "over",
        "reading",
        "session",
        "window",
        "workers",
    )

    def __init__(self, workers: Workers, session: Session, number: int, window: int, bytes_max: int) -> None:
        self.workers = workers
        self.session = session
        self.number = number
        self.window = window
        self.bytes_max = bytes_max
        self.durable: Durable | None = None
        self.consumer = 0
        self.over = False
        self.blocked = False
        """True while its port is full."""
        self.deferred: deque[Deferred] = deque()
        self.reading = False
        """True while the next part of a deferred delivery is read."""

    def resume(self, now: float) -> None:
        """The port has room again."""
        self.workers.resume(self)


class Deferred:
    """A delivery that waits until its bytes are read. For a large body, ``rows`` are the pieces still to be
    sent."""

    __slots__ = ("attempt", "body", "count", "first", "flags", "row", "rows")

    def __init__(self, order: Deliver, flags: int) -> None:
        self.row = order.row
        self.first = order.first
        self.count = order.count
        self.attempt = order.attempt
        self.flags = flags
        self.body = bool(order.parts)
        self.rows = deque(order.parts or (order.row,))


class Workers:
    """See the module."""

    def __init__(self, journal: HomeJournal, settling: Settling, damage: DamagedRows) -> None:
        self._journal = journal
        self._settling = settling
        self._damage = damage
        self._touched: dict[Durable, None] = {}
        """Subscriptions whose queue may have orders."""
        self._unsaved: dict[Durable, None] = {}
        self._due: list[tuple[float, int, Durable]] = []
        self._by_port: dict[Port, dict[Attachment, None]] = {}
        self._ahead = 0
        """Bytes that all queues have read ahead."""
        self._loads: dict[Durable, Load] = {}
        """Reads that wait until other queues hold less."""
        self._last = 0
        self.count = 0
        """Number of consumers."""
        self.unknown = 0
        """Messages settled under an unknown number."""

    # --- coming and going

    def begin(self, attachment: Attachment, durable: Durable) -> None:
        """Start a consumer."""
        self._last += 1
        self.count += 1
        attachment.consumer = self._last
        durable.attachments[attachment.consumer] = attachment
        durable.work().attach(attachment.consumer, attachment.window, attachment.bytes_max)
        self._by_port.setdefault(attachment.session.port, {})[attachment] = None
        self.touch(durable)

    def end(self, attachment: Attachment, now: float, *, died: bool) -> None:
        """End a consumer. Messages that it did not settle go to others."""
        durable, consumer = attachment.durable, attachment.consumer
        if not consumer or durable is None:
            return
        attachment.consumer = 0
        self.count -= 1
        del durable.attachments[consumer]
        durable.work().detach(consumer, now, died=died)
        port = attachment.session.port
        port.blocked.pop(attachment, None)
        attachments = self._by_port[port]
        del attachments[attachment]
        if not attachments:
            del self._by_port[port]
        attachment.deferred.clear()
        self.touch(durable)

    def forget(self, durable: Durable) -> None:
        """Forget a subscription that was removed."""
        self._touched.pop(durable, None)
        self._unsaved.pop(durable, None)
        self._loads.pop(durable, None)
        self._ahead -= durable.ahead
        durable.ahead = 0
        durable.due = inf

    # --- what consumers say

    def done(self, attachment: Attachment | None, settled: Sequence[Sequence[Any]], now: float) -> None:
        """DONE: the rows and messages that were settled."""
        working = self._working(attachment)
        if working is None:
            self.unknown += sum(int.from_bytes(entry[2], "little").bit_count() for entry in settled)
            return
        queue, consumer = working
        for entry in settled:
            queue.done(consumer, entry[0], entry[1], int.from_bytes(entry[2], "little"), now)

    def retry(self, attachment: Attachment | None, row: int, index: int, after_ms: int, now: float) -> None:
        """RETRY: deliver a message again."""
        working = self._working(attachment)
        if working is None:
            self.unknown += 1
            return
        queue, consumer = working
        queue.retry(consumer, row, index, now, None if after_ms == BACK_OFF else after_ms / 1000)

    def drop(self, attachment: Attachment | None, row: int, index: int, reason: str, now: float) -> None:
        """DROP: make a message a dead letter."""
        working = self._working(attachment)
        if working is None:
            self.unknown += 1
            return
        queue, consumer = working
        queue.drop(consumer, row, index, now, reason)

    def _working(self, attachment: Attachment | None) -> tuple[WorkQueue, int] | None:
        if attachment is None or not attachment.consumer or attachment.durable is None:
            return None
        self.touch(attachment.durable)
        return attachment.durable.work(), attachment.consumer

    # --- a turn

    @property
    def next_due(self) -> float:
        """When `step` has work to do even if nothing happens. May be too early."""
        return self._due[0][0] if self._due else inf

    @property
    def touched(self) -> bool:
        """True if `step` has work to do."""
        return bool(self._touched)

    def touch(self, durable: Durable) -> None:
        """Something changed in its queue."""
        self._touched[durable] = None

    def step(self, now: float, *, commit: bool) -> None:
        """Carry out the orders of the queues. ``commit``: a commit is about to be made."""
        due = self._due
        if self._journal.failure:
            self._touched.clear()
            due.clear()
            return
        while due and due[0][0] <= now:
            at, _, durable = heappop(due)
            if at == durable.due:
                durable.due = inf
                self.touch(durable)
        if commit and self._unsaved:
            self._touched.update(self._unsaved)
        if not self._touched or self._settling.full:
            return
        touched, self._touched = self._touched, {}
        for durable in touched:
            self._carry_out(durable, now, commit)
        if self._loads:
            self._read_ahead(touched)

    def _carry_out(self, durable: Durable, now: float, commit: bool) -> None:
        queue, id = durable.work(), durable.id
        entries: list[records.Entry] = []
        for order in queue.orders(now, commit=commit, ahead=self.reads_ahead):
            match order:
                case Deliver():
                    self._deliver(durable.attachments[order.consumer], order)
                case Settle(row, floor, bitmap, whole):
                    entries.append(records.Done(id, row) if whole else records.Settle(id, row, floor, bitmap))
                case Attempts(row, attempts):
                    entries.append(records.Attempts(id, row, attempts))
                case Bury(row, index, reason, attempts):
                    entries.append(records.Bury(id, row, index, reason, attempts))
                case Load():
                    self._loads[durable] = order
                case Fetch(row):
                    self._fetch((row,), partial(self._fetched, durable, row))
        self._ahead += queue.ahead - durable.ahead
        durable.ahead = queue.ahead
        if entries:
            self._settling.add(id, entries)
        if queue.unsaved:
            self._unsaved[durable] = None
        else:
            self._unsaved.pop(durable, None)
        at = queue.next_due
        if at is not None and at < durable.due:
            durable.due = at
            heappush(self._due, (at, id, durable))

    # --- reading

    @property
    def reads_ahead(self) -> bool:
        """True if queues may take available blocks before their turn."""
        return self._ahead < AHEAD_BYTES_MAX

    def _read_ahead(self, touched: dict[Durable, None]) -> None:
        """Read what may be read now: everything that waits for it, or one block for each queue that has
        nothing fresh."""
        loads = self._loads
        while loads and self.reads_ahead:
            durable = next(iter(loads))
            load = loads.pop(durable)
            self._read_rows(durable, load.after_row, load.bytes_max, load.rows_max)
        for durable in touched if loads else ():
            if durable in loads and not durable.work().has_fresh:
                self._read_rows(durable, loads.pop(durable).after_row, 1, 1)

    def _read_rows(self, durable: Durable, after_row: int, size: int, rows: int) -> None:
        self._ahead += size  # until it is read
        self._journal.read(durable.id, after_row, size, rows, partial(self._loaded, durable, size))

    def _loaded(self, durable: Durable, size: int, found: Any, now: float) -> None:
        self._ahead -= size
        if isinstance(found, Exception):
            return
        rows = []
        for row in found:
            if type(row) is records.Waiting:
                rows.append(row)
            else:
                self._damage.found(durable, row.row, row.reason)
        queue = durable.work()
        queue.loaded(rows, found[-1].row if found else 0)
        # All rows that can be found were read: are there others?
        due = durable.counted_at + COUNT_PAUSE_S + durable.waiting / COUNTED_PER_S
        if not found or (queue.all_read and now >= due):
            durable.counted_at = now
            self._journal.ask(lambda journal: journal.missing(durable.id), partial(self._counted, durable))
        self.touch(durable)

    def _counted(self, durable: Durable, missing: Any, now: float) -> None:
        if not isinstance(missing, Exception) and missing > 0:
            self._damage.found(durable, 0, f"waiting rows that cannot be found: {missing}")

    def _fetched(self, durable: Durable, row: int, found: Any, now: float) -> None:
        if isinstance(found, Exception):
            return
        (block,) = found
        if isinstance(block, records.Damaged):
            self._damage.found(durable, row, block.reason)
            durable.work().unreadable(row, now)
        else:
            durable.work().fetched(row, block.block)
        self.touch(durable)

    def _fetch(self, rows: Sequence[int], then: Any) -> None:
        self._journal.ask(lambda journal: [journal.fetch(row) for row in rows], then)

    # --- delivering

    def _deliver(self, attachment: Attachment, order: Deliver) -> None:
        flags = REDELIVERED * order.redelivered | SUSPECT * order.suspect
        deferred = attachment.deferred
        if not order.parts and not deferred:
            block = blocks.cut(order.block, order.first, order.count)
            self._send(attachment, order.row, order.first, order.attempt, flags, block)
        else:
            deferred.append(Deferred(order, flags))
            if len(deferred) == 1:
                self._resize(attachment)
                self._read_next(attachment)

    def _send(
        self, attachment: Attachment, row: int, first: int, attempt: int, flags: int, block: bytes
    ) -> None:
        session = attachment.session
        port = session.port
        head = work_head(attachment.number, row, first, attempt, flags, len(block))
        port.bytes_out += len(block)
        port.send(b"".join((session.prefix, head, block)))
        if port.bytes_out >= port.bytes_max and not attachment.blocked:
            for other in self._by_port[port]:
                self._block(other)

    def _block(self, attachment: Attachment) -> None:
        attachment.blocked = True
        attachment.session.port.blocked[attachment] = None
        self._resize(attachment)

    def resume(self, attachment: Attachment) -> None:
        """Its port has room again."""
        if not attachment.consumer:
            return
        if attachment.session.port.full:
            self._block(attachment)
            return
        attachment.blocked = False
        if not attachment.deferred:
            self._resize(attachment)
        elif not attachment.reading:
            self._read_next(attachment)

    def _resize(self, attachment: Attachment) -> None:
        durable = attachment.durable
        assert durable is not None
        held_up = attachment.blocked or attachment.deferred
        durable.work().resize(attachment.consumer, 0 if held_up else attachment.window)
        self.touch(durable)

    # --- what is read when it is delivered

    def _read_next(self, attachment: Attachment) -> None:
        rows = attachment.deferred[0].rows
        attachment.reading = True
        part = tuple(rows[place] for place in range(min(PIECES_AT_ONCE, len(rows))))
        self._fetch(part, partial(self._read, attachment, attachment.consumer))

    def _read(self, attachment: Attachment, consumer: int, found: Any, now: float) -> None:
        """The next part of a deferred delivery was read."""
        if isinstance(found, Exception) or attachment.consumer != consumer:
            return
        attachment.reading = False
        item = attachment.deferred[0]
        for block in found:
            row = item.rows.popleft()
            if isinstance(block, records.Damaged):
                self._cannot_deliver(attachment, item, f"piece {row} cannot be read: {block.reason}", now)
                item.rows.clear()
                break
            data = block.block if item.body else blocks.cut(block.block, item.first, item.count)
            self._send(attachment, item.row, item.first, item.attempt, item.flags, data)
        if not item.rows:
            attachment.deferred.popleft()
        if not attachment.deferred:
            self._resize(attachment)
        elif not attachment.blocked:
            self._read_next(attachment)

    def _cannot_deliver(self, attachment: Attachment, item: Deferred, why: str, now: float) -> None:
        """Give up on a deferred delivery. A block is tried again later. A body that lacks a piece is of no
        use to a consumer, but the rest of it is kept as a dead letter. A dead letter is one already."""
        durable = attachment.durable
        assert durable is not None
        self._damage.found(durable, item.row, why)
        if item.body and not durable.name.startswith(DEAD_PREFIX):
            durable.work().drop(attachment.consumer, item.row, 0, now, why)
        else:
            durable.work().undeliverable(attachment.consumer, item.row, item.first, item.count, now)
        self.touch(durable)
