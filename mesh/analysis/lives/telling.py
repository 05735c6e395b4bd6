"""The life of a broker, from all evidence: consecutive stretches, each in one state. Pure.

States follow from causes. After a crash or a power loss a broker is down, after a leave away. Without
evidence it is unknown, which is neither. Membership's opinion is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from mesh.analysis.lives.endings import Cause, ending
from mesh.analysis.lives.evidence import SECOND, Evidence, Stay, stays
from mesh.analysis.lives.pauses import pauses
from mesh.analysis.lives.spans import Span, merged

AFTER: Final[dict[Cause, str]] = {
    "leave": "away",
    "crash": "down",
    "power_off": "down",
    "log lost": "unknown",
}
"""The state that follows an end."""
EARLY: Final = 0.2
"""Periods. A first heartbeat may seem so early: it is known to an eighth, and clocks differ a little."""


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


class _Stretch(NamedTuple):
    start: int
    end: int
    state: str
    boot: str | None
    cause: str | None
    error: int


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
    for pause in pauses(evidence, stay, end.at):
        yield _Stretch(at, pause.start, "up", boot, "pause", pause.error)
        yield _Stretch(pause.start, pause.end, "paused", boot, "resume", 0)
        at = pause.end
    for silence in _silences(evidence, stay, heard, end.at):
        yield _Stretch(at, silence.first, "up", boot, "log lost", evidence.period)
        yield _Stretch(silence.first, silence.last, "unknown", boot, "heard again", 0)
        at = silence.last
    yield _Stretch(at, end.at, "up", boot, end.cause, end.error)
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


def _silences(evidence: Evidence, stay: Stay, heard: list[Span], end: int) -> Iterator[Span]:
    """Times in which a boot gave no sign beyond its log: it ran, was paused, or cut off, which cannot be
    decided."""
    known = Span(stay.first, stay.log.last if stay.log is not None else stay.first)
    signs = merged([known, *heard], evidence.silence)
    for before, after in pairwise(signs):
        if known.last <= before.last and after.first < end:
            yield Span(before.last, after.first)
