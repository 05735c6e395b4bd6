"""The membership machine: what a merge is, who is judged, and what many machines make of faults."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.membership import (
    INCARNATION_MAX,
    INCARNATION_STEP_MAX,
    STATES,
    UNJUDGED_ROUNDS_MAX,
    DropLink,
    Instruction,
    MemberChanged,
    MemberForgotten,
    MemberRecord,
    Membership,
    MembershipOptions,
    NodeChanged,
    NodeState,
    Redial,
    SelfChanged,
    State,
    Survey,
    Tell,
    TellAll,
    merge,
)
from tests.mesh.membership_world import World


def record(id: int, incarnation: int = 1, state: State = State.ALIVE, boot: int = 7) -> MemberRecord:
    return MemberRecord(id, incarnation, state, boot, f"n{id}", "host", f"tcp://{id}:1", f"tcp://{id}:1")


RECORDS = st.builds(record, st.just(5), st.integers(0, 3), st.sampled_from(STATES), st.integers(1, 2))

# --- merging


@given(RECORDS, RECORDS, RECORDS)
def test_merge_is_commutative_associative_and_idempotent(
    a: MemberRecord, b: MemberRecord, c: MemberRecord
) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(a, merge(b, c)) == merge(merge(a, b), c)
    assert merge(a, a) == a


@given(st.lists(st.builds(record, st.integers(2, 4), st.integers(0, 3), st.sampled_from(STATES)), max_size=6))
def test_tables_that_heard_the_same_news_in_any_order_are_equal(news: list[MemberRecord]) -> None:
    """Of living members; whose death one heard of before its life it does not record."""
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
def test_what_is_known_of_a_member_never_goes_back(news: list[MemberRecord]) -> None:
    machine = Membership(record(1), rng=random.Random(1), now=0.0)
    machine.heard([record(5, 0)], 2, 0.0)
    key = record(5, 0).key
    for item in news:
        machine.heard([item], 2, 0.0)
        known = machine.record(5)
        assert known is not None and known.key >= key
        key = known.key


# --- one machine, driven by hand


class Driven:
    """One machine with a clock; ``out`` is what the last input made it want."""

    def __init__(self, *peers: int, members_max: int = 1024) -> None:
        self.now = 0.0
        options = MembershipOptions(members_max=members_max)
        self.machine = Membership(record(1), options=options, rng=random.Random(1), now=0.0)
        self.out: list[Instruction] = []
        for peer in peers:
            self.link(peer)

    def link(self, peer: int) -> list[Instruction]:
        self.out = self.machine.link_up(record(peer), self.now)
        return self.out

    def unlink(self, peer: int) -> list[Instruction]:
        self.out = self.machine.link_down(peer, self.now)
        return self.out

    def to_round(self) -> Survey:
        """On to the next round's beginning."""
        for _ in range(10):
            self.now = self.machine.next_deadline()
            for instruction in self.machine.tick(self.now):
                if isinstance(instruction, Survey):
                    return instruction
        raise AssertionError("no round began")

    def round(self, *answering: int, late_s: float = 0.0) -> list[Instruction]:
        """A whole round, to its judgement, in which these answer."""
        survey = self.to_round()
        out: list[Instruction] = []
        self.now += 0.001
        for peer in answering:
            out += self.machine.answered(peer, survey.round, self.now)
        self.now = self.machine.next_deadline() + late_s
        self.out = out + self.machine.tick(self.now)
        return self.out

    def state(self, peer: int) -> State:
        known = self.machine.record(peer)
        return State.UNKNOWN if known is None else known.state


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
    assert driven.state(3) is State.SUSPECT  # only its own word would raise it


def test_a_refutation_by_way_of_others_clears_the_count_and_the_link_alone_is_dropped() -> None:
    driven = Driven(2, 3)
    drops = []
    for incarnation in range(2, 8):
        drops += [i for i in driven.round(2) if isinstance(i, DropLink)]
        driven.machine.heard([record(3, incarnation)], 2, driven.now)
        assert driven.state(3) is State.ALIVE
    assert drops and all(drop.member == 3 for drop in drops)


def test_a_round_in_which_this_broker_was_late_judges_nobody_and_dials_again() -> None:
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


def test_a_silent_round_judges_nobody_and_three_make_it_isolated_until_an_answer() -> None:
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


def test_with_one_peer_silence_is_judged() -> None:
    driven = Driven(2)
    for _ in range(3):
        driven.round()
    assert driven.state(2) is State.DEAD and driven.machine.node_state is NodeState.READY


