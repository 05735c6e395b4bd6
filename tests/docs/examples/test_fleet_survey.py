"""A survey of the fleet has an answer of each machine, and the names of those that give none."""

from __future__ import annotations

from functools import partial

from simulations import Mesh, World
from tests.docs.examples.programs import program

fleet = program("fleet_survey")


def look(load: float) -> dict[str, float]:
    return {"load": load, "disk_free": 0.5, "clock": 0.0}


def broken() -> dict[str, float]:
    raise OSError("the disk is away")


def test_machines_of_all_brokers_answer_and_a_dead_one_is_named() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=2)
        for number, name in enumerate(["truck-1", "truck-2", "truck-3"]):
            look_here = broken if name == "truck-3" else partial(look, float(number))
            at = f"broker-{number % 2 + 1}"
            mesh.client(name, partial(fleet.agent, look=look_here), at=at)
        world.run_for(2)
        lines = mesh.run(fleet.ask, at="broker-2")
        assert [line.split()[0] for line in lines[:2]] != [], lines
        assert sum("load" in line for line in lines) == 2
        assert any("the disk is away" in line for line in lines)
        assert lines[-1] == "2 of 3 answered"
        world.inject("pause", ["truck-2"])
        lines = mesh.run(fleet.ask, at="broker-1")
        assert sum("did not answer" in line for line in lines) == 1 and lines[-1] == "1 of 3 answered"


def test_the_state_of_a_machine_is_complete() -> None:
    known = fleet.state()
    assert known.keys() == look(0).keys() and 0 < known["disk_free"] < 1
