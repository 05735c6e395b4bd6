"""Faults of processes: no code runs, or slowly, or not on time; and which processes start again."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from simulations.faults import Fault
from simulations.world import Deadlock, NodeState, Process, World
from tests.simulations.echoing import Echo, dial, serve, wait_exposed
from tests.simulations.faults.meshes import all_alive, incarnation, inspect, mesh, states


async def ticks(process: Process) -> None:
    """Exposes the world's times at which a timer of 0.1 s fired."""
    process.exposed = []
    while not process.stopping.is_set():
        process.exposed.append(process.world.now_s)
        await asyncio.sleep(0.1)


def ticking(*names: str) -> World:
    world = World(1)
    for name in names:
        world.add_node(name, ticks)
    return world


def gaps(world: World, name: str) -> list[float]:
    return [round(later - earlier, 3) for earlier, later in pairwise(world.node(name).exposed)]


def test_a_killed_process_is_started_again_after_its_time_and_its_log_stays() -> None:
    with mesh() as world:
        world.inject("crash", ["broker-2"], for_s=6)
        world.run_for(5)
        assert world.node("broker-2").state is NodeState.DOWN
        assert states(world, "broker-1")["broker-2"] == "dead"
        world.run_for(5)
        assert all_alive(world) and incarnation(world, "broker-2") == 2


def test_a_process_asked_to_end_restarts_only_after_its_end() -> None:
    async def slow_to_end(process: Process) -> None:
        await process.stopping.wait()
        await asyncio.sleep(3)

    with World(1) as world:
        node = world.add_node("alpha", slow_to_end)
        node.start()
        world.inject("stop", ["alpha"], for_s=1)
        world.run_for(2)
        assert node.running and node.lives == 1
        world.run_for(2)
        assert node.running and node.lives == 2


def test_starting_and_stopping_skip_processes_already_in_that_state() -> None:
    with ticking("alpha", "beta") as world:
        world.inject("start", ["alpha"])
        world.inject("start", ["alpha", "beta"])
        assert [node.lives for node in world.nodes.values()] == [1, 1]
        world.node("alpha").crash()
        world.inject("stop", ["alpha", "beta"])
        world.run_for(1)
        assert not any(node.alive for node in world.nodes.values())


def test_returning_power_starts_only_processes_that_ran_when_it_was_lost() -> None:
    with World(1) as world:
        for name in ("alpha", "beta"):
            world.add_node(name, ticks, host="one").start()
        world.inject("crash", ["beta"])
        world.run_for(1)
        world.inject("power_off", ["one"], for_s=2)
        world.run_for(1)
        assert not world.node("alpha").alive
        world.run_for(2)
        assert world.node("alpha").running and not world.node("beta").alive


def test_a_process_held_down_by_two_faults_restarts_when_the_last_ends() -> None:
    with ticking("alpha") as world:
        node = world.node("alpha")
        node.start()
        world.run_for(1)
        world.inject("crash", ["alpha"], for_s=3)
        world.run_for(1)
        world.inject("power_off", ["alpha"], for_s=20)
        world.inject("power_off", ["alpha"], for_s=10)
        world.run_for(19)
        assert not node.alive and not node.host.powered
        world.run_for(1.01)
        assert node.running and node.lives == 2


def test_an_endless_power_loss_schedules_no_event() -> None:
    with ticking("alpha") as world:
        world.node("alpha").start()
        world.inject("crash", ["alpha"], for_s=1)
        world.inject("power_off", ["alpha"])
        world.run_for(2)
        with pytest.raises(Deadlock):
            world.run_until(lambda: world.node("alpha").alive, timeout_s=1000)
        world.heal()
        assert world.node("alpha").running


def test_a_process_started_during_a_fault_is_no_longer_held_down_by_it() -> None:
    with ticking("alpha") as world:
        node = world.node("alpha")
        node.start()
        world.inject("crash", ["alpha"])
        world.run_for(1)
        world.inject("start", ["alpha"])
        world.run_for(1)
        world.inject("crash", ["alpha"], for_s=2)
        world.run_for(2.01)
        assert node.running and node.lives == 3


