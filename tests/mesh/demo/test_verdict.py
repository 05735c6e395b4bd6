"""The demonstration's verdict can fail in every way it should."""

from __future__ import annotations

from mesh.demo.verdict import Event, differences

DONE = [Event("crash", "beta", 100.0), Event("start", "beta", 110.0)]


def test_the_same_events_within_a_window_are_a_pass() -> None:
    found = [Event("start", "beta", 113.0), Event("crash", "beta", 98.5)]
    assert differences(DONE, found) == []


def test_a_deed_that_was_not_found_is_named() -> None:
    assert differences(DONE, [Event("crash", "beta", 100.0)]) == [
        "done but not found: start of beta at 00:01:50.0"
    ]


def test_a_finding_outside_its_window_counts_on_both_sides() -> None:
    assert len(differences(DONE[:1], [Event("crash", "beta", 105.1)])) == 2


def test_the_wrong_broker_or_another_kind_does_not_match() -> None:
    found = [Event("crash", "gamma", 100.0), Event("resume", "beta", 110.0)]
    assert len(differences(DONE, found)) == 4


def test_one_finding_answers_for_one_deed_only() -> None:
    assert differences([DONE[0], DONE[0]], [DONE[0]]) == [f"done but not found: {DONE[0]}"]


def test_a_finding_without_a_deed_is_a_difference() -> None:
    assert differences([], [Event("partition", "", 0.0)]) == [
        "found but not done: partition of  at 00:00:00.0"
    ]
