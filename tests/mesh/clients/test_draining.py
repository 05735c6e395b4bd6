"""Clients leave a broker that is about to leave: they make a second session beside their own, and change
over."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from mesh import Broker, Client, NotAccepted, Principal, Unknown
from mesh.access import proofs
from mesh.access.credentials import Credential, KeyCredential, TokenCredential
from mesh.access.keys import SigningKey
from mesh.clients.subscription import Subscription
from tests.mesh.loopback import Cluster, crash, eventually

pytestmark = pytest.mark.virtual

KEY = SigningKey.generate()
TOKEN = b"a-token-of-some-random-text"


async def read(subscription: Subscription, got: list[bytes]) -> None:
    async for batch in subscription.batches():
        got += batch.bodies


def by_name(brokers: list[Broker]) -> dict[str, Broker]:
    return {broker.name: broker for broker in brokers}


async def test_messages_arrive_once_and_in_order_when_a_broker_leaves_under_load() -> None:
    """This holds at each level, though only accepted promises it: no broker died with messages in hand."""
    async with Cluster() as cluster:
        brokers = await cluster.mesh("alpha", "bravo", "charlie")
        urls = [broker.url for broker in brokers]
        async with Client(urls) as publisher, Client(urls) as reader, reader.subscribe("#") as subscription:
            got: list[bytes] = []
            reading = asyncio.create_task(read(subscription, got))
            count = 0
            for leaving in list(by_name(brokers)):
                if len(by_name(brokers)) == 1 or leaving == "charlie":
                    break
                leave = asyncio.create_task(by_name(brokers)[leaving].leave())
                while not leave.done() or count % 50:
                    count += 1
                    level = "sent" if count % 3 else "accepted"
                    await publisher.publish(f"t.{level}", b"%s %d" % (level.encode(), count), level=level)
                    await asyncio.sleep(0.0005)
                await leave
            await publisher.publish("t.accepted", b"accepted 1000000")
            await eventually(lambda: b"accepted 1000000" in got, "the last one")
            reading.cancel()
            assert {publisher.broker, reader.broker} == {"charlie"}
            assert subscription.interrupted == 0 and subscription.lost == 0
            for level in (b"sent", b"accepted"):
                numbers = [int(body.split()[1]) for body in got if body.startswith(level)]
                assert numbers == sorted(set(numbers)), "in order, and once"
            assert Counter(got).total() == count + 1


async def test_a_subscription_made_or_ended_while_its_client_moves_is_right_afterwards() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        async with Client([alpha.url]) as client, Client(bravo.url) as publisher:
            await asyncio.sleep(1)
            async with client.subscribe("a") as first:
                leave = asyncio.create_task(alpha.leave())
                while client._conversation.landing is None:
                    await asyncio.sleep(0)
                async with client.subscribe("b") as second:
                    await first.aclose()
                    await leave
                    await eventually(lambda: client.broker == "bravo", "it has moved")
                    await publisher.publish("b", b"x")
                    assert (await anext(second)).body == b"x"
                    assert bravo.statistics()["subscriptions"] == 1


async def test_a_slow_subscriber_gets_its_waiting_messages_before_it_moves() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        async with Client([alpha.url]) as client, Client(bravo.url) as publisher:
            async with client.subscribe("a", window=1) as subscription:
                await asyncio.sleep(1)
                for number in range(20):
                    await publisher.publish("a", b"%d" % number)
                leave = asyncio.create_task(alpha.leave())
                await asyncio.sleep(0.5)
                await publisher.publish("a", b"20")
                assert not leave.done()
                got = [(await anext(subscription)).body for _ in range(21)]
                assert got == [b"%d" % number for number in range(21)]
                await leave
                assert subscription.interrupted == 0 and client.broker == "bravo"


async def test_a_broker_waits_for_its_clients_for_a_bounded_time() -> None:
    async with Cluster(drain_s=2.0) as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        async with Client([alpha.url]) as client, Client(bravo.url) as publisher:
            async with client.subscribe("a", window=1) as subscription:
                await asyncio.sleep(1)
                for number in range(20):
                    await publisher.publish("a", b"%d" % number)
                loop = asyncio.get_running_loop()
                began = loop.time()
                await alpha.leave()
                assert 2.0 <= loop.time() - began < 4.0
                await eventually(lambda: client.broker == "bravo" and client.connected, "it has moved")
                await publisher.publish("a", b"20")
                while (await anext(subscription)).body != b"20":
                    pass


async def test_a_client_with_one_address_and_a_lone_broker_are_not_waited_for() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        loop = asyncio.get_running_loop()
        async with Client(alpha.url):
            began = loop.time()
            await alpha.leave()
            assert loop.time() - began < 1.0
        async with Client([bravo.url]):
            began = loop.time()
            await bravo.leave()
            assert loop.time() - began < 1.0


async def test_a_broker_that_dies_while_its_client_moves_leaves_it_with_the_other() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        async with Client([alpha.url]) as client, client.subscribe("a", window=1) as subscription:
            await asyncio.sleep(1)
            async with Client(bravo.url) as publisher:
                for number in range(5):
                    await publisher.publish("a", b"%d" % number)
            leave = asyncio.create_task(alpha.leave())
            await eventually(lambda: client._conversation._has_moved, "it reads what is left")
            await crash(alpha)
            await eventually(lambda: client.broker == "bravo" and client.connected, "it has moved")
            assert subscription.interrupted == 1
            leave.cancel()
            await asyncio.wait([leave])


async def test_messages_refused_by_a_leaving_broker_go_to_the_next_one() -> None:
    """It ended as `NotAccepted`, though there were other brokers."""
    async with Cluster(drain_s=0.0) as cluster:
        alpha, _ = await cluster.mesh("alpha", "bravo")
        async with Client([alpha.url]) as client:
            await asyncio.sleep(1)
            leave = asyncio.create_task(alpha.leave())
            failed: list[Exception] = []
            for number in range(300):
                try:
                    await client.publish("a", b"%d" % number)
                except (NotAccepted, Unknown) as error:
                    failed.append(error)
            await leave
            assert not failed and client.broker == "bravo"


async def test_a_draining_broker_admits_no_new_clients() -> None:
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        async with Client([alpha.url]) as client, client.subscribe("a", window=1):
            async with Client(bravo.url) as publisher:
                for number in range(5):
                    await publisher.publish("a", b"%d" % number)
            leave = asyncio.create_task(alpha.leave())
            await asyncio.sleep(0.5)
            async with Client([alpha.url, bravo.url]) as late:
                assert late.broker == "bravo"
            leave.cancel()
            await asyncio.wait([leave])


@pytest.mark.parametrize("credential", [KeyCredential(KEY), TokenCredential(TOKEN)], ids=["key", "token"])
async def test_a_client_authenticates_at_the_next_broker_too(credential: Credential) -> None:
    shown = proofs.key_text(KEY.public)
    hashed = proofs.token_text(proofs.stored_key(proofs.client_key(TOKEN)))
    alice = Principal("alice", keys=(shown,), tokens=(hashed,), publish=("a",), subscribe=("a",))
    async with Cluster(principals=alice) as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        client = Client([alpha.url, bravo.url])
        client._credential = credential
        async with client, client.subscribe("a") as subscription:
            first, other = (alpha, bravo) if client.broker == "alpha" else (bravo, alpha)
            await client.publish("a", b"1")
            await first.leave()
            assert client.broker == other.name and client._conversation.principal == "alice"
            await client.publish("a", b"2")
            assert [(await anext(subscription)).body for _ in range(2)] == [b"1", b"2"]
            assert subscription.interrupted == 0


async def test_a_client_without_keepalive_is_waited_for() -> None:
    """It said nothing to its broker, which ended the session a second after GOAWAY, with messages in hand."""
    async with Cluster() as cluster:
        alpha, bravo = await cluster.mesh("alpha", "bravo")
        async with Client([alpha.url], keepalive_s=0) as client, Client(bravo.url) as publisher:
            async with client.subscribe("a", window=1) as subscription:
                await asyncio.sleep(5)
                for number in range(20):
                    await publisher.publish("a", b"%d" % number)
                leave = asyncio.create_task(alpha.leave())
                await asyncio.sleep(3)
                assert not leave.done()
                got = [(await anext(subscription)).body for _ in range(20)]
                assert got == [b"%d" % number for number in range(20)]
                await leave
                assert subscription.interrupted == 0 and client.broker == "bravo"
