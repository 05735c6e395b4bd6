"""Sequence numbers received from each publisher, so that a retry is not delivered twice.

This takes two steps. A block is *reserved* when it arrives. It is *committed* once all work on it is done,
and only then acknowledged. A block that fails in between is *released*: the publisher hears nothing, and its
retry counts as new. A retry of a reserved block is a duplicate like any other.

A `Publisher` is one run (boot) of a publishing program.

**Absent brokers.** A publisher that retries may not know which brokers its messages did not reach, because
the acknowledgement that named them was lost. So a publisher's record keeps their names with the numbers
committed meanwhile, and a duplicate is acknowledged with these names. There are at most `ABSENCES_MAX` ranges
of numbers. Beyond that the two oldest merge, with the names of both. That may name a broker too many, but
never one too few.

**Bounds.** A publisher has at most `RANGES_MAX` ranges of sequence numbers. The lowest are forgotten first,
as if they had not come. All publishers together have at most ``publishers_max`` times `RANGES_MEAN`, or
`RANGES_MEAN` each if there are more publishers. Beyond that, a publisher with about the most ranges
(`Publishers._crowded`) loses the lower half of its own. So a publisher with `RANGES_MEAN` or fewer never pays
for others. At most ``publishers_max`` publishers are kept. A publisher with a session here is never
forgotten. Among the others, the clock algorithm forgets the first that has been idle since it was last
checked; a publisher that was active goes to the back of the line. This is counted.

**Cost.** A new range, a new publisher and a block each take a constant number of steps on average. None of
them scans all publishers.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import Final

RANGES_MAX: Final = 1024
RANGES_MEAN: Final = 16
LEVELS: Final = RANGES_MAX.bit_length()
ABSENCES_MAX: Final = 8


class Publisher:
    """The sequence numbers of one publisher that arrived. ``sessions``: its sessions here now (see
    `Publishers.begin`). ``recent``: it was used since it was last checked. ``known``: it has not been
    forgotten."""

    __slots__ = (
        "_absences",
        "_ends",
        "_next",
        "_reserved",
        "_starts",
        "_table",
        "key",
        "known",
        "recent",
        "sessions",
    )

    def __init__(self, key: tuple[int, int], table: Publishers) -> None:
        self.key = key
        self.sessions = 0
        self.recent = False
        self.known = True
        self._table = table
        self._next = 0
        """All numbers that arrived are lower."""
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Committed ranges, ascending and disjoint, as starts and (exclusive) ends."""
        self._reserved: dict[int, int] = {}
        self._absences: tuple[_Absence, ...] = ()

    @property
    def ranges(self) -> int:
        return len(self._starts)

    def reserve(self, sequence: int, count: int) -> bool:
        """Reserve a block of ``count`` messages. False if it came before. A sealed block never changes its
        bounds."""
        if sequence < self._next and self.knows(sequence, count):
            return False
        end = sequence + count
        if end > self._next:
            self._next = end
        self._reserved[sequence] = end
        return True

    def knows(self, sequence: int, count: int) -> bool:
        """True if a block came before."""
        if sequence in self._reserved:
            return True
        place = bisect_right(self._starts, sequence) - 1
        return place >= 0 and sequence + count <= self._ends[place]

    def commit(self, sequence: int, absent: tuple[str, ...] = ()) -> None:
        """All work on a reserved block is done, but it did not reach the ``absent`` brokers."""
        end = self._reserved.pop(sequence)
        if absent:
            self._missed(sequence, end, absent)
        ends = self._ends
        if ends and ends[-1] == sequence:  # in order, as nearly always
            ends[-1] = end
        else:
            self._insert(sequence, end)

    def release(self, sequence: int) -> None:
        """The reserved block failed and may come again."""
        del self._reserved[sequence]

    def absent_for(self, sequence: int, count: int) -> list[str]:
        """Names of the brokers that were absent when these numbers were committed."""
        end = sequence + count
        return [name for a in self._absences if a.start < end and sequence < a.end for name in a.names]

    def _missed(self, start: int, end: int, names: tuple[str, ...]) -> None:
        absences = self._absences
        if absences and absences[-1].names == names:
            absences[-1].widen(start, end)
            return
        if len(absences) >= ABSENCES_MAX:
            first, second, *others = absences
            both = _Absence(first.start, first.end, tuple(dict.fromkeys(first.names + second.names)))
            both.widen(second.start, second.end)
            absences = (both, *others)
        self._absences = (*absences, _Absence(start, end, names))

    def _insert(self, start: int, end: int) -> None:
        starts, ends = self._starts, self._ends
        before = len(starts)
        first = bisect_right(starts, start)
        if first and ends[first - 1] >= start:
            first -= 1
            start = starts[first]
        last = first
        while last < len(starts) and starts[last] <= end:
            end = max(end, ends[last])
            last += 1
        starts[first:last] = [start]
        ends[first:last] = [end]
        if len(starts) > RANGES_MAX:
            self.forget_lowest(1)
        if self.known:
            self._table.count_ranges(self, before)

    def forget_lowest(self, count: int) -> None:
        """Forget so many ranges, as if they had not come."""
        del self._starts[:count], self._ends[:count]


