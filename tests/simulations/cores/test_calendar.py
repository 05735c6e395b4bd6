"""The calendar: every timer once, in the order of time, and of addition at the same time."""

from __future__ import annotations

import random

from simulations.cores.calendar import WINDOW_BITS, Calendar

WINDOW_NS = 1 << WINDOW_BITS


def test_entries_are_taken_in_the_order_of_time_and_ties_in_that_of_addition() -> None:
    calendar, rng = Calendar(), random.Random(1)
    put: list[tuple[int, int]] = []
    taken: list[tuple[int, int]] = []

    def add(earliest_ns: int) -> None:
        at_ns = earliest_ns + rng.choice((0, 1, 1000, WINDOW_NS, 5 * WINDOW_NS))
        put.append((at_ns, len(put)))
        calendar.put((at_ns, len(put) - 1, None))

    for _ in range(100):
        add(0)
    while calendar.waiting or calendar.open:
        while calendar.open:
            at_ns, number, _ = calendar.open.pop()
            assert at_ns >> WINDOW_BITS == calendar.window
            taken.append((at_ns, number))
            if len(put) < 1000:
                add(at_ns)  # a timer that fires now may add one that is due now
        calendar.turn()
    assert taken == sorted(put) and len(put) == 1000


def test_windows_that_were_passed_hold_no_memory() -> None:
    calendar = Calendar()
    for window in range(1, 50):
        calendar.put((window * WINDOW_NS, None, None))
        calendar.turn()
        assert len(calendar.open) == 1 and not calendar.waiting
        calendar.open.pop()
