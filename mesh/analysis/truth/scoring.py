"""Rows of the table ``matches`` for one run: its truth compared with its tables. Pure.

The truth has names of brokers, tables have ids. A broker that lost its state returns with another id and its
old name, so names are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mesh.analysis.silence.apart import Sides, Times, in_order, joined, without
from mesh.analysis.silence.outages import HIDING_PERIODS, UNWRITTEN, Lived, joinings
from mesh.analysis.silence.sweep import Part, limits
from mesh.analysis.truth.effects import Effects, Row, effects
from mesh.analysis.truth.lives import Event, Found, done_events, found_events, match_events
from mesh.analysis.truth.matching import Match, match_parts
from mesh.analysis.truth.parts import Made, Noted, made_parts

SECOND: Final = 1_000_000
DONE: Final = {"crash": "killed", "power_off": "lost its power", "pause": "paused", "leave": "stopped"}

Scored = tuple[str, str | None, str | None, str, int, float | None, float | None]
"""A row of the table in the order of its columns, without the run."""


class Run(NamedTuple):
    """The tables of a run. Instants are in microseconds, brokers are ids."""

    names: Mapping[str, str]
    """Names of all brokers, by id."""
    lives: Sequence[tuple[str, str, int, int, str | None, str | None, int | None]]
    """Broker, state, start, end, cause, boot, met."""
    silent: Sequence[tuple[str, str, int | None, int | None]]
    """Outages: src, dst, last, next."""
    parts: Sequence[tuple[int, int, int | None, str]]
    """Number, start, end, kind."""
    sides: Sequence[tuple[int, str, int]]
    """Number, broker, side."""
    joined: Sequence[tuple[str, int]]
    """A broker, and when a boot of it first heard any other."""
    logged: Sequence[tuple[str, int, int, int]]
    """For each boot: the broker, the start of its log, the end of what that tells about others' heartbeats,
    and its end."""
    holes: Sequence[tuple[str, int, int]]
    """A broker, and the rows around missing ones."""
    period: int
    counters: int
    """The interval at which brokers write their counters."""


def truth_row(
    at: int,
    op: str,
    of: str | None,
    a: str | None,
    b: str | None,
    value: float | None,
    more: Mapping[str, Any],
) -> Row:
    """A row of the log. ``more`` has its further numbers and words."""
    return Row(at, op, of or op, _split(a), _split(b), value, None, more)


def _split(names: str | None) -> tuple[str, ...]:
    return tuple(names.split(",")) if names else ()


def score(truth: Sequence[Row], run: Run) -> list[Scored]:
    """All rows, in order of time."""
    brokers = sorted(set(run.names.values()))
    end = max((end for _, _, _, end, *_ in run.lives), default=0)
    # The last row of a log is that of a stop, and clocks differ a little.
    did = effects(
        [row._replace(at=min(row.at, end)) for row in truth if row.at <= end + run.period], brokers, end
    )
    listened = _logged(run, [(node, first, told) for node, first, told, _ in run.logged])
    wrote = _logged(run, [(node, first, last) for node, first, _, last in run.logged])
    rows = [*_scored_parts(did, run, brokers, listened, end), *_scored_lives(did, run, wrote)]
    return sorted(rows, key=lambda row: row[4])


def _logged(run: Run, logs: Iterable[tuple[str, int, int]]) -> dict[str, Times]:
    """Each broker's times in ``logs``, without the holes in its log."""
    whole: dict[str, list[tuple[int, int]]] = {}
    lost: dict[str, list[tuple[int, int]]] = {}
    for node, first, last in logs:
        whole.setdefault(run.names[node], []).append((first, last))
    for node, before, after in run.holes:
        if after - before > HIDING_PERIODS * run.period:
            lost.setdefault(run.names[node], []).append((before, after))
    return {name: without(joined(spans), joined(lost.get(name, []))) for name, spans in whole.items()}


def _scored_parts(
    did: Effects, run: Run, brokers: Sequence[str], logged: Mapping[str, Times], end: int
) -> list[Scored]:
    number = {name: place for place, name in enumerate(brokers)}
    made = made_parts(did, _noted(run, logged, end), brokers, limits(run.period))
    found = _found_parts(run, number)
    strained = {(number[src], number[dst]): times for (src, dst), times in did.strained.items()}

    def told(match: Match) -> Scored:
        truth = None if match.truth is None else _made_words(made[match.truth], brokers)
        episode = match.found
        numbers = () if episode is None else [run.parts[place][0] for place in episode.numbers]
        words = (
            None if episode is None else f"part {' and '.join(map(str, numbers))}: {_kinds(episode.kinds)}"
        )
        return (
            "part",
            truth,
            words,
            match.verdict,
            match.at,
            _seconds(match.start_lag),
            _seconds(match.end_lag),
        )

    return [told(match) for match in match_parts(made, found, strained, run.period, end)]


