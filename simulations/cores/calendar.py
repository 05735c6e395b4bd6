"""A calendar of thousands of timers: grouped by windows of time, and sorted when a window opens.

A heap of thousands of timers touches a dozen of them to take one, and few of those are in the caches. Here a
later timer is only appended to the list of its window, and a list is sorted once, when its window opens. Few
timers are added to an open window; each is inserted at its place. Timers of the same instant are taken in the
order in which they were added.
"""

from __future__ import annotations

from bisect import insort_left
from collections import defaultdict
from operator import itemgetter
from typing import Any, Final

WINDOW_BITS: Final = 22
"""A window is 2**22 ns, that is 4.2 ms. It rarely holds timers of a thousand brokers, and sorting its list is
quick even for ten thousand.
"""

Entry = tuple[int, Any, Any]
"""The time, and the item."""

_when: Final = itemgetter(0)


def _latest_first(entry: Entry) -> int:
    return -entry[0]


class Calendar:
    """``open`` holds the timers of the current window, the next one at its end: take it by `list.pop`."""

    __slots__ = ("open", "waiting", "window")

    def __init__(self) -> None:
        self.open: list[Entry] = []
        self.window = 0
        self.waiting: defaultdict[int, list[Entry]] = defaultdict(list)
        """Timers of later windows, in the order of addition."""

    def put(self, entry: Entry) -> None:
        """Add a timer. It must not be due before the current window."""
        window = entry[0] >> WINDOW_BITS
        if window > self.window:
            self.waiting[window].append(entry)
        else:
            insort_left(self.open, entry, key=_latest_first)

    def last_ns(self) -> int:
        """The end of the current window."""
        return (self.window + 1 << WINDOW_BITS) - 1

    def turn(self) -> None:
        """Open the next window; the current one must be empty."""
        self.window += 1
        if self.window in self.waiting:
            self.open += self.waiting.pop(self.window)
            self.open.sort(key=_when)  # stable, as `put` promises
            self.open.reverse()
