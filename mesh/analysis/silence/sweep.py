"""From silences of pairs to the parts of a mesh. Pure.

There are three kinds:

* **complete**: components. A part begins with the last heartbeat across it and ends with the first one after,
  so all of its pairs are silent throughout. Sides may lose brokers that die and gain brokers that join. While
  nobody changes sides it is one part. A state that lasts no longer than the `resolution` is not a part, since
  each cut begins and ends in steps: heartbeats cross one by one. While its sides were apart, such a state
  counts for the part before it and the part after it.
* **partial**: pairs in one component that went silent together (within `together`), joined by common brokers.
  Brokers that lost the same others are one side.
* **one-way**: the same for pairs of which one heard the other. Side 0 was heard, side 1 was not.

After the first heartbeat across, the other pairs need some time to find each other. So a mesh that is
`healing` is in no parts of fewer sides, or of fewer pairs, unless those last.

This code sweeps both what brokers heard and what a simulation did to them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from mesh.analysis.silence.apart import (
    Pair,
    Sides,
    State,
    Ties,
    Times,
    clip,
    in_order,
    joined,
    ordered,
    states,
    without,
)

Kind = Literal["complete", "partial", "one-way"]

SILENT_PERIODS: Final = 2.2
"""A silence longer than this is an outage."""
ONE_WAY_PERIODS: Final = 1.5
TOGETHER_PERIODS: Final = 1.25
HEALING_PERIODS: Final = 5
JOINING_PERIODS: Final = 15
"""Ten brokers that started at once on slow machines needed twelve periods to link to each other."""


class Silence(NamedTuple):
    """``dst`` did not hear ``src`` while both ran."""

    src: int
    dst: int
    start: int
    end: int
    expected: bool = True
    """False: they should not have been linked then, so this is not a partial part."""
    fresh: bool = False
    """They had not heard each other since one of them began to run: they may only be joining."""


class Limits(NamedTuple):
    """Times below which differences do not count."""

    least: int
    """A state no longer than this is not a part."""
    resolution: int
    """A state no longer than this counts for its neighbours, as far as their sides were apart in it."""
    one_way: int
    """Heartbeats cross one by one, so a shorter one is a cut both ways."""
    together: int
    """Pairs that went silent within this time went together."""
    healing: int
    """Pairs may need so long to hear each other again after the first of them did."""
    joining: int
    """Two that never heard each other may need so long, even if both hear others."""


class Part(NamedTuple):
    start: int
    end: int | None
    """None: it lasts to the end of the logs."""
    kind: Kind
    majority: bool
    sides: Sides


class _Piece(NamedTuple):
    """A pair that was silent, or of which ``one`` was not heard."""

    one: int
    other: int
    start: int
    end: int


def limits(period: int) -> Limits:
    """The limits of what heartbeats with a period can show."""
    return Limits(
        least=int(SILENT_PERIODS * period),
        resolution=int(SILENT_PERIODS * period),
        one_way=int(ONE_WAY_PERIODS * period),
        together=int(TOGETHER_PERIODS * period),
        healing=HEALING_PERIODS * period,
        joining=JOINING_PERIODS * period,
    )


def parts(
    presence: Mapping[int, Times],
    silences: Iterable[Silence],
    ties: Ties | None,
    limits: Limits,
    end: int,
) -> list[Part]:
    """All parts, ordered by their starts. ``end`` is the end of the logs; a part that lasts until then has no
    end.

    ``ties`` are the brokers that each should be linked with, in a mesh that is not full.
    """
    directed: dict[tuple[int, int], Times] = {}
    parted: dict[Pair, Times] = {}
    fresh: set[tuple[Pair, int]] = set()
    for silence in silences:
        src, dst, start, until, expected, is_fresh = silence
        if ties is not None and src not in ties.get(dst, ()):
            continue
        directed.setdefault((src, dst), []).append((start, until))
        if not expected:
            parted.setdefault(ordered(src, dst), []).append((start, until))
        if is_fresh:
            fresh.add((ordered(src, dst), start))
    directed = {pair: joined(times) for pair, times in directed.items()}
    silent: dict[Pair, Times] = {}
    for (src, dst), times in directed.items():
        if src < dst and (dst, src) in directed:
            both = _both(times, directed[dst, src])
            if both:
                silent[ordered(src, dst)] = both
    raw = [state for state in _all_states(presence, silent, ties, end) if len(state.sides) > 1]
    found = _complete(raw, limits, end)
    if parted:
        silent, directed = _wanted(silent, parted), _wanted(directed, parted)
    found += _partial(silent, raw, fresh, limits, end)
    found += _one_way(directed, silent, fresh, limits, end)
    return sorted(found, key=lambda part: part.start)


def _both(times: Times, others: Times) -> Times:
    return [
        (max(begin, start), min(until, end))
        for begin, until in times
        for start, end in others
        if max(begin, start) < min(until, end)
    ]


def _wanted(
    silent: Mapping[tuple[int, int], Times], parted: Mapping[Pair, Times]
) -> dict[tuple[int, int], Times]:
    """The silences without the times in which a pair should not be linked."""
    return {pair: without(times, joined(parted.get(ordered(*pair), []))) for pair, times in silent.items()}


def _all_states(
    presence: Mapping[int, Times], silent: Mapping[Pair, Times], ties: Ties | None, end: int
) -> Iterator[State]:
    """The components at times in which there may be several. In a full mesh that requires a silent pair, so
    each interval of silence is handled alone."""
    if ties is not None:
        start = min((begin for times in presence.values() for begin, _ in times), default=end)
        if start < end:
            yield from states(presence, silent, ties, start, end)
        return
    spells: list[tuple[int, int, dict[Pair, Times]]] = []
    for begin, until, pair in sorted(
        (begin, until, pair) for pair, times in silent.items() for begin, until in times
    ):
        if spells and begin <= spells[-1][1]:
            start, last, pairs = spells[-1]
            spells[-1] = (start, max(last, until), pairs)
        else:
            pairs = {}
            spells.append((begin, until, pairs))
        pairs.setdefault(pair, []).append((begin, until))
    for start, last, pairs in spells:
        there = {node: found for node, times in presence.items() if (found := clip(times, start, last))}
        yield from states(there, pairs, None, start, last)


# --- complete


def _complete(raw: Sequence[State], limits: Limits, end: int) -> list[Part]:
    found: list[Part] = []
    for run in _runs(raw):
        held: State | None = None
        for state in _lasting(run, limits):
            if held is not None and held.end >= state.start:
                lasted = held.end - held.start > limits.resolution
                healing = refines(held.sides, state.sides) and state.end - held.end <= limits.healing
                if lasted and healing:
                    continue
            found.append(_as_part(state, end))
            held = state
    return found


def _runs(raw: Iterable[State]) -> Iterator[list[State]]:
    """Consecutive states without a time between in which the mesh was whole. Equal sides are merged."""
    run: list[State] = []
    for state in raw:
        if run and run[-1].end != state.start:
            yield run
            run = []
        merged = merged_sides(run[-1].sides, state.sides) if run else None
        if merged is None:
            run.append(state)
        else:
            run[-1] = State(run[-1].start, state.end, merged)
    if run:
        yield run


def _lasting(run: Sequence[State], limits: Limits) -> Iterator[State]:
    """The states that are long enough, extended by adjacent short ones in which their sides were apart."""
    held: State | None = None
    for number, state in enumerate(run):
        if state.end - state.start <= limits.least:
            continue
        start = _extended(state, (run[at] for at in range(number - 1, -1, -1)), limits.resolution).start
        end = _extended(state, (run[at] for at in range(number + 1, len(run))), limits.resolution).end
        state = State(start, end, state.sides)
        merged = merged_sides(held.sides, state.sides) if held is not None and held.end >= start else None
        if held is not None and merged is not None:
            held = State(held.start, end, merged)
            continue
        if held is not None:
            yield held
        held = state
    if held is not None:
        yield held


def _extended(state: State, beside: Iterable[State], resolution: int) -> State:
    """A state, extended by those short ones beside it in which its sides were apart, the nearest first."""
    for other in beside:
        if other.end - other.start > resolution or not refines(other.sides, state.sides):
            break
        state = State(min(state.start, other.start), max(state.end, other.end), state.sides)
    return state


def refines(finer: Sides, sides: Sides) -> bool:
    """True if brokers that ``sides`` separate are separated in ``finer`` too."""
    side_of = {node: number for number, side in enumerate(sides) for node in side}
    return all(len({side_of[node] for node in side if node in side_of}) <= 1 for side in finer)


def merged_sides(ones: Sides, others: Sides) -> Sides | None:
    """The merged sides of two states. None if a broker changed sides between them.

    A broker that runs in only one of them goes to the side of the brokers that it is seen with.
    """
    side_of = {node: number for number, side in enumerate(ones) for node in side}
    merged = [dict.fromkeys(side) for side in ones]
    taken: dict[int, int] = {}
    for index, side in enumerate(others):
        known = {side_of[node] for node in side if node in side_of}
        if len(known) > 1:
            return None
        if known:
            number = known.pop()
            if taken.setdefault(number, index) != index:
                return None  # one side before, two now
        else:
            number = len(merged)
            merged.append({})
        merged[number].update(dict.fromkeys(side))
    return in_order(merged)


def _as_part(state: State, end: int) -> Part:
    return Part(
        state.start,
        None if state.end >= end else state.end,
        "complete",
        2 * len(state.sides[0]) > sum(map(len, state.sides)),
        state.sides,
    )


# --- partial and one-way


Fresh = set[tuple[Pair, int]]
"""Pairs that are joining, and since when."""


def _partial(
    silent: Mapping[Pair, Times], raw: Sequence[State], fresh: Fresh, limits: Limits, end: int
) -> list[Part]:
    ends = [state.end for state in raw]
    side_of = [{node: number for number, side in enumerate(state.sides) for node in side} for state in raw]
    pieces: list[_Piece] = []
    for (one, other), times in silent.items():
        parted: Times = []
        for begin, until in times:
            at = bisect_right(ends, begin)
            while at < len(raw) and raw[at].start < until:
                if side_of[at].get(one, -1) != side_of[at].get(other, -1):
                    parted.append((raw[at].start, raw[at].end))
                at += 1
        parted = joined(parted)
        healed = {until for _, until in parted}
        for begin, until in without(times, parted) if parted else times:
            least = limits.healing if begin in healed else limits.least
            if until - begin > (limits.joining if ((one, other), begin) in fresh else least):
                pieces.append(_Piece(one, other, begin, until))
    found = []
    for start, until, group in _settled(pieces, limits, limits.least):
        sides = _classes(group)
        found.append(Part(start, None if until >= end else until, "partial", False, sides))
    return found


def _one_way(
    directed: Mapping[tuple[int, int], Times],
    silent: Mapping[Pair, Times],
    fresh: Fresh,
    limits: Limits,
    end: int,
) -> list[Part]:
    pieces: list[_Piece] = []
    for (src, dst), times in directed.items():
        both = silent.get(ordered(src, dst), [])
        healed = {until for _, until in both}
        for begin, until in without(times, both) if both else times:
            least = limits.healing if begin in healed else limits.one_way
            if until - begin > (limits.joining if (ordered(src, dst), begin) in fresh else least):
                pieces.append(_Piece(src, dst, begin, until))
    found = []
    for start, until, group in _settled(pieces, limits, limits.one_way):
        for heard, unheard in _roles(group):
            sides = (tuple(sorted(heard)), tuple(sorted(unheard)))
            found.append(Part(start, None if until >= end else until, "one-way", False, sides))
    return found


def _settled(pieces: Sequence[_Piece], limits: Limits, least: int) -> Iterator[tuple[int, int, list[_Piece]]]:
    """Pieces that began together and are connected, from the last start to the first end. Then the rest of
    them after that, unless it only heals."""
    work = [
        connected for group in _begun_together(pieces, limits.together) for connected in _connected(group)
    ]
    while work:
        group = work.pop()
        start = max(piece.start for piece in group)
        lasting = [piece for piece in group if piece.end - start > least]
        if len(lasting) < len(group):
            work += _connected(lasting)
            continue
        end = min(piece.end for piece in group)
        yield start, end, group
        work += _connected([piece._replace(start=end) for piece in group if piece.end - end > limits.healing])


def _begun_together(pieces: Iterable[_Piece], together: int) -> Iterator[list[_Piece]]:
    group: list[_Piece] = []
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if group and piece.start - group[0].start > together:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _connected(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """Pieces that share brokers, directly or through others."""
    above: dict[int, int] = {}

    def root(node: int) -> int:
        while above.setdefault(node, node) != node:
            above[node] = node = above[above[node]]
        return node

    for piece in pieces:
        above[root(piece.one)] = root(piece.other)
    groups: dict[int, list[_Piece]] = {}
    for piece in pieces:
        groups.setdefault(root(piece.one), []).append(piece)
    return list(groups.values())


def _classes(pieces: Iterable[_Piece]) -> Sides:
    """Brokers that lost the same others are one side."""
    lost: dict[int, set[int]] = {}
    for piece in pieces:
        lost.setdefault(piece.one, set()).add(piece.other)
        lost.setdefault(piece.other, set()).add(piece.one)
    sides: dict[frozenset[int], list[int]] = {}
    for node, others in lost.items():
        sides.setdefault(frozenset(others), []).append(node)
    return in_order(sides.values())


def _roles(pieces: Iterable[_Piece]) -> Iterator[tuple[set[int], set[int]]]:
    """The heard and the unheard side. If a broker is both, pieces are grouped by the brokers that did not
    hear each."""
    deaf: dict[int, set[int]] = {}
    for piece in pieces:
        deaf.setdefault(piece.one, set()).add(piece.other)
    heard = {node for others in deaf.values() for node in others}
    if heard.isdisjoint(deaf):
        yield heard, set(deaf)
        return
    groups: dict[frozenset[int], set[int]] = {}
    for src, others in deaf.items():
        groups.setdefault(frozenset(others), set()).add(src)
    for others_, sources in groups.items():
        yield set(others_), sources
