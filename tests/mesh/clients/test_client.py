"""`Client` against real brokers over TCP on loopback, as a program sees it."""

from __future__ import annotations

import asyncio

import pytest

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.errors import (
    Disconnected,
    MeshError,
    MeshTimeout,
    NoResponders,
    NotAccepted,
    TopicError,
)
from protocols import AddressError
from tests.mesh.clients.taking import LOOPBACK, first
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


async def test_publish_subscribe_and_receipts() -> None:
    async with Broker(listen=LOOPBACK, name="alpha") as broker, Client(broker.url, name="me") as mesh:
        async with mesh.subscribe("news.*") as news:
            receipt = await mesh.publish("news.uk", b"hello", headers={"lang": "en"}, key="k1")
            assert (receipt.level, receipt.broker, receipt.seq) == ("accepted", "alpha", 1)
            assert (await mesh.publish("news.uk", b"again", level="sent")).level == "sent"
            one, two = await first(2, news)
            assert (one.topic, one.body, one.headers, one.key) == (
                "news.uk",
                b"hello",
                {"lang": "en", "key": "k1"},
                "k1",
            )
            assert (two.body, two.headers, two.key, two.attempt) == (b"again", {}, None, 1)
        assert mesh.connected and mesh.broker == "alpha"


async def test_request_survey_refusal_and_no_responders() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url, name="asker") as mesh:
        with pytest.raises(NoResponders):
            await mesh.request("add", b"1 2")
        async with Client(broker.url, name="adder") as helper:

            async def serve() -> None:
                async for request in helper.subscribe("add", answers=True):
                    assert request.is_request
                    try:
                        request.done(b"%d" % sum(map(int, request.body.split())))
                    except ValueError:
                        request.drop("not numbers")
                    with pytest.raises(MeshError, match="already"):
                        request.done(b"")

            task = asyncio.create_task(serve())
            await until(lambda: helper._opened and any(f.ready for f in helper._conversation.feeds))
            assert await mesh.request("add", b"1 2") == b"3"
            with pytest.raises(NotAccepted, match="not numbers"):
                await mesh.request("add", b"x")
            result = await mesh.survey("add", b"4 5")
            assert [(answer.responder, answer.body) for answer in result.answers] == [("adder", b"9")]
            assert (result.missing, result.asked) == ([], 1)
            refused = await mesh.survey("add", b"y")
            assert refused.refused == ["adder: not numbers"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        status = await mesh.status()
        assert status["sessions"] >= 1


async def test_a_request_times_out_unless_its_responder_extends_the_time() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh, Client(broker.url) as helper:
        subscription = await helper.subscribe("slow", answers=True)
        task = asyncio.create_task(mesh.request("slow", timeout=0.3))
        (request,) = await first(1, subscription)
        with pytest.raises(MeshTimeout):
            await task
        task = asyncio.create_task(mesh.request("slow", timeout=0.3))
        (request,) = await first(1, subscription)
        asked = next(iter(mesh._conversation.questions))
        deadline = asked.deadline
        request.extend(20.0)
        await until(lambda: asked.deadline > deadline + 19.0)
        request.done(b"at last")
        assert await task == b"at last"


async def test_a_request_cancelled_before_a_session_exists_is_never_sent() -> None:
    """It was asked in the next session, and a responder acted for nobody."""
    async with Broker(listen=LOOPBACK) as broker:
        url = broker.url
        mesh = Client(url)
        await mesh.open()
    await until(lambda: not mesh.connected)
    asking = asyncio.create_task(mesh.request("add", b"1 2", timeout=20.0))
    await until(lambda: list(mesh._conversation.questions))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert asking.cancelled() and not list(mesh._conversation.questions)
    async with Broker(listen=url), Client(url) as other:
        subscription = await other.subscribe("add", answers=True)
        await until(lambda: mesh.connected)
        await mesh.publish("add", b"next")
        assert [delivery.is_request for delivery in await first(1, subscription)] == [False]
        await mesh.aclose()


async def test_misuse_is_an_error_of_the_call() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        for call in (
            mesh.publish("bad topic", b""),
            mesh.publish("bad topic", b"", level="sent"),
            mesh.publish("$sys.x", b""),
            mesh.publish_many("a..b", [b""]),
            mesh.request("a.*"),
        ):
            with pytest.raises(TopicError):
                await call
        for call in (
            mesh.publish("t", "text"),  # type: ignore[arg-type]
            mesh.publish("t", "text", level="sent"),  # type: ignore[arg-type]
            mesh.publish_many("t"),
            mesh.publish_many([("t", b"")], [b""]),
        ):
            with pytest.raises(TypeError):
                await call
        for call in (
            mesh.publish("t", b"", level="exactly-once"),
            mesh.publish("t", bytes((64 << 20) + 1)),
            mesh.publish("t", bytes((64 << 20) + 1), level="sent"),
            mesh.request("t", bytes(1 << 20)),
        ):
            with pytest.raises(ValueError, match="level|limit|above"):
                await call
        for pattern in ((), ("a.#.b",)):
            with pytest.raises(ValueError):
                mesh.subscribe(*pattern)
        with pytest.raises(ValueError, match="window"):
            mesh.subscribe("a", window=0)
        assert (await mesh.publish("t", b"still fine")).seq == 1
    with pytest.raises(MeshError, match="opened once"):
        await mesh.open()
    with pytest.raises(Disconnected, match="closed"):
        mesh.subscribe("a")


async def test_bad_arguments_are_refused_before_anything_is_done() -> None:
    for bad, word in (
        ("tcp://host:1/", "not '1/'"),
        ("tcp://nowhere", "no port"),
        ("tcp://*:7770", "wildcards"),
        ("host:7770", "is not a URL"),
    ):
        with pytest.raises(AddressError, match=word):
            Client(bad)
    for make, word in (
        (lambda: Client(5), "a URL is a string"),  # type: ignore[arg-type]
        (lambda: Client(name=5), "name of a client is a str"),  # type: ignore[arg-type]
        (lambda: Client(keepalive_s=-1), "keepalive_s is -1"),
        (lambda: Client(connect_timeout="5"), "connect_timeout is '5'"),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, ValueError), match=word):
            make()
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        for call, word in (
            (mesh.publish(["t"], b""), "a topic is a str"),  # type: ignore[arg-type]
            (mesh.publish(["t"], b"", level="sent"), "a topic is a str"),  # type: ignore[arg-type]
            (mesh.publish("t", b"", headers=["x"]), "headers are a mapping"),  # type: ignore[arg-type]
            (mesh.publish("t", b"", key=5), "a key is a str"),  # type: ignore[arg-type]
            (mesh.publish("t", b"", timeout="1"), "timeout is '1'"),  # type: ignore[arg-type]
            (mesh.publish("t", b"", timeout=-1), "timeout is -1"),
            (mesh.publish_many("t", b"body"), "bodies are a list"),
            (mesh.publish_many([(["t"], b"")]), "a topic is a str"),  # type: ignore[list-item]
            (mesh.request("t", headers=["x"]), "headers are a mapping"),  # type: ignore[arg-type]
            (mesh.request("t", timeout=None), "timeout is None"),  # type: ignore[arg-type]
            (mesh.survey("t", deadline="1"), "deadline is '1'"),  # type: ignore[arg-type]
            (mesh.flush(timeout=float("nan")), "timeout is nan"),
        ):
            with pytest.raises((TypeError, ValueError), match=word):
                await call
        with pytest.raises(TopicError, match="a topic is a str"):
            mesh.publish_nowait(["t"], b"")  # type: ignore[arg-type]
        assert not mesh._conversation.gathered
        assert (await mesh.publish("t", b"only this")).seq == 1


