"""The wait of a broker that hung before it routes again."""

from __future__ import annotations

import pytest

from mesh.cluster.joining import HOLD_S
from mesh.cluster.standstill import LOOK_S, SETTLED_S, Standstill


def test_a_broker_that_never_hung_does_not_wait() -> None:
    standstill = Standstill()
    assert not standstill.waits and standstill.next_deadline() == float("inf")
    assert not standstill.end(100.0, live=[1], missing=True)


def test_a_standstill_ends_once_each_link_has_answered_and_is_reported_once() -> None:
    standstill = Standstill()
    standstill.begin([1, 2], 10.0)
    assert standstill.waits and standstill.next_deadline() == 10.0 + LOOK_S
    standstill.answered(1)
    assert not standstill.end(10.1, live=[1, 2], missing=False)
    standstill.answered(2)
    assert not standstill.end(10.2, live=[1, 2], missing=True), "whose interest is not held"
    assert standstill.next_deadline() == 10.2 + LOOK_S
    assert standstill.end(10.3, live=[1, 2], missing=False)
    assert not standstill.waits and not standstill.end(10.4, live=[1, 2], missing=False)


def test_a_member_with_a_lost_link_is_waited_for_until_its_new_link_answers_and_lasts() -> None:
    standstill = Standstill()
    standstill.begin([1], 10.0)
    standstill.linked(1, 10.1)
    assert not standstill.end(11.0, live=[1], missing=False)
    standstill.answered(1)
    assert not standstill.end(10.0 + SETTLED_S, live=[1], missing=False), "it may be replaced"
    assert standstill.end(10.1 + SETTLED_S, live=[1], missing=False)


@pytest.mark.parametrize(("live", "at"), [([], 10.1), ([1], 10.0 + HOLD_S)])
def test_dead_and_long_silent_members_are_not_waited_for(live: list[int], at: float) -> None:
    standstill = Standstill()
    standstill.begin([1], 10.0)
    assert not standstill.end(10.0 + HOLD_S - 0.1, live=[1], missing=True)
    assert standstill.end(at, live=live, missing=bool(live))


def test_each_standstill_asks_anew_and_knows_late_answers_from_its_own() -> None:
    standstill = Standstill()
    standstill.begin([1], 10.0)
    first = standstill.stamp
    standstill.begin([1, 2], 20.0)
    assert standstill.stamp != first and first != 0, "0 is the stamp of each round"
    standstill.answered(1)
    assert not standstill.end(20.1, live=[1, 2], missing=False)
