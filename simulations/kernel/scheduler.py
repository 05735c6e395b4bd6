"""Virtual time: one queue of things to happen, ordered by (instant, order of asking).

Time is an integer number of nanoseconds since the run began, so that no rounding decides which of two events
comes first. Nothing here knows of loops or networks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000

UNWANTED_MAX: Final = 100
"""So many actions that do nothing are not worth sweeping out."""

_push: Final = heapq.heappush  # bound once: every packet and every turn goes through it


def nanoseconds(seconds: float) -> int:
    """Seconds as the scheduler counts them."""
    return round(seconds * SECOND)


class Scheduler:
    """A heap of (instant, serial, action). Actions look whether they are still wanted; who knows of one that
    is not says so (`forget_one`), so that they do not pile up.
    """

    __slots__ = ("events", "heap", "now_ns", "serial", "unwanted")

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0
        """How many actions have run."""
        self.heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        """What is due, the first in front; only `at` adds to it, and `Half.send` in its
        place."""
        self.unwanted = 0
        """How many of them are known to do nothing."""
        self.serial = 0
        """The last number that was given, to an action or by `next_serial`."""

    def at(self, when_ns: int, action: Callable[..., object], *arguments: Any) -> None:
        """Run ``action(*arguments)`` at an instant, which is now if it has passed."""
        self.serial = serial = self.serial + 1
        now_ns = self.now_ns
        _push(self.heap, (when_ns if when_ns > now_ns else now_ns, serial, action, arguments))

    def after(self, delay_ns: int, action: Callable[..., object], *arguments: Any) -> None:
        self.at(self.now_ns + delay_ns, action, *arguments)

    def move(self, action: Callable[..., object], when_ns: Callable[..., int]) -> None:
        """Give whatever is to be done by ``action`` another instant, which ``when_ns`` tells from its
        arguments; it is now if that has passed."""
        for place, (_, serial, waiting, arguments) in enumerate(self.heap):
            if waiting == action:
                moved_ns = max(self.now_ns, when_ns(*arguments))
                self.heap[place] = (moved_ns, serial, waiting, arguments)
        heapq.heapify(self.heap)

    def forget_one(self, is_unwanted: Callable[[Callable[..., object], tuple[Any, ...]], bool]) -> None:
        """One more action will do nothing. When they are half of all they are swept out: those of which
        ``is_unwanted(action, arguments)`` holds."""
        self.unwanted += 1
        if self.unwanted > UNWANTED_MAX and self.unwanted * 2 > len(self.heap):
            self.heap[:] = [entry for entry in self.heap if not is_unwanted(entry[2], entry[3])]
            heapq.heapify(self.heap)
            self.unwanted = 0

    def next_serial(self) -> int:
        """A number that is given once in a run: what tasks and futures are hashed by."""
        self.serial += 1
        return self.serial

    @property
    def next_ns(self) -> int | None:
        """When the next action is due; None when nothing will ever happen again by itself."""
        return self.heap[0][0] if self.heap else None

    def run_to(self, end_ns: int, events_max: int) -> None:
        """Run what is due up to and at an instant, until ``events`` is at least ``events_max``.

        The clock stays at the last action that ran; see `advance_to`.
        """
        heap, pop = self.heap, heapq.heappop
        done = 0
        try:
            for done in range(1, events_max - self.events + 1):
                if not heap or heap[0][0] > end_ns:
                    done -= 1
                    break
                self.now_ns, _, action, arguments = pop(heap)
                action(*arguments)
        finally:
            self.events += done

    def advance_to(self, when_ns: int) -> None:
        """Let time pass in which nothing happens."""
        assert self.next_ns is None or self.next_ns >= when_ns, "something is due before that"
        self.now_ns = max(self.now_ns, when_ns)

    def clear(self) -> None:
        self.heap.clear()
        self.unwanted = 0
