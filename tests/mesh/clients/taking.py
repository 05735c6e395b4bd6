"""The next deliveries of a subscription, for tests of both clients."""

from __future__ import annotations

from collections.abc import AsyncIterable

from mesh.clients.blocking_subscription import BlockingSubscription
from mesh.clients.messages import Delivery

LOOPBACK = "tcp://127.0.0.1:0"


async def first(count: int, subscription: AsyncIterable[Delivery]) -> list[Delivery]:
    """Wait for the next ``count`` of them."""
    got: list[Delivery] = []
    async for delivery in subscription:
        got.append(delivery)
        if len(got) == count:
            break
    return got


def take(count: int, subscription: BlockingSubscription) -> list[Delivery]:
    """Take the next ``count`` of them, each within ten seconds."""
    got: list[Delivery] = []
    while len(got) < count:
        delivery = subscription.receive(10.0)
        assert delivery is not None, f"{len(got)} of {count} came"
        got.append(delivery)
    return got
