"""The simulator for users: a mesh in a world for their own programs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time

import pytest

from mesh import Client
from simulations import ConditionNotMet, Fault, Mesh, Process, ProgramFailed, Violated, World


async def idle(client: Client) -> None:
    return None


def test_a_mesh_without_faults_passes_all_checks() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        mesh.client("idle", idle)
        assert mesh.whole
        assert mesh.broker("broker-2").name == "broker-2"
        verdicts = mesh.finish()
    assert {"converged", "one_digest", "records_only_grow"} <= {verdict.check for verdict in verdicts}
    assert all(verdict.ok for verdict in verdicts)
    assert [process.name for process in world.processes] == [*mesh.brokers, "idle"]


def test_a_run_is_the_same_again() -> None:
    def digest(seed: int) -> str:
        with World(seed) as world:
            mesh = Mesh(world, brokers=2)
            world.inject("crash", ["broker-2"], for_s=2)
            world.run_for(5)
            mesh.finish()
            return world.history.digest

    assert digest(3) == digest(3) != digest(4)


def test_a_broker_that_never_comes_back_is_a_violation() -> None:
    """A heal does not start a process that came for one life only."""
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        world.inject("crash", ["broker-3"])
        world.node("broker-3").once = True
        with pytest.raises(Violated, match="converged: broker-3 is not up") as caught:
            mesh.finish()
    assert "with seed 1" in str(caught.value)


def test_a_client_that_raises_fails_the_test_at_once() -> None:
    async def broken(client: Client) -> None:
        raise LookupError("no such shelf")

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.client("broken", broken)
        with pytest.raises(ProgramFailed, match="broken: main ended by an exception: LookupError: no such"):
            world.run_for(1)


def test_a_program_can_be_run_to_its_end() -> None:
    async def add(client: Client) -> int:
        async with client.subscribe("numbers") as numbers:
            for number in range(5):
                await client.publish("numbers", str(number).encode())
            return sum([int((await anext(numbers)).body) for _ in range(5)])

    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        assert mesh.run(add, at="broker-2") == 10
        assert mesh.run(add) == 10
        assert [node.name for node in world.nodes.values() if node.alive] == mesh.brokers
        mesh.finish()


def test_an_error_of_a_program_is_raised_by_its_run() -> None:
    async def broken(client: Client) -> None:
        raise LookupError("no such shelf")

    async def endless(client: Client) -> None:
        async with client.subscribe("numbers") as numbers:
            await anext(numbers)

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        with pytest.raises(LookupError, match="no such shelf"):
            mesh.run(broken)
        with pytest.raises(ConditionNotMet, match=r"the end of .*endless did not come about within 3 s"):
            mesh.run(endless, timeout_s=3)
        mesh.finish()


def test_a_program_that_is_killed_while_it_runs_begins_anew() -> None:
    lives: list[int] = []

    async def wait(client: Client) -> int:
        lives.append(len(lives))
        async with client.subscribe("never") as nothing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(anext(nothing), 2)
        return len(lives)

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.schedule([Fault(1.0, "crash", ("run-1",), for_s=1.0)])
        assert mesh.run(wait) == 2


def test_faults_are_scheduled_from_now_and_skipped_where_impossible() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        began_s = world.now_s
        mesh.schedule(
            [
                Fault(1.0, "crash", ("broker-2",), for_s=4.0),
                Fault(2.0, "pause", ("broker-2",), for_s=1.0),
                Fault(3.0, "pause", ("broker-1", "broker-2"), for_s=0.5),
            ]
        )
        world.run_for(8)
        struck = [(round(at_s - began_s, 3), fault.kind, fault.a) for at_s, fault in world.faults]
        assert struck[-3:] == [
            (1.0, "crash", ("broker-2",)),
            (3.0, "pause", ("broker-1",)),
            (5.0, "start", ("broker-2",)),
        ]
        mesh.finish()


def test_a_broker_that_is_down_is_named() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        world.inject("crash", ["broker-2"])
        with pytest.raises(ValueError, match="broker-2 is no broker that is up"):
            mesh.broker("broker-2")
        assert not mesh.whole


def test_code_that_escapes_is_reported_with_only_its_own_line() -> None:
    async def main(process: Process) -> None:
        time.time()

    with World(1) as world:
        world.add_node("alpha", main).start()
        with pytest.raises(ProgramFailed) as caught:
            world.run_for(1)
    assert re.search(rf"time was called by {__name__}:\d+ inside a simulation", str(caught.value))
    assert "guards.py" not in str(caught.value)
