"""The news that brokers get about each other, and its effect on receipts, in a simulated world."""

from __future__ import annotations

from functools import partial

import pytest

from mesh import Client
from simulations import Mesh, World

pytestmark = pytest.mark.virtual


def test_receipts_name_exactly_the_dead_that_this_run_was_linked_to() -> None:
    """A broker that never met a member while it lived has sent it nothing that it might miss."""
    absent: dict[str, tuple[str, ...]] = {}

    async def publishes(name: str, client: Client) -> None:
        absent[name] = (await client.publish("t", b"x")).absent

    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        mesh.wait_whole()
        world.inject("crash", ["broker-2"])
        world.inject("start", ["broker-2"])
        world.inject("partition", ["broker-2"], ["broker-3"], for_s=60.0)
        world.run_for(5.0)
        seen = {m.name: str(m.state) for m in mesh.broker("broker-2").inspect().members}
        assert "broker-3" in seen and len(mesh.broker("broker-2").inspect().linked) == 1
        world.inject("crash", ["broker-3"])
        world.run_for(8.0)
        for name in ("broker-1", "broker-2"):
            mesh.client(f"at {name}", partial(publishes, name), at=name)
        world.run_for(2.0)
        states = {m.name: str(m.state) for m in mesh.broker("broker-2").inspect().members}
    assert states["broker-3"] == "dead"
    assert absent == {"broker-1": ("broker-3",), "broker-2": ()}
