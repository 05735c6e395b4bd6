"""Detects blocks that came before.

A block is identified by the publisher, its boot and its numbers, and a retry sends the same bytes. So the
numbers and the CRC of each block are kept with it, in the same transaction, for as long as the publisher may
retry it:

* With each block the publisher sends its lowest unacknowledged number. Everything below is forgotten, and
  this mark is kept instead. A block that begins below the mark is `Verdict.PAST`. It is not kept, since it
  may have been kept before. It is never acknowledged, since it may not have been. An honest publisher does
  not wait for it. A client that claims to be another publisher can make that one's blocks fail, but cannot
  make them vanish.
* A publisher that was silent for seven days is forgotten. These are days in which the home worked: of the
  time between two commits at most `GAP_US` counts. So neither a clock that leaps nor a home that was away for
  a week makes it forget publishers that wait for it.

Both happen in steps of bounded size, within commits that are made anyway. The pieces of a large body share
one number and are distinguished by their offsets. A row at the offset behind the last byte says that the body
is whole: only then is a retry of a piece a duplicate. A body whose pieces cannot be found must not look like
one that was stored.

Nearly every block is its publisher's newest. So the highest number of each publisher is cached, and only
blocks that are not above it are looked up.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import apsw

from mesh.database.settings import numbers, one
from mesh.journal import checksums
from mesh.journal.records import Verdict
from mesh.journal.statements import insert
from mesh.wire.blocks import COUNT_MAX

SILENT_US: Final = 7 * 24 * 3600 * 1_000_000
GAP_US: Final = 24 * 3600 * 1_000_000
HEARD_US: Final = 3600 * 1_000_000
"""Precision of the time at which a publisher was last heard. Writing it costs a page for each commit."""
FORGET_MAX: Final = 256
"""Blocks of one publisher that one commit forgets. Most commits get fewer from it, so none accumulate."""
LOOKED_AT: Final = 4
"""Publishers that one commit checks for silence."""
KNOWN_MAX: Final = 4096
"""Publishers in the cache."""

Source = tuple[int, int]
"""A publisher and its boot, signed."""
FIRST: Final = (-(1 << 63), -(1 << 63))
LAST: Final = (1 << 63) - 1


class Clock(NamedTuple):
    """Time by which silence is measured: it goes on with ``wall_us``, and does not leap with it."""

    active_us: int
    wall_us: int

    def at(self, wall_us: int) -> Clock:
        """The clock at another wall time."""
        return Clock(self.active_us + min(max(0, wall_us - self.wall_us), GAP_US), wall_us)


class Known:
    """Cached facts about a publisher: its mark and the time when it was heard, both as on disk, and the
    highest number of a noted block."""

    __slots__ = ("heard_us", "mark", "newest")

    def __init__(self, mark: int, heard_us: int, newest: int) -> None:
        self.mark = mark
        self.heard_us = heard_us
        self.newest = newest


class Duplicates:
    """The blocks that came before, within one transaction. ``known`` outlives it; undoing the transaction
    must empty it."""

    def __init__(self, db: apsw.Connection, now_us: int, known: dict[Source, Known]) -> None:
        self._db = db
        self._now_us = now_us
        self._known = known
        self._marks: dict[Source, int] = {}
        """The new mark of each publisher in this commit."""
        self._noted: list[tuple[int, ...]] = []
        """Rows to write."""

    def judge(self, source: Source, first: int, last: int, piece: int, crc: int) -> Verdict:
        """STORED if the block is new, or DUPLICATE, CONFLICT, PAST."""
        known = self._of(source)
        if first < self._marks.setdefault(source, known.mark):
            return Verdict.PAST
        if first > known.newest:
            return Verdict.STORED
        self._write()
        found = numbers(
            self._db,
            "select first, last, piece, crc from came where publisher = ? and boot = ? and first <= ?"
            " order by first desc, piece desc limit 1",
            (*source, last),
        )
        if not found or found[0][1] < first:
            return Verdict.STORED
        before = found[0]
        if before[1] - before[0] >= COUNT_MAX:  # a flipped bit; no block has so many messages
            return Verdict.STORED
        if before[:2] == (first, last) and before[2] != piece:  # other pieces of the same body
            found = numbers(
                self._db,
                "select first, last, piece, crc from came where publisher = ? and boot = ? and first = ?"
                " and piece = ?",
                (*source, first, piece),
            )
            if not found:
                return Verdict.STORED
            before = found[0]
        return Verdict.DUPLICATE if before == (first, last, piece, crc) else Verdict.CONFLICT

    def note(self, source: Source, first: int, last: int, piece: int, crc: int) -> None:
        """Note a new block that is kept."""
        known = self._of(source)
        known.newest = max(known.newest, last)
        self._noted.append((*source, first, piece, last, crc))

    def note_whole(self, source: Source, first: int, size: int) -> None:
        """Note that a large body of this size is whole."""
        self._noted.append((*source, first, size, first, 0))

    def is_whole(self, source: Source, first: int, size: int) -> bool:
        """True if a large body of this size was noted as whole."""
        self._write()
        return (
            one(
                self._db,
                "select 1 from came where publisher = ? and boot = ? and first = ? and piece = ?",
                (*source, first, size),
            )
            is not None
        )

    def heard(self, source: Source, lowest: int) -> None:
        """A publisher sent its lowest unacknowledged number."""
        self._marks[source] = max(self._marks.get(source, self._of(source).mark), lowest)

    def forget(self) -> list[tuple[Source, int]]:
        """Write the noted blocks and the marks of this commit's publishers, and forget everything below them.
        Returns the marks that rose."""
        self._write()
        risen = []
        for source, mark in self._marks.items():
            known = self._of(source)
            if mark > known.mark:
                risen.append((source, mark))
                self._forget(source, mark)
            if mark > known.mark or abs(self._now_us - known.heard_us) >= HEARD_US:
                self._db.execute(
                    "insert into publisher values(?, ?, ?, ?, ?) on conflict do update set"
                    " lowest = excluded.lowest, heard_us = excluded.heard_us, crc = excluded.crc",
                    (*source, mark, self._now_us, checksums.of_publisher(*source, mark)),
                )
                known.mark, known.heard_us = mark, self._now_us
        return risen

    def silent(self, after: Source) -> tuple[Source, Source | None]:
        """Check the next few publishers behind ``after``. Returns where to continue, and one that was
        silent."""
        found = numbers(
            self._db,
            "select publisher, boot, heard_us from publisher where (publisher, boot) > (?, ?)"
            " order by publisher, boot limit ?",
            (*after, LOOKED_AT),
        )
        for publisher, boot, heard_us in found:
            source = (publisher, boot)
            if self._now_us - heard_us >= SILENT_US and source not in self._marks:
                return after, source  # and again until it is removed
            after = source
        return (after if found else FIRST), None

    def forget_all(self, source: Source) -> bool:
        """Forget a part of a publisher's blocks; with the last part, the publisher. True if it is gone."""
        self._forget(source, LAST)
        if one(self._db, "select 1 from came where publisher = ? and boot = ? limit 1", source):
            return False
        self._db.execute("delete from publisher where publisher = ? and boot = ?", source)
        self._known.pop(source, None)
        return True

    def _forget(self, source: Source, below: int) -> None:
        self._db.execute(
            "delete from came where (publisher, boot, first, piece) in (select publisher, boot, first, piece"
            " from came where publisher = ? and boot = ? and first < ? and last < ? order by first limit ?)",
            (*source, below, below, FORGET_MAX),
        )

    def _write(self) -> None:
        # Replaced, not only inserted: a damaged row must not make each retry of its block fail the commit.
        insert(self._db, "came", self._noted, replace=True)
        self._noted.clear()

    def _of(self, source: Source) -> Known:
        known = self._known.get(source)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._write()
            mark, heard_us = self._mark(source)
            ((newest,),) = numbers(
                self._db,
                "select last from came where publisher = ? and boot = ? order by first desc limit 1",
                source,
            ) or [(0,)]
            known = self._known[source] = Known(mark, heard_us, newest)
        return known

    def _mark(self, source: Source) -> tuple[int, int]:
        """The lowest number that a publisher waits for, and when it was heard.

        A damaged mark counts as 0, as if it had never been told. At worst a retry is stored again. With a
        mark that is too high, blocks are PAST, and an outbox frees those.
        """
        found = numbers(
            self._db,
            "select lowest, heard_us, crc from publisher where publisher = ? and boot = ?",
            source,
        )
        for mark, heard_us, crc in found:
            if crc == checksums.of_publisher(*source, mark):
                return mark, heard_us
        return 0, -HEARD_US
