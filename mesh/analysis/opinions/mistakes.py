"""Times in which an observer reported a running member suspect or dead. Pure.

A mistake begins with the observer's report. It ends when the observer reports the member alive, when the
member's process does end, or when the observer's own life ends. A report after the process had ended is not a
mistake.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mesh.analysis.opinions.causes import Silence, Stretch, cause_of_death
from mesh.analysis.opinions.changes import Saying


class Error(NamedTuple):
    """A row of the table ``mistakes`` without its run, in the order of its columns."""

    observer: str
    subject: str
    state: str
    start: int
    end: int | None
    cause: str


def mistakes_of(
    subject: str,
    said: Iterable[Saying],
    life: Sequence[Stretch],
    silences: Mapping[str, Iterable[Silence]],
    ends: dict[str, Sequence[int]],
    *,
    period_us: int,
) -> list[Error]:
    """All mistakes about one member. ``ends`` has the ends of observers' lives, in order."""
    of_observer: dict[str, list[Saying]] = defaultdict(list)
    for saying in said:
        if saying.node != subject:
            of_observer[saying.node].append(saying)
    found: list[Error] = []
    for observer, sayings in sorted(of_observer.items()):
        sayings.sort(key=lambda each: each.at)
        open_: dict[str, tuple[int, str]] = {}
        for saying in sayings:
            if saying.state in ("alive", "left"):
                found += _closed(observer, subject, open_, saying.at, life, ends.get(observer, ()))
            elif saying.state in ("suspect", "dead"):
                if saying.state == "dead" and "suspect" in open_:
                    only = {"suspect": open_.pop("suspect")}
                    found += _closed(observer, subject, only, saying.at, life, ends.get(observer, ()))
                tellers = {saying.node, saying.via}
                death = cause_of_death(saying.at, saying.boot, tellers, life, silences, period_us=period_us)
                if death.cause in ("paused", "cut off", "mistaken") and saying.state not in open_:
                    open_[saying.state] = (saying.at, death.cause)
        found += _closed(observer, subject, open_, None, life, ends.get(observer, ()))
    return sorted(found, key=lambda each: (each.start, each.observer, each.state))


def _closed(
    observer: str,
    subject: str,
    open_: dict[str, tuple[int, str]],
    at: int | None,
    life: Sequence[Stretch],
    ends: Sequence[int],
) -> list[Error]:
    """The open mistakes, ended at ``at`` or by an earlier end of a process. Empties ``open_``."""
    closed = []
    for state, (start, cause) in open_.items():
        over = [time for time in ends if time > start]
        over += [
            each.end for each in life if each.cause in ("crash", "power_off", "leave") and each.end > start
        ]
        if at is not None:
            over.append(at)
        closed.append(Error(observer, subject, state, start, min(over, default=None), cause))
    open_.clear()
    return closed