def test_who_is_known_by_hearsay_is_judged_after_ten_rounds_without_a_link_or_a_word() -> None:
    driven = Driven(2)
    driven.machine.heard([record(3)], 2, driven.now)
    for _ in range(UNJUDGED_ROUNDS_MAX):
        assert driven.round(2) == []
    suspect = replace(record(3), state=State.SUSPECT)
    assert Tell((suspect,)) in driven.round(2), "so that it may refute by way of others"
    driven.round(2)
    driven.round(2)
    assert driven.state(3) is State.DEAD


def test_who_is_known_by_hearsay_lives_as_long_as_it_refutes_by_way_of_others() -> None:
    """Between these two there may be a wall; each suspicion buys it ten rounds."""
    driven = Driven(2)
    driven.machine.heard([record(3)], 2, driven.now)
    suspicions = 0
    for _ in range(66):
        if any(isinstance(i, MemberChanged) for i in driven.round(2)):
            suspicions += 1
            driven.machine.heard([record(3, suspicions + 1)], 2, driven.now)
        assert driven.state(3) is State.ALIVE
    assert suspicions == 6


def test_hearsay_is_not_judged_while_the_only_peer_is_silent() -> None:
    """Whoever would vouch for the third is heard of through the second."""
    driven = Driven(2)
    driven.machine.heard([record(3)], 2, driven.now)
    for _ in range(UNJUDGED_ROUNDS_MAX):
        driven.round(2)
    for _ in range(2):
        driven.round()
    assert driven.state(2) is State.SUSPECT and driven.state(3) is State.ALIVE


def test_who_returns_by_way_of_others_has_time_to_be_linked() -> None:
    """It was dead here and says so no more; the next deadline has not asked it anything."""
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


def test_a_link_found_lost_right_after_a_void_round_is_not_held_against_its_member() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    driven.round(late_s=6.0)
    assert driven.unlink(3) == [Redial()]
    for _ in range(4):
        driven.round(2)
    assert driven.state(3) is State.ALIVE


def test_who_died_during_a_void_round_is_found_in_the_end() -> None:
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


@pytest.mark.parametrize("state", [State.SUSPECT, State.DEAD, State.LEFT])
def test_it_refutes_what_is_said_of_it(state: State) -> None:
    driven = Driven(2)
    out = driven.machine.heard([record(1, 4, state)], 2, 5.0)
    assert driven.machine.me.incarnation == 5 and driven.machine.me.state is State.ALIVE
    assert SelfChanged(driven.machine.me) in out and Tell((driven.machine.me,)) in out


def test_stale_news_of_itself_is_nothing() -> None:
    driven = Driven(2)
    driven.machine.heard([record(1, 4, State.DEAD)], 2, 5.0)
    assert driven.machine.heard([record(1, 4, State.DEAD), record(1, 5)], 2, 5.0) == []


def test_refutations_are_told_twice_a_period_at_most() -> None:
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


def test_a_dead_members_link_is_admitted_and_it_is_told_what_is_held_of_it() -> None:
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


def test_news_goes_to_all_but_its_source_and_old_news_to_nobody() -> None:
    driven = Driven(2, 3)
    news = replace(record(3), state=State.SUSPECT)
    assert Tell((news,), 2) in driven.machine.heard([news], 2, 0.0)
    assert driven.machine.heard([news, record(3)], 2, 0.0) == []


def test_a_death_reported_by_others_does_not_cost_a_link_that_answers() -> None:
    driven = Driven(2, 3)
    driven.round(2, 3)
    out = driven.machine.heard([replace(record(3), state=State.DEAD)], 2, driven.now)
    assert not any(isinstance(i, DropLink) for i in out)


def test_who_says_goodbye_is_hung_up_on_at_once_and_by_hearsay_at_the_next_judgement() -> None:
    driven = Driven(2, 3)
    left = replace(record(3), state=State.LEFT)
    assert DropLink(3, "left") in driven.machine.heard([left], 3, 0.0)
    driven = Driven(2, 3)
    out = driven.machine.heard([left], 2, 0.0)
    assert not any(isinstance(i, DropLink) for i in out)
    assert DropLink(3, "left") in driven.round(2)


