"""`Client` against real brokers over TCP on loopback, and against peers that are none."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from mesh.broker import Broker
from mesh.client import Client, default_url
from mesh.environment import Environment
from mesh.errors import (
    Disconnected,
    MeshError,
    MeshTimeout,
    NoResponders,
    NotAccepted,
    TopicError,
    Unknown,
)
from mesh.messages import Delivery
from mesh.session import Kind, encode
from protocols import Rep0, SharedListener

LOOPBACK = "tcp://127.0.0.1:0"


async def first(count: int, subscription: object) -> list[Delivery]:
    got: list[Delivery] = []
    async for delivery in subscription:  # type: ignore[attr-defined]
        got.append(delivery)
        if len(got) == count:
            break
    return got


async def until(condition: object) -> None:
    while not condition():  # type: ignore[operator]
        await asyncio.sleep(0.005)


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


async def test_iterating_a_subscription_passes_the_barrier_first() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = mesh.subscribe("a")
        task = asyncio.create_task(first(1, subscription))
        await until(lambda: subscription._feed.ready)
        await mesh.publish("a", b"x")
        assert [delivery.body for delivery in await task] == [b"x"]


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


async def test_publish_nowait_tells_when_there_is_no_room() -> None:
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
            await until(lambda: helper._opened and any(f.ready for f in helper._talk._feeds.values()))
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


async def test_a_request_nobody_answers_in_time_and_one_that_asked_for_more() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh, Client(broker.url) as helper:
        subscription = await helper.subscribe("slow", answers=True)
        task = asyncio.create_task(mesh.request("slow", timeout=0.3))
        (request,) = await first(1, subscription)
        with pytest.raises(MeshTimeout):
            await task
        task = asyncio.create_task(mesh.request("slow", timeout=0.3))
        (request,) = await first(1, subscription)
        asked = next(iter(mesh._talk._questions.values()))
        deadline = asked.deadline
        request.extend(20.0)
        await until(lambda: asked.deadline > deadline + 19.0)
        request.done(b"at last")
        assert await task == b"at last"


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


async def test_a_client_survives_the_restart_of_its_broker() -> None:
    async with Broker(listen=LOOPBACK, name="one") as broker:
        url = broker.url
        mesh = Client(url)
        await mesh.open()
        subscription = await mesh.subscribe("t")
        await mesh.publish("t", b"before")
    assert not mesh.connected or mesh.broker == "one"
    await until(lambda: not mesh.connected)
    task = asyncio.create_task(mesh.publish("t", b"between", timeout=20.0))
    with pytest.raises(NotAccepted):
        await mesh.publish("t", b"never", timeout=0.05)
    with pytest.raises(MeshTimeout):
        await mesh.publish("t", b"never", level="sent", timeout=0.05)
    async with Broker(listen=url, name="two"):
        receipt = await task
        assert receipt.broker == "two"
        assert [delivery.body for delivery in await first(2, subscription)] == [b"before", b"between"]
        await mesh.aclose()


async def test_a_publish_under_way_when_the_connection_breaks_is_sent_again_and_delivered_once() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh, Client(broker.url) as reader:
        subscription = await reader.subscribe("t")
        for round_ in range(6):
            await until(lambda: mesh._pipe is not None)
            task = asyncio.create_task(mesh.publish("t", b"%d" % round_))
            await asyncio.sleep(0.001 * (round_ % 3))
            assert mesh._pipe is not None
            mesh._pipe.close("the test pulls the plug")
            await task
        got = [int(delivery.body) for delivery in await first(6, subscription)]
        assert got == list(range(6)), "each once, in order"
        assert mesh.statistics().sessions >= 4


async def test_a_cancelled_publish_takes_back_what_was_not_sent() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("t")
        mesh._scheduled = True  # as if a turn were still to come
        task = asyncio.create_task(mesh.publish("t", b"cancelled"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        mesh._scheduled = False
        await mesh.publish("t", b"kept")
        assert [delivery.body for delivery in await first(1, subscription)] == [b"kept"]


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


async def test_closing_sends_what_was_published_and_ends_the_rest() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as reader:
        subscription = await reader.subscribe("t")
        mesh = Client(broker.url)
        await mesh.open()
        mine = await mesh.subscribe("nothing")
        iterating = asyncio.create_task(first(1, mine))
        asking = asyncio.create_task(reader.request("nobody", timeout=1.0))
        for number in range(2000):
            await mesh.publish("t", b"%d" % number, level="sent")
        await mesh.aclose()
        await mesh.aclose()
        assert await iterating == []
        with pytest.raises(NoResponders):
            await asking
        assert len(await first(2000, subscription)) == 2000
        for call in (mesh.publish("t", b""), mesh.publish("t", b"", level="sent"), mesh.request("t")):
            with pytest.raises(MeshError):
                await call
        with pytest.raises(Disconnected):
            mesh.subscribe("t")


async def test_misuse_is_told_to_the_caller() -> None:
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
    with pytest.raises(Disconnected, match="not open"):
        Client("tcp://127.0.0.1:1").subscribe("a")


async def test_a_body_that_is_too_large_costs_nobody_else_a_message() -> None:
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
        assert not mesh._scheduled or mesh._talk.gathered is False


async def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    async with Broker(listen=LOOPBACK) as broker:
        mesh = Client(broker.url)
        await mesh.open()
        mesh._talk.sync = lambda: 1 << 60  # type: ignore[method-assign]  # a sign that never comes
        closing = asyncio.create_task(mesh.aclose())
        await until(lambda: mesh._closed)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert mesh._connector.done() and mesh._pipe is None


async def test_a_broker_that_ends_every_session_at_once_is_not_dialled_without_pause() -> None:
    class Hostile:
        attached = 0

        def pipe_attached(self, pipe: object) -> None:
            self.attached += 1

        def pipe_detached(self, pipe: object, reason: str) -> None: ...
        def pipe_writable(self, pipe: object) -> None: ...
        def frames_received(self, pipe: object, frames: list[bytes]) -> None:
            prefix = frames[0][:4]
            pipe.send(prefix + encode(Kind.WELCOME, 1, 1, "hostile", "m", 1, 10, 10))  # type: ignore[attr-defined]
            if self.attached > 1:
                pipe.send(prefix + encode(Kind.ERROR, "SessionError", "go away"))  # type: ignore[attr-defined]

    hostile = Hostile()
    listener = SharedListener(LOOPBACK)
    async with Rep0(raw=True, receiver=hostile) as rep:  # type: ignore[arg-type]
        await rep.listen(listener)
        await listener.start()
        async with Client(listener.url) as mesh:
            loop = asyncio.get_running_loop()
            mesh._pipe.close("lost")  # type: ignore[union-attr]
            began = loop.time()
            await until(lambda: hostile.attached == 6)
            assert loop.time() - began > 0.5, "pauses of 50, 100, 200, 400 ms, half of each at least"
            assert "go away" in mesh._talk.last_error
        await listener.aclose()


async def test_without_a_broker_the_error_says_how_to_start_one() -> None:
    with pytest.raises(Disconnected, match="mesh broker"):
        async with Client("tcp://127.0.0.1:1"):
            pass
    with pytest.raises(Disconnected, match="no port"):
        async with Client("tcp://nowhere"):
            pass


async def test_a_listener_that_is_no_broker_is_told_apart() -> None:
    class Silent:
        def pipe_attached(self, pipe: object) -> None: ...
        def pipe_detached(self, pipe: object, reason: str) -> None: ...
        def pipe_writable(self, pipe: object) -> None: ...
        def frames_received(self, pipe: object, frames: list[bytes]) -> None: ...

    class Rude(Silent):
        def frames_received(self, pipe: object, frames: list[bytes]) -> None:
            pipe.send(frames[0][:4] + encode(Kind.PING, 1) + b"garbage")  # type: ignore[attr-defined]

    for receiver, word in ((Silent(), "no answer"), (Rude(), "no session .* kind 16 is not msgpack")):
        listener = SharedListener(LOOPBACK)
        async with Rep0(raw=True, receiver=receiver) as rep:  # type: ignore[arg-type]
            await rep.listen(listener)
            await listener.start()
            with pytest.raises(Disconnected, match=word):
                async with Client(listener.url, connect_timeout=0.5):
                    pass
            await listener.aclose()


async def test_a_silent_broker_is_dropped_after_three_intervals() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url, keepalive_s=0.1) as mesh:
        opened = mesh._talk.keepalive.heard_at
        await until(lambda: mesh._talk.keepalive.heard_at > opened + 0.5)
        assert mesh.statistics().sessions == 1, "answered pings keep it"
        mesh._talk.received = lambda frames, now: []  # type: ignore[method-assign]
        await until(lambda: not mesh.connected)


async def test_ids_come_from_the_environment_that_is_given() -> None:
    def environment(seed: int) -> Environment:
        real = Environment.real()
        return Environment(
            storage=real.storage,
            rng=random.Random(seed),
            wall_time=real.wall_time,
            token=real.token,
            host="host",
            pid=1,
        )

    ids = []
    async with Broker(listen=LOOPBACK) as broker:
        for seed in (1, 1, 2):
            async with Client(broker.url, environment=environment(seed)) as mesh:
                ids.append((mesh._talk.client, mesh._talk.boot, mesh._talk.prefix))
    assert ids[0] == ids[1] != ids[2]


def test_the_default_url_is_the_variables_then_the_local_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("MANGROVE_URL", "tcp://somewhere:1")
    assert default_url() == "tcp://somewhere:1"
    monkeypatch.delenv("MANGROVE_URL")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_url() == "tcp://127.0.0.1:7770"
    folder = tmp_path / "mangrove"  # type: ignore[operator]
    folder.mkdir()
    (folder / "broker.sock").touch()
    assert default_url() == f"ipc://{folder}/broker.sock"


async def test_an_unknown_is_not_told_as_not_accepted() -> None:
    """The broker takes the block and its answer never comes."""
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        mesh._talk._acknowledged = lambda ranges, absent: []  # type: ignore[method-assign]
        with pytest.raises(Unknown):
            await mesh.publish("t", b"x", timeout=0.2)


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


async def test_a_client_that_publishes_to_a_stalled_topic_goes_on_consuming_another() -> None:
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
        await until(lambda: both._talk.room <= 0 and both._talk.blocked)
        for number in range(200):
            await other.publish("mine", b"%d" % number)
            (delivery,) = await first(1, mine)
            assert delivery.body == b"%d" % number
        flood.cancel()
        await asyncio.gather(flood, return_exceptions=True)
