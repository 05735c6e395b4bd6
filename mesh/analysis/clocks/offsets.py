"""What to add to each boot's monotonic clock, so that all agree. Pure.

A broker `a` that was answered by `b` in a round knows, by its own clock, when it had asked and when the
answer came. In between, by its own clock, `b` noted the survey. So ``offset(b) - offset(a)`` is the middle
of the round trip minus that note, and wrong by half the round trip at most, however long either stood
still.

Samples make a graph of boots. In each connected part offsets follow from the boot with most neighbours on
the shortest paths, where a sample is as long as its error: so no offset is further from that boot's than
the errors on its way say. Then the part is set against the wall clocks: as many are ahead of it as behind,
so that no single wrong clock moves it. A boot without a sample stands on its wall clock alone, and has no
error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple


class Sample(NamedTuple):
    """By how much more of ``one``'s clock there is to add to ``other``'s, in microseconds."""

    one: str
    other: str
    difference: int
    error: int


class Offset(NamedTuple):
    """Mesh time is the boot's monotonic clock and this, in microseconds."""

    offset: int
    error: int | None
    """How far it may be from the middle of its part; None: it stands on a wall clock."""


def solve(anchors: Mapping[str, int], samples: Iterable[Sample]) -> dict[str, Offset]:
    """Offsets of all boots in ``anchors``: what to add by their wall clocks, or by what is known better.

    Samples of boots that are not among them say nothing.
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
    """Offsets of which those without a sample stand on their wall clock, corrected by what it is known to be
    wrong by: other boots of the same broker tell. ``walls`` are offsets by wall clocks, ``nodes`` whose boots
    they are."""
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


def _graph(anchors: Mapping[str, int], samples: Iterable[Sample]) -> dict[str, dict[str, tuple[int, int]]]:
    """Of each boot: its neighbours, each with the best sample's error and the difference to it."""
    graph: dict[str, dict[str, tuple[int, int]]] = {}
    for sample in samples:
        if sample.one == sample.other or sample.one not in anchors or sample.other not in anchors:
            continue
        for one, other, difference in (
            (sample.one, sample.other, sample.difference),
            (sample.other, sample.one, -sample.difference),
        ):
            near = graph.setdefault(one, {})
            best = (sample.error, difference)
            if other not in near or best[0] < near[other][0]:
                near[other] = best
    return graph


def _shortest(graph: Mapping[str, Mapping[str, tuple[int, int]]], root: str) -> dict[str, tuple[int, int]]:
    """Of each boot that samples lead to: its offset less the root's, and the sum of errors on the way."""
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
    # The root is as uncertain as the best sample says that it has.
    found[root] = (0, min(more for more, _ in graph[root].values()))
    return found


def _middle(values: list[int]) -> int:
    """The lower one of two in the middle: of two clocks one may be wrong by hours, and half of that is
    worse."""
    values.sort()
    return values[(len(values) - 1) // 2]