def test_a_stranger_first_heard_of_as_dead_is_not_recorded() -> None:
    driven = Driven(2)
    assert driven.machine.heard([record(9, 1, State.DEAD), record(8, 1, State.LEFT)], 2, 0.0) == []
    assert driven.state(9) is State.UNKNOWN


def test_incarnations_out_of_reach_are_refused_and_counted() -> None:
    driven = Driven(2, 3)
    out_of_reach = [record(3, 2 + INCARNATION_STEP_MAX), record(1, 2 + 2 * INCARNATION_STEP_MAX)]
    assert driven.machine.heard(out_of_reach, 2, 0.0) == []
    assert driven.machine.record(3) == record(3) and driven.machine.me.incarnation == 1
    assert driven.machine.statistics().refused_records == 2


def test_a_lie_of_an_unknown_member_is_refused_and_its_own_word_is_believed() -> None:
    """A broker that liars once pushed up must be able to join those who never met it."""
    driven = Driven(2)
    driven.machine.heard([record(3, INCARNATION_STEP_MAX + 1)], 2, 0.0)
    assert driven.state(3) is State.UNKNOWN and driven.machine.statistics().refused_records == 1
    driven.machine.link_up(record(3, 5 * INCARNATION_STEP_MAX), 0.0)
    assert driven.machine.record(3) == record(3, 5 * INCARNATION_STEP_MAX)
    driven.machine.heard([record(3, 7 * INCARNATION_STEP_MAX)], 3, 0.0)
    assert driven.machine.record(3) == record(3, 7 * INCARNATION_STEP_MAX)


@given(
    st.lists(st.integers(0, INCARNATION_MAX - 1) | st.integers(0, 10 * INCARNATION_STEP_MAX), max_size=12),
    st.integers(0, 3),
)
def test_whatever_is_believed_of_a_member_it_can_refute(lies: list[int], met: int) -> None:
    """However lies are chained, and though the member comes back without its last ``met`` incarnations."""
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


def test_a_full_table_gives_up_its_oldest_tombstone_and_otherwise_refuses() -> None:
    driven = Driven(2, 3, members_max=4)
    driven.machine.heard([record(4)], 2, 0.0)
    driven.machine.heard([record(5)], 2, 0.0)
    assert driven.state(5) is State.UNKNOWN and driven.machine.statistics().refused_records == 1
    driven.machine.heard([record(4, 1, State.DEAD)], 2, 0.0)
    out = driven.machine.heard([record(5)], 2, 0.0)
    assert out[0] == MemberForgotten(record(4, 1, State.DEAD))
    assert driven.state(5) is State.ALIVE and driven.state(4) is State.UNKNOWN


def test_tombstones_are_forgotten_after_a_day() -> None:
    driven = Driven(2)
    driven.machine.heard([record(4)], 2, 0.0)
    driven.machine.heard([record(4, 1, State.DEAD)], 2, 0.0)
    driven.round(2)
    assert driven.state(4) is State.DEAD
    driven.now += 86_500
    out = driven.machine.tick(driven.now)
    for _ in range(4):  # to the end of a round
        driven.now = driven.machine.next_deadline()
        out += driven.machine.tick(driven.now)
    assert MemberForgotten(record(4, 1, State.DEAD)) in out, "whoever else keeps something may let it go"
    assert driven.state(4) is State.UNKNOWN


def test_digests_that_differ_for_half_a_period_exchange_the_tables() -> None:
    driven = Driven(2)
    assert driven.machine.heard_digest(2, b"12345678", 1.0) == []
    assert driven.machine.heard_digest(2, b"12345678", 1.1) == []
    assert driven.machine.heard_digest(2, b"12345678", 1.6) == [TellAll(2, reply=True)]
    assert driven.machine.heard_digest(2, driven.machine.digest, 1.7) == []


def test_a_leaver_says_so_and_judges_nobody_any_more() -> None:
    driven = Driven(2, 3)
    out = driven.machine.leave()
    assert Tell((replace(record(1), state=State.LEFT),)) in out
    assert driven.machine.next_deadline() == float("inf")
    assert driven.machine.tick(100.0) == []


def test_a_leaver_that_is_doubted_leaves_with_a_greater_incarnation() -> None:
    driven = Driven(2)
    driven.machine.leave()
    out = driven.machine.heard([record(1, 3, State.DEAD)], 2, 5.0)
    assert driven.machine.me.state is State.LEFT and driven.machine.me.incarnation == 4
    assert Tell((driven.machine.me,)) in out


