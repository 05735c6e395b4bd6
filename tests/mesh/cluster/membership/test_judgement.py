"""Which members the rounds of one machine judge, and which not."""

from __future__ import annotations

from dataclasses import replace

from mesh.cluster.membership import (
    UNJUDGED_ROUNDS_MAX,
    DropLink,
    MemberChanged,
    NodeChanged,
    NodeState,
    Redial,
    State,
    Tell,
)
from tests.mesh.cluster.membership.driven import Driven, record


def test_one_missed_round_suspects_and_three_in_a_row_kill() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    out = driven.round(2)
    suspect = replace(record(3), state=State.SUSPECT)
    assert MemberChanged(suspect, State.ALIVE, "missed a round", 1) in out and Tell((suspect,)) in out
    assert driven.round(2) == []
    out = driven.round(2)
    dead = replace(record(3), state=State.DEAD)
    assert MemberChanged(dead, State.SUSPECT, "missed 3 rounds", 1) in out and Tell((dead,)) in out
    assert any(isinstance(i, DropLink) and i.member == 3 for i in out)
    assert driven.state(2) is State.ALIVE


def test_an_answer_clears_the_count() -> None:
    driven = Driven(2, 3)
    for _ in range(5):
        driven.round(2)
        driven.round(2)
        driven.round(2, 3)
    assert driven.state(3) is State.SUSPECT  # only its own word could raise it


def test_a_refutation_through_others_clears_the_count_and_only_the_link_is_dropped() -> None:
    driven = Driven(2, 3)
    drops = []
    for incarnation in range(2, 8):
        drops += [i for i in driven.round(2) if isinstance(i, DropLink)]
        driven.machine.heard([record(3, incarnation)], 2, driven.now)
        assert driven.state(3) is State.ALIVE
    assert drops and all(drop.member == 3 for drop in drops)


def test_a_round_that_began_late_judges_no_member_although_it_ends_on_time() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    survey = driven.to_round(late_s=0.3)
    driven.now += 0.01
    driven.machine.answered(2, survey.round, driven.now)
    driven.now = driven.machine.next_deadline()
    out = driven.machine.tick(driven.now)
    assert Redial() in out and driven.state(3) is State.ALIVE
    assert driven.machine.statistics().late_rounds == 1


def test_missed_rounds_of_the_previous_link_do_not_count_for_a_new_one() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    driven.round(2)
    driven.round(2)
    assert not driven.machine.answers(3)
    driven.link(3)  # replaces the other link
    assert driven.machine.answers(3)
    driven.machine.heard([record(3, 2)], 2, driven.now)
    for _ in range(2):
        assert not any(isinstance(i, DropLink) for i in driven.round(2))
    assert any(isinstance(i, DropLink) and i.member == 3 for i in driven.round(2))


def test_a_round_in_which_this_broker_was_late_judges_no_member_and_dials_again() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    out = driven.round(late_s=0.3)
    assert Redial() in out and driven.state(2) is driven.state(3) is State.ALIVE
    assert driven.machine.statistics().late_rounds == 1
    assert driven.machine.node_state is NodeState.READY


def test_a_round_that_began_late_is_void_as_well() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    driven.now = driven.machine.next_deadline() + 5.0
    driven.machine.tick(driven.now)
    driven.now = driven.machine.next_deadline()
    out = driven.machine.tick(driven.now)
    assert Redial() in out and driven.state(2) is State.ALIVE


def test_a_silent_round_judges_no_member_and_three_make_the_broker_isolated_until_an_answer() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    driven.round()
    driven.round()
    assert driven.machine.node_state is NodeState.READY
    out = driven.round()
    assert NodeChanged(NodeState.READY, NodeState.ISOLATED) in out
    assert sorted(i.member for i in out if isinstance(i, DropLink)) == [2, 3]  # and dialled again
    assert driven.state(2) is driven.state(3) is State.ALIVE
    driven.unlink(2)
    driven.unlink(3)
    driven.link(2)
    out = driven.round(2)
    assert NodeChanged(NodeState.ISOLATED, NodeState.READY) in out
    assert driven.state(3) is State.ALIVE, "void rounds made it unjudged"


def test_the_silence_of_the_only_peer_is_judged() -> None:
    driven = Driven(2)
    for _ in range(3):
        driven.round()
    assert driven.state(2) is State.DEAD and driven.machine.node_state is NodeState.READY


