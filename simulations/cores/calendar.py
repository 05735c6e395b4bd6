"""A calendar of thousands of timers: sorted by windows of time, and within a window when it opens.

A heap of thousands of timers touches a dozen of them to take one, and the caches hold few. Here a later timer
is only appended to the list of its window, and a list is sorted once, when its window opens. Few timers are
put into an open window; each is inserted at its place. Timers of the same instant are taken in the order in
which they were put.
"""

from __future__ import annotations

from bisect import insort_left
from collections import defaultdict
from operator import itemgetter
from typing import Any, Final

WINDOW_BITS: Final = 22
"""A window is 2**22 ns, which are 4.2 ms: few have timers of fewer than a thousand brokers, and its list is
sorted in no time for ten thousand."""

Entry = tuple[int, Any, Any]
"""When, and what."""

_when: Final = itemgetter(0)


def _latest_first(entry: Entry) -> int:
    return -entry[0]


class Calendar:
    """``open`` holds what is due in this window, the next to come at its end: take it by `list.pop`."""

    __slots__ = ("open", "waiting", "window")

    def __init__(self) -> None:
        self.open: list[Entry] = []
        self.window = 0
        self.waiting: defaultdict[int, list[Entry]] = defaultdict(list)
        """By windows to come, in the order they were put."""

    def put(self, entry: Entry) -> None:
        """It must not be due before the present window."""
        window = entry[0] >> WINDOW_BITS
        if window > self.window:
            self.waiting[window].append(entry)
        else:
            insort_left(self.open, entry, key=_latest_first)

    def last_ns(self) -> int:
        """The end of the present window."""
        return (self.window + 1 << WINDOW_BITS) - 1

    def turn(self) -> None:
        """Open the next window; there is nothing left in the one before."""
        self.window += 1
        if self.window in self.waiting:
            self.open += self.waiting.pop(self.window)
            self.open.sort(key=_when)  # stable, as `put` promises
            self.open.reverse()
