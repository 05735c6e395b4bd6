"""Matches the effects on processes one to one with the events in their lives. Pure.

A crash is not a power loss, and neither is a pause. An event found as another kind counts as missed and as a
false finding. A pause of no more than 2.2 periods looks like a late heartbeat, and is below resolution.

A missed pause is not observable if the broker's log of it is lost. Only the broker can tell that its loop was
late, by the counters that it writes afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from mesh.analysis.silence.apart import Times
from mesh.analysis.silence.sweep import SILENT_PERIODS
from mesh.analysis.truth.effects import Effect
from mesh.analysis.truth.matching import Verdict, best_pairs

Kind = Literal["crash", "power_off", "pause", "leave"]
KINDS: Final[tuple[Kind, ...]] = ("crash", "power_off", "pause", "leave")
NEAR_PERIODS: Final = 5
"""A finding further than this from an effect does not match it."""
EARLY_PERIODS: Final = 0.05
"""Counters may come so much before their interval is over: timers and clocks differ a little."""


class Event(NamedTuple):
    """An event of a process."""

    of: Kind
    name: str
    at: int
    end: int | None
    """For a pause: its end. None for other events, and for a pause that never ended."""


class Found(NamedTuple):
    """A stretch of a broker's life, as its table has it."""

    name: str
    state: str
    start: int
    end: int
    cause: str | None


class Pairing(NamedTuple):
    truth: Event | None
    found: Event | None
    verdict: Verdict
    at: int
    start_lag: int | None
    end_lag: int | None


def done_events(effects: Iterable[Effect]) -> list[Event]:
    """The effects in a simulation, pauses with their ends. Any other event also ends a pause."""
    events: list[Event] = []
    paused: dict[str, int] = {}
    for effect in effects:
        begun = paused.pop(effect.name, None)
        if begun is not None:
            events[begun] = events[begun]._replace(end=effect.at)
        if effect.what == "pause":
            paused[effect.name] = len(events)
        events += [Event(kind, effect.name, effect.at, None) for kind in KINDS if kind == effect.what]
    return events


def found_events(lives: Sequence[Found]) -> Iterator[Event]:
    """The events in lives: the cause that ended each stretch, and the length of pauses."""
    ends = {(life.name, life.start): life.end for life in lives if life.state == "paused"}
    for life in lives:
        for kind in KINDS:
            if life.cause == kind:
                yield Event(kind, life.name, life.end, ends.get((life.name, life.end)))


def match_events(
    done: Sequence[Event], found: Sequence[Event], period: int, logged: Mapping[str, Times], counters: int
) -> list[Pairing]:
    """Every event once, ordered by time. ``logged`` are the times in which each broker's log has rows,
    and ``counters`` is the interval of its counters."""
    near = NEAR_PERIODS * period

    def worth(one: Event, other: Event) -> int:
        if (one.of, one.name) != (other.of, other.name):
            return 0
        return max(0, near - abs(one.at - other.at))

    pairs = best_pairs(done, found, worth)
    rows = []
    for place, number in pairs:
        one, other = done[place], found[number]
        end_lag = None if one.end is None or other.end is None else other.end - one.end
        rows.append(Pairing(one, other, "tp", one.at, other.at - one.at, end_lag))
    told, seen = {place for place, _ in pairs}, {number for _, number in pairs}
    rows += [
        Pairing(one, None, _missed(one, period, logged.get(one.name, []), counters), one.at, None, None)
        for place, one in enumerate(done)
        if place not in told
    ]
    rows += [
        Pairing(None, other, "below resolution" if _is_short(other, period) else "fp", other.at, None, None)
        for number, other in enumerate(found)
        if number not in seen
    ]
    return sorted(rows, key=lambda row: row.at)


def _missed(event: Event, period: int, logged: Times, counters: int) -> Verdict:
    if _is_short(event, period):
        return "below resolution"
    if event.of != "pause":
        return "fn"
    end = event.end
    due = None if end is None else end + counters - round(EARLY_PERIODS * period)
    told = due is not None and any(begin <= event.at and due <= until for begin, until in logged)
    return "fn" if told else "not observable"


def _is_short(event: Event, period: int) -> bool:
    return event.end is not None and event.end - event.at <= SILENT_PERIODS * period
