"""Which statements about members are believed."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from mesh.cluster.membership import (
    INCARNATION_STEP_MAX,
    STATES,
    DropLink,
    MemberChanged,
    MemberRecord,
    Membership,
    State,
    Tell,
    TellAll,
)
from tests.mesh.cluster.membership.driven import RECORDS, Driven, record


@given(st.lists(st.builds(record, st.integers(2, 4), st.integers(0, 3), st.sampled_from(STATES)), max_size=6))
def test_tables_that_received_the_same_news_in_any_order_are_equal(news: list[MemberRecord]) -> None:
    """This holds for living members: a death reported before the life is not recorded."""
    start = [record(id, 0) for id in (2, 3, 4)]
    tables = set()
    for order in list(permutations(news))[:40]:
        machine = Membership(record(1), rng=random.Random(1), now=0.0)
        machine.heard(start, 2, 0.0)
        for item in (*order, *order[:2]):
            machine.heard([item], 2, 0.0)
        tables.add((machine.digest, tuple(sorted(str(r) for r in machine.records()))))
    assert len(tables) == 1
    told = Membership(record(1), rng=random.Random(1), now=0.0)
    told.heard(machine.records()[1:], 2, 0.0)
    assert told.digest == machine.digest, "however a table came about"


@given(st.lists(RECORDS, max_size=20))
def test_the_record_of_a_member_never_goes_back(news: list[MemberRecord]) -> None:
    machine = Membership(record(1), rng=random.Random(1), now=0.0)
    machine.heard([record(5, 0)], 2, 0.0)
    key = record(5, 0).key
    for item in news:
        machine.heard([item], 2, 0.0)
        known = machine.record(5)
        assert known is not None and known.key >= key
        key = known.key


def test_a_dead_members_link_is_admitted_and_it_is_sent_its_record() -> None:
    driven = Driven(2, 3)
    driven.unlink(3)
    for _ in range(3):
        driven.round(2)
    out = driven.link(3)
    assert out == [TellAll(3, reply=False)] and driven.state(3) is State.DEAD
    driven.machine.heard([record(3, 2)], 3, driven.now)
    assert driven.state(3) is State.ALIVE


def test_another_boot_is_a_change_even_between_equal_states() -> None:
    driven = Driven(2)
    out = driven.machine.heard([record(2, 2, boot=8)], 2, 1.0)
    assert MemberChanged(record(2, 2, boot=8), State.ALIVE, "restarted", 2) in out


def test_news_goes_to_all_but_its_source_and_old_news_is_not_forwarded() -> None:
    driven = Driven(2, 3)
    news = replace(record(3), state=State.SUSPECT)
    assert Tell((news,), 2) in driven.machine.heard([news], 2, 0.0)
    assert driven.machine.heard([news, record(3)], 2, 0.0) == []


DEATH = record(3, 1, State.DEAD)
DOUBT = record(3, 1, State.SUSPECT)


def test_gossip_only_suspects_a_member_that_answered_within_the_last_round() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    out = driven.machine.heard([DEATH], 2, driven.now)
    assert out == [MemberChanged(DOUBT, State.ALIVE, "reported", 2), Tell((DOUBT,), 2)]
    assert driven.machine.heard([DEATH], 2, driven.now) == []


def test_gossip_only_suspects_a_member_that_was_just_linked() -> None:
    driven = Driven(2, 3)
    driven.machine.heard([DEATH], 2, driven.now)
    assert driven.state(3) is State.SUSPECT


def test_a_reported_death_of_the_next_incarnation_suspects_that_incarnation() -> None:
    """Its refutation was lost on the way here, but the next accusation was not."""
    driven = Driven(2, 3)
    driven.machine.heard([record(3, 2, State.DEAD)], 2, driven.now)
    assert driven.machine.record(3) == record(3, 2, State.SUSPECT)


def test_gossip_kills_a_member_that_missed_the_last_round_and_drops_its_link() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    driven.round(2)
    assert DropLink(3, "dead") in driven.machine.heard([DEATH], 2, driven.now)
    assert driven.state(3) is State.DEAD


def test_gossip_kills_a_member_without_a_link() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    driven.unlink(3)
    driven.machine.heard([DEATH], 2, driven.now)
    assert driven.state(3) is State.DEAD


def test_an_answer_from_before_a_pause_of_this_broker_is_no_evidence_and_keeps_the_link() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    driven.now += 5.0
    out = driven.machine.heard([DEATH], 2, driven.now)
    assert driven.state(3) is State.DEAD
    assert not any(isinstance(i, DropLink) for i in out)


def test_an_answer_that_waited_during_a_pause_of_this_broker_is_no_evidence() -> None:
    driven = Driven(2, 3)
    survey = driven.to_round()
    driven.now += 5.0
    driven.machine.answered(3, survey.round, driven.now)
    driven.machine.heard([DEATH], 2, driven.now)
    assert driven.state(3) is State.DEAD


def test_gossip_of_a_leave_is_believed_although_the_member_still_answers() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    driven.machine.heard([record(3, 1, State.LEFT)], 2, driven.now)
    assert driven.state(3) is State.LEFT


def test_a_goodbye_drops_the_link_at_once_and_gossip_of_it_at_the_next_deadline() -> None:
    driven = Driven(2, 3)
    left = replace(record(3), state=State.LEFT)
    assert DropLink(3, "left") in driven.machine.heard([left], 3, 0.0)
    driven = Driven(2, 3)
    out = driven.machine.heard([left], 2, 0.0)
    assert not any(isinstance(i, DropLink) for i in out)
    assert DropLink(3, "left") in driven.round(2)


def test_an_unknown_member_first_reported_as_dead_is_not_recorded() -> None:
    driven = Driven(2)
    assert driven.machine.heard([record(9, 1, State.DEAD), record(8, 1, State.LEFT)], 2, 0.0) == []
    assert driven.state(9) is State.UNKNOWN


def test_incarnations_out_of_reach_are_refused_and_counted() -> None:
    driven = Driven(2, 3)
    out_of_reach = [record(3, 2 + INCARNATION_STEP_MAX), record(1, 2 + 2 * INCARNATION_STEP_MAX)]
    assert driven.machine.heard(out_of_reach, 2, 0.0) == []
    assert driven.machine.record(3) == record(3) and driven.machine.me.incarnation == 1
    assert driven.machine.statistics().refused_records == 2


def test_a_false_record_of_an_unknown_member_is_refused_and_its_own_is_believed() -> None:
    """A broker whose incarnation liars once raised must be able to join brokers that never met it."""
    driven = Driven(2)
    driven.machine.heard([record(3, INCARNATION_STEP_MAX + 1)], 2, 0.0)
    assert driven.state(3) is State.UNKNOWN and driven.machine.statistics().refused_records == 1
    driven.machine.link_up(record(3, 5 * INCARNATION_STEP_MAX), 0.0)
    assert driven.machine.record(3) == record(3, 5 * INCARNATION_STEP_MAX)
    driven.machine.heard([record(3, 7 * INCARNATION_STEP_MAX)], 3, 0.0)
    assert driven.machine.record(3) == record(3, 7 * INCARNATION_STEP_MAX)
