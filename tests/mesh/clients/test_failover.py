"""Clients with several addresses: which broker they choose, and where they go when it is gone."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from typing import Final

import pytest

from mesh import BlockingClient, Broker, Client, Disconnected
from mesh.clients.blocking_subscription import BlockingSubscription
from mesh.clients.subscription import Subscription
from protocols import AddressError
from tests.mesh.loopback import Cluster, crash, eventually, linked

KILLS: Final = int(os.environ.get("MANGROVE_KILLS", "5"))
NOBODY = "tcp://127.0.0.1:1"


def read_until(subscription: BlockingSubscription, last: bytes, got: list[bytes]) -> None:
    for delivery in subscription:
        if delivery.body == last:
            return
        got.append(delivery.body)


@pytest.mark.virtual
async def test_a_client_begins_at_any_of_its_addresses_with_a_listener() -> None:
    async with Cluster() as cluster:
        brokers = await cluster.mesh("alpha", "bravo")
        urls = [NOBODY, *(broker.url for broker in brokers)]
        found = set()
        for _ in range(20):
            async with Client(urls) as client:
                found.add(client.broker)
                assert client.url == {broker.name: broker.url for broker in brokers}[client.broker]
        assert found == {"alpha", "bravo"}


@pytest.mark.virtual
async def test_no_broker_at_several_addresses_is_one_sentence() -> None:
    with pytest.raises(
        Disconnected, match=r"^nobody listens at tcp://127.0.0.1:[12], and no broker at tcp://"
    ):
        await Client([NOBODY, "tcp://127.0.0.1:2"]).open()


@pytest.mark.virtual
async def test_a_client_moves_to_a_broker_that_was_only_announced() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        stays, moves = Client(alpha.url), Client([alpha.url])
        async with stays, moves, moves.subscribe("a") as subscription:
            await asyncio.sleep(1)
            await crash(alpha)
            await eventually(lambda: moves.broker == "bravo" and moves.connected, "it has moved")
            assert moves.url == bravo.url and not stays.connected
            assert (await moves.publish("a", b"x")).broker == "bravo"
            delivery = await anext(subscription)
            assert delivery.body == b"x" and subscription.interrupted == 1
            assert subscription.unreached == ()


@pytest.mark.virtual
async def test_a_client_continues_at_another_broker_when_its_own_leaves() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        async with Client([alpha.url, bravo.url]) as client:
            first, other = (alpha, bravo) if client.broker == "alpha" else (bravo, alpha)
            await first.leave()
            assert (await client.publish("a", b"x")).broker == other.name


@pytest.mark.parametrize(
    "wrong", [["tcp://a:1", "news://b"], ["tcp://a:1", 7], 7, b"tcp://a:1", ["tcp://a:1"] * 65]
)
def test_addresses_that_cannot_be_used_are_refused(wrong: object) -> None:
    for kind in (Client, BlockingClient):
        with pytest.raises((AddressError, TypeError, ValueError)):
            kind(wrong)  # type: ignore[arg-type]


def test_a_variable_may_hold_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    from mesh.clients.addresses import Place
    from mesh.clients.finding import default_place

    monkeypatch.setenv("MANGROVE_URL", "tcp://a:1, tcp://b:2,")
    assert default_place() == Place(("tcp://a:1", "tcp://b:2"), moves=True)


async def test_a_client_and_a_blocking_client_move_on_real_sockets() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        urls = [alpha.url, bravo.url]
        async with Client(urls) as client:
            first = alpha if client.broker == "alpha" else bravo
            blocking = BlockingClient([first.url])
            await asyncio.to_thread(blocking.open)
            await asyncio.to_thread(blocking.publish, "a", b"x")
            await crash(first)
            other = bravo if first is alpha else alpha
            assert (await client.publish("a", b"y", timeout=60)).broker == other.name
            receipt = await asyncio.to_thread(blocking.publish, "a", b"y", timeout=60)
            assert receipt.broker == other.name and blocking.url == other.url
            await asyncio.to_thread(blocking.close)


async def test_a_blocking_client_moves_when_its_broker_is_about_to_leave() -> None:
    """It stayed until its broker was gone, and its subscriptions missed what was published meanwhile."""
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        blocking = BlockingClient([alpha.url])
        await asyncio.to_thread(blocking.open)
        subscription = await asyncio.to_thread(blocking.subscribe, "a")
        got: list[bytes] = []
        reading = asyncio.create_task(asyncio.to_thread(read_until, subscription, b"last", got))
        async with Client(bravo.url) as publisher:
            leave = asyncio.create_task(alpha.leave())
            count = 0
            while not leave.done() or count < 50:
                count += 1
                await publisher.publish("a", b"%d" % count)
                await asyncio.sleep(0.001)
            await leave
            await publisher.publish("a", b"last")
            await reading
        assert blocking.url == bravo.url
        assert got == [b"%d" % number for number in range(1, count + 1)]
        assert subscription.interrupted == 0 and subscription.lost == 0
        assert (await asyncio.to_thread(blocking.publish, "b", b"x", timeout=60)).broker == "bravo"
        await asyncio.to_thread(blocking.close)


async def test_a_blocking_publisher_moves_in_its_calls_and_loses_nothing() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        blocking = BlockingClient([alpha.url])
        await asyncio.to_thread(blocking.open)
        async with Client(bravo.url) as reader, reader.subscribe("a") as subscription:
            left = threading.Event()

            def publish() -> int:
                count, beyond = 0, 0
                while beyond < 50:
                    level = "sent" if count % 2 else "accepted"
                    blocking.publish("a", b"%d" % count, level=level, timeout=60)
                    count += 1
                    beyond += left.is_set()
                return count

            publishing = asyncio.create_task(asyncio.to_thread(publish))
            await anext(subscription)
            await alpha.leave()
            left.set()
            count = await publishing
            got = [int((await anext(subscription)).body) for _ in range(count - 1)]
            assert got == list(range(1, count))
            assert blocking.url == bravo.url
        await asyncio.to_thread(blocking.close)


async def test_a_leaving_broker_waits_a_second_for_a_blocking_client_that_makes_no_call() -> None:
    async with Cluster(drain_s=60.0) as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        blocking = BlockingClient([alpha.url, bravo.url])
        await asyncio.to_thread(blocking.open)
        first, other = (alpha, bravo) if blocking.url == alpha.url else (bravo, alpha)
        began = asyncio.get_running_loop().time()
        await first.leave()
        assert asyncio.get_running_loop().time() - began < 50.0
        assert (await asyncio.to_thread(blocking.publish, "a", b"x", timeout=60)).broker == other.name
        await asyncio.to_thread(blocking.close)


@pytest.mark.virtual
async def test_a_client_loses_and_duplicates_nothing_however_often_its_broker_is_killed() -> None:
    """``MANGROVE_KILLS=100`` for a hundred kills. What the lost broker alone had was not accepted."""
    async with Cluster() as cluster:
        brokers = {broker.name: broker for broker in await cluster.mesh("alpha", "bravo", "charlie")}
        urls = {name: broker.url for name, broker in brokers.items()}
        async with Client(urls["alpha"]) as reader, Client(list(urls.values())) as publisher:
            async with reader.subscribe("a") as subscription:
                got: Counter[bytes] = Counter()
                accepted: set[bytes] = set()
                reading = asyncio.create_task(read_all(subscription, got))
                publishing = asyncio.create_task(publish_on(publisher, accepted))
                kills = 0
                while kills < KILLS:
                    before = len(accepted)
                    await eventually(lambda before=before: len(accepted) > before + 20, "it publishes", 120)
                    there = publisher.broker
                    if there == "alpha":  # the reader's broker stays
                        pipe = publisher._connection.writer.pipe
                        assert pipe is not None
                        pipe.close("cut by the test")
                        continue
                    await crash(brokers[there])
                    kills += 1
                    brokers[there] = await cluster.broker(there, list(urls.values()), listen=urls[there])
                    await eventually(lambda: all(map(has_all_links, brokers.values())), "all links", 120)
                publishing.cancel()
                await asyncio.wait([publishing])
                await eventually(lambda: accepted <= set(got), "all came", 120)
                reading.cancel()
                await asyncio.wait([reading])
                assert subscription.interrupted == 0 and max(got.values()) == 1
                assert len(set(got) - accepted) <= 1, "the one that was cancelled"


def has_all_links(broker: Broker) -> bool:
    return {*linked(broker), broker.name} == {"alpha", "bravo", "charlie"}


async def read_all(subscription: Subscription, got: Counter[bytes]) -> None:
    async for batch in subscription.batches():
        got.update(batch.bodies)


async def publish_on(publisher: Client, accepted: set[bytes]) -> None:
    number = 0
    while True:
        number += 1
        await publisher.publish("a", b"%d" % number, timeout=120)
        accepted.add(b"%d" % number)
        await asyncio.sleep(0.01)


async def test_a_program_that_only_publishes_without_waiting_moves_in_order() -> None:
    """It noticed when its broker was gone, and lost what was on its way there."""
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        stop = threading.Event()
        counts: list[int] = []

        def publish(client: BlockingClient) -> None:
            count = 0
            while not stop.is_set():
                count += client.publish_nowait("a", b"x" * 1000)
                if count % 64 == 0:
                    stop.wait(0.001)
            client.flush(60)
            counts.append(count)

        async with Client(bravo.url) as reader, reader.subscribe("a", window=8192) as subscription:
            got = 0

            async def read() -> None:
                nonlocal got
                async for batch in subscription.batches():
                    got += len(batch.bodies)

            reading = asyncio.create_task(read())
            blocking = BlockingClient([alpha.url], keepalive_s=0)
            await asyncio.to_thread(blocking.open)
            publishing = asyncio.create_task(asyncio.to_thread(publish, blocking))
            try:
                await eventually(lambda: got > 100, "messages come")
                await alpha.leave()
                assert blocking.broker == "bravo", "it moved while its broker drained"
                before = got
                await eventually(lambda: got > before + 100, "messages come by way of the other")
            finally:
                stop.set()
                await publishing
            await eventually(lambda: got + subscription.lost == counts[0], "all came")
            reading.cancel()
            assert subscription.lost == 0 and subscription.interrupted == 0
            await asyncio.to_thread(blocking.close)
