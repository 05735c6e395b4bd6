"""Computes the number to add to each boot's monotonic clock, so that all agree. Pure.

A broker `a` that `b` answered in a round knows, on its own clock, when it asked and when the answer came. In
between `b` noted the survey on its own clock. So ``offset(b) - offset(a)`` is the middle of the round trip
minus that note. It is wrong by half the round trip at most, however long either broker stood still.

Samples make a graph of boots. In each connected part, offsets follow from the boot with the most neighbours
along the shortest paths, where the length of a sample is its error. So an offset differs from that boot's by
no more than the errors along its path. Then the part is aligned with the wall clocks: as many are ahead of it
as behind, so that no single wrong clock moves it. A boot without a sample uses its wall clock, and has no
error. If that contradicts what others said when they met the boot, their word counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple

MEETING: Final = 2_000_000
"""Microseconds within which two brokers that meet both log it."""


class Sample(NamedTuple):
    """How much more to add to ``other``'s clock than to ``one``'s, in microseconds."""

    one: str
    other: str
    difference: int
    error: int


class Offset(NamedTuple):
    """Mesh time is the boot's monotonic clock plus this, in microseconds."""

    offset: int
    error: int | None
    """Its maximum distance from the middle of its part. None: it is based on a wall clock."""


def solve(anchors: Mapping[str, int], samples: Iterable[Sample]) -> dict[str, Offset]:
    """Offsets of all boots in ``anchors``, which maps them to offsets from their wall clocks or from a better
    source.

    Samples of other boots are ignored.
    """
    graph = _graph(anchors, samples)
    found: dict[str, Offset] = {}
    by_neighbours = sorted(graph, key=lambda boot: (-len(graph[boot]), boot))
    for root in by_neighbours:
        if root in found:
            continue
        part = _shortest(graph, root)
        shift = _middle([anchors[boot] - relative for boot, (relative, _) in part.items()])
        for boot, (relative, error) in part.items():
            found[boot] = Offset(relative + shift, error)
    for boot, anchor in anchors.items():
        found.setdefault(boot, Offset(anchor, None))
    return found


def stand(
    walls: Mapping[str, int], nodes: Mapping[str, str], found: Mapping[str, Offset]
) -> dict[str, Offset]:
    """Base the offsets of boots without a sample on their wall clocks. These are corrected by their known
    errors, which other boots of the same broker reveal. ``walls`` has offsets from wall clocks, ``nodes`` the
    broker of each boot."""
    wrong: dict[str, list[int]] = defaultdict(list)
    for boot, offset in found.items():
        if offset.error is not None:
            wrong[nodes[boot]].append(walls[boot] - offset.offset)
    return {
        boot: Offset(walls[boot] - _middle(wrong[nodes[boot]]), None)
        if offset.error is None and wrong[nodes[boot]]
        else offset
        for boot, offset in found.items()
    }


class Word(NamedTuple):
    """``speaker`` first named ``boot`` at this time of its monotonic clock, in microseconds."""

    speaker: str
    boot: str
    at: int


def met(found: Mapping[str, Offset], words: Iterable[Word]) -> dict[str, Offset]:
    """The same offsets, but those that rest on a wall clock are corrected by the first meeting.

    A boot and the first broker that it meets name each other at the same time. A boot's own first word names
    another broker; it has the boot as ``speaker`` and as ``boot``.
    """
    own: dict[str, int] = {}
    others: dict[str, int] = {}
    for word in words:
        if word.speaker == word.boot:
            own[word.boot] = word.at
        elif word.speaker in found and found[word.speaker].error is not None:
            at = word.at + found[word.speaker].offset
            others[word.boot] = min(others.get(word.boot, at), at)
    told = dict(found)
    for boot, at in others.items():
        if boot in own and boot in found and found[boot].error is None:
            offset = at - own[boot]
            if abs(offset - found[boot].offset) > MEETING:
                told[boot] = Offset(offset, None)
    return told


def _graph(anchors: Mapping[str, int], samples: Iterable[Sample]) -> dict[str, dict[str, tuple[int, int]]]:
    """For each boot: its neighbours, each with the best sample's error and the difference to it. The order
    of equally good samples does not matter."""
    best: dict[tuple[str, str], tuple[int, int]] = {}
    for one, other, difference, error in samples:
        if one == other or one not in anchors or other not in anchors:
            continue
        pair, ahead = ((one, other), difference) if one < other else ((other, one), -difference)
        best[pair] = min(best.get(pair, (error, ahead)), (error, ahead))
    graph: dict[str, dict[str, tuple[int, int]]] = {}
    for (one, other), (error, ahead) in best.items():
        graph.setdefault(one, {})[other] = (error, ahead)
        graph.setdefault(other, {})[one] = (error, -ahead)
    return graph


def _shortest(graph: Mapping[str, Mapping[str, tuple[int, int]]], root: str) -> dict[str, tuple[int, int]]:
    """For each boot that samples reach: its offset minus the root's, and the sum of errors along the path."""
    found: dict[str, tuple[int, int]] = {}
    ahead: list[tuple[int, int, str, int]] = [(0, 0, root, 0)]
    while ahead:
        error, steps, boot, relative = heappop(ahead)
        if boot in found:
            continue
        found[boot] = (relative, error)
        for other, (more, difference) in graph[boot].items():
            if other not in found:
                heappush(ahead, (error + more, steps + 1, other, relative + difference))
    # The root is as uncertain as its best sample.
    found[root] = (0, min(more for more, _ in graph[root].values()))
    return found


def _middle(values: list[int]) -> int:
    """The lower one of two in the middle: one of two clocks may be wrong by hours, and half of that is
    worse."""
    values.sort()
    return values[(len(values) - 1) // 2]
