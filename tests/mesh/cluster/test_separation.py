"""When clients of a broker that was apart from others are told that messages may be missing."""

from __future__ import annotations

from mesh.cluster.separation import LEAST_S, REGAIN_S, Separation


def test_a_broker_that_was_never_separated_reports_nothing() -> None:
    separation = Separation()
    assert not separation.end(100.0, held=True)


def test_a_separation_ends_once_others_hold_the_interest_and_is_reported_once() -> None:
    separation = Separation()
    separation.begin(10.0)
    assert not separation.end(10.0, held=True), "a broker that hung does not know yet which links have ended"
    assert not separation.end(11.0, held=False)
    separation.begin(11.5)
    assert separation.end(12.0, held=True) and not separation.end(13.0, held=True)
    separation.begin(20.0)
    assert separation.end(20.0 + LEAST_S, held=True), "the next one is told as well"


def test_a_separation_waits_for_a_bounded_time_for_members_to_hold_the_interest() -> None:
    separation = Separation()
    separation.begin(10.0)
    assert not separation.end(9.9 + REGAIN_S, held=False)
    assert separation.end(10.0 + REGAIN_S, held=False)