@pytest.mark.parametrize("state", [State.ALIVE, State.SUSPECT, State.DEAD, State.LEFT])
def test_a_leaver_does_not_refute_what_its_own_word_outweighs(state: State) -> None:
    """A snapshot on its way when it left says ALIVE at the same incarnation; it left once, not twice."""
    driven = Driven(2)
    driven.machine.leave()
    left = driven.machine.me
    assert driven.machine.heard([replace(left, state=state)], 2, 5.0) == []
    assert driven.machine.me == left


# --- many machines


SEEDS = range(12)


def false_deaths(world: World, *but: int) -> list[tuple[int, int, float]]:
    return [
        (node.id, change.record.id, at)
        for node in world.nodes.values()
        for at, change in node.changes
        if change.record.state is State.DEAD and change.record.id not in but and node.id not in but
    ]


@pytest.mark.parametrize("count", [2, 5, 16])
def test_a_calm_mesh_converges_and_suspects_nobody(count: int) -> None:
    world = World(seed=count)
    nodes = world.mesh(count)
    world.run(60)
    assert world.converged()
    for node in nodes:
        assert [c.record.state for _, c in node.changes] == [State.ALIVE] * (count - 1)
        assert node.membership.node_state is NodeState.READY
        assert node.membership.statistics().syncs == 0


def test_the_whole_mesh_may_start_in_one_instant() -> None:
    world = World(seed=3)
    for id in range(1, 9):
        world.start(id, *(range(1, 9)))
    assert world.run_until(world.converged, 10) < 3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("silent", [False, True])
def test_a_killed_broker_is_dead_everywhere_within_three_and_a_half_seconds(seed: int, silent: bool) -> None:
    world = World(seed)
    world.mesh(5)
    world.run(3 + seed / 12)
    killed = world.now
    world.crash(3, silent=silent)
    took = world.run_until(lambda: all(n.states()[3] == "dead" for n in world.live()), 6)
    assert 2.0 < took <= 3.6
    assert not false_deaths(world, 3)
    world.run(20)
    world.start(3, 1, incarnation=2)
    world.run_until(world.converged, 3)
    assert all(len(node.said(3, State.DEAD)) == 1 for node in world.live() if node.id != 3)
    assert world.now > killed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_paused_broker_is_dead_for_others_accuses_nobody_and_refutes_within_two_seconds(seed: int) -> None:
    world = World(seed)
    world.mesh(5)
    world.run(2 + seed / 10)
    world.pause(4)
    world.run(6)
    assert all(n.states()[4] == "dead" for n in world.live() if n.id != 4)
    woken = world.now
    world.resume(4)
    assert world.run_until(world.converged, 5) <= 2.0
    paused = world.nodes[4]
    assert all(c.record.state is State.ALIVE for at, c in paused.changes if at >= woken)
    assert paused.membership.me.boot == paused.boot and paused.membership.me.incarnation > 1
    assert not false_deaths(world, 4)
    world.run(20)
    assert world.converged() and not false_deaths(world, 4)


def test_all_pausing_together_kills_nobody() -> None:
    world = World(5)
    world.mesh(5)
    world.run(2.3)
    for id in range(1, 6):
        world.pause(id)
    world.run(7)
    for id in range(1, 6):
        world.resume(id)
    world.run(20)
    assert world.converged() and not false_deaths(world)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_split_declares_the_other_side_dead_and_heals_by_itself(seed: int) -> None:
    """Without any join URL but the first broker's: its own side's tombstones lead back."""
    world = World(seed)
    nodes = world.mesh(5)
    world.run(2)
    world.split([1, 2], [3, 4, 5])
    world.run(15)
    assert all(nodes[0].states()[id] == "dead" for id in (3, 4, 5))
    assert all(nodes[4].states()[id] == "dead" for id in (1, 2))
    world.heal()
    world.run_until(world.converged, 30)
    world.run(20)
    assert world.converged()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_broker_cut_off_calls_itself_isolated_and_returns(seed: int) -> None:
    world = World(seed)
    nodes = world.mesh(5)
    world.run(2)
    world.split([2], [1, 3, 4, 5])
    world.run(30)
    assert nodes[1].membership.node_state is NodeState.ISOLATED
    assert "dead" not in nodes[1].states().values()
    assert all(node.states()[2] == "dead" for node in nodes if node.id != 2)
    world.heal()
    world.run_until(world.converged, 10)
    assert not false_deaths(world, 2)


