"""Brokers that are killed and restarted under load, in virtual time, and whether their receipts were true.

Every broker has a native publisher, a stock one and a subscriber to everything. More subscribers connect to a
broker right after its restart. `unkept` names the messages that were accepted, but neither arrived at an
existing subscription nor named its broker as absent.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from mesh import Client
from mesh.errors import MeshError
from protocols import Req0, SocketOptions, SPError
from simulations import Mesh, Process, World
from simulations.programs.brokers import url_of

TOPIC: Final = "news.uk"
PAUSE_S: Final = 0.05
"""From one publish of a publisher to the next."""
DELIVERED_S: Final = 3.0
"""Accepted messages must arrive within this time."""
FORWARDED_S: Final = 0.05
"""A broker killed this soon after it accepted a message may not have written it yet."""


@dataclass
class Accepted:
    """A message with a receipt. ``sent_s``: when it left its program. ``at_s``: when the receipt came."""

    body: bytes
    broker: str
    sent_s: float
    at_s: float
    absent: tuple[str, ...]
    native: bool


@dataclass
class Stood:
    """A subscription. ``since_s``: when it had passed the barrier. ``until_s``: when it was last seen to
    exist."""

    name: str
    broker: str
    since_s: float
    unreached: tuple[str, ...]
    until_s: float = float("inf")
    bodies: dict[bytes, float] = field(default_factory=dict)


class Load:
    """The clients of a mesh, and their receipts."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.accepted: list[Accepted] = []
        self.refused = 0
        self.subscriptions: list[Stood] = []
        self.lives: dict[str, list[tuple[float, float]]] = {name: [] for name in mesh.brokers}
        """When each broker ran, from and to."""
        self._started = 0
        for name in mesh.brokers:
            self.subscribe(name)
        mesh.world.run_for(1.0)
        for name in mesh.brokers:
            mesh.client(f"native@{name}", lambda client, at=name: self._publish(client, at), at=name)
            mesh.world.add_node(f"stock@{name}", lambda process, at=name: self._ask(process, at), host=name)
            mesh.world.node(f"stock@{name}").start()

    def subscribe(self, at: str) -> None:
        """One more subscriber on a broker's host."""
        self._started += 1
        name = f"subscriber-{self._started}@{at}"
        self.mesh.client(name, lambda client: self._subscribe(client, name, at), at=at)

    @property
    def now_s(self) -> float:
        return self.mesh.world.now_s

    async def _subscribe(self, client: Client, name: str, at: str) -> None:
        async with client.subscribe(TOPIC) as subscription:
            stood = Stood(name, at, self.now_s, tuple(subscription.unreached))
            self.subscriptions.append(stood)
            async for delivery in subscription:
                stood.bodies.setdefault(bytes(delivery.body), self.now_s)

    async def _publish(self, client: Client, at: str) -> None:
        number = 0
        while True:
            number += 1
            body, sent_s = f"native {at} {number}".encode(), self.now_s
            try:
                receipt = await client.publish(TOPIC, body, timeout=8.0)
            except MeshError:
                self.refused += 1
            else:
                self.accepted.append(Accepted(body, at, sent_s, self.now_s, receipt.absent, True))
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, process: Process, at: str) -> None:
        number = 0
        options = SocketOptions(recv_timeout_s=8.0, reconnect_min_s=0.01, reconnect_max_s=0.1)
        async with Req0(options=options, rng=process.stream("stock")) as req:
            req.dial(url_of(process.address))
            while not process.stopping.is_set():
                number += 1
                body, sent_s = f"stock {at} {number}".encode(), self.now_s
                try:
                    await req.send(TOPIC.encode() + b" " + body)
                    reply = (await req.recv()).decode()
                except SPError:
                    self.refused += 1
                else:
                    if reply.startswith("accepted "):
                        absent = reply.partition(" absent=")[2]
                        names = tuple(absent.split(",")) if absent else ()
                        self.accepted.append(Accepted(body, at, sent_s, self.now_s, names, False))
                await asyncio.sleep(PAUSE_S)

    def restart(self, victims: list[str], down_s: float, *, join_late_s: float) -> None:
        """Kill brokers at once and restart them. A new subscriber connects to each."""
        world = self.mesh.world
        since_s = self.now_s
        world.inject("crash", victims, for_s=down_s)
        for each in self.subscriptions:
            if each.broker in victims:  # its client subscribes again, which this does not check
                each.until_s = min(each.until_s, since_s)
        world.run_for(down_s)
        for victim in victims:
            self.lives[victim].append((since_s, self.now_s))
        world.run_for(join_late_s)
        for victim in victims:
            self.subscribe(victim)

    def end(self) -> None:
        """Messages accepted later are not checked."""
        for each in self.subscriptions:
            each.until_s = min(each.until_s, self.now_s)

    def unkept(self) -> list[str]:
        """Messages that were accepted but neither delivered nor named as absent."""
        broken = []
        for each in self.accepted:
            if any(
                each.sent_s - FORWARDED_S <= since_s <= each.at_s + FORWARDED_S
                for since_s, _ in self.lives[each.broker]
            ):
                continue
            for stood in self.subscriptions:
                owed = stood.since_s <= each.sent_s and stood.until_s >= each.at_s + DELIVERED_S
                if (
                    owed
                    and each.body not in stood.bodies
                    and stood.broker not in each.absent
                    and each.broker not in stood.unreached
                ):
                    broken.append(f"{each} never came to {stood.name} (since {stood.since_s:.3f} s)")
        return broken


def restart_under_load(seed: int, *, brokers: int = 4, restarts: int = 2) -> Load:
    """Kill and restart brokers chosen by the seed."""
    rng = random.Random(f"restarts {seed}")
    with World(seed) as world:
        mesh = Mesh(world, brokers=brokers)
        load = Load(mesh)
        world.run_for(1.0)
        for _ in range(restarts):
            victims = rng.sample(mesh.brokers, 2 if rng.random() < 0.3 else 1)
            load.restart(victims, rng.choice([0.1, 0.5, 1.5, 4.0, 6.0]), join_late_s=rng.random() * 0.3)
            world.run_for(rng.uniform(2.0, 6.0))
        world.run_for(DELIVERED_S)
        load.end()
        assert not world.failures, world.failures
    return load
