"""Operators' actions: restarts of every sort, crowds, moves, settings that differ, copied state folders."""

from __future__ import annotations

import pytest

from simulations.world import World
from tests.simulations.faults.meshes import all_alive, identity, incarnation, inspect, mesh, states


def lives(world: World) -> list[int]:
    return [node.lives for node in world.nodes.values()]


@pytest.mark.parametrize("how", ["crash", "stop"])
def test_a_restarted_broker_is_the_same_member_with_a_greater_incarnation(how: str) -> None:
    with mesh() as world:
        before = identity(world, "broker-2")
        world.inject("restart", ["broker-2"], value=2, how=how)
        world.run_for(1.5)
        assert not world.node("broker-2").alive
        assert (states(world, "broker-1")["broker-2"] == "left") == (how == "stop")
        world.run_for(5)
        assert all_alive(world) and lives(world) == [1, 2, 1]
        assert (identity(world, "broker-2"), incarnation(world, "broker-2")) == (before, 2)


@pytest.mark.parametrize("state", ["lost", "torn", "flipped"])
def test_a_broker_that_lost_its_state_returns_as_another_member(state: str) -> None:
    changed = 0
    for seed in (1, 2, 3):
        with mesh(seed=seed) as world:
            before = identity(world, "broker-2")
            world.inject("restart", ["broker-2"], state=state)
            world.run_for(8)
            assert world.node("broker-2").running
            assert states(world, "broker-1")["broker-2"] == "alive"
            changed += identity(world, "broker-2") != before
    # A flipped bit may be in the name of a peer, or make another valid id.
    assert changed == 3 if state != "flipped" else changed >= 1


def test_a_broker_with_stale_seeds_rejoins_through_saved_peers_unless_they_are_lost() -> None:
    with mesh() as world:
        world.inject("restart", ["broker-2"], seeds="stale")
        world.run_for(8)
        assert all_alive(world)
    with mesh() as world:
        world.inject("crash", ["broker-3"])
        world.inject("crash", ["broker-1"])
        world.run_for(1)
        world.inject("restart", ["broker-2"], seeds="stale", state="lost")
        world.run_for(8)
        assert list(states(world, "broker-2")) == ["broker-2"]  # it knows nobody that could be up


def test_a_broker_that_boots_with_a_wrong_clock_is_admitted() -> None:
    with mesh() as world:
        world.inject("restart", ["broker-2"], clock_s=-3600)
        world.run_for(8)
        assert all_alive(world)
        assert world.wall_time("broker-2") - world.wall_time() == pytest.approx(-3600)


def test_a_process_started_elsewhere_is_not_started_twice() -> None:
    with mesh() as world:
        world.inject("restart", ["broker-2"], value=3)
        world.run_for(1)
        world.heal()
        world.run_for(6)
        assert lives(world) == [1, 2, 1] and all_alive(world)


def test_a_moved_host_comes_back_at_another_address_with_all_that_ran_there() -> None:
    async def client(process: object) -> None:
        await process.stopping.wait()  # type: ignore[attr-defined]

    with mesh() as world:
        world.add_node("client", client, host="broker-2", once=True).start()
        before = world.network.hosts["broker-2"].address
        world.inject("move", ["broker-2"], value=2)
        world.run_for(1)
        assert not world.node("client").alive and not world.node("broker-2").alive
        world.run_for(7)
        after = world.network.hosts["broker-2"].address
        assert after != before and world.node("client").running
        assert all_alive(world)
        urls = {record.name: record.peer_url for record in inspect(world, "broker-1").records}
        assert after in urls["broker-2"]


def test_a_rolling_restart_takes_one_after_the_other_and_none_is_seen_dead() -> None:
    with mesh(4) as world:
        world.inject("rolling_restart", list(world.nodes), value=3, down_s=0.5)
        down_most = 0
        for _ in range(40):
            world.run_for(0.5)
            down_most = max(down_most, sum(not node.alive for node in world.nodes.values()))
            seen = [states(world, name).values() for name, node in world.nodes.items() if node.exposed]
            assert not any("dead" in each for each in seen)
        assert down_most == 1
        assert lives(world) == [2, 2, 2, 2] and all_alive(world)


