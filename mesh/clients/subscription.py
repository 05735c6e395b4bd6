"""`Subscription`: messages of some patterns, as `Client.subscribe` gives them.

The runs that arrived wait in its `Feed`, whose window bounds them. A run's credit goes back when the program
asks for the next one. A cancelled wait for a delivery loses nothing. Several tasks may iterate one
subscription; each message goes to one of them. To take and to wait are two steps, and nothing is held between
them, so that no task can overwrite what another one left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

from mesh.clients.calls import SUBSCRIBE_TIMEOUT_S, unconfirmed
from mesh.clients.connection import ClientConnection
from mesh.clients.feeds import Feed, Run, Token
from mesh.clients.messages import Batch, Delivery, deliveries, keep_sound
from mesh.clients.subscribed import Subscribed
from mesh.errors import Disconnected
from mesh.printable import listed


class Subscription(Subscribed):
    """Messages of some patterns: await it or enter it to pass the barrier, then iterate.

    Iterating passes the barrier first, too. If the broker refuses the subscription because it is above a
    limit, all three raise `NotAccepted` with the broker's sentence. ``unreached`` names the brokers that had
    not confirmed the subscription when the barrier ended. Messages published there may be missed for a
    moment.
    """

    def __init__(self, connection: ClientConnection, feed: Feed) -> None:
        super().__init__(feed)
        self._connection = connection
        self._conversation = connection.conversation
        self._writer = connection.writer
        self._loop = connection.loop
        self._deliveries: Iterator[Delivery] = iter(())
        self._passed = False

    # ------------------------------------------------------------------ the barrier

    def __await__(self) -> Generator[Any, None, Subscription]:
        return self._ready_or_closed().__await__()

    async def __aenter__(self) -> Subscription:
        return await self._ready_or_closed()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ready_or_closed(self) -> Subscription:
        """Pass the barrier. A cancelled caller never gets the subscription, so it is closed."""
        try:
            return await self._ready()
        except asyncio.CancelledError:
            await self.aclose()
            raise

    async def _ready(self) -> Subscription:
        feed = self._feed
        while not feed.ready and not feed.closed:
            if not await self._connection.wait(feed, SUBSCRIBE_TIMEOUT_S):
                await self.aclose()
                raise unconfirmed(feed.patterns, self._connection.why_away)
        if feed.closed:
            raise feed.error or Disconnected(f"the subscription to {listed(feed.patterns)} is closed")
        self._passed = True
        return self

    async def aclose(self) -> None:
        """End the subscription and its iteration. Messages that arrived and were not taken are dropped."""
        self._again.clear()
        self._deliveries = iter(())
        self._feed.runs.clear()
        self._conversation.unsubscribe(self._feed)
        self._writer.hand_over()
        self._feed.wake()

    # ------------------------------------------------------------------ iterating

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            for delivery in self._deliveries:
                return delivery
            again = self._again.take(self._loop.time())
            if again is not None and not self._feed.closed:
                return again
            run = self._next_run()
            if run is not None:
                self._deliveries = deliveries(run, self)
            else:
                await self._news(self._again.due_at)

    def batches(self) -> Batches:
        """Iterate the same messages as one `Batch` after the other, each with as many as arrived together.
        This costs a fifth per message.

        Messages that `Delivery.retry` brings back come one by one, in the ordinary iteration only.
        """
        return Batches(self)

    def _next_run(self) -> Run | None:
        """The next run that arrived; None if there is none now. Credit for the one before goes back."""
        conversation, feed = self._conversation, self._feed
        run = conversation.next_run(feed, self._loop.time()) if self._passed else None
        while run is not None and not keep_sound(run, self):
            # everything in it was a duplicate, malformed, or a piece of a body still to come
            run = conversation.next_run(feed, self._loop.time())
        if conversation.has_output:
            self._writer.hand_over()
        return run

    async def _news(self, until: float | None) -> None:
        """Pass the barrier if nobody has; otherwise wait for a run, at most until a redelivery is due.

        Raises StopAsyncIteration at the end, and the failure of the subscription.
        """
        if not self._passed:
            await self._ready()
            return
        if self._feed.closed:
            raise self._feed.error or StopAsyncIteration
        await self._connection.wait(
            self._feed, None if until is None else max(0.0, until - self._loop.time())
        )

    # ------------------------------------------------------------------ what a delivery asks for

    def redeliver(self, delivery: Delivery, after: float) -> None:
        """Bring a message back after that many seconds. After a close it is dropped, since nobody would take
        it."""
        if not self._feed.closed:
            self._again.add(delivery, self._loop.time() + after)
            self._feed.wake()  # a waiting task may have to wait less

    def answer(self, token: Token, body: bytes, status: int) -> bool:
        told = self._conversation.answer(token, body, status=status)
        self.late += not told
        self._writer.hand_over()
        self._writer.write_now()
        return told

    def extend(self, token: Token, seconds: float) -> bool:
        told = self._conversation.extend(token, seconds)
        self._writer.hand_over()
        return told


class Batches:
    """Async iterator over the batches of a subscription."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> Batch:
        subscription = self._subscription
        while (run := subscription._next_run()) is None:
            await subscription._news(None)
        return Batch(run, subscription)