class _Absence:
    """Numbers of one publisher from ``start`` to before ``end``, committed while brokers were absent."""

    __slots__ = ("end", "names", "start")

    def __init__(self, start: int, end: int, names: tuple[str, ...]) -> None:
        self.start = start
        self.end = end
        self.names = names

    def widen(self, start: int, end: int) -> None:
        self.start, self.end = min(self.start, start), max(self.end, end)


class Publishers:
    """All known publishers, by (publisher, boot)."""

    def __init__(self, publishers_max: int) -> None:
        self.forgotten = 0
        """Publishers forgotten because there were too many. Their retries may be delivered twice."""
        self._publishers_max = publishers_max
        self._ranges = 0
        self._table: dict[tuple[int, int], Publisher] = {}
        self._idle: OrderedDict[Publisher, None] = OrderedDict()
        """Publishers without a session, in the order of the next checks."""
        self._crowded: list[dict[Publisher, None]] = [{} for _ in range(LEVELS)]
        """Publishers with more than `RANGES_MEAN` ranges, by `_level`. Each in the highest level has more
        than half of the maximum."""

    def __len__(self) -> int:
        return len(self._table)

    def get(self, publisher: int, boot: int) -> Publisher:
        """The record of a publisher, which now counts as used."""
        key = (publisher, boot)
        record = self._table.get(key)
        if record is not None:
            record.recent = True
            return record
        record = self._table[key] = Publisher(key, self)
        self._idle[record] = None
        if len(self._table) > self._publishers_max:
            self._forget_one(record)
        return record

    def find(self, publisher: int, boot: int) -> Publisher | None:
        """The record of a publisher, if there is one; it does not count as used."""
        return self._table.get((publisher, boot))

    def begin(self, publisher: int, boot: int) -> Publisher:
        """The record of a publisher with a new session here, until `end`."""
        record = self.get(publisher, boot)
        record.sessions += 1
        self._idle.pop(record, None)
        return record

    def end(self, record: Publisher) -> None:
        """A session of a publisher has ended."""
        record.sessions -= 1
        if not record.sessions:
            self._idle[record] = None
            if len(self._table) > self._publishers_max:
                self._forget_one(record)
                self._trim()

    def count_ranges(self, record: Publisher, before: int) -> None:
        """Count the ranges of a publisher that had ``before`` of them."""
        self._ranges += record.ranges - before
        self._move(record, before)
        self._trim()

    def _trim(self) -> None:
        """Keep the bound on all ranges. The publisher that came last into the highest level loses ranges."""
        while self._ranges > max(self._publishers_max, len(self._table)) * RANGES_MEAN:
            crowd = next(crowd for crowd in reversed(self._crowded) if crowd)
            record, _ = crowd.popitem()
            had = record.ranges
            record.forget_lowest(had // 2)
            self._ranges -= had // 2
            self._move(record, had)

    def _move(self, record: Publisher, before: int) -> None:
        earlier, level = _level(before), _level(record.ranges)
        if level == earlier:
            return
        if earlier:
            self._crowded[earlier - 1].pop(record, None)
        if level:
            self._crowded[level - 1][record] = None

    def _forget_one(self, newest: Publisher) -> None:
        """Forget an idle publisher, if there is one besides the newest."""
        idle = self._idle
        while len(idle) > 1:  # if all were used since, the first one goes
            record = next(iter(idle))
            if record.recent or record is newest:
                record.recent = False
                idle.move_to_end(record)
                continue
            del idle[record], self._table[record.key]
            level = _level(record.ranges)
            if level:
                del self._crowded[level - 1][record]
            record.known = False
            self._ranges -= record.ranges
            self.forgotten += 1
            return


def _level(ranges: int) -> int:
    """0 up to `RANGES_MEAN` ranges, then 1 up to twice as many, and so on by powers of two."""
    return (max(0, ranges - 1) // RANGES_MEAN).bit_length()