def test_a_process_that_is_down_is_skipped_by_faults_that_need_it_up() -> None:
    with ticking("alpha", "beta") as world:
        world.node("beta").start()
        for kind in (
            "crash",
            "stop",
            "pause",
            "resume",
            "block_io",
            "slow_process",
            "stall",
            "hog",
            "starve",
        ):
            world.schedule([Fault(1.0, kind, ("alpha",), value=2.0 if kind == "slow_process" else None)])
        world.run_for(2)
        assert not world.node("alpha").alive and world.node("beta").running


def test_a_process_that_is_slow_is_so_in_its_next_life_too() -> None:
    with ticking("alpha") as world:
        node = world.node("alpha")
        node.start()
        world.inject("slow_process", ["alpha"], value=4, for_s=10)
        world.inject("crash", ["alpha"], for_s=1)
        world.run_for(2)
        assert node.process is not None and node.process.loop.slowness == 4
        world.run_for(9)
        assert node.process.loop.slowness == 1


def test_a_paused_process_runs_no_code_and_its_due_timers_run_at_its_resume() -> None:
    with ticking("alpha") as world:
        world.node("alpha").start()
        world.run_for(1)
        world.inject("pause", ["alpha"], for_s=5)
        world.run_for(6)
        assert max(gaps(world, "alpha")) == pytest.approx(5.1, abs=0.1)
        assert len(world.node("alpha").exposed) < 25


def test_a_process_is_resumed_at_the_end_of_its_last_pause() -> None:
    with ticking("alpha") as world:
        node = world.node("alpha")
        node.start()
        world.inject("pause", ["alpha"], for_s=5)
        world.inject("pause", ["alpha"], for_s=2)
        world.run_for(3)
        assert node.paused
        world.run_for(3)
        assert node.running


def test_a_short_pause_causes_no_death_and_a_long_one_a_death_that_is_refuted() -> None:
    with mesh() as world:
        world.inject("pause", ["broker-2"], for_s=1.5)
        world.run_for(6)
        assert all_alive(world) and incarnation(world, "broker-2") <= 2
        world.inject("pause", ["broker-2"], for_s=8)
        world.run_for(7)
        assert states(world, "broker-1")["broker-2"] == states(world, "broker-3")["broker-2"] == "dead"
        world.run_for(6)
        assert all_alive(world)
        assert "dead" not in states(world, "broker-2").values()  # it declares no deaths when it wakes


def test_timers_run_in_a_process_with_blocked_io_and_nothing_is_read_or_written() -> None:
    async def both(process: Process) -> None:
        loop = asyncio.get_running_loop()
        made: list[Echo] = []
        process.exposed = (made, [])

        def make() -> Echo:
            made.append(Echo())
            return made[-1]

        async with await loop.create_server(make, "0.0.0.0", 7000):
            while not process.stopping.is_set():
                process.exposed[1].append(process.world.now_s)
                await asyncio.sleep(0.1)

    with World(1) as world:
        server = world.add_node("server", both)
        client = world.add_node("client", dial("server"))
        server.start()
        world.run_for(0.5)
        client.start()
        world.run_for(1)
        world.inject("block_io", ["server"], for_s=3)
        client.exposed.transport.write(b"hello")
        before = len(server.exposed[1])
        world.run_for(2)
        assert len(server.exposed[1]) == before + 20
        assert bytes(server.exposed[0][0].data) == b"" and bytes(client.exposed.data) == b""
        world.run_for(2)
        assert bytes(client.exposed.data) == b"hello"


def test_a_broker_with_blocked_io_is_declared_dead_and_declares_no_deaths() -> None:
    with mesh() as world:
        world.inject("block_io", ["broker-2"], for_s=8)
        world.run_for(7)
        assert states(world, "broker-1")["broker-2"] == "dead"
        assert "dead" not in states(world, "broker-2").values()
        world.run_for(6)
        assert all_alive(world)


