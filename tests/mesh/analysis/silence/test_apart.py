"""Components over time against components at every instant."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.analysis.silence.apart import (
    Pair,
    State,
    Ties,
    Times,
    clip,
    common,
    components,
    in_order,
    joined,
    states,
    without,
)

END = 24


@st.composite
def times(draw: st.DrawFn, least: int = 0) -> Times:
    moments = draw(st.lists(st.integers(0, END), min_size=2 * least, max_size=6, unique=True).map(sorted))
    return [(begin, until) for begin, until in zip(moments[::2], moments[1::2], strict=False)]


@st.composite
def meshes(draw: st.DrawFn) -> tuple[dict[int, Times], dict[Pair, Times], Ties | None]:
    size = draw(st.integers(1, 7))
    always = st.just([(0, END)])
    presence = {node: draw(always | times(least=1)) for node in range(size)}
    pairs = [(one, other) for one in range(size) for other in range(one + 1, size)]
    ties: Ties | None = None
    if draw(st.booleans()):
        tied = [pair for pair in pairs if draw(st.booleans())]
        ties = {node: {sum(pair) - node for pair in tied if node in pair} for node in range(size)}
        pairs = tied
    silent = {pair: found for pair in pairs if (found := draw(times() | always))}
    return presence, silent, ties


def at_every_instant(
    presence: dict[int, Times], silent: dict[Pair, Times], ties: Ties | None
) -> list[tuple[tuple[int, ...], ...]]:
    """Computed with networkx, one graph for each instant."""
    found = []
    for now in range(END):
        here = [node for node, times in presence.items() if clip(times, now, now + 1)]
        graph = nx.Graph()
        graph.add_nodes_from(here)
        for one in here:
            for other in here:
                tied = ties is None or other in ties[one]
                if one < other and tied and not clip(silent.get((one, other), []), now, now + 1):
                    graph.add_edge(one, other)
        found.append(in_order(nx.connected_components(graph)))
    return found


@given(meshes())
@settings(max_examples=100)
def test_the_components_are_those_of_every_instant(
    mesh: tuple[dict[int, Times], dict[Pair, Times], Ties | None],
) -> None:
    found = list(states(*mesh, 0, END))
    assert [one.end for one in found[:-1]] == [other.start for other in found[1:]]
    assert (found[0].start, found[-1].end) == (0, END)
    assert [state.sides for state in found for _ in range(state.start, state.end)] == at_every_instant(*mesh)
    assert all(one.sides != other.sides for one, other in pairwise(found))


def test_two_halves_are_apart_from_the_last_pair_that_goes_silent_to_the_first_that_is_heard() -> None:
    silent = {(one, other): [(one + other, 20 - one)] for one in range(3) for other in range(3, 6)}
    assert list(states({node: [(0, END)] for node in range(6)}, silent, None, 0, END)) == [
        State(0, 7, (tuple(range(6)),)),
        State(7, 18, ((0, 1, 2), (3, 4, 5))),
        State(18, END, (tuple(range(6)),)),
    ]


def test_a_mesh_of_neighbours_falls_apart_where_a_broker_between_them_is_down() -> None:
    ties: Ties = {0: {1}, 1: {0, 2}, 2: {1}}
    presence = {0: [(0, END)], 1: [(0, 5), (9, END)], 2: [(0, END)]}
    assert [state.sides for state in states(presence, {}, ties, 0, END)] == [
        ((0, 1, 2),),
        ((0,), (2,)),
        ((0, 1, 2),),
    ]


@pytest.mark.parametrize("size", [50, 100])
def test_a_full_cut_costs_no_more_than_its_silent_pairs(size: int) -> None:
    """Each pair goes silent at its own moment: a graph for each would cost the square of the pairs."""
    half = size // 2
    silent = {
        (one, other): [(one * half + other, 10**6 - one * half - other)]
        for one in range(half)
        for other in range(half, size)
    }
    found = list(states({node: [(0, 10**6)] for node in range(size)}, silent, None, 0, 10**6))
    assert [len(state.sides) for state in found] == [1, 2, 1]


@given(st.lists(times(), min_size=1, max_size=4))
def test_common_times_are_those_of_all(lists: list[Times]) -> None:
    wanted = [now for now in range(END) if all(clip(times, now, now + 1) for times in lists)]
    assert [now for begin, until in common(lists) for now in range(begin, until)] == wanted


@given(times(), times())
def test_times_without_others(ones: Times, others: Times) -> None:
    wanted = [now for now in range(END) if clip(ones, now, now + 1) and not clip(others, now, now + 1)]
    assert [now for begin, until in without(ones, others) for now in range(begin, until)] == wanted


def test_times_that_touch_are_one() -> None:
    assert joined([(5, 7), (1, 3), (3, 4), (6, 9), (2, 2)]) == [(1, 4), (5, 9)]


def test_components_of_a_mesh_without_brokers() -> None:
    assert components([], [], None) == []
