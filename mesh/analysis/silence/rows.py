"""Rows of the tables ``outages``, ``parts`` and ``part_sides`` of one run, from rows of facts about it. Pure.

Brokers are texts outside and numbers inside. Instants are in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mesh.analysis.silence.apart import Ties, Times, without
from mesh.analysis.silence.apart import joined as joined_times
from mesh.analysis.silence.deciding import Facts, decide, is_full
from mesh.analysis.silence.outages import Gap, Lived, hiding, joinings, ran

SECOND: Final = 1_000_000


class Tables(NamedTuple):
    """Rows in the order of the tables' columns, without the run."""

    outages: list[tuple[str, str, int | None, int | None, bool, str, float]]
    parts: list[tuple[int, int, int | None, str, bool]]
    sides: list[tuple[int, str, int]]


def tables(
    lives: Iterable[tuple[str, str, int, int, str | None, int | None]],
    gaps: Iterable[tuple[str, str, int | None, int | None, int, int, float]],
    joined: Iterable[tuple[str, int]],
    periods: Iterable[tuple[str, float]],
    ties: Iterable[tuple[str, str]] | None,
    closed: Iterable[tuple[str, str, int]],
    logs: Iterable[tuple[str, int, int]],
    holes: Iterable[tuple[str, int, int]],
    beyond: Iterable[tuple[str, str, int, int]],
) -> Tables:
    """All three tables.

    ``lives``: node, state, start, end, boot, met. ``gaps``: the fields of `Gap`. ``joined``: a broker, and
    when a boot of it first heard any other. ``periods``: a broker's, in seconds, for each boot. ``ties``:
    pairs of which one ever heard the other; None: the mesh is full. ``closed``: src, dst and when the link
    went down at dst.
    ``logs``: for each boot the broker, and the start and end of what its log tells about others' heartbeats.
    ``holes``: a broker, and the rows around missing ones. ``beyond``: src, dst, and the ends of a stretch
    that goes on after that time in the log of dst.
    """
    told = list(lives)
    names = sorted({node for node, *_ in told})
    number = {name: place for place, name in enumerate(names)}
    lived = [Lived(number[node], state, start, end, boot, met) for node, state, start, end, boot, met in told]
    heard_at: dict[int, list[int]] = {}
    for node, at in sorted(joined):
        heard_at.setdefault(number[node], []).append(at)
    period = _periods(periods, number)
    hidden = hiding(_joined(holes, number), period)
    logged = {node: without(times, hidden.get(node, [])) for node, times in _joined(logs, number).items()}
    joined_at = joinings(lived, heard_at, logged)
    tied = None if ties is None else _tied(ties, number)
    unheard: list[tuple[int, int]] = []
    if tied is not None:
        presence = ran(lived, joined_at).presence
        if is_full(presence, tied, max(period.values())):
            unheard = [
                (one, other)
                for one in presence
                for other in presence
                if one < other and other not in tied[one]
            ]
            tied = None
    shut: dict[tuple[int, int], list[int]] = {}
    for src, dst, at in sorted(closed):
        if src in number and dst in number:
            shut.setdefault((number[src], number[dst]), []).append(at)
    late: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for src, dst, first, last in beyond:
        if src in number and dst in number:
            late.setdefault((number[src], number[dst]), []).append((first, last))
    found = decide(
        Facts(
            lives=lived,
            gaps=[
                Gap(number[src], number[dst], last, following, begin, until, error_s)
                for src, dst, last, following, begin, until, error_s in gaps
                if src in number and dst in number
            ],
            joined_at=joined_at,
            unheard=unheard,
            ties=tied,
            closed=shut,
            logged=logged,
            holes=hidden,
            beyond={link: sorted(times) for link, times in late.items()},
            period=period,
            end=max((life.end for life in lived), default=0),
        )
    )
    return Tables(
        [(names[row.src], names[row.dst], *row[2:]) for row in found.outages],
        [(no, part.start, part.end, part.kind, part.majority) for no, part in enumerate(found.parts, 1)],
        [
            (no, names[node], place)
            for no, part in enumerate(found.parts, 1)
            for place, side in enumerate(part.sides)
            for node in side
        ],
    )


def _joined(spans: Iterable[tuple[str, int, int]], number: dict[str, int]) -> dict[int, Times]:
    found: dict[int, Times] = {}
    for node, first, last in spans:
        if node in number:
            found.setdefault(number[node], []).append((first, last))
    return {node: joined_times(times) for node, times in found.items()}


def _periods(periods: Iterable[tuple[str, float]], number: dict[str, int]) -> dict[int, int]:
    """The longest period of each broker, in microseconds. A broker whose log is lost gets that of the
    others."""
    found: dict[int, int] = {}
    for name, period_s in periods:
        if name in number:
            found[number[name]] = max(found.get(number[name], 0), round(period_s * SECOND))
    usual = max(found.values(), default=SECOND)
    return {place: found.get(place, usual) for place in number.values()}


def _tied(ties: Iterable[tuple[str, str]], number: dict[str, int]) -> Ties:
    found: Ties = {node: set() for node in number.values()}
    for src, dst in ties:
        if src in number and dst in number:
            found[number[src]].add(number[dst])
            found[number[dst]].add(number[src])
    return found
