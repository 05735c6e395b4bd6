"""Messages that a consumer had and that are delivered again: now (`Shelf`), or when they are due (`Delays`).

Both keep sets of records by row, and both drop records that are settled meanwhile. A shelf gives its rows in
the order in which they came to it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice


class Shelf:
    """Messages that may be delivered as soon as a consumer has room."""

    __slots__ = ("_rows", "count")

    def __init__(self) -> None:
        self._rows: OrderedDict[int, int] = OrderedDict()
        self.count = 0

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def add(self, row: int, records: int) -> None:
        self._rows[row] = self._rows.get(row, 0) | records
        self.count += records.bit_count()

    def discard(self, row: int, records: int) -> int:
        """Take out those of these records that are here. Returns them."""
        here = self._rows.get(row, 0)
        found = here & records
        if found:
            self.count -= found.bit_count()
            if here == found:
                del self._rows[row]
            else:
                self._rows[row] = here ^ found
        return found

    def records(self, row: int) -> int:
        return self._rows.get(row, 0)

    def rows(self, count: int) -> Iterator[int]:
        """Yield the next rows, at most ``count``."""
        return islice(self._rows, count)


class Delays:
    """Messages that wait until they are due. A message waits at most once."""

    __slots__ = ("_heap", "_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        self._waiting = Shelf()

    @property
    def count(self) -> int:
        return self._waiting.count

    @property
    def next_due(self) -> float:
        """When the next one is due; infinity if none is."""
        return self._heap[0][0] if self._heap else float("inf")

    def add(self, row: int, index: int, due: float) -> None:
        self._waiting.add(row, 1 << index)
        heappush(self._heap, (due, row, index))

    def discard(self, row: int, records: int) -> int:
        """Take out those of these records that wait here. Returns them."""
        found = self._waiting.discard(row, records)
        if (
            found and len(self._heap) > 2 * self.count + 64
        ):  # settled records must not pile up until they are due
            records_of = self._waiting.records
            self._heap = [entry for entry in self._heap if records_of(entry[1]) >> entry[2] & 1]
            heapify(self._heap)
        return found

    def due(self, now: float) -> Iterator[tuple[int, int]]:
        """Take out everything that is due: row and index."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, row, index = heappop(heap)
            if self._waiting.discard(row, 1 << index):
                yield row, index

    def records(self, row: int) -> int:
        return self._waiting.records(row)
