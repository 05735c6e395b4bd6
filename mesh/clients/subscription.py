"""`Subscription`: messages of some patterns, as `Client.subscribe` gives them.

The runs that arrived wait in its `Feed`, whose window bounds them; credit for one goes back when the program
asks for what comes after it. A cancelled wait for a delivery loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

from mesh.clients.calls import SUBSCRIBE_TIMEOUT_S, unconfirmed
from mesh.clients.connection import ClientConnection
from mesh.clients.feeds import Feed, Run
from mesh.clients.messages import Batch, Delivery, deliveries, keep_sound
from mesh.errors import Disconnected


class Subscription:
    """Messages of some patterns: await it or enter it to pass the barrier, then iterate.

    Iterating passes the barrier first, too. ``unreached`` names the brokers that had not acknowledged this
    interest when the barrier ended: what is published there may be missed for a moment.
    """

    def __init__(self, connection: ClientConnection, feed: Feed) -> None:
        self._connection = connection
        self._talk = connection.talk
        self._writer = connection.writer
        self._feed = feed
        self._loop = connection.loop
        self._deliveries: Iterator[Delivery] = iter(())
        self._again: list[Delivery] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._passed = False
        self.dropped = 0
        """Messages this program refused by `Delivery.drop`."""
        self.malformed = 0
        """Messages and questions dropped here because nobody can read their headers."""

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(self._feed.patterns)

    @property
    def unreached(self) -> tuple[str, ...]:
        return self._feed.unreached

    @property
    def lost(self) -> int:
        """Blocks the broker dropped because this program was slow to take them."""
        return self._feed.lost_blocks

    # ------------------------------------------------------------------ the barrier

    def __await__(self) -> Generator[Any, None, Subscription]:
        return self._ready().__await__()

    async def __aenter__(self) -> Subscription:
        return await self._ready()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ready(self) -> Subscription:
        feed = self._feed
        while not feed.ready and not feed.closed:
            if not await self._connection.wait(feed, SUBSCRIBE_TIMEOUT_S):
                await self.aclose()
                raise unconfirmed(feed.patterns, self._connection.why_away)
        if feed.closed:
            raise Disconnected(f"the subscription to {', '.join(feed.patterns)} is closed")
        self._passed = True
        return self

    async def aclose(self) -> None:
        """Want no more. What has arrived and was not taken is dropped; iteration ends."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._feed.runs.clear()
        self._talk.unsubscribe(self._feed)
        self._writer.hand_over()
        self._feed.wake()

    # ------------------------------------------------------------------ iterating

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        for delivery in self._deliveries:
            return delivery
        while True:
            if self._again:
                return self._again.pop(0)
            run = await self._next_run()
            if run is not None:
                self._deliveries = deliveries(run, self)
                for delivery in self._deliveries:
                    return delivery

    def batches(self) -> Batches:
        """The same messages as `Batch` after `Batch`: as many as arrived together, at a fifth of the cost
        each.

        What `Delivery.retry` brings back comes one by one in the ordinary iteration only.
        """
        return Batches(self)

    async def _next_run(self) -> Run | None:
        """The next run, waited for; None when a redelivery is due instead. Raises StopAsyncIteration at
        the end."""
        if not self._passed:
            await self._ready()
        talk, feed = self._talk, self._feed
        while True:
            run = talk.next_run(feed, self._loop.time())
            if talk.has_output:
                self._writer.hand_over()
            if run is not None:
                if keep_sound(run, self):
                    return run
                continue  # all of it was duplicates, malformed or pieces of a body still to come
            if self._again:
                return None
            if feed.closed:
                raise StopAsyncIteration
            await self._connection.wait(feed, None)

    # ------------------------------------------------------------------ what a delivery asks for

    def redeliver(self, delivery: Delivery, after: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[id(delivery)] = loop.call_later(after, self._come_back, delivery)

    def _come_back(self, delivery: Delivery) -> None:
        self._timers.pop(id(delivery), None)
        self._again.append(delivery)
        self._feed.wake()

    def answer(self, token: int, body: bytes, status: int) -> None:
        self._talk.answer(token, body, status=status)
        self._writer.hand_over()
        self._writer.write_now()

    def extend(self, token: int, seconds: float) -> None:
        self._talk.extend(token, seconds)
        self._writer.hand_over()


class Batches:
    """Async iterator over the batches of a subscription."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> Batch:
        subscription = self._subscription
        while True:
            run = await subscription._next_run()
            if run is not None:
                return Batch(run, subscription)
            again, subscription._again = subscription._again, []
            subscription._deliveries = iter([*subscription._deliveries, *again])
