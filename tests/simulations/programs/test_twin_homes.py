"""Both sides of a partition make a durable subscription of one name: afterwards there are two."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mesh import Client, NotAccepted
from mesh.console.view import trouble_lines
from mesh.picture import compose
from simulations import Mesh, World

SIDES = ("broker-1", "broker-2")
DEAD_S = 30.0
"""After that each side sees the other as dead, and makes the subscriptions it wants."""


class Side:
    """A worker and a publisher at one broker. The worker begins and stops on demand."""

    def __init__(self, mesh: Mesh, at: str) -> None:
        self.mesh = mesh
        self.at = at
        self.stored: dict[str, tuple[str, ...]] = {}
        self.got: list[str] = []
        self.refused = 0
        mesh.client(f"worker@{at}", self._work, at=at)

    async def _work(self, client: Client) -> None:
        async with client.subscribe("jobs.#", durable="mail") as jobs:
            assert jobs.home == self.at
            async for job in jobs:
                self.got.append(job.body.decode())
                job.done()

    def publish(self, what: str, count: int = 20) -> None:
        async def publish(client: Client) -> None:
            for number in range(count):
                body = f"{what} {number} at {self.at}"
                while True:
                    try:
                        receipt = await client.publish("jobs.a", body.encode(), level="stored", timeout=30)
                    except NotAccepted:
                        self.refused += 1
                        await asyncio.sleep(0.5)
                        continue
                    self.stored[body] = receipt.homes
                    break

        self.mesh.run(publish, at=self.at)


def shown(mesh: Mesh, at: str) -> list[str]:
    """The lines of trouble that ``mesh status`` shows at a broker."""
    statuses: list[dict[str, Any]] = []

    async def ask(client: Client) -> None:
        statuses.append(await client.status())

    mesh.run(ask, at=at)
    return [str(line) for line in trouble_lines(compose(statuses), 40)]


def test_both_subscriptions_stay_after_a_partition_and_the_status_warns() -> None:
    with World(5) as world:
        mesh = Mesh(world, brokers=2)
        world.inject("partition", ["broker-1"], ["broker-2"], for_s=60.0)
        world.run_for(DEAD_S)
        sides = {at: Side(mesh, at) for at in SIDES}
        for side in sides.values():
            side.publish("apart")
        world.run_for(60.0)
        mesh.wait_whole()
        world.run_for(2.0)
        for at, side in sides.items():
            assert set(side.stored.values()) == {(at,)}
            assert sorted(side.got) == sorted(side.stored), "what was stored apart stays where it is"
            said = "durable subscription mail has homes at broker-1, broker-2; remove one"
            assert said in shown(mesh, at)
        for side in sides.values():
            side.publish("together")
        world.run_for(2.0)
        for at, side in sides.items():
            together = [body for body in side.got if body.startswith("together")]
            assert len(together) == 40, "each of the two has its copy"
            assert {frozenset(homes) for homes in side.stored.values()} == {frozenset([at]), frozenset(SIDES)}

        async def remove(client: Client) -> bytes:
            return await client.request(
                f"$sys.queues.{mesh.broker('broker-2').id}", b'{"do": "rm", "name": "mail"}'
            )

        world.inject("crash", ["worker@broker-2"])
        assert json.loads(mesh.run(remove))["removed"] == 0
        world.run_for(1.0)
        assert shown(mesh, "broker-1") == shown(mesh, "broker-2") == ["none"]
        sides["broker-2"].publish("later", 5)
        world.run_for(1.0)
        assert len([body for body in sides["broker-1"].got if body.startswith("later")]) == 5