def _found_parts(run: Run, number: Mapping[str, int]) -> list[Part]:
    sides: dict[int, dict[int, set[int]]] = {}
    for no, node, side in run.sides:
        sides.setdefault(no, {}).setdefault(side, set()).add(number[run.names[node]])
    return [
        Part(start, end, kind, False, _sides(kind, sides[no]))  # type: ignore[arg-type]
        for no, start, end, kind in run.parts
    ]


def _sides(kind: str, sides: Mapping[int, set[int]]) -> Sides:
    """The order of a one-way part's sides says which was heard."""
    if kind == "one-way":
        return tuple(tuple(sorted(sides[place])) for place in sorted(sides))
    return in_order(sides.values())


def _noted(run: Run, logged: Mapping[str, Times], end: int) -> Noted:
    silent: dict[tuple[str, str], Times] = {}
    stays = _stays(run)
    for src, dst, last, following in run.silent:
        known = last if following is None else following
        begin, until = next(
            (
                (begin, until)
                for begin, until in stays.get(dst, [])
                if known is not None and begin <= known <= until
            ),
            (0, 0),
        )
        span = (begin if last is None else last, until if following is None else following)
        silent.setdefault((run.names[src], run.names[dst]), []).append(span)
    ran: dict[str, list[tuple[int, int]]] = {}
    for node, state, start, until, *_ in run.lives:
        if state == "up":
            ran.setdefault(run.names[node], []).append((start, until))
    return Noted(
        _joined_at(run, logged),
        {link: joined(times) for link, times in silent.items()},
        logged,
        {name: joined(times) for name, times in ran.items()},
        end,
    )


def _joined_at(run: Run, logged: Mapping[str, Times]) -> dict[str, list[int]]:
    """When processes joined, by broker name, in order."""
    number = {name: place for place, name in enumerate(dict.fromkeys(run.names.values()))}
    heard_at: dict[int, list[int]] = {}
    for node, at in run.joined:
        heard_at.setdefault(number[run.names[node]], []).append(at)
    lives = [
        Lived(number[run.names[node]], state, start, end, boot, met)
        for node, state, start, end, _, boot, met in run.lives
    ]
    joined_at = joinings(lives, heard_at, {number[name]: times for name, times in logged.items()})
    return {name: joined_at.get(place, []) for name, place in number.items()}


def _stays(run: Run) -> dict[str, Times]:
    """When each process listened and its log tells what it heard, including pauses: a silence without a last
    or a next heartbeat is no longer than that."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for node, state, start, end, *_ in run.lives:
        if state in ("up", "paused"):
            spans.setdefault(node, []).append((start, end))
    stays: dict[str, Times] = {}
    for node, found in spans.items():
        listened = [(first, told) for who, first, told, _ in run.logged if who == node]
        for begin, until in joined(found):
            lasts = [told for first, told in listened if first < until and begin < told]
            if lasts:
                stays.setdefault(node, []).append((begin, min(until, max(lasts) + UNWRITTEN)))
    return stays


def _scored_lives(did: Effects, run: Run, logged: Mapping[str, Times]) -> Iterable[Scored]:
    lives = [
        Found(run.names[node], state, start, end, cause) for node, state, start, end, cause, *_ in run.lives
    ]
    done, found_ones = done_events(did.done), list(found_events(lives))
    for row in match_events(done, found_ones, run.period, logged, run.counters):
        event = row.truth or row.found
        assert event is not None
        truth = None if row.truth is None else f"{row.truth.name} {DONE[row.truth.of]}{_lasting(row.truth)}"
        found = None if row.found is None else f"{row.found.name}: {row.found.of}{_lasting(row.found)}"
        yield event.of, truth, found, row.verdict, row.at, _seconds(row.start_lag), _seconds(row.end_lag)


def _lasting(event: Event) -> str:
    return "" if event.end is None else f" for {(event.end - event.at) / SECOND:.1f} s"


def _made_words(made: Made, brokers: Sequence[str]) -> str:
    part = made.part
    between = " > " if part.kind == "one-way" else " | "
    sides = reversed(part.sides) if part.kind == "one-way" else part.sides
    told = between.join(", ".join(brokers[node] for node in side) for side in sides)
    return f"{part.kind} for {(made.mended - part.start) / SECOND:.1f} s: {told}"


def _kinds(kinds: Sequence[str]) -> str:
    return ", then ".join(kinds)


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / SECOND
