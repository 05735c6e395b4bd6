"""Detects when a broker was stopped and continued: it wrote nothing, and its loop was accordingly late
afterwards. Pure.

Silence alone is no pause: a broker that is cut off hears nothing and writes little. Lateness alone does not
say when the pause was. A `Late` row gives the maximum lateness of the loop since the row before. The pause is
a silence in that time that is long enough, and it ends where the silence ends.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from mesh.analysis.lives.evidence import SECOND, Evidence, Stay
from mesh.analysis.lives.spans import Span, merged

BEAT: Final = SECOND // 10
"""Interval at which a broker samples its loop's lateness. A pause is longer than the lateness by up to
this."""
SLOT: Final = 0.25
"""Periods. A silence may be longer than it looks by so much, since its ends are known to an eighth."""


class Pause(NamedTuple):
    """A time in which a process did not run. Its start may be wrong by ``error`` microseconds."""

    start: int
    end: int
    error: int


def pauses(evidence: Evidence, stay: Stay, end: int) -> list[Pause]:
    """The pauses of a boot that has a log, longer than 2.2 periods, in order, before its ``end``."""
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
    """The silences between its rows, longer than 2.2 periods."""
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
    """True if the pause that made the loop so late may be this silence."""
    return covered.first < gap.last <= covered.last and gap.last - gap.first >= shortest
