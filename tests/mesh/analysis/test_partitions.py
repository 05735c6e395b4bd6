"""Windows and episodes, without Spark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.partitions import Sides, SplitWindow, find_episodes, merge_sides, window_graph

W = 5_000_000


def windows(*sides: Sides | None, run: str = "run") -> list[SplitWindow]:
    """Windows one after another; None is one that is whole, of which episodes never hear."""
    return [SplitWindow(run, number * W, one) for number, one in enumerate(sides) if one is not None]


def test_a_window_is_whole_when_all_that_count_hang_together() -> None:
    graph = window_graph("abc", [("a", "b"), ("b", "c")])
    assert graph.sides == (("a", "b", "c"),)
    assert (graph.counting, graph.oneway_pairs, graph.silent_pairs) == (3, 2, 1)


def test_one_way_hearing_connects() -> None:
    assert len(window_graph("ab", [("a", "b")]).sides) == 1


def test_a_broker_that_counts_and_hears_nobody_is_a_part_of_its_own() -> None:
    assert window_graph("abcd", [("a", "b"), ("b", "c")]).sides == (("a", "b", "c"), ("d",))


def test_a_broker_that_does_not_count_still_connects_others() -> None:
    graph = window_graph("ab", [("a", "x"), ("x", "b")])
    assert graph.sides == (("a", "b"),)
    assert graph.silent_pairs == 1


def test_a_broker_that_does_not_count_is_no_part() -> None:
    assert window_graph("ab", [("a", "b"), ("x", "y")]).sides == (("a", "b"),)


def test_windows_in_a_row_with_the_same_sides_are_one_episode() -> None:
    two = (("a", "b"), ("c",))
    (found,) = find_episodes(windows(None, two, two, two), W)
    assert [window.start_us for window in found[0]] == [W, 2 * W, 3 * W]
    assert found[1] == two


def test_a_whole_window_between_makes_two_episodes() -> None:
    two = (("a",), ("b",))
    assert len(find_episodes(windows(two, None, two), W)) == 2


def test_a_broker_that_changes_sides_begins_another_episode() -> None:
    assert len(find_episodes(windows((("a", "b"), ("c",)), (("a",), ("b", "c"))), W)) == 2


def test_a_side_that_falls_apart_begins_another_episode() -> None:
    assert len(find_episodes(windows((("a", "b"), ("c",)), (("a",), ("b",), ("c",))), W)) == 2


def test_a_broker_that_counts_only_later_joins_its_side() -> None:
    (found,) = find_episodes(windows((("a", "b"), ("c",)), (("a",), ("c", "d"))), W)
    assert found[1] == (("a", "b"), ("c", "d"))


def test_runs_are_never_mixed() -> None:
    two = (("a",), ("b",))
    both = [*windows(two, run="one"), SplitWindow("two", W, two)]
    assert len(find_episodes(both, W)) == 2


nodes = st.sampled_from("abcdef")


@given(st.sets(nodes, min_size=1), st.lists(st.tuples(nodes, nodes)), st.randoms(use_true_random=False))
def test_order_and_repetition_of_edges_change_nothing(counting, edges, rng) -> None:  # type: ignore[no-untyped-def]
    shuffled = edges * 2
    rng.shuffle(shuffled)
    graph = window_graph(counting, edges)
    assert window_graph(counting, shuffled) == graph
    assert sorted(node for side in graph.sides for node in side) == sorted(counting)
    sizes = [len(side) for side in graph.sides]
    assert sizes == sorted(sizes, reverse=True)


@given(st.lists(st.lists(nodes, max_size=3), min_size=1, max_size=3))
def test_merging_sides_with_themselves_changes_nothing(groups) -> None:  # type: ignore[no-untyped-def]
    seen: dict[str, int] = {}
    for number, group in enumerate(groups):
        for node in group:
            seen.setdefault(node, number)
    sides = tuple(
        sorted(
            (
                tuple(sorted(node for node, side in seen.items() if side == number))
                for number in dict.fromkeys(seen.values())
            ),
            key=lambda side: (-len(side), side),
        )
    )
    assert merge_sides(sides, sides) == sides
