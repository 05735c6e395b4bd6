"""Brokers that start together with too little processor time form a mesh, however slowly."""

from __future__ import annotations

import pytest

from simulations import World, programs
from simulations.world import Node

BROKERS = 10
SLOWNESS = 10_000
"""A callback takes 10 ms and a loop turn 50 ms more: a broker alone needs a second to make a link."""
LIMIT_S = 200.0


def links_of(node: Node) -> int:
    if node.exposed is None:
        return 0
    return sum(member["link"] is not None for member in node.exposed.members())


@pytest.mark.parametrize("seed", [1, 2])
def test_brokers_that_start_together_on_slow_processors_all_get_linked(seed: int) -> None:
    """With 32 dials at once, each given up after two seconds, they had not one link after 100 s."""
    with World(seed) as world:
        names = [f"broker-{number}" for number in range(BROKERS)]
        nodes: list[Node] = []
        for name in names:
            join = [world.network.hosts[names[0]].address] if nodes else []
            nodes.append(world.add_node(name, programs.broker("slow", join)))
        world.inject("start", names)
        world.inject("slow_process", names, value=SLOWNESS)
        world.run_until(
            lambda: all(links_of(node) == BROKERS - 1 for node in nodes),
            timeout_s=LIMIT_S,
            what="a link between any two",
            poll_s=1.0,
        )
        world.inject("slow_process", names, value=1)
        world.run_for(10.0)
        assert all(links_of(node) == BROKERS - 1 for node in nodes)
