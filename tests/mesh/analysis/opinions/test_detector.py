"""The detector's measures against those of each pair by itself, and by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.opinions.changes import Saying
from mesh.analysis.opinions.detector import (
    NOTHING,
    Failure,
    Pool,
    Wrong,
    overlap,
    pairs,
    pooled_exposures,
    quality,
    reported_dead,
)

S = 1_000_000


@st.composite
def running(draw: st.DrawFn) -> list[tuple[int, int]]:
    marks = sorted(draw(st.sets(st.integers(0, 60), max_size=8)))
    return list(zip(marks[::2], marks[1::2], strict=False))


@given(st.dictionaries(st.sampled_from("abcdef"), running()))
def test_pooled_exposures_are_the_sums_over_pairs(ran: dict[str, list[tuple[int, int]]]) -> None:
    brute = {node: sum(overlap(ran[node], ran[other]) for other in ran if other != node) for node in ran}
    assert pooled_exposures(ran) == brute


@given(running(), running())
def test_an_overlap_is_counted_instant_by_instant(
    ones: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    def runs(spans: list[tuple[int, int]], at: int) -> bool:
        return any(start <= at < end for start, end in spans)

    assert overlap(ones, others) == sum(runs(ones, at) and runs(others, at) for at in range(61))


Ran = dict[str, list[tuple[int, int]]]
times = st.integers(0, 60)
mistakes = st.lists(st.builds(Wrong, st.sampled_from("abc"), times, st.none() | times), max_size=8).map(
    lambda found: [each for each in found if each.end is None or each.end >= each.start]
)
failures = st.lists(
    st.builds(
        lambda at, down, told: Failure(at, None if down is None else at + down, told),
        times,
        st.none() | st.integers(1, 20),
        st.dictionaries(st.sampled_from("abcm"), times),
    ),
    max_size=4,
)


@given(mistakes, failures, st.dictionaries(st.sampled_from("abcm"), running()))
def test_pairs_are_those_of_each_observer_by_itself(
    mistakes: list[Wrong], failures: list[Failure], ran: Ran
) -> None:
    found = pairs("m", mistakes, failures, ran, ended=60)

    assert found == {
        observer: pool for observer in "abc" if (pool := alone(observer, mistakes, failures, ran)) != NOTHING
    }


def alone(observer: str, mistakes: list[Wrong], failures: list[Failure], ran: Ran) -> Pool:
    """One observer of ``m``, mistake by mistake and failure by failure."""
    wrong = sorted(
        (each.start, 60 if each.end is None else each.end) for each in mistakes if each.observer == observer
    )
    apart = [later - start for (start, _), (later, _) in pairwise(wrong)]
    lags, missed = [], 0
    for failure in failures:
        for start, end in ran.get(observer, []):
            if start <= failure.at < end:
                if observer in failure.told:
                    lags.append(max(failure.told[observer], failure.at) - failure.at)
                elif failure.back is not None and failure.back <= end:
                    missed += 1
    lengths = sum(end - start for start, end in wrong)
    return Pool(len(wrong), lengths, len(apart), sum(apart), len(lags) + missed, missed, lags or ())


RAN = {node: [(0, 3600 * S)] for node in ("a", "b", "m")}


def test_the_measures_of_a_pair() -> None:
    wrong = [Wrong("a", 600 * S, 610 * S), Wrong("a", 1200 * S, 1220 * S)]

    found = pairs("m", wrong, [], RAN, ended=3600 * S)

    assert list(found) == ["a"]
    row = quality("a", "m", found["a"], 3600 * S)
    assert row.exposure_s == 3600
    assert (row.mistakes, row.rate_per_h, row.mistake_s, row.recurrence_s) == (2, 2, 15, 600)
    assert row.accuracy == pytest.approx(1 - 30 / 3600)
    assert (row.failures, row.missed, row.detection_p50_s, row.detection_p99_s) == (0, 0, None, None)


def test_a_pair_that_never_ran_together_has_no_rates() -> None:
    row = quality("a", "m", NOTHING, 0)
    assert (row.rate_per_h, row.mistake_s, row.recurrence_s, row.accuracy) == (None, None, None, None)


def test_a_mistake_that_is_never_taken_back_lasts_to_the_end() -> None:
    found = pairs("m", [Wrong("a", 600 * S, None)], [], RAN, ended=3600 * S)
    assert (found["a"].mistaken_us, found["a"].recurrences) == (3000 * S, 0)


def test_a_failure_that_ended_before_its_detection_is_missed() -> None:
    ran = {"a": [(0, 3600 * S)], "m": [(0, 600 * S), (602 * S, 3600 * S)]}
    found = pairs("m", [], [Failure(600 * S, 602 * S, {})], ran, ended=3600 * S)
    assert list(found) == ["a"]
    assert (found["a"].failures, found["a"].missed) == (1, 1)


def test_an_observer_that_was_down_itself_did_not_miss_it() -> None:
    ran = {"a": [(0, 601 * S), (700 * S, 3600 * S)], "m": [(0, 600 * S), (602 * S, 3600 * S)]}
    assert pairs("m", [], [Failure(600 * S, 602 * S, {})], ran, ended=3600 * S) == {}


def test_a_report_before_the_failure_detects_it_at_once() -> None:
    found = pairs("m", [], [Failure(600 * S, None, {"a": 590 * S})], RAN, ended=3600 * S)
    assert (found["a"].failures, found["a"].lags_us) == (1, [0])


def test_the_quantiles_of_a_pool_are_of_its_lags_in_order() -> None:
    row = quality("*", "m", NOTHING._replace(failures=3, lags_us=[9 * S, 2 * S, 4 * S]), 3600 * S)
    assert (row.failures, row.detection_p50_s, row.detection_p99_s) == (3, 4, 9)


def test_the_first_report_of_dead_counts_for_each_boot() -> None:
    def says(node: str, at: int, boot: str, state: str = "dead") -> Saying:
        return Saying(node, at, boot, 1, state, node)

    said = [says("a", 9, "1"), says("a", 7, "1"), says("a", 5, "1", "suspect"), says("b", 8, "2")]

    assert reported_dead(said) == {"1": {"a": 7}, "2": {"b": 8}}
