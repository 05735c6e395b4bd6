"""Brokers that are restarted one after the other under load: their clients move to others, without a gap."""

from __future__ import annotations

from collections import Counter

import pytest

from mesh import Client
from mesh.clients.subscription import Subscription
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from tests.simulations.programs.test_failover import Publisher


class Listener:
    """A subscriber at any of the brokers, from a separate host, with its messages in order."""

    def __init__(self, world: World, name: str, brokers: list[str]) -> None:
        self.got: Counter[bytes] = Counter()
        self.numbers: dict[bytes, int] = {}
        self.disorder: list[tuple[bytes, int, int]] = []
        self.brokers: list[str] = []
        self.subscription: Subscription | None = None
        self._urls = [url_of(world.network.hosts[broker].address) for broker in brokers]
        world.add_node(name, self._main, host=name).start()
        world.run_until(lambda: self.subscription is not None, timeout_s=10, what="a subscription")

    async def _main(self, process: Process) -> None:
        async with Client(self._urls, environment=environment_of(process)) as client:
            async with client.subscribe("jobs.#") as self.subscription:
                async for delivery in self.subscription:
                    body = bytes(delivery.body)
                    self.got[body] += 1
                    task, number = body.split()
                    if int(number) != self.numbers.get(task, 0) + 1:
                        self.disorder.append((task, self.numbers.get(task, 0), int(number)))
                    self.numbers[task] = int(number)
                    if client.broker not in self.brokers[-1:]:
                        self.brokers.append(client.broker)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_rolling_restart_loses_and_duplicates_nothing(seed: int) -> None:
    with World(seed) as world:
        mesh = Mesh(world, brokers=5)
        listeners = [Listener(world, f"listener-{number}", mesh.brokers) for number in (1, 2)]
        publisher = Publisher(world, mesh.brokers)
        world.run_for(1)
        for name in mesh.brokers:
            world.inject("stop", [name], for_s=1.0)
            world.run_for(0.5)
            mesh.wait_whole()
            world.run_for(0.5)
        publisher.enough = True
        world.run_until(lambda: publisher.over, timeout_s=100, what="the end of the publisher")
        world.run_for(5)
        assert not publisher.unknown and len(publisher.accepted) > 500
        assert len(set(publisher.accepted.values())) > 1
        for listener in listeners:
            assert listener.subscription is not None and listener.subscription.interrupted == 0
            assert set(publisher.accepted) - set(listener.got) == set()
            assert max(listener.got.values()) == 1, "nothing comes twice"
            assert listener.disorder == []
            assert len(listener.brokers) > 1
