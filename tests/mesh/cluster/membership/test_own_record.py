"""A broker's record of itself."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.cluster.membership import (
    INCARNATION_MAX,
    INCARNATION_STEP_MAX,
    Membership,
    MembershipOptions,
    SelfChanged,
    State,
    Tell,
)
from tests.mesh.cluster.membership.driven import Driven, record


@pytest.mark.parametrize("state", [State.SUSPECT, State.DEAD, State.LEFT])
def test_a_broker_refutes_false_records_of_itself(state: State) -> None:
    driven = Driven(2)
    out = driven.machine.heard([record(1, 4, state)], 2, 5.0)
    assert driven.machine.me.incarnation == 5 and driven.machine.me.state is State.ALIVE
    assert SelfChanged(driven.machine.me) in out and Tell((driven.machine.me,)) in out


def test_a_broker_ignores_stale_news_of_itself() -> None:
    driven = Driven(2)
    driven.machine.heard([record(1, 4, State.DEAD)], 2, 5.0)
    assert driven.machine.heard([record(1, 4, State.DEAD), record(1, 5)], 2, 5.0) == []


def test_refutations_are_sent_at_most_twice_a_period() -> None:
    driven = Driven(2)
    told = 0
    for number in range(100):
        driven.now = 5.0 + number / 100
        doubted = replace(driven.machine.me, state=State.SUSPECT)
        told += sum(isinstance(i, Tell) for i in driven.machine.heard([doubted], 2, driven.now))
        told += sum(
            isinstance(i, Tell) and driven.machine.me in i.records for i in driven.machine.tick(driven.now)
        )
    assert 2 <= told <= 3
    assert driven.machine.me.incarnation == 101


@given(
    st.lists(st.integers(0, INCARNATION_MAX - 1) | st.integers(0, 10 * INCARNATION_STEP_MAX), max_size=12),
    st.integers(0, 3),
)
def test_a_member_can_refute_any_record_of_it_that_others_believe(lies: list[int], met: int) -> None:
    """That holds however lies are chained, even if the member returns without its last ``met``
    incarnations."""
    driven = Driven(2)
    if met:
        driven.machine.link_up(record(3, met), 0.0)
    for lie in lies:
        driven.machine.heard([record(3, lie, State.DEAD), record(3, lie)], 2, 0.0)
    believed = driven.machine.record(3)
    if believed is None:
        return
    member = Membership(record(3, 0, boot=8), rng=random.Random(1), now=0.0)
    member.heard([believed], 2, 0.0)
    driven.machine.heard([member.me], 3, 0.0)
    assert driven.machine.record(3) == member.me
    assert member.me.incarnation < INCARNATION_MAX


def test_a_leaving_broker_announces_it_and_stops_judging() -> None:
    driven = Driven(2, 3)
    out = driven.machine.leave()
    assert Tell((replace(record(1), state=State.LEFT),)) in out
    assert driven.machine.next_deadline() == float("inf")
    assert driven.machine.tick(100.0) == []


def test_a_suspected_leaving_broker_leaves_with_a_greater_incarnation() -> None:
    driven = Driven(2)
    driven.machine.leave()
    out = driven.machine.heard([record(1, 3, State.DEAD)], 2, 5.0)
    assert driven.machine.me.state is State.LEFT and driven.machine.me.incarnation == 4
    assert Tell((driven.machine.me,)) in out


@pytest.mark.parametrize("state", [State.ALIVE, State.SUSPECT, State.DEAD, State.LEFT])
def test_a_leaving_broker_does_not_refute_records_weaker_than_its_own(state: State) -> None:
    """A snapshot in flight when it left says ALIVE at the same incarnation. It left once, not twice."""
    driven = Driven(2)
    driven.machine.leave()
    left = driven.machine.me
    assert driven.machine.heard([replace(left, state=state)], 2, 5.0) == []
    assert driven.machine.me == left


@pytest.mark.parametrize(
    ("incarnation", "said", "refuted"),
    [
        (INCARNATION_MAX - 5, INCARNATION_MAX - 2, True),
        (INCARNATION_MAX - 5, INCARNATION_MAX - 1, False),
        (1, 1 + 2 * INCARNATION_STEP_MAX, True),
        (1, 2 + 2 * INCARNATION_STEP_MAX, False),
    ],
)
def test_a_broker_refutes_up_to_the_last_incarnation_that_others_believe(
    incarnation: int, said: int, refuted: bool
) -> None:
    """Its own incarnation must stay below the maximum, and no single lie takes it there."""
    me = record(1, incarnation)
    machine = Membership(me, options=MembershipOptions(), rng=random.Random(1), now=0.0)
    machine.link_up(record(2), 0.0)
    machine.heard([record(1, said, State.DEAD)], 2, 5.0)
    assert machine.me.incarnation == (said + 1 if refuted else incarnation) < INCARNATION_MAX
    assert machine.statistics().refused_records == (not refuted)
