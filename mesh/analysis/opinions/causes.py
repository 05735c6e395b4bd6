"""Why a member was reported dead: what happened to its process or to the network before the first report.
Pure.

The rules, in order; the first that applies gives the cause:

1. Its process ended before: by a ``crash``, a ``power_off``, or it ``left``.
2. It was ``paused`` within `LOOKBACK_PERIODS` before, or still was.
3. Its state at that time is unknown: ``log lost``.
4. A broker that reports it had heard nothing of it while both ran: it was ``cut off``.
5. Otherwise the report was ``mistaken``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

LOOKBACK_PERIODS: Final = 30.0
"""Suspicions last for some periods. An end much earlier than the report is not its cause."""
FLUSH_US: Final = 1_000_000
"""A life may end so long after a death was reported, since the last rows of a log are up to a second late."""

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
    """An outage: another broker heard nothing of the member while both ran."""

    start: int
    end: int | None


class Death(NamedTuple):
    """Why a member was reported dead, and when its process was affected (None: it was not)."""

    cause: Cause
    at: int | None


def cause_of_death(
    told: int,
    boot: str,
    tellers: Iterable[str],
    life: Sequence[Stretch],
    silences: Mapping[str, Iterable[Silence]],
    *,
    period_us: int,
) -> Death:
    """Judge one death, first reported at ``told``, of ``boot``. ``life`` is the member's, ordered by time.
    ``silences`` are by the broker that heard nothing of it."""
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
    for teller in tellers:
        for silence in silences.get(teller, ()):
            if silence.start <= told and (silence.end is None or silence.end >= since):
                return Death("cut off", None)
    return Death("mistaken", None)
