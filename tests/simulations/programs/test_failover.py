"""Clients that lose their broker move to another one: their published messages arrive exactly once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial

import pytest

from mesh import Client
from mesh.errors import Unknown
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of

TOPIC = "jobs.a"


class Publisher:
    """Publishes without a pause at level accepted, through any of the brokers, from a separate host."""

    def __init__(self, world: World, brokers: list[str], tasks: int = 3) -> None:
        self.accepted: dict[bytes, str] = {}
        """Bodies, and the broker that accepted each."""
        self.unknown: list[bytes] = []
        self.client: Client | None = None
        self.enough = False
        self.over = False
        self._tasks = tasks
        self._urls = [url_of(world.network.hosts[name].address) for name in brokers]
        world.add_node("publisher", self._main, host="afar").start()

    @property
    def broker(self) -> str:
        """The broker of its session; empty if it has none."""
        return self.client.broker if self.client is not None and self.client.connected else ""

    @property
    def sessions(self) -> int:
        assert self.client is not None
        return self.client.statistics().sessions

    async def _main(self, process: Process) -> None:
        self.client = client = Client(self._urls, environment=environment_of(process))
        async with client, asyncio.TaskGroup() as group:
            publishing = [group.create_task(self._publish(client, number)) for number in range(self._tasks)]
            await asyncio.wait(publishing)
        self.over = True
        await process.stopping.wait()

    async def _publish(self, client: Client, task: int) -> None:
        number = 0
        while not self.enough:
            number += 1
            body = b"%d %d" % (task, number)
            try:
                receipt = await client.publish(TOPIC, body, timeout=60)
            except Unknown:
                self.unknown.append(body)
            else:
                self.accepted[body] = receipt.broker
            await asyncio.sleep(0.001)


class Listener:
    """A subscriber that stays with its broker; it keeps the messages since that broker's last start."""

    def __init__(self, mesh: Mesh, at: str) -> None:
        self.got: Counter[bytes] = Counter()
        self.interrupted = 0
        self.ready = False
        mesh.client(f"listener at {at}", self._listen, at=at)
        mesh.world.run_until(lambda: self.ready, timeout_s=10, what="a subscription")

    async def _listen(self, client: Client) -> None:
        async with client.subscribe("jobs.#") as subscription:
            self.ready = True
            async for delivery in subscription:
                self.interrupted = subscription.interrupted
                self.got[bytes(delivery.body)] += 1


def settled_again(publisher: Publisher, sessions: int) -> bool:
    return bool(publisher.broker) and publisher.sessions > sessions


@pytest.mark.parametrize(
    ("seed", "most"), [(5, 4), *(pytest.param(seed, 25, marks=pytest.mark.long) for seed in range(1, 5))]
)
def test_accepted_messages_arrive_once_although_the_publishers_broker_is_killed(seed: int, most: int) -> None:
    """A hundred kills in all, each of the publisher's broker. If listeners are on that broker, which the
    publisher is told, its connections are reset instead.

    A message that a broker had acknowledged right before it was killed had reached one listener and not the
    other.
    """
    with World(seed) as world:
        mesh = Mesh(world, brokers=5)
        spared = ["broker-1", "broker-2"]
        listeners = [Listener(mesh, at) for at in spared]
        publisher = Publisher(world, ["broker-3", "broker-4", "broker-5"])
        rng, kills = random.Random(seed), 0
        while kills < most:
            world.run_until(lambda: bool(publisher.broker), timeout_s=10, what="a session")
            world.run_for(rng.uniform(0.05, 0.3))
            world.run_until(lambda: bool(publisher.broker), timeout_s=10, what="a session")
            lost, sessions = publisher.broker, publisher.sessions
            if lost in spared:
                world.inject("reset", ["afar"], [lost])
            else:
                kills += 1
                world.inject("crash", [lost], for_s=4.0)
            again = partial(settled_again, publisher, sessions)
            world.run_until(again, timeout_s=10, what="another session")
        publisher.enough = True
        world.run_until(lambda: publisher.over, timeout_s=100, what="the end of the publisher")
        world.run_for(5)
        assert not publisher.unknown
        assert len(publisher.accepted) > 50 * kills and len(set(publisher.accepted.values())) > 2
        for listener in listeners:
            assert listener.interrupted == 0
            assert max(listener.got.values()) == 1, "nothing comes twice"
        assert set(listeners[0].got) == set(listeners[1].got), "what one broker had, the other has"
        assert set(publisher.accepted) == set(listeners[0].got)
