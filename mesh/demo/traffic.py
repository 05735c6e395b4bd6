"""A publisher and a subscriber on every broker, and the outcome of each message.

Every message is wanted by all subscribers. A receipt of level ``accepted`` promises that the broker had the
message and routed it. It promises nothing about a broker that is killed a moment later, so a message that a
subscriber missed then is counted as lost. Messages that a subscriber missed while its own broker was down or
paused, or while it was reconnecting, are counted separately.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

from mesh.clients.client import Client
from mesh.errors import MeshError, Unknown

PERIOD_S = 0.02
PUBLISH_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts over the whole demonstration; a delivery is one message at one subscriber."""

    published: int
    unknown: int
    refused: int
    wanted: int
    delivered: int
    lost_away: int
    lost_named: int
    lost: int
    duplicated: int


@dataclass(slots=True)
class Traffic:
    """The clients of all brokers and their records."""

    urls: dict[str, str]
    accepted: dict[tuple[str, int], tuple[float, tuple[str, ...]]] = field(default_factory=dict)
    """By message: the wall time of its receipt, and the brokers that the receipt named as absent."""
    unknown: int = 0
    refused: int = 0
    heard: dict[str, Counter[tuple[str, int]]] = field(default_factory=dict)
    heard_at: dict[str, list[float]] = field(default_factory=dict)
    away: list[tuple[str, float, float]] = field(default_factory=list)
    _publishing: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, ready: asyncio.Event) -> None:
        """Publish and consume until cancelled; ``ready`` is set once every subscription is known
        everywhere."""
        async with asyncio.TaskGroup() as group:
            waiting = []
            for name, url in self.urls.items():
                subscribed = asyncio.Event()
                group.create_task(self._subscribe(name, url, subscribed))
                waiting.append(subscribed)
            for subscribed in waiting:
                await subscribed.wait()
            self._publishing.set()
            for name, url in self.urls.items():
                group.create_task(self._publish(name, url))
            ready.set()

    def stop_publishing(self) -> None:
        """No new messages from now on; deliveries still count."""
        self._publishing.clear()

    def was_away(self, name: str, start: float, end: float) -> None:
        """Note that a broker was down or paused between two wall times."""
        self.away.append((name, start, end))

    async def _subscribe(self, name: str, url: str, subscribed: asyncio.Event) -> None:
        heard = self.heard[name] = Counter()
        heard_at = self.heard_at[name] = []
        async with Client(url) as client, client.subscribe("demo.#") as subscription:
            subscribed.set()
            async for delivery in subscription:
                publisher, _, number = delivery.body.decode().partition(" ")
                heard[publisher, int(number)] += 1
                heard_at.append(time.time())

    async def _publish(self, name: str, url: str) -> None:
        number = 0
        async with Client(url) as client:
            while self._publishing.is_set():
                number += 1
                body = f"{name} {number}".encode()
                try:
                    receipt = await client.publish(
                        f"demo.{name}", body, level="accepted", timeout=PUBLISH_TIMEOUT_S
                    )
                except Unknown:
                    self.unknown += 1
                except MeshError:
                    self.refused += 1
                else:
                    self.accepted[name, number] = (time.time(), receipt.absent)
                await asyncio.sleep(PERIOD_S)

    def _heard_again(self, subscriber: str, after: float) -> float:
        """When a subscriber's messages flowed again: its client has to find its broker first."""
        return next((at for at in self.heard_at[subscriber] if at >= after), after)

    def tally(self) -> Tally:
        """The outcome of everything published so far."""
        lost = lost_away = lost_named = delivered = 0
        for subscriber, heard in self.heard.items():
            absences = [
                (start, self._heard_again(subscriber, end))
                for name, start, end in self.away
                if name == subscriber
            ]
            for message, (at, absent) in self.accepted.items():
                if message in heard:
                    delivered += 1
                elif any(start <= at <= end for start, end in absences):
                    lost_away += 1
                elif subscriber in absent:
                    lost_named += 1
                else:
                    lost += 1
        duplicated = sum(count - 1 for heard in self.heard.values() for count in heard.values())
        wanted = len(self.accepted) * len(self.heard)
        return Tally(
            published=len(self.accepted),
            unknown=self.unknown,
            refused=self.refused,
            wanted=wanted,
            delivered=delivered,
            lost_away=lost_away,
            lost_named=lost_named,
            lost=lost,
            duplicated=duplicated,
        )
