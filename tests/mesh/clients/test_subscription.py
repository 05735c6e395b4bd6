"""How a `Client` hands out messages, from real brokers over TCP on loopback."""

from __future__ import annotations

import asyncio

import pytest

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.clients.subscription import Subscription
from mesh.errors import Disconnected, MeshError
from simulations import Mesh, World
from tests.mesh.clients.taking import LOOPBACK, first
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


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


@pytest.mark.parametrize("enter", [False, True])
async def test_a_subscription_that_is_cancelled_before_it_is_ready_is_taken_back(enter: bool) -> None:
    """The cancelled subscription stayed: nobody could read it, and its window held back the publishers of its
    topics."""
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = mesh.subscribe("t")
        waiting = asyncio.create_task(subscription.__aenter__() if enter else ready(subscription))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled() and list(mesh._conversation.feeds) == []
        iterated = mesh.subscribe("t")
        waiting = asyncio.create_task(iterated.__anext__())  # type: ignore[arg-type]
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert list(mesh._conversation.feeds) == [iterated._feed], "who iterates still has it"
        await mesh.publish("t", b"x")
        assert [delivery.body for delivery in await first(1, iterated)] == [b"x"]


async def ready(subscription: Subscription) -> Subscription:
    return await subscription


async def test_batches_come_while_a_message_waits_for_its_retry() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("t")
        await mesh.publish("t", b"first")
        (delivery,) = await first(1, subscription)
        delivery.retry()
        task = asyncio.create_task(anext(subscription.batches()))
        await mesh.publish("t", b"second")
        assert (await task).bodies == [b"second"]
        (again,) = await first(1, subscription)
        assert (again.body, again.attempt) == (b"first", 2)


async def test_closing_drops_untaken_messages_and_ends_iteration() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("t")
        await mesh.publish("t", b"taken")
        (delivery,) = await first(1, subscription)
        delivery.retry(60.0)
        await mesh.publish("t", b"not taken")
        await until(lambda: subscription._feed.runs)
        await subscription.aclose()
        assert await first(1, subscription) == []
        with pytest.raises(Disconnected, match="subscription to t is closed"):
            await subscription


async def test_an_answer_returns_false_after_its_broker_was_replaced() -> None:
    async with Broker(listen=LOOPBACK, name="one") as broker:
        url = broker.url
        responder = Client(url)
        await responder.open()
        subscription = await responder.subscribe("add", answers=True)
        async with Client(url) as client:
            asking = asyncio.create_task(client.request("add", b"1 2"))
            (early,) = await first(1, subscription)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    async with Broker(listen=url, name="two") as broker, Client(url) as client:
        await until(lambda: responder.broker == "two" and subscription._feed.ready)
        assert early.extend() is False and early.done(b"3") is False
        assert subscription.late == 1
        asking = asyncio.create_task(client.request("add", b"3 4"))
        (late,) = await first(1, subscription)
        assert late.extend() is True and late.done(b"7") is True
        assert await asking == b"7" and subscription.late == 1
        await responder.aclose()
        assert late.extend() is False


def shared_by(readers: int, *, batches: bool = False) -> tuple[list[bytes], list[int]]:
    """Send 500 messages in 50 calls to one subscription shared by that many tasks; return the bodies and
    ``lost``."""
    got: list[bytes] = []
    lost: list[int] = []

    async def program(mesh: Client) -> None:
        async with mesh.subscribe("t") as subscription:

            async def read() -> None:
                async for delivery in subscription:
                    got.append(delivery.body)
                    await asyncio.sleep(0.002)

            async def read_batches() -> None:
                async for batch in subscription.batches():
                    got.extend(batch.bodies)
                    await asyncio.sleep(0.002)

            tasks = [asyncio.create_task(read()) for _ in range(readers)]
            if batches:
                tasks.append(asyncio.create_task(read_batches()))
            for call in range(50):
                await mesh.publish_many("t", [b"%d.%d" % (call, number) for number in range(10)])
                await asyncio.sleep(0.004)
            await asyncio.sleep(2.0)
            lost.append(subscription.lost)
        await asyncio.gather(*tasks)

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.client("program", program)
        world.run_for(5.0)
        mesh.finish()
    assert not world.failures
    return got, lost


EVERYTHING = sorted(b"%d.%d" % (call, number) for call in range(50) for number in range(10))


@pytest.mark.parametrize("readers", [1, 4])
def test_tasks_that_iterate_one_subscription_share_its_messages_and_lose_none(readers: int) -> None:
    got, lost = shared_by(readers)
    assert sorted(got) == EVERYTHING and lost == [0]


def test_messages_and_batches_may_be_taken_side_by_side() -> None:
    got, lost = shared_by(2, batches=True)
    assert sorted(got) == EVERYTHING and lost == [0]


def test_a_message_retried_while_another_task_waits_comes_back_when_it_is_due() -> None:
    came: list[float] = []

    async def program(mesh: Client) -> None:
        loop = asyncio.get_running_loop()
        subscription = await mesh.subscribe("t")
        await mesh.publish("t", b"work")
        (delivery,) = await first(1, subscription)
        waiting = asyncio.create_task(first(1, subscription))
        await asyncio.sleep(1.0)
        began = loop.time()
        delivery.retry(5.0)
        ((again,), took_s) = await waiting, loop.time() - began
        assert again.attempt == 2
        came.append(took_s)

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.client("program", program)
        world.run_for(10.0)
    assert not world.failures and came == pytest.approx([5.0], abs=0.01)


@pytest.mark.parametrize("closes", ["subscription", "client"])
def test_a_retried_message_does_not_come_back_after_the_close(closes: str) -> None:
    taken: list[object] = []

    async def program(mesh: Client) -> None:
        subscription: Subscription = await mesh.subscribe("t")
        await mesh.publish("t", b"work")
        (delivery,) = await first(1, subscription)
        delivery.retry(1.0)
        if closes == "client":
            await mesh.aclose()
        else:
            await subscription.aclose()
        delivery.retry(0.0)
        if closes == "subscription":
            assert subscription._again.due_at is None, "nothing is kept for nobody"
        await asyncio.sleep(5.0)
        taken.append(await first(1, subscription))

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.client("program", program)
        world.run_for(10.0)
    assert not world.failures and taken == [[]]


def test_closing_ends_the_iteration_of_every_task_that_waits() -> None:
    ended: list[object] = []

    async def program(mesh: Client) -> None:
        subscription = await mesh.subscribe("t")
        waiting = [asyncio.create_task(first(1, subscription)) for _ in range(3)]
        waiting.append(asyncio.create_task(anext(subscription.batches(), None)))  # type: ignore[arg-type]
        await asyncio.sleep(1.0)
        await subscription.aclose()
        ended.extend(await asyncio.gather(*waiting))

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.client("program", program)
        world.run_for(5.0)
    assert not world.failures and ended == [[], [], [], None]


def test_credit_is_the_only_frame_sent_while_messages_are_taken() -> None:
    got: list[bytes] = []

    async def reader(mesh: Client) -> None:
        async with mesh.subscribe("t", window=1) as subscription:
            got.extend([delivery.body for delivery in await first(100, subscription)])

    async def publisher(mesh: Client) -> None:
        for number in range(100):
            await mesh.publish("t", b"%d" % number)

    with World(1) as world:
        mesh = Mesh(world, brokers=1)
        mesh.client("reader", reader)
        world.run_for(1.0)
        mesh.client("publisher", publisher)
        world.run_for(2.0)
    assert not world.failures and got == [b"%d" % number for number in range(100)]
