"""The detector's measures against sums over all pairs, and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.analysis.opinions.detector import Failure, Wrong, detector, overlap, pooled_exposures

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


RAN = {node: [(0, 3600 * S)] for node in ("a", "b", "m")}


def rows(mistakes: list[Wrong], failures: list[Failure]) -> dict[tuple[str, str], object]:
    return {(each.observer, each.subject): each for each in detector(RAN, mistakes, failures, ended=3600 * S)}


def test_the_measures_of_a_pair() -> None:
    found = detector(
        RAN,
        [Wrong("a", "m", 600 * S, 610 * S), Wrong("a", "m", 1200 * S, 1220 * S)],
        [],
        ended=3600 * S,
    )
    row = next(each for each in found if (each.observer, each.subject) == ("a", "m"))
    assert row.exposure_s == 3600
    assert (row.mistakes, row.rate_per_h, row.mistake_s, row.recurrence_s) == (2, 2, 15, 600)
    assert row.accuracy == pytest.approx(1 - 30 / 3600)
    everybody = found[-1]
    assert (everybody.observer, everybody.subject, everybody.exposure_s) == ("*", "*", 6 * 3600)
    assert everybody.mistakes == 2


def test_a_failure_that_ended_before_its_detection_is_missed() -> None:
    ran = {"a": [(0, 3600 * S)], "m": [(0, 600 * S), (602 * S, 3600 * S)]}
    found = detector(ran, [], [Failure("m", 600 * S, 602 * S, {})], ended=3600 * S)
    assert (found[0].observer, found[0].failures, found[0].missed) == ("a", 1, 1)


def test_an_observer_that_was_down_itself_did_not_miss_it() -> None:
    ran = {"a": [(0, 601 * S), (700 * S, 3600 * S)], "m": [(0, 600 * S), (602 * S, 3600 * S)]}
    found = detector(ran, [], [Failure("m", 600 * S, 602 * S, {})], ended=3600 * S)
    assert found[-1].failures == 0


def test_detection_times_are_pooled_not_averaged() -> None:
    ran = {"a": [(0, 3600 * S)], "b": [(0, 3600 * S)], "m": [(0, 600 * S)]}
    found = detector(ran, [], [Failure("m", 600 * S, None, {"a": 602 * S, "b": 609 * S})], ended=3600 * S)
    everybody = found[-1]
    assert (everybody.failures, everybody.detection_p50_s, everybody.detection_p99_s) == (2, 2, 9)
