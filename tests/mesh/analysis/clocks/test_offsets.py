"""Offsets of clocks from samples whose errors are smaller than they state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.analysis.clocks import offsets
from mesh.analysis.clocks.offsets import Offset, Sample, Word, met, solve, stand

HOUR = 3_600_000_000


@st.composite
def meshes(draw: st.DrawFn) -> tuple[dict[str, int], list[Sample]]:
    """True offsets of boots, and samples along a line and some shortcuts."""
    count = draw(st.integers(2, 12))
    true = {f"b{number}": draw(st.integers(-(10**12), 10**12)) for number in range(count)}
    pairs = list(pairwise(true))
    more = st.tuples(st.sampled_from(sorted(true)), st.sampled_from(sorted(true)))
    samples = []
    for one, other in pairs + draw(st.lists(more, max_size=20)):
        error = draw(st.integers(1, 100_000))
        wrong = draw(st.integers(-error, error))
        samples.append(Sample(one, other, true[other] - true[one] + wrong, error))
    return true, draw(st.permutations(samples))


@given(meshes())
@settings(max_examples=100, deadline=None)
def test_no_offset_is_further_from_another_than_their_errors_say(mesh: Any) -> None:
    true, samples = mesh

    found = solve(true, samples)

    for one in true:
        for other in true:
            errors = found[one].error, found[other].error
            assert None not in errors
            apart = found[one].offset - found[other].offset - (true[one] - true[other])
            assert abs(apart) <= sum(error for error in errors if error is not None)


def line(count: int, error: int = 100) -> tuple[dict[str, int], list[Sample]]:
    true = {f"b{number}": 1000 * number for number in range(count)}
    return true, [Sample(one, other, true[other] - true[one], error) for one, other in pairwise(true)]


def test_the_best_sample_of_a_pair_counts() -> None:
    found = solve({"a": 0, "b": 0}, [Sample("a", "b", 900, 500), Sample("b", "a", 0, 10)])

    assert found == {"a": Offset(0, 10), "b": Offset(0, 10)}


def test_a_wall_clock_that_is_hours_off_moves_no_boot() -> None:
    true, samples = line(5)
    walls = {**true, "b1": true["b1"] + HOUR, "b4": true["b4"] - 7 * HOUR}

    assert solve(walls, samples) == solve(true, samples)


def test_one_of_two_wall_clocks_is_believed_and_not_their_mean() -> None:
    true, samples = line(2)

    found = solve({**true, "b1": true["b1"] + HOUR}, samples)

    assert {boot: offset.offset for boot, offset in found.items()} == true


def test_a_boot_that_no_other_heard_has_the_time_of_its_wall_clock() -> None:
    true, samples = line(3)

    found = solve({**true, "alone": 77}, samples)

    assert found["alone"] == Offset(77, None)


def test_a_boot_that_no_other_heard_has_the_clock_error_of_its_brokers_other_boots() -> None:
    """A host whose wall clock is an hour ahead restarts its broker, which dies before it is measured."""
    true, samples = line(3)
    walls = {**true, "b2": true["b2"] + HOUR, "short": 5_000 + HOUR}
    nodes = {"b0": "x", "b1": "y", "b2": "z", "short": "z"}

    found = stand(walls, nodes, solve(walls, samples))

    assert found["short"] == Offset(5_000, None)
    assert found["b0"] == solve(true, samples)["b0"]


def test_a_boot_that_no_other_heard_is_placed_at_the_time_that_others_report_for_it() -> None:
    """In logs that combine heartbeats, a broker killed within 16 s has noted none. If its wall clock had also
    jumped, its whole life was placed two hours away."""
    true, samples = line(3)
    walls = {**true, "short": 5_000 + 2 * HOUR}
    found = stand(walls, dict.fromkeys(walls, "x") | {"short": "z"}, solve(walls, samples))
    own = Word("short", "short", 700)
    words = [own, Word("b1", "short", 5_000 + 700 + 900 - 1000), Word("b2", "short", 99_000)]

    assert met(found, words)["short"] == Offset(5_900, None)
    assert met(found, words[1:]) == met(found, [own]) == found, "one side alone says nothing"
    right = {**found, "short": Offset(5_000, None)}
    assert met(right, words) == right, "a wall clock that agrees is closer"


def test_the_order_of_equally_good_samples_decides_nothing() -> None:
    """Spark collects them in any order, and the same logs gave offsets that differed by microseconds."""
    samples = [Sample("a", "b", 7, 5), Sample("b", "a", -9, 5)]

    assert solve({"a": 0, "b": 0}, samples) == solve({"a": 0, "b": 0}, samples[::-1])


def test_parts_that_never_met_stand_on_their_own_wall_clocks() -> None:
    true = {"a": 0, "b": 5, "x": 100, "y": 105}

    found = solve(true, [Sample("a", "b", 5, 1), Sample("x", "y", 5, 1)])

    assert {boot: offset.offset for boot, offset in found.items()} == true


def test_samples_of_strangers_say_nothing() -> None:
    assert solve({"a": 3}, [Sample("a", "stranger", 5, 1), Sample("a", "a", 9, 1)]) == {"a": Offset(3, None)}


RULES: dict[str, tuple[str, Any]] = {
    "the median of the wall clocks": ("_middle", lambda values: sum(values) // len(values)),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_wrong_clock_moves_all_boots_without_the_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true, samples = line(5)
    monkeypatch.setattr(offsets, *RULES[rule])

    assert solve({**true, "b1": true["b1"] + HOUR}, samples) != solve(true, samples)
