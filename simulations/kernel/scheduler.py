"""Virtual time: one queue of future actions, ordered by (instant, order of scheduling).

Time is an integer number of nanoseconds since the run began, so that no rounding decides which of two events
comes first. This module knows nothing of loops or networks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000

UNWANTED_MAX: Final = 100
"""Up to this number, dead actions are not worth sweeping out."""

_push: Final = heapq.heappush  # bound once: every packet and every turn goes through it


def nanoseconds(seconds: float) -> int:
    """Seconds in the scheduler's unit."""
    return round(seconds * SECOND)


class Scheduler:
    """A heap of (instant, serial, action).

    Actions check whether they are still needed. If one is known not to be, `forget_one` reports it, so that
    they do not pile up.
    """

    __slots__ = ("events", "heap", "now_ns", "serial", "unwanted")

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0
        """How many actions have run."""
        self.heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        """The heap, the next action first. Only `at` adds to it, and `Half.send` in its place."""
        self.unwanted = 0
        """The number of actions known to do nothing."""
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
        """Reschedule all calls of ``action``: ``when_ns`` computes their new instants from their arguments.

        An instant that has passed means now.
        """
        for place, (_, serial, waiting, arguments) in enumerate(self.heap):
            if waiting == action:
                moved_ns = max(self.now_ns, when_ns(*arguments))
                self.heap[place] = (moved_ns, serial, waiting, arguments)
        heapq.heapify(self.heap)

    def forget_one(self, is_unwanted: Callable[[Callable[..., object], tuple[Any, ...]], bool]) -> None:
        """One more action will do nothing.

        When these are half of all, they are swept out: those for which ``is_unwanted(action, arguments)`` is
        true.
        """
        self.unwanted += 1
        if self.unwanted > UNWANTED_MAX and self.unwanted * 2 > len(self.heap):
            self.heap[:] = [entry for entry in self.heap if not is_unwanted(entry[2], entry[3])]
            heapq.heapify(self.heap)
            self.unwanted = 0

    def next_serial(self) -> int:
        """A number that is unique in a run: the hash of tasks and futures."""
        self.serial += 1
        return self.serial

    @property
    def next_ns(self) -> int | None:
        """When the next action is due; None if nothing will ever happen again by itself."""
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
