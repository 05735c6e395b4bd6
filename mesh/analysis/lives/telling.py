"""The life of a broker, from all evidence: consecutive stretches, each in one state. Pure.

States follow from causes. After a crash or a power loss a broker is down, after a leave away. Without
evidence it is unknown, which is neither. Membership's opinion is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import Final, NamedTuple

from mesh.analysis.lives.endings import Cause, ending
from mesh.analysis.lives.evidence import SECOND, Evidence, Stay, stays
from mesh.analysis.lives.pauses import SLOT, pauses
from mesh.analysis.lives.spans import Span, merged, without

AFTER: Final[dict[Cause, str]] = {
    "leave": "away",
    "crash": "down",
    "power_off": "down",
    "log lost": "unknown",
}
"""The state that follows an end."""
BEGAN: Final = {"paused": "pause", "unknown": "log lost"}
ENDED: Final = {"paused": "resume", "unknown": "heard again"}
"""The causes at the start and at the end of a state within a boot."""
EARLY: Final = 0.2
"""Periods. A first heartbeat may appear this early: it is known to an eighth, and clocks differ a little."""


class Told(NamedTuple):
    """A row of the table ``lives`` without its run and node. Times are in microseconds."""

    no: int
    boot: str | None
    state: str
    start: int
    end: int
    cause: str | None
    truncated: bool
    censored: bool
    error_s: float
    met: int | None


class _Break(NamedTuple):
    """A time within a boot in which it was paused, or in which its state is unknown."""

    first: int
    last: int
    state: str
    error: int
    """Maximum error of ``first``."""


class _Stretch(NamedTuple):
    start: int
    end: int
    state: str
    boot: str | None
    cause: str | None
    error: int
    met: int | None = None
    """When another broker first heard it in this time."""


def tell(evidence: Evidence) -> list[Told]:
    """The stretches of one broker in order, from its first sign to the end of the logs."""
    boots = stays(evidence)
    stretches = [stretch for stay in boots for stretch in _of_boot(evidence, stay)]
    told = [stretch for stretch in stretches if _is_told(stretch)]
    return [
        Told(
            number,
            each.boot,
            each.state,
            each.start,
            each.end,
            each.cause,
            number == 1 and boots[0].truncated,
            each.cause is None,
            each.error / SECOND,
            each.met,
        )
        for number, each in enumerate(told, 1)
    ]


def _is_told(stretch: _Stretch) -> bool:
    """False if it has no length. But a process that ended with its first sign failed like any other."""
    return stretch.end > stretch.start or (stretch.state == "up" and stretch.cause in AFTER)


def _of_boot(evidence: Evidence, stay: Stay) -> Iterator[_Stretch]:
    """The stretches of one boot, and the one after it until the next boot."""
    heard = _heard(evidence, stay)
    end = ending(evidence, stay, heard)
    at, boot = stay.first, stay.boot
    stops = pauses(evidence, stay, end.at)
    paused = [Span(pause.start, pause.end) for pause in stops]
    silent = [span for span in _silences(evidence, stay, heard) if span.last <= end.at]
    unknown = [part for span in silent for part in without(span, paused)]
    breaks = sorted(
        [_Break(pause.start, pause.end, "paused", pause.error) for pause in stops]
        + [_Break(*part, "unknown", evidence.period) for part in unknown if _is_long(part, evidence)]
    )
    for each, following in zip_longest(breaks, breaks[1:]):
        if at < each.first or at == stay.first:
            yield _Stretch(
                at, each.first, "up", boot, BEGAN[each.state], each.error, _met(heard, at, each.first)
            )
        if following is not None and following.first == each.last:
            yield _Stretch(each.first, each.last, each.state, boot, BEGAN[following.state], following.error)
        else:
            yield _Stretch(each.first, each.last, each.state, boot, ENDED[each.state], 0)
        at = each.last
    yield _Stretch(at, end.at, "up", boot, end.cause, end.error, _met(heard, at, end.at))
    if end.cause is None:
        return
    state = AFTER[end.cause]
    cause = None if not stay.followed else "start" if state == "away" else "restart"
    yield _Stretch(end.at, min(stay.until, evidence.end), state, None, cause, 0)


def _heard(evidence: Evidence, stay: Stay) -> list[Span]:
    """When others heard this boot. Heartbeats do not name their boot. Those that continued into the next one
    belong to this one until at least 2.2 periods before it. Those that began just before it belong to it."""
    early = round(EARLY * evidence.period) if stay.followed else 0
    spans = []
    for stretch in evidence.heard:
        if stretch.first >= stay.until - early or stretch.last < stay.first:
            continue
        if stretch.resumed and stay.followed and stay.until - evidence.silence <= stretch.first:
            continue
        first, last = max(stretch.first, stay.first), stretch.last
        if stay.followed and last >= stay.until:
            last = max(first, stay.until - evidence.silence)
        spans.append(Span(first, last))
    spans += [
        Span(word.at, word.at)
        for word in evidence.said
        if word.subject_boot == stay.boot and word.reason == "refuted" and stay.first <= word.at < stay.until
    ]
    return merged(spans, evidence.silence)


def _met(heard: list[Span], begin: int, until: int) -> int | None:
    """When others first heard it between these times."""
    return next((max(each.first, begin) for each in heard if each.last >= begin and each.first < until), None)


def _silences(evidence: Evidence, stay: Stay, heard: list[Span]) -> list[Span]:
    """Times in which a boot gave no sign, and its log does not tell why: it ran, was paused, or cut off.

    This holds where its log is lost. It also holds where it was not heard and wrote nothing, if its log ends
    before the next counters. They would tell how late its loop was."""
    logged = _logged(evidence, stay)
    signs = merged([Span(stay.first, stay.first), *logged, *heard], evidence.silence)
    found = [Span(before.last, after.first) for before, after in pairwise(signs)]
    fuzz = round(SLOT * evidence.period)
    counters = 0 if stay.log is None else round(stay.log.stats_s * SECOND)
    rows = [Span(first, last) for boot, first, last in evidence.awake if boot == stay.boot]
    for before, after in pairwise(heard):
        silence = Span(before.last + fuzz, after.first - fuzz)
        wrote = any(_overlap(row, silence) for row in rows)
        counted = any(span.first <= after.first and after.first + counters <= span.last for span in logged)
        if not wrote and not counted:
            found.append(Span(before.last, after.first))
    return merged(found)


def _is_long(span: Span, evidence: Evidence) -> bool:
    """False for what remains beside a pause and is too short for a silence."""
    return span.last - span.first > evidence.silence


def _overlap(one: Span, other: Span) -> bool:
    return one.first < other.last and other.first < one.last


def _logged(evidence: Evidence, stay: Stay) -> list[Span]:
    """The times of which its log tells. A broker that stops writes its counters once more."""
    if stay.log is None:
        return []
    last = stay.log.last
    spans, first = [], stay.first
    for hole in sorted(evidence.holes, key=lambda hole: hole.start):
        if first <= hole.start and hole.end <= last:
            spans.append(Span(first, hole.start))
            first = hole.end
    counters = 0 if stay.log.stopped is None else round(stay.log.stats_s * SECOND)
    return [*spans, Span(first, last + counters)]