def test_crowds_come_and_go_within_their_time_and_the_gone_come_back() -> None:
    with mesh(5) as world:
        world.inject("mass_leave", ["broker-2", "broker-3", "broker-4"], value=1, for_s=10)
        world.run_for(6)
        assert [node.alive for node in world.nodes.values()] == [True, False, False, False, True]
        gone = states(world, "broker-5")
        assert [gone[f"broker-{number}"] for number in (2, 3, 4)] == ["left"] * 3
        world.inject("mass_join", ["broker-2", "broker-3"], value=0.5)
        world.run_for(0.2)
        assert lives(world) == [1, 2, 1, 1, 1]
        world.run_for(1)
        assert lives(world) == [1, 2, 2, 1, 1]
        world.run_for(6)
        assert lives(world) == [1, 2, 2, 2, 1] and all_alive(world)


@pytest.mark.parametrize(("value", "at_once"), [(0, 3), (None, 1)])
def test_a_crowd_of_no_seconds_leaves_at_once_and_one_left_without_a_number_within_the_usual(
    value: float | None, at_once: int
) -> None:
    with mesh(4) as world:
        world.inject("mass_leave", ["broker-2", "broker-3", "broker-4"], value=value)
        assert sum(fault.kind == "stop" for _, fault in world.faults) == at_once


def test_a_heal_stops_a_crowd_on_its_way() -> None:
    with mesh(4) as world:
        world.inject("mass_leave", ["broker-2", "broker-3", "broker-4"], value=30)
        world.run_for(5)
        world.heal()
        world.run_for(40)
        assert lives(world) == [1, 2, 1, 1] and all_alive(world)


def test_brokers_with_other_settings_live_together() -> None:
    with mesh() as world:
        world.inject("config_skew", ["broker-2"], value=4, for_s=30)
        world.run_for(5)
        rounds = {name: inspect(world, name).peering.rounds for name in world.nodes}
        world.run_for(20)
        counted = {name: inspect(world, name).peering.rounds - rounds[name] for name in world.nodes}
        assert counted["broker-2"] == 5 and counted["broker-1"] == counted["broker-3"] == 20
        assert all_alive(world) and lives(world) == [1, 2, 1]
        world.run_for(15)
        assert lives(world) == [1, 3, 1] and all_alive(world)
        rounds = {name: inspect(world, name).peering.rounds for name in world.nodes}
        world.run_for(10)
        assert inspect(world, "broker-2").peering.rounds - rounds["broker-2"] == 10


def test_settings_return_to_those_of_another_active_fault() -> None:
    with mesh() as world:
        settings = world.node("broker-2").settings
        world.inject("config_skew", ["broker-2"], value=2)
        world.inject("config_skew", ["broker-2"], value=4, for_s=5)
        assert settings.times == 4
        world.run_for(6)
        assert settings.times == 2
        world.heal()
        assert settings.times == 1


def test_a_twin_has_the_id_of_its_original_and_is_gone_after_its_time() -> None:
    with mesh() as world:
        world.inject("duplicate_id", ["broker-2"], for_s=10)
        world.run_for(1)
        assert identity(world, "broker-2-twin") == identity(world, "broker-2")
        assert world.network.hosts["broker-2-twin"].address != world.network.hosts["broker-2"].address
        world.run_for(10)
        assert not world.node("broker-2-twin").alive
        world.heal()
        world.run_for(10)
        assert not world.node("broker-2-twin").alive and all_alive(world)


def test_two_faults_that_copy_one_broker_make_one_twin_which_ends_with_the_last() -> None:
    with mesh() as world:
        world.inject("duplicate_id", ["broker-2"], for_s=20)
        world.run_for(1)
        world.inject("duplicate_id", ["broker-2"], for_s=5)
        world.run_for(10)
        twin = world.node("broker-2-twin")
        assert twin.running and twin.lives == 1
        assert identity(world, "broker-2-twin") == identity(world, "broker-2")
        world.run_for(10)
        assert not twin.alive


def test_a_copy_that_is_made_again_after_the_first_was_ended_ends_with_its_fault() -> None:
    with mesh() as world:
        for _ in range(2):
            world.inject("duplicate_id", ["broker-2"], for_s=2)
            world.run_for(1)
            assert world.node("broker-2-twin").running
            world.run_for(4)
            assert not world.node("broker-2-twin").alive
        world.heal()
        world.run_for(5)
        assert not world.node("broker-2-twin").alive


def test_brokers_of_a_version_ahead_stay_members_and_are_put_back() -> None:
    with mesh(5) as world:
        world.inject("version_skew", ["broker-1", "broker-2"], value=4, for_s=20)
        world.run_for(15)
        assert all_alive(world)
        assert {type(world.node(name).exposed).__name__ for name in ("broker-1", "broker-2")} == {
            "BrokerAhead"
        }
        world.run_for(20)
        assert all_alive(world) and not world.failures
        assert world.node("broker-1").lives == 3
