"""Workers start at several brokers at the same time, as in a deployment: they share the work."""

from __future__ import annotations

import asyncio

import pytest

from mesh import Client
from simulations import Mesh, World

BROKERS = 4


@pytest.mark.parametrize("seed", (2, 5))
def test_a_name_that_is_made_at_all_brokers_at_once_is_one_subscription(seed: int) -> None:
    """Each made its own subscription, and each message was worked on once for each of them, forever."""
    worked: list[bytes] = []
    stored: list[bytes] = []

    async def work(client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail", window=2) as jobs:
            async for job in jobs:
                worked.append(bytes(job.body))
                job.done()

    async def publish(client: Client) -> None:
        for number in range(40):
            body = b"%d" % number
            receipt = await client.publish("jobs.a", body, level="stored")
            assert len(receipt.homes) == 1
            stored.append(body)
            await asyncio.sleep(0.01)

    with World(seed) as world:
        mesh = Mesh(world, brokers=BROKERS)
        for name in mesh.brokers:
            mesh.client(f"worker-{name}", work, at=name)
        world.run_for(3.0)
        homes = [
            name
            for name in mesh.brokers
            if any(queue["name"] == "mail" for queue in mesh.broker(name).statistics()["queues"])
        ]
        assert len(homes) == 1
        assert all(not mesh.broker(name).statistics()["queues_twice"] for name in mesh.brokers)
        (queue,) = mesh.broker(homes[0]).statistics()["queues"]
        assert queue["consumers"] == BROKERS
        mesh.run(publish, at="broker-3")
        world.run_for(2.0)
        assert sorted(worked) == sorted(stored)
        mesh.finish()
