"""Which brokers could reach each other, and when that changed. Pure.

The graph has an edge between two brokers that ran, should be linked, and of which at least one heard the
other. The input lists missing edges: **silences** of pairs, a few for each incident. The result is the
components at every moment, without a graph for every moment: a cut of 500 brokers from 500 is half a million
directed outages, each with its own start and end.

So time is halved recursively, and on the way down brokers are **contracted**: brokers joined by an edge
throughout an interval are one vertex in it. Two vertices are silent while all pairs between them are, which
is one list of times instead of thousands. The cut of 500 from 500 is two vertices after the first step. An
interval without changes needs no further halving.

A mesh is full (each pair is an edge) or has neighbours (`Ties`). Edges of a full mesh are never listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Times = list[tuple[int, int]]
"""Intervals of time, from and to (exclusive), in order, that do not touch."""
Pair = tuple[int, int]
"""Two vertices, the lower one first."""
Ties = dict[int, set[int]]
"""The vertices that each vertex should be linked with."""
Sides = tuple[tuple[int, ...], ...]
"""Brokers in components: larger ones first, then by number."""


class State(NamedTuple):
    """The components from one moment to another."""

    start: int
    end: int
    sides: Sides


class _Graph(NamedTuple):
    """An interval of time: the vertices in it, present throughout or not, and the silences of pairs."""

    members: dict[int, tuple[int, ...]]
    """The brokers of each vertex."""
    partly: dict[int, Times]
    """Vertices that are there only at times; each is one broker."""
    silent: dict[Pair, Times]
    ties: Ties | None
    """None: every pair is an edge."""


def states(
    presence: Mapping[int, Times], silent: Mapping[Pair, Times], ties: Ties | None, start: int, end: int
) -> Iterator[State]:
    """The components from start to end, in order. Consecutive states differ.

    ``presence`` is when each broker runs. ``silent`` is when neither of two heard the other.
    """
    members: dict[int, tuple[int, ...]] = {node: (node,) for node in presence}
    held: State | None = None
    for state in _halved(_Graph(members, dict(presence), dict(silent), ties), start, end):
        if held is not None and held.sides == state.sides:
            held = State(held.start, state.end, held.sides)
            continue
        if held is not None:
            yield held
        held = state
    if held is not None:
        yield held


def _halved(graph: _Graph, start: int, end: int) -> Iterator[State]:
    graph, changes = _clipped(graph, start, end)
    if changes:
        graph = _contracted(graph)
        graph, changes = _clipped(graph, start, end)
    if not changes:
        yield State(start, end, in_order(_contracted(graph).members.values()))
        return
    changes.sort()
    middle = changes[len(changes) // 2]
    yield from _halved(graph, start, middle)
    yield from _halved(graph, middle, end)


def _clipped(graph: _Graph, start: int, end: int) -> tuple[_Graph, list[int]]:
    """The graph within an interval, without anything absent there, and the moments in it at which anything
    changes."""
    changes: list[int] = []
    partly: dict[int, Times] = {}
    gone: set[int] = set()
    for node, times in graph.partly.items():
        found = clip(times, start, end)
        if not found:
            gone.add(node)
        elif found != [(start, end)]:
            partly[node] = found
            changes += (moment for span in found for moment in span if start < moment < end)
    silent: dict[Pair, Times] = {}
    for pair, times in graph.silent.items():
        if gone and (pair[0] in gone or pair[1] in gone):
            continue
        found = clip(times, start, end)
        if found:
            silent[pair] = found
            changes += (moment for span in found for moment in span if start < moment < end)
    members = {node: of for node, of in graph.members.items() if node not in gone} if gone else graph.members
    return _Graph(members, partly, silent, graph.ties), changes


def _contracted(graph: _Graph) -> _Graph:
    """Merge vertices that are joined all the time until there are none."""
    while True:
        whole = [node for node in graph.members if node not in graph.partly]
        groups = components(whole, graph.silent, graph.ties)
        if len(groups) == len(whole):
            return graph
        groups += [[node] for node in graph.partly]
        graph = _merged(graph, groups)


def components(nodes: Iterable[int], silent: Iterable[Pair], ties: Ties | None) -> list[list[int]]:
    """Components of the graph of all edges except the silent ones. A full mesh is searched by its missing
    edges: linear in nodes and silent pairs, though there are far more edges.
    """
    missing: dict[int, set[int]] = {}
    for one, other in silent:
        missing.setdefault(one, set()).add(other)
        missing.setdefault(other, set()).add(one)
    nothing: set[int] = set()
    unseen = set(nodes)
    found: list[list[int]] = []
    while unseen:
        group = [unseen.pop()]
        for node in group:  # grows meanwhile
            reached = unseen if ties is None else unseen & ties.get(node, nothing)
            reached = reached - missing.get(node, nothing)
            unseen -= reached
            group += reached
        found.append(group)
    return found


def _merged(graph: _Graph, groups: list[list[int]]) -> _Graph:
    of = {node: group[0] for group in groups for node in group}
    members = {group[0]: tuple(each for node in group for each in graph.members[node]) for group in groups}
    between: dict[Pair, list[Times]] = {}
    for (one, other), times in graph.silent.items():
        pair = ordered(of[one], of[other])
        if pair[0] != pair[1]:
            between.setdefault(pair, []).append(times)
    if graph.ties is None:
        ties, sizes = None, {group[0]: len(group) for group in groups}
        edges = {pair: sizes[pair[0]] * sizes[pair[1]] for pair in between}
    else:
        ties, edges = _merged_ties(graph.ties, of)
    silent: dict[Pair, Times] = {}
    for pair, lists in between.items():
        wanted = edges.get(pair, 0)
        if len(lists) == wanted:
            times = lists[0] if wanted == 1 else common(lists)
            if times:
                silent[pair] = times
    return _Graph(members, graph.partly, silent, ties)


def _merged_ties(ties: Ties, of: Mapping[int, int]) -> tuple[Ties, dict[Pair, int]]:
    merged: Ties = {}
    edges: dict[Pair, int] = {}
    for node, others in ties.items():
        if node not in of:
            continue
        for other in others:
            if other in of and of[node] != of[other]:
                merged.setdefault(of[node], set()).add(of[other])
                if node < other:
                    pair = ordered(of[node], of[other])
                    edges[pair] = edges.get(pair, 0) + 1
    return merged, edges


# --- times


def ordered(one: int, other: int) -> Pair:
    return (one, other) if one < other else (other, one)


def clip(times: Times, start: int, end: int) -> Times:
    """The part of the times between start and end."""
    if len(times) == 1:  # nearly all
        begin, until = times[0]
        begin, until = max(begin, start), min(until, end)
        return [(begin, until)] if begin < until else []
    return [
        (max(begin, start), min(until, end)) for begin, until in times if max(begin, start) < min(until, end)
    ]


def common(lists: Sequence[Times]) -> Times:
    """The times common to all of them."""
    moments = [(begin, 1) for times in lists for begin, _ in times]
    moments += [(until, -1) for times in lists for _, until in times]
    moments.sort()  # an end comes before a start of the same moment, and leaves no time between
    found: Times = []
    depth, begun = 0, 0
    for moment, step in moments:
        if depth == len(lists) and begun < moment:
            found.append((begun, moment))
        depth += step
        begun = moment
    return joined(found)


def joined(times: Iterable[tuple[int, int]]) -> Times:
    """The same times in order, with those that touch or overlap merged."""
    found: Times = []
    for begin, until in sorted(times):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until))
        elif begin < until:
            found.append((begin, until))
    return found


def without(times: Times, less: Times) -> Times:
    """The part of the times that is not in ``less``."""
    found: Times = []
    for begin, until in times:
        at = begin
        for start, end in less:
            if end <= at:
                continue
            if start >= until:
                break
            if at < start:
                found.append((at, start))
            at = max(at, end)
        if at < until:
            found.append((at, until))
    return found


def in_order(sides: Iterable[Iterable[int]]) -> Sides:
    """Larger sides first, then by number."""
    found = [tuple(sorted(side)) for side in sides]
    return tuple(sorted(found, key=lambda side: (-len(side), side)))
