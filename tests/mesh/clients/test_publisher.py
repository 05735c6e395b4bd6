"""How a `Client` publishes, against real brokers over TCP on loopback."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.errors import (
    Unknown,
)
from tests.mesh.clients.taking import LOOPBACK, first
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


async def test_concurrent_publishes_share_blocks_and_keep_their_own_numbers() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        receipts = await asyncio.gather(*(mesh.publish("a.b", b"%d" % n) for n in range(500)))
        assert [receipt.seq for receipt in receipts] == list(range(1, 501))
        assert mesh.statistics().blocks_out < 50


async def test_many_in_one_call_and_batches_out() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("#")
        receipt = await mesh.publish_many("a", [b"%d" % n for n in range(1000)])
        assert (receipt.count, receipt.seq) == (1000, 1)
        mixed = await mesh.publish_many([("b", b"1"), ("c", b"2"), ("b", b"3")])
        assert mixed.count == 3
        assert (await mesh.publish_many("a", [])).count == 0
        await mesh.publish_many("a", [b"s"] * 5, level="sent")
        got: list[tuple[str, bytes]] = []
        async for batch in subscription.batches():
            assert len(batch.headers) == len(batch)
            got += batch
            if len(got) == 1008:
                break
        assert got[:1000] == [("a", b"%d" % n) for n in range(1000)]
        assert sorted(got[1000:1003]) == [("b", b"1"), ("b", b"3"), ("c", b"2")]


async def test_ten_thousand_messages_that_never_suspend_arrive_in_order() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh, Client(broker.url) as reader:
        subscription = await reader.subscribe("t", window=100)

        async def publish() -> None:
            for number in range(10_000):
                await mesh.publish("t", b"%06d" % number, level="sent")

        task = asyncio.create_task(publish())
        assert [int(d.body) for d in await first(10_000, subscription)] == list(range(10_000))
        await task
        assert reader.statistics().lost_blocks == 0


async def test_publish_nowait_returns_false_without_room() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        taken = sum(mesh.publish_nowait("t", b"x" * 100) for _ in range(100_000))
        assert taken < 100_000 and mesh.statistics().dropped == 100_000 - taken
        await mesh.flush()
        assert mesh.publish_nowait("t", b"x")
        with pytest.raises(TypeError):
            mesh.publish_nowait("t", "text")  # type: ignore[arg-type]


async def test_a_large_body_arrives_whole() -> None:
    body = random.Random(1).randbytes(3_000_000)
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("big", "small", window_bytes=200_000)
        task = asyncio.create_task(first(3, subscription))
        await mesh.publish("big", body)
        await mesh.publish("small", b"x")
        await mesh.publish("big", body, level="sent")
        assert [delivery.body for delivery in await task] == [body, b"x", body]


async def test_a_publish_in_flight_when_the_connection_breaks_is_sent_again_and_delivered_once() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh, Client(broker.url) as reader:
        subscription = await reader.subscribe("t")
        for round_ in range(6):
            await until(lambda: mesh._writer.pipe is not None)
            task = asyncio.create_task(mesh.publish("t", b"%d" % round_))
            await asyncio.sleep(0.001 * (round_ % 3))
            assert mesh._writer.pipe is not None
            mesh._writer.pipe.close("the test pulls the plug")
            await task
        got = [int(delivery.body) for delivery in await first(6, subscription)]
        assert got == list(range(6)), "each once, in order"
        assert mesh.statistics().sessions >= 4


async def test_a_cancelled_publish_takes_back_an_unsent_message() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("t")
        mesh._writer.scheduled = True  # as if a turn were still scheduled
        task = asyncio.create_task(mesh.publish("t", b"cancelled"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        mesh._writer.scheduled = False
        await mesh.publish("t", b"kept")
        assert [delivery.body for delivery in await first(1, subscription)] == [b"kept"]


async def test_a_body_that_is_too_large_costs_no_other_message() -> None:
    huge = bytes((64 << 20) + 1)
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh, Client(broker.url) as reader:
        subscription = await reader.subscribe("#")
        await mesh.publish("a", b"1", level="sent")
        for topic in ("a", "new"):
            with pytest.raises(ValueError, match="limit"):
                await mesh.publish(topic, huge, level="sent")
            with pytest.raises(ValueError, match="limit"):
                mesh.publish_nowait(topic, huge)
            with pytest.raises(ValueError, match="limit"):
                await mesh.publish_many([("a", b"x"), (topic, huge)], level="sent")
            with pytest.raises(ValueError, match="limit"):
                await mesh.publish_many(topic, [b"x", huge], level="sent")
        await mesh.publish("a", b"2", level="sent")
        assert [delivery.body for delivery in await first(2, subscription)] == [b"1", b"2"]
        assert not mesh._writer.scheduled or mesh._conversation.gathered is False


async def test_an_unknown_outcome_is_not_reported_as_not_accepted() -> None:
    """The broker takes the block, and its answer never arrives."""
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        mesh._conversation._acknowledged = lambda *_: []  # type: ignore[method-assign]
        with pytest.raises(Unknown):
            await mesh.publish("t", b"x", timeout=0.2)


async def test_a_client_that_publishes_to_a_stalled_topic_continues_to_consume_another() -> None:
    async with (
        Broker(listen=LOOPBACK) as broker,
        Client(broker.url) as both,
        Client(broker.url) as stalled,
        Client(broker.url) as other,
    ):
        await stalled.subscribe("blocked", window=10)
        mine = await both.subscribe("mine")

        async def publish_for_ever() -> None:
            for number in itertools.count():
                await both.publish("blocked", b"%d" % number * 100, level="sent", timeout=60.0)

        flood = asyncio.create_task(publish_for_ever())
        await until(lambda: both._conversation.room <= 0 and both._conversation.blocked)
        for number in range(200):
            await other.publish("mine", b"%d" % number)
            (delivery,) = await first(1, mine)
            assert delivery.body == b"%d" % number
        flood.cancel()
        await asyncio.gather(flood, return_exceptions=True)