async def test_every_call_of_an_unopened_client_says_that_it_is_not_open() -> None:
    mesh = Client("tcp://127.0.0.1:1")
    for call in (
        mesh.publish("t", b""),
        mesh.publish("t", b"", level="sent"),
        mesh.publish_many("t", [b""]),
        mesh.flush(),
        mesh.request("t"),
        mesh.survey("t"),
        mesh.status(),
    ):
        with pytest.raises(Disconnected, match="not open"):
            await call
    for act in (lambda: mesh.subscribe("a"), lambda: mesh.publish_nowait("t", b""), mesh.statistics):
        with pytest.raises(Disconnected, match="not open"):
            act()
    assert (mesh.connected, mesh.broker) == (False, "")
    await mesh.aclose()
    with pytest.raises(MeshError, match="opened once"):
        await mesh.open()


async def test_three_brokers_and_the_interest_between_them() -> None:
    async with (
        Broker(listen=LOOPBACK, name="a", period_s=0.2, deadline_s=0.1) as a,
        Broker(listen=LOOPBACK, name="b", join=a.url, period_s=0.2, deadline_s=0.1) as b,
        Broker(listen=LOOPBACK, name="c", join=a.url, period_s=0.2, deadline_s=0.1) as c,
    ):
        brokers = (a, b, c)
        await until(
            lambda: all(sum(bool(m.get("link")) for m in x.statistics()["members"]) == 2 for x in brokers)
        )
        async with Client(b.url) as mesh, Client(c.url) as other, Client(a.url) as third:
            for number in range(100):
                subscription = await mesh.subscribe(f"n.{number}")
                assert subscription.unreached == ()
                publisher = (other, third)[number % 2]
                await publisher.publish(f"n.{number}", b"%d" % number)
                (delivery,) = await first(1, subscription)
                assert delivery.body == b"%d" % number
                await subscription.aclose()
            result = await mesh.survey("$sys.status")
            assert sorted(answer.broker for answer in result.answers) == ["a", "b", "c"]
            servers = [await client.subscribe("who", answers=True) for client in (other, third)]

            async def serve(subscription: object) -> None:
                async for request in subscription:  # type: ignore[attr-defined]
                    request.done(request.body.upper())

            tasks = [asyncio.create_task(serve(subscription)) for subscription in servers]
            assert await mesh.request("who", b"x") == b"X"
            survey = await mesh.survey("who", b"y")
            assert sorted(answer.broker for answer in survey.answers) == ["a", "c"]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
