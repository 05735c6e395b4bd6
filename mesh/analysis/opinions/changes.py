"""Each change of a member's state, and how it spread to the brokers that could learn it. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

from mesh.analysis.opinions.causes import Silence, Stretch, cause_of_death

STATES: Final = ("alive", "suspect", "dead", "left")


class Saying(NamedTuple):
    """``node`` reports that the member changed; see `mesh.analysis.facts.Said`."""

    node: str
    at: int
    boot: str
    incarnation: int
    state: str
    via: str


class Spread(NamedTuple):
    """A row of the table ``changes`` without its run, in the order of its columns."""

    subject: str
    boot: str
    incarnation: int
    state: str
    at: int | None
    cause: str | None
    reached: int
    of: int
    first_s: float | None
    p50_s: float | None
    p90_s: float | None
    last_s: float | None


def changes_of(
    subject: str,
    said: Iterable[Saying],
    life: Sequence[Stretch],
    silences: Mapping[str, Iterable[Silence]],
    others: Mapping[str, Sequence[tuple[int, int]]],
    *,
    period_us: int,
) -> list[Spread]:
    """All changes of one member, ordered by time. ``others`` has the times, from and until, in which every
    broker ran."""
    firsts: dict[tuple[str, int, str], dict[str, int]] = defaultdict(dict)
    tellers: dict[tuple[str, int, str], set[str]] = defaultdict(set)
    for saying in sorted(said, key=lambda each: each.at):
        if saying.state not in STATES or saying.node == subject:
            continue
        key = (saying.boot, saying.incarnation, saying.state)
        firsts[key].setdefault(saying.node, saying.at)
        tellers[key].update((saying.node, saying.via))
    found = []
    for (boot, incarnation, state), first_of in firsts.items():
        times = sorted(first_of.values())
        at: int | None = None
        cause: str | None = None
        if state == "dead":
            death = cause_of_death(
                times[0], boot, tellers[boot, incarnation, state], life, silences, period_us=period_us
            )
            cause, at = death.cause, death.at
        elif state == "left":
            at = next((each.end for each in life if each.boot == boot and each.cause == "leave"), None)
        elif state == "alive":
            at = _came(boot, incarnation, firsts, life)
        since = times[0] if at is None else at
        of = sum(
            node != subject and (node in first_of or _ran(spans, since, times[-1]))
            for node, spans in others.items()
        )
        lags = [max(0, time - since) / 1e6 for time in times]
        found.append(
            Spread(
                *(subject, boot, incarnation, state, at, cause, len(times), max(of, len(times))),
                *(lags[0], quantile(lags, 0.5), quantile(lags, 0.9), lags[-1]),
            )
        )
    order = {
        (boot, incarnation, state): min(first.values())
        for (boot, incarnation, state), first in firsts.items()
    }
    return sorted(found, key=lambda each: (order[each.boot, each.incarnation, each.state], each.state))


def _came(
    boot: str, incarnation: int, firsts: Mapping[tuple[str, int, str], object], life: Sequence[Stretch]
) -> int | None:
    """When the process of this boot started, for the first of its incarnations. A refutation is not a
    start."""
    if any(other == boot and number < incarnation for other, number, _ in firsts):
        return None
    start = next((each for each in life if each.boot == boot), None)
    return None if start is None else start.start


def _ran(spans: Sequence[tuple[int, int]], since: int, until: int) -> bool:
    """True if a broker ran all that time. Spans are in order and do not touch."""
    position = bisect_right(spans, (since, 1 << 62)) - 1
    return position >= 0 and spans[position][1] >= until


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest-rank quantile: the smallest value that at least this share of the values does not
    exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None