def test_a_member_known_through_gossip_is_judged_after_ten_rounds_without_link_or_news() -> None:
    driven = Driven(2)
    driven.machine.heard([record(3)], 2, driven.now)
    for _ in range(UNJUDGED_ROUNDS_MAX):
        assert driven.round(2) == []
    suspect = replace(record(3), state=State.SUSPECT)
    assert Tell((suspect,)) in driven.round(2), "so that it may refute by way of others"
    driven.round(2)
    driven.round(2)
    assert driven.state(3) is State.DEAD


def test_a_member_known_through_gossip_lives_as_long_as_it_refutes_through_others() -> None:
    """A firewall may separate these two; each suspicion gives it ten more rounds."""
    driven = Driven(2)
    driven.machine.heard([record(3)], 2, driven.now)
    suspicions = 0
    for _ in range(66):
        if any(isinstance(i, MemberChanged) for i in driven.round(2)):
            suspicions += 1
            driven.machine.heard([record(3, suspicions + 1)], 2, driven.now)
        assert driven.state(3) is State.ALIVE
    assert suspicions == 6


def test_members_known_through_gossip_are_not_judged_while_the_only_peer_is_silent() -> None:
    """News from those who could vouch for the third comes through the second."""
    driven = Driven(2)
    driven.machine.heard([record(3)], 2, driven.now)
    for _ in range(UNJUDGED_ROUNDS_MAX):
        driven.round(2)
    for _ in range(2):
        driven.round()
    assert driven.state(2) is State.SUSPECT and driven.state(3) is State.ALIVE


def test_a_member_that_returns_through_gossip_has_time_to_be_linked() -> None:
    """It was dead here and refutes that now; the next deadline has not asked it anything."""
    driven = Driven(2, 3)
    driven.unlink(3)
    for _ in range(3):
        driven.round(2)
    driven.machine.heard([record(3, 2)], 2, driven.now)
    for _ in range(UNJUDGED_ROUNDS_MAX):
        driven.round(2)
    assert driven.state(3) is State.ALIVE
    driven.link(3)
    driven.round(2)
    assert driven.state(3) is State.SUSPECT, "linked, it is asked like any other"


def test_a_member_without_a_link_misses_its_rounds() -> None:
    driven = Driven(2, 3)
    driven.unlink(3)
    for _ in range(3):
        driven.round(2)
    assert driven.state(3) is State.DEAD


def test_a_member_linked_while_the_round_runs_is_not_judged_in_it() -> None:
    driven = Driven(2, 3)
    driven.to_round()
    driven.unlink(3)
    driven.link(3)
    driven.machine.answered(2, driven.machine.round, driven.now)
    driven.now = driven.machine.next_deadline()
    driven.machine.tick(driven.now)
    assert driven.state(3) is State.ALIVE


def test_a_link_lost_right_after_a_void_round_does_not_count_against_its_member() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    driven.round(late_s=6.0)
    assert driven.unlink(3) == [Redial()]
    for _ in range(4):
        driven.round(2)
    assert driven.state(3) is State.ALIVE


def test_a_death_during_a_void_round_is_detected_later() -> None:
    driven = Driven(2, 3)
    driven.round(late_s=6.0)
    driven.unlink(3)
    for _ in range(14):
        driven.round(2)
    assert driven.state(3) is State.DEAD


def test_answers_of_another_round_or_after_the_deadline_do_not_count() -> None:
    driven = Driven(2, 3)
    survey = driven.to_round()
    assert driven.machine.answered(2, survey.round - 1, driven.now) == []
    driven.now += 0.6
    driven.machine.answered(2, survey.round, driven.now)
    driven.machine.answered(3, survey.round, driven.now)
    driven.machine.tick(driven.now)
    assert driven.machine.statistics().silent_rounds == 1


def test_only_members_without_a_link_wait_to_be_judged_after_a_late_round() -> None:
    """A late broker may have caused the loss of a link itself; a link that is up answers or does not."""
    driven = Driven(2, 3, 4)
    driven.round(2, 3, 4)
    driven.unlink(3)
    driven.round(late_s=1.0)
    driven.round(2)
    assert [driven.state(id) for id in (2, 3, 4)] == [State.ALIVE, State.ALIVE, State.SUSPECT]
