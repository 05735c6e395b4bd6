"""Brokers that came, left and failed in each window, and the rate of change, from the stretches of all lives.
Pure.

The rate is that of Godfrey, Shenker and Stoica (SIGCOMM 2006). For each change it takes the number of brokers
that changed, divided by the larger of the numbers present before and after. It sums this over changes, for
each second. **Ties**: events in the same microsecond are one change, so the order of rows does not matter.
When a stretch turns unknown or known again, the number of live brokers changes, but that is not a change:
nobody is known to have come or left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from mesh.analysis.lives.availability import FAILURES
from mesh.analysis.lives.evidence import SECOND

if TYPE_CHECKING:
    from mesh.analysis.results.tables import Life

ALIVE: Final = ("up", "paused")
WINDOWS_MOST: Final = 100_000
"""A longer run has windows only where something changed. A clock that is wrong by years makes such runs."""


class Told(NamedTuple):
    """A row of the table ``churn`` without its run; ``start`` in microseconds."""

    start: int
    window_s: float
    alive: int
    joins: int
    leaves: int
    failures: int
    rejoins: int
    rate: float


class _Moment:
    """The events of one microsecond."""

    __slots__ = ("changed", "counts", "step")

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self.changed = 0
        """Brokers that came or went."""
        self.step = 0
        """The change of the number of live brokers."""


def churn(lives: Iterable[Life], window_s: float) -> list[Told]:
    """All windows from the first stretch's start to the last one's end, or only those with a change if there
    were more than `WINDOWS_MOST`. They begin at multiples of their length."""
    moments: dict[int, _Moment] = defaultdict(_Moment)
    begin, end = None, 0
    for life in lives:
        begin = life.start if begin is None else min(begin, life.start)
        end = max(end, life.end)
        _note(moments, life)
    if begin is None:
        return []
    window = round(window_s * SECOND)
    by_window: dict[int, list[_Moment]] = defaultdict(list)
    for at in sorted(moments):
        by_window[at // window].append(moments[at])
    first, last = begin // window, max(max(begin, end - 1) // window, *by_window)
    numbers = range(first, last + 1)
    alive, found = 0, []
    for number in numbers if len(numbers) <= WINDOWS_MOST else sorted({first, *by_window}):
        found.append(_window(number * window, window_s, alive, by_window.get(number, [])))
        alive += sum(moment.step for moment in by_window.get(number, []))
    return found


def _note(moments: dict[int, _Moment], life: Life) -> None:
    """Record the start and the end of a stretch."""
    if life.state not in ALIVE:
        if life.cause in ("start", "restart"):
            moments[life.end].counts["rejoins"] += 1
            moments[life.end].changed += 1
        return
    moments[life.start].step += 1
    if life.no == 1:
        moments[life.start].counts["joins"] += not life.truncated
        moments[life.start].changed += not life.truncated
    if life.cause is None:
        return
    moments[life.end].step -= 1
    if life.cause == "leave" or life.cause in FAILURES:
        moments[life.end].counts["leaves" if life.cause == "leave" else "failures"] += 1
        moments[life.end].changed += 1


def _window(start: int, window_s: float, alive: int, moments: list[_Moment]) -> Told:
    counts: dict[str, int] = defaultdict(int)
    total, before = 0.0, alive
    for moment in moments:
        for name, count in moment.counts.items():
            counts[name] += count
        after = before + moment.step
        if moment.changed:
            total += moment.changed / max(before, after, 1)
        before = after
    return Told(
        start,
        window_s,
        alive,
        counts["joins"],
        counts["leaves"],
        counts["failures"],
        counts["rejoins"],
        total / window_s,
    )
