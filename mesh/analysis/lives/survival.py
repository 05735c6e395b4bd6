"""How long brokers stay up, and down: the share of stretches that last longer than a time. Pure.

Three estimates side by side, since each misleads in its own way:

* ``naive`` takes the stretches that ended while somebody looked. It favours short ones.
* ``create-based`` (Roselli; Saroiu) takes those that began in the first half of the logs, and follows them
  for half the logs' length: all of them could be seen to last so long. It says nothing of longer ones.
* ``kaplan-meier`` takes all, those that lasted at the end as lasting longer; its interval is Greenwood's.

A stretch up goes on through pauses. It ends with a crash, a power loss or a leave. Where its log is lost,
or the logs end, it is censored. Stretches that had begun before the logs do are left out: nobody knows
their length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from mesh.analysis.lives.availability import FAILURES
from mesh.analysis.lives.churn import ALIVE
from mesh.analysis.lives.evidence import SECOND

if TYPE_CHECKING:
    from mesh.analysis.results.tables import Life

NORMAL_95: Final = 1.959963984540054
"""The normal distribution lies within so many deviations with a chance of 95 %."""


PAUSES: Final = ("pause", "resume")
ENDS: Final = (*FAILURES, "leave")
"""Causes that end a stretch up."""


class Told(NamedTuple):
    """A row of the table ``survival`` without its run."""

    of: str
    method: str
    t_s: float
    at_risk: int
    ended: int
    survival: float
    low: float | None
    high: float | None


class Stay(NamedTuple):
    """One stretch: when it began, how long it lasted in microseconds, and whether it was seen to end."""

    start: int
    length: int
    ended: bool
    to_the_end: bool
    """It lasted when the logs end."""


def survival(lives: Sequence[Life]) -> list[Told]:
    """The curves of all brokers of a run; stretches in any order."""
    if not lives:
        return []
    begin, end = min(life.start for life in lives), max(life.end for life in lives)
    found: list[Told] = []
    kinds: tuple[tuple[Literal["up", "down"], list[Stay]], ...] = (
        ("up", stays_up(lives)),
        ("down", stays_down(lives)),
    )
    for of, stays in kinds:
        found += _shares(of, "naive", [stay for stay in stays if stay.ended], None)
        found += _shares(of, "create-based", _created(stays, begin, end), (end - begin) // 2)
        found += kaplan_meier(of, stays)
    return found


def stays_up(lives: Iterable[Life]) -> list[Stay]:
    """From a start to a failure or a leave, pauses included."""
    found = []
    start: int | None = None
    before: Life | None = None
    for life in sorted(lives, key=lambda life: (life.node, life.no)):
        if before is not None and before.node != life.node:
            before = start = None
        if life.state in ALIVE:
            if _begins(life, before):
                start = life.start
            if start is not None and life.cause not in PAUSES:
                ended = life.cause in ENDS
                found.append(Stay(start, life.end - start, ended, life.cause is None))
        if life.cause not in PAUSES:
            start = None
        before = life
    return found


def stays_down(lives: Iterable[Life]) -> list[Stay]:
    """From a failure to the next boot."""
    return [
        Stay(life.start, life.end - life.start, life.cause is not None, life.cause is None)
        for life in lives
        if life.state == "down" and not life.truncated
    ]


def _begins(life: Life, before: Life | None) -> bool:
    """Whether a broker was seen to start, and is not only known of from here on."""
    if before is None:
        return not life.truncated
    return before.cause in (*ENDS, "start", "restart")


def _created(stays: Iterable[Stay], begin: int, end: int) -> list[Stay]:
    """Those that began in the first half, but for those that were lost from sight before half the time."""
    half = (end - begin) // 2
    return [
        stay
        for stay in stays
        if stay.start - begin < half and (stay.ended or stay.to_the_end or stay.length >= half)
    ]


def _shares(of: str, method: str, stays: Sequence[Stay], longest: int | None) -> list[Told]:
    """At each length at which one ended: the share that lasted longer."""
    lengths = Counter(stay.length for stay in stays if stay.ended)
    found, at_risk = [], len(stays)
    gone = Counter(stay.length for stay in stays)
    for length in sorted(gone):
        if longest is not None and length > longest:
            break
        if lengths[length]:
            left = at_risk - gone[length]
            found.append(
                Told(of, method, length / SECOND, at_risk, lengths[length], left / len(stays), None, None)
            )
        at_risk -= gone[length]
    return found


def kaplan_meier(of: str, stays: Sequence[Stay]) -> list[Told]:
    """The product over lengths of the share of those at risk that did not end. Who is censored at a length
    was at risk at it. Once nobody is left there is no interval."""
    ended = Counter(stay.length for stay in stays if stay.ended)
    gone = Counter(stay.length for stay in stays)
    found, at_risk, survives, variance = [], len(stays), 1.0, 0.0
    for length in sorted(gone):
        deaths = ended[length]
        if deaths:
            survives *= (at_risk - deaths) / at_risk
            low = high = None
            if at_risk > deaths:
                variance += deaths / (at_risk * (at_risk - deaths))
                margin = NORMAL_95 * survives * sqrt(variance)
                low, high = max(0.0, survives - margin), min(1.0, survives + margin)
            found.append(Told(of, "kaplan-meier", length / SECOND, at_risk, deaths, survives, low, high))
        at_risk -= gone[length]
    return found
