"""When a broker was stopped and went on: it wrote nothing, and its loop was late by that afterwards. Pure.

Silence alone is no pause: a broker that is cut off hears nothing, and writes little. Lateness alone does
not say when. `Late` rows say how late the loop was at most since the row before; the pause is the silence
in that time that is long enough, and ends where the silence ends.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from mesh.analysis.lives.evidence import SECOND, Evidence, Stay
from mesh.analysis.lives.spans import Span, merged

BEAT: Final = SECOND // 10
"""How often a broker samples the lateness of its loop: a pause is longer than the lateness by up to this."""
SLOT: Final = 0.25
"""Periods: by so much a silence may be longer than it looks, since its ends are known to an eighth."""


class Pause(NamedTuple):
    """A process that did not run; its start may be wrong by ``error`` microseconds."""

    start: int
    end: int
    error: int


def pauses(evidence: Evidence, stay: Stay, end: int) -> list[Pause]:
    """The pauses of a boot that has a log, over 2.2 periods, in order, before its ``end``."""
    if stay.log is None:
        return []
    gaps = _gaps(evidence, stay)
    stats = round(stay.log.stats_s * SECOND)
    found: dict[int, Pause] = {}
    for row in sorted(evidence.late, key=lambda row: row.at):
        lateness = round(row.late_s * SECOND)
        if row.boot != stay.boot or lateness + BEAT < evidence.silence:
            continue
        covered = Span(row.at - lateness - stats - BEAT, row.at)
        shortest = lateness - round(SLOT * evidence.period)
        fitting = [gap for gap in gaps if _holds(gap, covered, shortest)]
        if fitting:
            gap = min(fitting, key=lambda gap: (gap.last - gap.first, gap.first))
            start = max(gap.first, gap.last - lateness)
            if gap.last <= end:
                found.setdefault(gap.last, Pause(start, gap.last, start - gap.first))
    return sorted(found.values())


def _gaps(evidence: Evidence, stay: Stay) -> list[Span]:
    """The silences between its rows of over 2.2 periods."""
    assert stay.log is not None
    fuzz = round(SLOT * evidence.period)
    spans = [Span(stay.first, stay.first), Span(stay.log.last, stay.log.last)]
    spans += [Span(first, last) for boot, first, last in evidence.awake if boot == stay.boot]
    spans += [Span(row.at, row.at) for row in evidence.late if row.boot == stay.boot]
    return [
        Span(before.last, after.first)
        for before, after in pairwise(merged(spans))
        if after.first - before.last + fuzz >= evidence.silence
    ]


def _holds(gap: Span, covered: Span, shortest: int) -> bool:
    """Whether the pause that made the loop so late may be this silence."""
    return covered.first < gap.last <= covered.last and gap.last - gap.first >= shortest
