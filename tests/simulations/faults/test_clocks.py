"""Faults of clocks: wall clocks are set and drift, monotonic ones only drift; brokers depend on neither."""

from __future__ import annotations

import asyncio

import pytest

from simulations.world import Process, World
from tests.simulations.faults.meshes import all_alive, incarnation, mesh


async def idle(process: Process) -> None:
    await process.stopping.wait()


def off_by(world: World, host: str) -> float:
    return world.wall_time(host) - world.wall_time()


def monotonic(world: World, name: str) -> float:
    process = world.node(name).process
    assert process is not None
    return process.loop.time()


def test_a_clock_step_is_reversed_when_it_ends_and_others_continue() -> None:
    with World(1) as world:
        world.add_node("alpha", idle).start()
        world.add_node("beta", idle).start()
        world.inject("clock_step", ["alpha"], value=-3600, for_s=10)
        world.inject("clock_step", ["alpha"], value=100)
        assert off_by(world, "alpha") == pytest.approx(-3500) and off_by(world, "beta") == 0
        before = monotonic(world, "alpha")
        world.run_for(11)
        assert off_by(world, "alpha") == pytest.approx(100)
        assert monotonic(world, "alpha") - before == pytest.approx(11, abs=0.001)


def test_a_wall_clock_that_drifts_is_off_by_more_and_more_and_stays_off() -> None:
    with World(1) as world:
        world.add_node("alpha", idle).start()
        world.inject("clock_drift", ["alpha"], value=1000, for_s=100)
        world.run_for(50)
        assert off_by(world, "alpha") == pytest.approx(0.05, abs=1e-6)
        world.run_for(100)
        assert off_by(world, "alpha") == pytest.approx(0.1, abs=1e-6)
        world.inject("clock_drift", ["alpha"], value=-500)
        world.run_for(100)
        assert off_by(world, "alpha") == pytest.approx(0.05, abs=1e-6)


def test_a_monotonic_clock_that_drifts_never_jumps_and_its_timers_come_early() -> None:
    woken: list[float] = []

    async def sleeper(process: Process) -> None:
        while True:
            await asyncio.sleep(10)
            woken.append(process.world.now_s)

    with World(1) as world:
        node = world.add_node("alpha", sleeper)
        node.start()
        world.run_for(5)
        before = monotonic(world, "alpha")
        world.inject("monotonic_drift", ["alpha"], value=100_000, for_s=100)
        assert monotonic(world, "alpha") == pytest.approx(before, abs=1e-6)
        world.run_for(100)
        # 5 s of the first 10 have passed, the others pass in 5 / 1.1.
        assert woken[:2] == [pytest.approx(9.545, abs=0.01), pytest.approx(18.636, abs=0.01)]
        now = monotonic(world, "alpha")
        assert now - before == pytest.approx(110, abs=0.01)
        world.run_for(10)
        assert monotonic(world, "alpha") - now == pytest.approx(10, abs=0.01)


def test_a_drift_affects_processes_that_start_later_too() -> None:
    with World(1) as world:
        node = world.add_node("alpha", idle)
        world.inject("monotonic_drift", ["alpha"], value=100_000)
        node.start()
        before = monotonic(world, "alpha")
        world.run_for(10)
        assert monotonic(world, "alpha") - before == pytest.approx(11, abs=0.01)


def test_steps_and_drifts_of_clocks_do_not_affect_brokers() -> None:
    with mesh() as world:
        world.inject("clock_step", ["broker-1"], value=3600)
        world.inject("clock_step", ["broker-2"], value=-3600, for_s=5)
        world.inject("clock_drift", ["broker-3"], value=-1000)
        world.inject("monotonic_drift", ["broker-2"], value=1000)
        world.run_for(20)
        assert all_alive(world)
        assert [incarnation(world, name) for name in world.nodes] == [1, 1, 1]
