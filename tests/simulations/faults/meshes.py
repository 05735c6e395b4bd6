"""Small meshes of real brokers, as targets of faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mesh.broker.broker import Broker
from mesh.broker.inspection import Inspection
from simulations import programs
from simulations.world import World


@contextmanager
def mesh(brokers: int = 3, *, seed: int = 1) -> Iterator[World]:
    """A mesh in which all are linked; nothing may have failed in it at the end."""
    with World(seed) as world:
        for number in range(1, brokers + 1):
            join = [world.network.hosts["broker-1"].address] if number > 1 else []
            world.add_node(f"broker-{number}", programs.broker("test", join)).start()
            world.run_for(0.3)
        world.run_for(3)
        assert all(len(states(world, name)) == brokers for name in world.nodes)
        yield world
    assert not world.failures, [str(failure) for failure in world.failures]
    assert not world.fence.escapes


def inspect(world: World, name: str) -> Inspection:
    found: Broker = world.node(name).exposed
    return found.inspect()


def states(world: World, name: str) -> dict[str, str]:
    """A broker's view of all members, by their names."""
    return {record.name: str(record.state) for record in inspect(world, name).records}


def incarnation(world: World, name: str) -> int:
    """A broker's own incarnation."""
    return inspect(world, name).incarnation


def identity(world: World, name: str) -> str:
    return str(world.node(name).exposed.id)


def all_alive(world: World) -> bool:
    """Every broker is up and sees all the others alive."""
    names = [name for name, node in world.nodes.items() if not node.once]
    return all(
        world.node(name).exposed is not None
        and {other: states(world, name).get(other) for other in names} == dict.fromkeys(names, "alive")
        for name in names
    )
