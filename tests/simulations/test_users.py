"""What users have of the simulator: a mesh in a world for their own programs."""

from __future__ import annotations

import re
import time

import pytest

from mesh import Client
from simulations import Mesh, Process, Violated, World


async def idle(client: Client) -> None:
    return None


def test_a_mesh_that_nothing_is_done_to_is_found_right() -> None:
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
    """What came for one life only is not started by a heal."""
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        world.inject("crash", ["broker-3"])
        world.node("broker-3").once = True
        with pytest.raises(Violated, match="converged: broker-3 is not up") as caught:
            mesh.finish()
    assert "with seed 1" in str(caught.value)


def test_a_client_that_raises_is_a_failure_of_the_world() -> None:
    async def broken(client: Client) -> None:
        raise LookupError("no such shelf")

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.client("broken", broken)
        world.run_for(1)
        assert [str(failure.exception) for failure in world.failures] == ["no such shelf"]


def test_a_broker_that_is_down_is_named() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        world.inject("crash", ["broker-2"])
        with pytest.raises(ValueError, match="broker-2 is no broker that is up"):
            mesh.broker("broker-2")
        assert not mesh.whole


def test_code_that_escapes_is_told_with_its_own_line_alone() -> None:
    async def main(process: Process) -> None:
        time.time()

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        (failure,) = map(str, world.failures)
        world.failures.clear()
    assert re.search(rf"time was called by {__name__}:\d+ inside a simulation", failure)
    assert "guards.py" not in failure
