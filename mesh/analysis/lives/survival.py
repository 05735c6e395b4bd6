"""How long brokers stay up and down: the share of stretches that last longer than a given time. Pure.

There are three estimates side by side, since each is misleading in its own way:

* ``naive`` takes the stretches with an observed end. It favours short ones.
* ``create-based`` (Roselli; Saroiu) takes stretches that began in the first half of the logs, and follows
  them for half the length of the logs. All of them could be observed for that long. It says nothing about
  longer ones.
* ``kaplan-meier`` takes all stretches. Those still open at the end count as lasting longer. Its interval is
  Greenwood's.

A stretch up continues through pauses. It ends with a crash, a power loss or a leave. If its log is lost, or
the logs end, it is censored. Stretches that began before the logs are left out, since their length is
unknown.
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
"""The normal distribution lies within so many standard deviations with a probability of 95 %."""


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
    """One stretch: when it began, how long it lasted in microseconds, and whether its end was observed."""

    start: int
    length: int
    ended: bool
    to_the_end: bool
    """It was still open at the end of the logs."""


def survival(lives: Sequence[Life]) -> list[Told]:
    """The curves for all brokers of a run. Stretches may be in any order."""
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
    """Stretches from a start to a failure or a leave, including pauses."""
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
    """Stretches from a failure to the next boot."""
    return [
        Stay(life.start, life.end - life.start, life.cause is not None, life.cause is None)
        for life in lives
        if life.state == "down" and not life.truncated
    ]


def _begins(life: Life, before: Life | None) -> bool:
    """True if the start of a broker was observed, rather than only its presence from here on."""
    if before is None:
        return not life.truncated
    return before.cause in (*ENDS, "start", "restart")


def _created(stays: Iterable[Stay], begin: int, end: int) -> list[Stay]:
    """The stretches that began in the first half, except those lost from sight before half the time."""
    half = (end - begin) // 2
    return [
        stay
        for stay in stays
        if stay.start - begin < half and (stay.ended or stay.to_the_end or stay.length >= half)
    ]


def _shares(of: str, method: str, stays: Sequence[Stay], longest: int | None) -> list[Told]:
    """At each length at which a stretch ended: the share that lasted longer."""
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
    """The product, over lengths, of the share at risk that did not end. A stretch censored at a length was at
    risk at it. Once none is left there is no interval."""
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
