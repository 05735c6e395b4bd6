"""Why a member was held dead: what its process did, or the network, before the first said so. Pure.

The rules, in this order; the first that holds is the cause:

1. Its process ended before: by a ``crash``, a ``power_off``, or it ``left``.
2. It was ``paused`` within `LOOKBACK_PERIODS` before, or still was.
3. Nobody knows what it did then: ``log lost``.
4. Somebody that says so had heard nothing of it while both ran: it was ``cut off``.
5. Else it was ``mistaken``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

LOOKBACK_PERIODS: Final = 30.0
"""Suspicions last for some periods; what ended longer before a death was told is not its cause."""
FLUSH_US: Final = 1_000_000
"""A life may end so long after a death was told: its log's last rows are up to a second old."""

Cause = Literal["crash", "power_off", "paused", "cut off", "log lost", "mistaken", "left"]
ENDED: Final[dict[str, Cause]] = {"crash": "crash", "power_off": "power_off", "leave": "left"}


class Stretch(NamedTuple):
    """A stretch of one broker's life; see `mesh.analysis.results.tables.Life`."""

    boot: str | None
    state: str
    start: int
    end: int
    cause: str | None
    """What ended it."""


class Silence(NamedTuple):
    """``dst`` heard nothing of the member while both ran."""

    dst: str
    start: int
    end: int | None


class Death(NamedTuple):
    """Why a member was held dead, and when that came over its process (None: nothing did)."""

    cause: Cause
    at: int | None


def cause_of_death(
    told: int,
    boot: str,
    tellers: Iterable[str],
    life: Sequence[Stretch],
    silences: Iterable[Silence],
    *,
    period_us: int,
) -> Death:
    """Judge one death, told first at ``told`` of ``boot``; ``life`` is the member's, in order of time."""
    since = told - round(LOOKBACK_PERIODS * period_us)
    own = [stretch for stretch in life if stretch.boot == boot]
    ended = next(
        (each for each in reversed(own) if each.cause in ENDED and each.end <= told + FLUSH_US), None
    )
    if ended is not None and ended.cause is not None:
        return Death(ENDED[ended.cause], ended.end)
    paused = [each for each in own if each.state == "paused" and each.start <= told and each.end >= since]
    if paused:
        return Death("paused", paused[-1].start)
    if not own or any(each.state == "unknown" and each.start <= told and each.end >= since for each in life):
        return Death("log lost", None)
    by = set(tellers)
    for silence in silences:
        if silence.dst in by and silence.start <= told and (silence.end is None or silence.end >= since):
            return Death("cut off", None)
    return Death("mistaken", None)