def test_slowness_multiplies_and_ends_with_each_fault() -> None:
    with ticking("alpha") as world:
        node = world.node("alpha")
        node.start()
        loop = node.process.loop if node.process else None
        assert loop is not None
        world.inject("slow_process", ["alpha"], value=10, for_s=2)
        world.inject("slow_process", ["alpha"], value=3, for_s=4)
        assert loop.slowness == 30
        world.run_for(3)
        assert loop.slowness == 3
        world.run_for(3)
        assert loop.slowness == 1


async def counting(process: Process) -> None:
    """Computes without a pause; exposes its progress."""
    process.exposed = [0]
    while not process.stopping.is_set():
        process.exposed[0] += 1
        await asyncio.sleep(0)


def test_slow_code_takes_its_time() -> None:
    with World(1) as world:
        node = world.add_node("alpha", counting)
        node.start()
        world.run_for(0.1)
        usual = node.exposed[0]
        world.inject("slow_process", ["alpha"], value=50)
        world.run_for(0.1)
        assert (node.exposed[0] - usual) * 50 == pytest.approx(usual, rel=0.05)


def test_a_stall_delays_timers_and_input_once() -> None:
    with ticking("alpha") as world:
        world.add_node("server", serve(Echo)).start()
        world.node("alpha").start()
        world.run_for(1)
        world.inject("stall", ["alpha", "server"], value=2)
        client = world.add_node("client", dial("server"))
        client.start()
        world.run_for(1.5)
        assert world.node("server").exposed == []  # the kernel has taken the connection, the program has not
        wait_exposed(world, "client")
        world.run_for(3)
        assert len(world.node("server").exposed) == 1
        assert [gap for gap in gaps(world, "alpha") if gap > 0.2] == [pytest.approx(2.1, abs=0.1)]


def test_a_hog_stalls_again_and_again_until_its_time_is_over() -> None:
    with ticking("alpha") as world:
        world.node("alpha").start()
        world.run_for(1)
        world.inject("hog", ["alpha"], value=0.8, every_s=2, for_s=7)
        world.run_for(12)
        long = [gap for gap in gaps(world, "alpha") if gap > 0.5]
        assert len(long) == 4 and all(0.8 <= gap <= 1 for gap in long)


def test_a_hog_skips_a_process_that_is_down_and_affects_its_next_life() -> None:
    with ticking("alpha") as world:
        world.node("alpha").start()
        world.inject("hog", ["alpha"], value=0.8, every_s=2)
        world.run_for(1)
        world.inject("crash", ["alpha"], for_s=2)
        world.run_for(5)
        assert world.node("alpha").lives == 2
        assert [gap for gap in gaps(world, "alpha") if gap > 0.5]


def test_a_hogged_broker_is_not_declared_dead() -> None:
    with mesh() as world:
        world.inject("hog", ["broker-2"], value=0.8, every_s=2)
        for _ in range(15):
            world.run_for(1)
            assert "dead" not in {**states(world, "broker-1"), **states(world, "broker-3")}.values()
        assert inspect(world, "broker-2").peering.void_rounds["late"] > 0


def test_a_starved_process_runs_at_its_share_of_the_processor() -> None:
    with World(1) as world:
        for name in ("alpha", "beta"):
            world.add_node(name, counting).start()
        world.inject("starve", ["alpha"], value=20, for_s=2)
        world.run_for(2)
        starved, usual = (node.exposed[0] for node in world.nodes.values())
        assert starved * 20 == pytest.approx(usual, rel=0.2)
        world.run_for(0.5)
        assert world.node("alpha").exposed[0] - starved == pytest.approx(usual / 4, rel=0.1)


def test_starved_brokers_are_at_most_suspected_and_declare_no_deaths() -> None:
    with mesh(5) as world:
        world.inject("starve", ["broker-2", "broker-3"], value=50)
        for _ in range(20):
            world.run_for(1)
            for name in world.nodes:
                assert "dead" not in states(world, name).values()
        world.heal()
        world.run_for(5)
        assert all_alive(world)
