"""A broker that is told to leave ends, however often its waiting caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from mesh import Broker
from simulations import Mesh, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from simulations.world import Process

ROUNDS_S = 8.0
"""A stopping broker waits one second for the goodbye, and three for each of two files on a hanging disk."""


def run(world: World, main: object, seconds: float = 20.0) -> object:
    """Run a program beside a mesh of two. Returns what it exposed at the end."""
    node = world.add_node("leaver", main)  # type: ignore[arg-type]
    node.start()
    world.run_for(seconds)
    return node.exposed


def broker_of(process: Process) -> Broker:
    return Broker(
        name="leaver",
        listen=url_of(process.address),
        join=url_of(process.world.network.hosts["broker-1"].address),
        mesh_key=process.node.settings.mesh_key,
        mesh=process.world.node("broker-1").exposed.inspect().mesh,
        state_dir="/state",
        log_dir="/log",
        environment=environment_of(process),
    )


@pytest.mark.parametrize("pauses", [(0, 0), (0, 1), (1, 1), (3, 0), (3, 5), (5, 20), (40, 1), (40, 40)])
def test_a_leave_that_is_cancelled_twice_still_ends(pauses: tuple[int, int]) -> None:
    """The end of the block waited forever. ``pauses`` are in turns of the loop."""

    async def main(process: Process) -> None:
        async with broker_of(process) as broker:
            await broker.wait_ready()
            leaving = asyncio.create_task(broker.leave())
            for turns in pauses:
                for _ in range(turns):
                    await asyncio.sleep(0)
                leaving.cancel()
            await asyncio.wait([leaving])
            assert leaving.cancelled()
            process.exposed = "left"
        process.exposed = "ended"
        await process.stopping.wait()

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        assert run(world, main) == "ended"
        states = {each["name"]: each["state"] for each in mesh.broker("broker-1").members()}
        assert states["leaver"] == "left"


def test_two_callers_of_leave_both_return_although_one_is_cancelled() -> None:
    async def main(process: Process) -> None:
        async with broker_of(process) as broker:
            await broker.wait_ready()
            first, second = asyncio.create_task(broker.leave()), asyncio.create_task(broker.leave())
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first, second])
            process.exposed = (first.cancelled(), second.cancelled(), second.exception())
        await process.stopping.wait()

    with World(1) as world:
        Mesh(world, brokers=2)
        assert run(world, main) == (True, False, None)


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 40])
def test_a_program_that_is_cancelled_twice_ends_with_its_broker(turns: int) -> None:
    async def inner(process: Process) -> None:
        async with broker_of(process) as broker:
            await broker.wait_ready()
            process.exposed = "ready"
            await asyncio.sleep(1e6)

    async def main(process: Process) -> None:
        program = asyncio.create_task(inner(process))
        await asyncio.sleep(5)
        assert process.exposed == "ready"
        program.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        program.cancel()
        await asyncio.wait([program])
        process.exposed = program.cancelled()
        await process.stopping.wait()

    with World(1) as world:
        Mesh(world, brokers=2)
        assert run(world, main) is True


def test_a_leave_is_cancelled_in_time_although_the_disk_hangs() -> None:
    async def main(process: Process) -> None:
        async with broker_of(process) as broker:
            await broker.wait_ready()
            process.world.disk(process.host.name).slow_s = 1000.0
            began = process.loop.time()
            leaving = asyncio.create_task(broker.leave())
            await asyncio.sleep(0.01)
            leaving.cancel()
            await asyncio.wait([leaving])
            process.exposed = process.loop.time() - began
            process.world.disk(process.host.name).slow_s = 0.0
        await process.stopping.wait()

    with World(1) as world:
        Mesh(world, brokers=2)
        took_s = run(world, main, 60.0)
        assert isinstance(took_s, float) and took_s < ROUNDS_S
