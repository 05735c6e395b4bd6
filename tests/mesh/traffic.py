"""Clients of simulated brokers that read and publish, and what they received."""

from __future__ import annotations

import asyncio

from mesh import Client
from mesh.clients.subscription import Subscription


class Reader:
    """A program that reads everything on ``t``."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.subscription: Subscription

    async def __call__(self, client: Client) -> None:
        async with client.subscribe("t") as self.subscription:
            async for delivery in self.subscription:
                self.got.append(delivery.body)

    @property
    def got_once(self) -> bool:
        return len(self.got) == len(set(self.got))


class Flood:
    """A program that publishes numbers on ``t`` at level sent, with a pause after each 20."""

    def __init__(self, count: int, pause_s: float) -> None:
        self.count = count
        self.pause_s = pause_s
        self.published = 0

    async def __call__(self, client: Client) -> None:
        for number in range(self.count):
            await client.publish("t", b"%d" % number, level="sent")
            self.published += 1
            if number % 20 == 0:
                await asyncio.sleep(self.pause_s)
