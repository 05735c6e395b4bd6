"""How a `Client` hands out what arrives, from real brokers over TCP on loopback."""

from __future__ import annotations

import asyncio

import pytest

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.errors import Disconnected, MeshError
from tests.mesh.clients.taking import LOOPBACK, first
from tests.support.waiting import until


async def test_iterating_a_subscription_passes_the_barrier_first() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = mesh.subscribe("a")
        task = asyncio.create_task(first(1, subscription))
        await until(lambda: subscription._feed.ready)
        await mesh.publish("a", b"x")
        assert [delivery.body for delivery in await task] == [b"x"]


async def test_retry_brings_a_message_back_with_its_attempt_counted() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("job", answers=True)
        await mesh.publish("job", b"work")
        (delivery,) = await first(1, subscription)
        with pytest.raises(MeshError, match="nobody waits"):
            delivery.done(b"result")
        delivery.retry(0.02)
        (again,) = await first(1, subscription)
        assert (again.attempt, again.body, again.is_request) == (2, b"work", False)
        again.drop("enough")
        assert subscription.dropped == 1
        task = asyncio.create_task(mesh.request("job", b"ask"))
        (request,) = await first(1, subscription)
        request.retry()
        (request,) = await first(1, subscription)
        assert request.is_request and request.attempt == 2
        request.done(b"done")
        assert await task == b"done"


async def test_cancelling_a_wait_for_a_delivery_loses_nothing() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("t")
        got: list[int] = []
        for number in range(50):
            waiting = asyncio.create_task(first(1, subscription))
            await asyncio.sleep(0)
            waiting.cancel()
            await mesh.publish("t", b"%d" % number)
            (result,) = await asyncio.gather(waiting, return_exceptions=True)
            if isinstance(result, list):
                got += [int(delivery.body) for delivery in result]
        got += [int(delivery.body) for delivery in await first(50 - len(got), subscription)]
        assert got == list(range(50))


async def test_batches_come_while_a_message_waits_for_its_retry() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("t")
        await mesh.publish("t", b"first")
        (delivery,) = await first(1, subscription)
        delivery.retry()
        task = asyncio.create_task(anext(subscription.batches()))
        await until(lambda: not subscription._timers)
        await mesh.publish("t", b"second")
        assert (await task).bodies == [b"second"]
        (again,) = await first(1, subscription)
        assert (again.body, again.attempt) == (b"first", 2)


async def test_closing_drops_what_was_not_taken_and_ends_iteration() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("t")
        await mesh.publish("t", b"taken")
        (delivery,) = await first(1, subscription)
        delivery.retry(60.0)
        await mesh.publish("t", b"not taken")
        await until(lambda: subscription._feed.runs)
        await subscription.aclose()
        assert await first(1, subscription) == [] and not subscription._timers
        with pytest.raises(Disconnected, match="subscription to t is closed"):
            await subscription
