"""How many cores react to faults on a simulated network."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mesh.cluster.membership import NodeState, State
from tests.mesh.cluster.membership.driven import Driven
from tests.mesh.cluster.membership.world import World, number

SEEDS = range(12)


def false_deaths(world: World, *but: int) -> list[tuple[int, int, float]]:
    return [
        (number(change.observer), number(change.subject), change.at_s)
        for node in world.nodes.values()
        for change in node.changes
        if change.to_state == "dead" and number(change.subject) not in but and node.id not in but
    ]


@pytest.mark.parametrize("count", [2, 5, 16])
def test_a_calm_mesh_converges_without_suspicions(count: int) -> None:
    world = World(seed=count)
    nodes = world.mesh(count)
    world.run(60)
    assert world.converged()
    for node in nodes:
        assert [change.to_state for change in node.changes] == ["alive"] * (count - 1)
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
    world.start(3, 1)
    world.run_until(world.converged, 3)
    assert all(len(node.said(3, State.DEAD)) == 1 for node in world.live() if node.id != 3)
    assert world.now > killed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_paused_broker_is_dead_for_others_and_refutes_within_two_seconds(seed: int) -> None:
    world = World(seed)
    world.mesh(5)
    world.run(2 + seed / 10)
    paused = world.nodes[4]
    boot = paused.membership.me.boot
    world.pause(4)
    world.run(6)
    assert all(n.states()[4] == "dead" for n in world.live() if n.id != 4)
    woken = world.now
    world.resume(4)
    assert world.run_until(world.converged, 5) <= 2.0
    assert all(change.to_state == "alive" for change in paused.changes if change.at_s >= woken)
    assert paused.membership.me.boot == boot and paused.membership.me.incarnation > 1
    assert not false_deaths(world, 4)
    world.run(20)
    assert world.converged() and not false_deaths(world, 4)


def test_a_pause_of_all_brokers_together_kills_no_member() -> None:
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
    """The only join URL is the first broker's: its own side's tombstones lead back."""
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
def test_a_side_of_a_healed_split_does_not_believe_the_other_about_its_own_members(seed: int) -> None:
    """Each was dead to the other side, which says so; brokers that it answers doubt that."""
    world = World(seed)
    world.mesh(6)
    world.run(2)
    sides = [1, 2, 3], [4, 5, 6]
    world.split(*sides)
    world.run(15)
    world.heal()
    world.run_until(world.converged, 30)
    for side in sides:
        for id in side:
            assert not [dead for other in side for dead in world.nodes[id].said(other, State.DEAD)]


def test_a_false_death_is_refuted_through_a_member_that_the_accused_answers() -> None:
    world = World(1)
    caller, accused, between = world.mesh(3)
    world.cut(1, 2)
    world.drop(1, 2)
    dead = replace(accused.membership.me, state=State.DEAD)
    caller.life.act(caller.membership.heard([dead], 99, world.now))
    assert caller.states()[2] == "dead"
    assert world.run_until(lambda: caller.states()[2] == "alive", 1) < 0.1
    assert between.said(2, State.SUSPECT) and not between.said(2, State.DEAD)


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
def test_one_broken_edge_kills_no_member(way: tuple[int, int]) -> None:
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
def test_a_member_that_no_broker_ever_met_is_forgotten(seed: int) -> None:
    """It died while the brokers that knew it were restarted one by one: each learns of it from the previous
    one."""
    world = World(seed)
    world.mesh(4)
    world.crash(4, silent=True)
    for id in (1, 2, 3):
        world.crash(id)
        world.start(id, *(node.id for node in world.live()))
        world.run(0.4)
    assert all(4 in node.view() for node in world.live()), "alive, or suspect by who met it"
    world.run_until(world.converged, 20)
    assert not false_deaths(world, 4)


def test_an_edge_that_never_worked_kills_no_member() -> None:
    """A new broker and one of the others can never link; the rest vouch for both."""
    world = World(3)
    world.mesh(4)
    world.cut(5, 2)
    world.start(5, 1)
    world.run(60)
    assert not false_deaths(world)
    assert world.nodes[5].view() == {1, 2, 3, 4, 5}
    suspected = [change for change in world.nodes[5].changes if change.to_state == "suspect"]
    assert 3 <= len(suspected) <= 6


def test_a_mesh_of_two_that_is_cut_reunites() -> None:
    world = World(2)
    a, b = world.mesh(2)
    world.cut(1, 2)
    world.run(10)
    assert a.states()[2] == b.states()[1] == "dead"
    world.heal()
    world.run_until(world.converged, 30)


def test_frequent_resets_of_links_kill_no_member() -> None:
    world = World(4)
    world.mesh(5)
    for _ in range(60):
        node = world.nodes[world.rng.randrange(1, 6)]
        if node.links:
            world.drop(node.id, world.rng.choice(sorted(node.links)))
        world.run(0.5)
    world.run(10)
    assert world.converged() and not false_deaths(world)


@pytest.mark.parametrize("loss", [0.01, 0.05, 0.1])
def test_lost_packets_kill_no_member(loss: float) -> None:
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
    world.start(3, 1)
    world.run_until(world.converged, 5)


def test_most_of_the_mesh_may_die_at_once() -> None:
    world = World(8)
    world.mesh(12)
    world.run(2)
    for id in range(1, 10):
        world.crash(id)
    world.run_until(world.converged, 8)


@pytest.mark.parametrize("seed", range(25))
def test_all_views_are_right_again_after_any_faults(seed: int) -> None:
    """Random kills, restarts, pauses and cuts, then calm. No broker raises another's incarnation."""
    world = World(seed, loss=0.02)
    world.mesh(6)
    rng = random.Random(seed)
    for _ in range(25):
        id, other = rng.sample(range(1, 7), 2)
        node = world.nodes[id]
        match rng.randrange(6):
            case 0 if not node.dead and len(world.live()) > 3:
                world.crash(id, silent=rng.random() < 0.5)
            case 1 if node.dead:
                world.start(id, *(n.id for n in world.live()[:2]))
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
            assert known.incarnation <= world.nodes[number(known.name)].issued


def test_a_member_answers_while_it_has_a_link_and_missed_no_round() -> None:
    driven = Driven(2, 3)
    machine = driven.machine
    assert [machine.answers(id) for id in (2, 3, 9)] == [True, True, False]
    driven.round(2)
    assert [machine.answers(id) for id in (2, 3)] == [True, False]
    driven.round(2, 3)
    assert [machine.answers(id) for id in (2, 3)] == [True, True], (
        "misses are counted from the last answer on"
    )
    driven.unlink(2)
    assert [machine.answers(id) for id in (2, 3)] == [False, True]
    assert machine.live_ids() == [member.id for member in machine.live()] == [2, 3]


def test_rounds_are_counted_from_the_first_on() -> None:
    driven = Driven(2)
    assert driven.machine.statistics().rounds == 0
    for round in (1, 2, 3):
        assert driven.to_round().round == round == driven.machine.statistics().rounds
        driven.now = driven.machine.next_deadline()
        driven.machine.tick(driven.now)
