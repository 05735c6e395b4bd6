"""The share of time in which a broker ran, from the stretches of its life. Pure.

Unknown time is neither up nor down. A paused process is up, since it did not fail. A broker that left is
away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from mesh.analysis.lives.evidence import SECOND

if TYPE_CHECKING:
    from mesh.analysis.results.tables import Life

FAILURES: Final = ("crash", "power_off")
"""Causes that end a life with a failure. A leave or a pause is not a failure."""


class Told(NamedTuple):
    """A row of the table ``availability`` without its run and node."""

    up_s: float
    paused_s: float
    down_s: float
    away_s: float
    unknown_s: float
    failures: int
    availability: float | None
    mttf_s: float | None
    mttr_s: float | None


def availability(lives: Sequence[Life]) -> Told:
    """The availability of one broker, from its stretches in any order. Instants are in microseconds."""
    spent = dict.fromkeys(("up", "paused", "down", "away", "unknown"), 0)
    repairs = []
    for life in lives:
        spent[life.state] += life.end - life.start
        if life.state == "down" and not life.censored and not life.truncated:
            repairs.append(life.end - life.start)
    failures = sum(life.cause in FAILURES for life in lives)
    up, down = spent["up"] + spent["paused"], spent["down"]
    return Told(
        up / SECOND,
        spent["paused"] / SECOND,
        down / SECOND,
        spent["away"] / SECOND,
        spent["unknown"] / SECOND,
        failures,
        up / (up + down) if up + down else None,
        up / failures / SECOND if failures else None,
        sum(repairs) / len(repairs) / SECOND if repairs else None,
    )
