"""Messages that no consumer had yet: the rows that were read ahead, and how far the journal is read.

A subscription may have millions of waiting messages. The next ones are here, about ``ahead_bytes`` of them;
the rest is in the journal, behind the last row that was read. A row that was just committed is taken directly
if everything before it was read. Otherwise it is read from the journal in its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from mesh.work.orders import Load
from mesh.work.rows import Row, StoredRow

ROW_OVERHEAD: Final = 512
"""Bytes that a row counts for here beside its own."""


class Backlog:
    """Fresh rows in the order in which they came."""

    __slots__ = (
        "_ahead_bytes",
        "_asked",
        "_asked_behind",
        "_newest",
        "_read_to",
        "_searching",
        "_size",
        "count",
        "rows",
    )

    def __init__(self, ahead_bytes: int) -> None:
        self.rows: deque[Row] = deque()
        self.count = 0  # messages in them
        self._ahead_bytes = ahead_bytes
        self._size = 0
        self._read_to = 0
        self._newest = 0  # the last row that is known to be in the journal
        self._searching = True  # there may be rows from before this broker started
        self._asked: int | None = None  # the newest row when a Load was ordered, while that is in flight
        self._asked_behind = 0  # the row behind which that Load reads

    @property
    def size(self) -> int:
        """Bytes that the rows take here, about."""
        return self._size

    @property
    def all_read(self) -> bool:
        return not self._searching and self._newest <= self._read_to

    def has_read(self, row: int) -> bool:
        """True if that row was read, or passed over, in its turn."""
        return row <= self._read_to

    def load(self) -> Load | None:
        """The next read, once half of the rows read ahead is gone."""
        if self._asked is not None or self._size * 2 > self._ahead_bytes or self.all_read:
            return None
        self._asked, self._asked_behind = self._newest, self._read_to
        room = self._ahead_bytes - self._size
        return Load(self._read_to, 1 + room // ROW_OVERHEAD, room)

    def committed(self, stored: Sequence[StoredRow], *, wanted: bool) -> Iterator[Row]:
        """Add new rows of the journal. ``wanted``: a consumer may take them soon. Yields the rows that are
        taken."""
        for entry in stored:
            ready = self.all_read and self._asked is None
            self._newest = max(self._newest, entry.row)
            if ready and wanted and self._size < self._ahead_bytes and entry.row > self._read_to:
                yield self._append(entry)

    def grew(self, row: int) -> None:
        """Note that the journal has rows up to this one; they are read in their turn."""
        self._newest = max(self._newest, row)

    def loaded(self, stored: Sequence[StoredRow], through: int, *, wanted: bool) -> Iterator[Row]:
        """Take the rows read for a `Load`, up to the row ``through``; 0 if there are no more. Yields the rows
        that are taken."""
        asked, self._asked = self._asked, None
        if not wanted or self._asked_behind != self._read_to:
            return  # no consumer is there, or all had left meanwhile and rows before these were forgotten
        for entry in stored:
            if entry.row > self._read_to:
                yield self._append(entry)
        if not through:
            self._searching = False
            # rows known at the time of the order are gone, otherwise it would have found them
            through = asked or 0
        self._read_to = max(self._read_to, through)

    def took(self, row: Row, records: int) -> bool:
        """Note that these records of the first row are in flight. Returns True if the row has none left."""
        row.fresh ^= records
        self.count -= records.bit_count()
        if row.fresh:
            return False
        self.rows.popleft()
        self._size -= row.size + ROW_OVERHEAD
        return True

    def discard(self, row: Row) -> None:
        """Remove a row that is no longer needed, if it is here."""
        if row.fresh:
            self.rows.remove(row)
            self.count -= row.fresh.bit_count()
            self._size -= row.size + ROW_OVERHEAD
            row.fresh = 0

    def put_back(self) -> Iterator[Row]:
        """Forget the rows of which no message was ever delivered, since there are no consumers any more.
        Yields them."""
        rows = self.rows
        while rows and not rows[-1].handed_out:
            row = rows.pop()
            self.count -= row.fresh.bit_count()
            self._size -= row.size + ROW_OVERHEAD
            self._newest = max(self._newest, self._read_to)
            self._read_to = row.number - 1
            yield row

    def _append(self, stored: StoredRow) -> Row:
        row = Row(stored)
        self._read_to = row.number
        if row.fresh:
            self.rows.append(row)
            self.count += row.fresh.bit_count()
            self._size += row.size + ROW_OVERHEAD
        return row