@pytest.mark.parametrize("way", [(2, 4), (4, 2)])
def test_one_broken_edge_kills_nobody(way: tuple[int, int]) -> None:
    world = World(1)
    world.mesh(5)
    world.run(2)
    world.cut(*way, one_way=True)
    world.run(60)
    assert not false_deaths(world)
    world.heal()
    world.run_until(world.converged, 10)
    assert not false_deaths(world)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_member_that_nobody_ever_met_does_not_stay(seed: int) -> None:
    """It died while those who knew it were started again one by one: each learns of it from the last."""
    world = World(seed)
    world.mesh(4)
    world.crash(4, silent=True)
    for id in (1, 2, 3):
        world.crash(id)
        world.start(id, *(node.id for node in world.live()), incarnation=2)
        world.run(0.4)
    assert all(4 in node.view() for node in world.live()), "alive, or suspect by who met it"
    world.run_until(world.converged, 20)
    assert not false_deaths(world, 4)


def test_an_edge_that_never_was_kills_nobody() -> None:
    """A newcomer and one of the others can never link; the rest vouch for both."""
    world = World(3)
    world.mesh(4)
    world.cut(5, 2)
    world.start(5, 1)
    world.run(60)
    assert not false_deaths(world)
    assert world.nodes[5].view() == {1, 2, 3, 4, 5}
    suspected = [at for at, c in world.nodes[5].changes if c.record.state is State.SUSPECT]
    assert 3 <= len(suspected) <= 6


def test_a_mesh_of_two_that_is_cut_finds_together_again() -> None:
    world = World(2)
    a, b = world.mesh(2)
    world.cut(1, 2)
    world.run(10)
    assert a.states()[2] == b.states()[1] == "dead"
    world.heal()
    world.run_until(world.converged, 30)


def test_links_that_are_reset_all_the_time_kill_nobody() -> None:
    world = World(4)
    world.mesh(5)
    for _ in range(60):
        node = world.nodes[world.rng.randrange(1, 6)]
        if node.links:
            world.drop(node, world.rng.choice(sorted(node.links)))
        world.run(0.5)
    world.run(10)
    assert world.converged() and not false_deaths(world)


@pytest.mark.parametrize("loss", [0.01, 0.05, 0.1])
def test_lost_packets_kill_nobody(loss: float) -> None:
    world = World(6, loss=loss)
    world.mesh(5)
    world.run(300)
    assert not false_deaths(world)


def test_a_leaver_is_left_everywhere_within_two_seconds_and_never_dead() -> None:
    world = World(7)
    nodes = world.mesh(5)
    world.leave(3)
    world.run(2)
    world.run(20)
    for node in nodes:
        if node.id != 3:
            assert node.states()[3] == "left" and not node.said(3, State.DEAD)
    world.start(3, 1, incarnation=2)
    world.run_until(world.converged, 5)


def test_most_of_the_mesh_may_die_at_once() -> None:
    world = World(8)
    world.mesh(12)
    world.run(2)
    for id in range(1, 10):
        world.crash(id)
    world.run_until(world.converged, 8)


@pytest.mark.parametrize("seed", range(25))
def test_after_any_faults_all_views_are_right_again(seed: int) -> None:
    """Random kills, restarts, pauses, cuts; then calm. Nobody's incarnation is raised by another."""
    world = World(seed, loss=0.02)
    world.mesh(6)
    rng = random.Random(seed)
    incarnations = dict.fromkeys(range(1, 7), 1)
    for _ in range(25):
        id, other = rng.sample(range(1, 7), 2)
        node = world.nodes[id]
        match rng.randrange(6):
            case 0 if not node.dead and len(world.live()) > 3:
                world.crash(id, silent=rng.random() < 0.5)
            case 1 if node.dead:
                incarnations[id] = node.issued + 1
                world.start(id, *(n.id for n in world.live()[:2]), incarnation=incarnations[id])
            case 2:
                world.cut(id, other, one_way=rng.random() < 0.3)
            case 3:
                world.heal()
            case 4 if not node.dead and not node.paused:
                world.pause(id)
            case 5 if node.paused:
                world.resume(id)
        world.run(rng.random() * 3)
    world.heal()
    for node in world.nodes.values():
        if node.paused:
            world.resume(node.id)
    world.run_until(world.converged, 60)
    world.run(10)
    assert world.converged()
    for node in world.live():
        for known in node.membership.records():
            assert known.incarnation <= world.nodes[known.id].issued
