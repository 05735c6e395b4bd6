"""When clients of a broker that was apart from others are told that messages may be missing."""

from __future__ import annotations

from mesh.cluster.separation import LEAST_S, REGAIN_S, Separation


def test_who_was_never_apart_is_told_nothing() -> None:
    separation = Separation()
    assert not separation.end(100.0, held=True)


def test_it_is_over_once_others_hold_the_interest_and_is_told_once() -> None:
    separation = Separation()
    separation.begin(10.0)
    assert not separation.end(10.0, held=True), "who stood still has not heard yet which links are over"
    assert not separation.end(11.0, held=False)
    separation.begin(11.5)
    assert separation.end(12.0, held=True) and not separation.end(13.0, held=True)
    separation.begin(20.0)
    assert separation.end(20.0 + LEAST_S, held=True), "the next one is told as well"


def test_a_member_that_never_holds_the_interest_is_waited_for_in_vain_for_a_while_only() -> None:
    separation = Separation()
    separation.begin(10.0)
    assert not separation.end(9.9 + REGAIN_S, held=False)
    assert separation.end(10.0 + REGAIN_S, held=False)
