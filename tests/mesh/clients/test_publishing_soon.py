"""`Client.publish_soon` and `Client.batch`, against brokers and homes over TCP on loopback."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mesh.broker.broker import Broker
from mesh.clients.client import Client
from mesh.clients.publishing_soon import Pending
from mesh.errors import (
    BatchFailed,
    Disconnected,
    MeshError,
    MeshTimeout,
    NotAccepted,
    NotReady,
    TopicError,
    Unknown,
)
from mesh.wire import blocks
from mesh.wire.session_frames import DATA_SIZE, Kind, encode
from protocols import Pipe
from tests.mesh.clients.homes import Home
from tests.mesh.clients.taking import LOOPBACK, first
from tests.mesh.clients.test_work import serving
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


class Moody(Home):
    """A home that does not answer blocks of topic ``quiet`` and refuses those of topic ``bad``."""

    def _received(self, pipe: Pipe, prefix: bytes, frame: bytes) -> None:
        if frame[5] == Kind.DATA:
            block = blocks.open_block(frame, 4 + DATA_SIZE)
            if block.topic == b"quiet":
                return
            if block.topic == b"bad":
                last = block.sequence + len(block.bodies) - 1
                pipe.send_many([prefix + encode(Kind.REFUSED, [[block.sequence, last]], "nobody keeps bad")])
                return
        super()._received(pipe, prefix, frame)


@asynccontextmanager
async def connected(**options: int) -> AsyncIterator[tuple[Moody, Client]]:
    home = Moody(asyncio.get_running_loop().time)
    async with serving(home) as url, Client(url, **options) as client:
        yield home, client


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_each_call_is_a_message_and_its_receipt_comes_later() -> None:
    async with Broker(listen=LOOPBACK) as broker, Client(broker.url) as mesh:
        subscription = await mesh.subscribe("t")
        pending = [mesh.publish_soon("t", b"%d" % n, headers={"n": n}, key="k") for n in range(300)]
        assert not any(each.done() for each in pending)
        assert [(await each).seq for each in pending] == list(range(1, 301))
        assert mesh.statistics().blocks_out < 5
        got = await first(300, subscription)
        assert [each.body for each in got] == [b"%d" % n for n in range(300)]
        assert got[7].headers == {"n": 7, "key": "k"}


@pytest.mark.parametrize("level", ["sent", "accepted", "stored"])
async def test_every_level_has_its_receipt(level: str) -> None:
    async with connected() as (home, client):
        pending = client.publish_soon("t", b"x", level=level)
        receipt = await pending
        assert (receipt.level, receipt.count) == (level, 1) and pending.done()
        assert pending.result() == receipt and pending.exception() is None
        await until(lambda: home.rows)


async def test_many_tasks_may_await_one_outcome_and_cancelling_one_does_not_affect_others() -> None:
    async with connected() as (home, client):
        pending = client.publish_soon("t", b"x")

        async def wait() -> object:
            return await pending

        tasks = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        assert await tasks[0] == await tasks[2] == await pending
        assert tasks[1].cancelled() and home.rows[0].count == 1


async def test_reading_an_unknown_outcome_is_an_error() -> None:
    async with connected() as (_, client):
        pending = client.publish_soon("t", b"x")
        with pytest.raises(MeshError, match="not known yet"):
            pending.result()
        with pytest.raises(MeshError, match="not known yet"):
            pending.exception()


async def test_a_refused_message_raises_not_accepted() -> None:
    async with connected() as (_, client):
        good, bad = client.publish_soon("t", b"x"), client.publish_soon("bad", b"x", level="stored")
        with pytest.raises(NotAccepted, match="refused the message: nobody keeps bad"):
            await bad
        assert (await good).count == 1


async def test_a_message_that_is_never_acknowledged_becomes_unknown_after_its_own_timeout() -> None:
    async with connected() as (_, client):
        began = now()
        short = client.publish_soon("quiet", b"x", timeout=2.0)
        await asyncio.sleep(0.5)
        long = client.publish_soon("quiet", b"x")
        with pytest.raises(Unknown, match="no acknowledgement in 2 s: connected to home"):
            await short
        assert now() - began == pytest.approx(2.0, abs=0.01)
        with pytest.raises(Unknown, match="in 10 s"):
            await long
        assert now() - began == pytest.approx(10.5, abs=0.01)


async def test_a_shorter_timeout_that_is_given_later_ends_first() -> None:
    """The timer was set for the first message, and did not change for later ones."""
    async with connected() as (_, client):
        began = now()
        long = client.publish_soon("quiet", b"x")
        short = client.publish_soon("quiet", b"x", timeout=1.0)
        with pytest.raises(Unknown, match="in 1 s"):
            await short
        assert now() - began == pytest.approx(1.0, abs=0.01) and not long.done()
        with pytest.raises(Unknown, match="in 10 s"):
            await long


async def test_wrong_arguments_are_errors_of_the_call() -> None:
    async with connected() as (_, client):
        with pytest.raises(TopicError):
            client.publish_soon("a..b", b"x")
        with pytest.raises(TypeError, match="a body is bytes"):
            client.publish_soon("t", "text")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="level 'saved' is not known"):
            client.publish_soon("t", b"x", level="saved")
        with pytest.raises(ValueError, match="timeout is -1"):
            client.publish_soon("t", b"x", timeout=-1)
        with pytest.raises(ValueError, match="level 'saved' is not known"):
            client.batch(level="saved")
        assert client._conversation.pendings.count == 0
    with pytest.raises(ValueError, match="pending_max is 0"):
        Client(pending_max=0)
    with pytest.raises(TypeError, match="pending_max is 'many'"):
        Client(pending_max="many")  # type: ignore[arg-type]


# --- room


async def test_publish_soon_fails_at_its_limit_and_ready_waits_for_room() -> None:
    async with connected(pending_max=10) as (home, client):
        pending = [client.publish_soon("t", b"x") for _ in range(10)]
        with pytest.raises(NotReady, match=r"no room for a message now: 10 are pending.*wait for ready\(\)"):
            client.publish_soon("t", b"x")
        await client.ready()
        assert pending[0].done()
        for number in range(1000):
            try:
                client.publish_soon("t", b"%d" % number)
            except NotReady:
                await client.ready()
                client.publish_soon("t", b"%d" % number)
            assert client._conversation.pendings.count <= 10
        await client.publish("t", b"last")
        assert sum(row.count for row in home.rows) == 1011


async def test_ready_ends_in_time_and_with_the_client() -> None:
    async with connected(pending_max=1) as (_, client):
        pending = client.publish_soon("quiet", b"x")
        with pytest.raises(MeshTimeout, match="no room for a message in 3 s: 1 are pending"):
            await client.ready(timeout=3.0)
        waiting = asyncio.create_task(client.ready())
        await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(Disconnected):
            await waiting
        with pytest.raises(NotAccepted, match="the client is closed"):
            client.publish_soon("t", b"x")
        assert isinstance(pending.exception(), Unknown)


async def test_publish_soon_fails_without_a_session_and_ready_waits_for_the_next_one() -> None:
    async with connected() as (home, client):
        (pipe,) = home.pipes
        pipe.close("gone")
        await until(lambda: not client.connected)
        with pytest.raises(NotReady, match="no credit to publish now: the connection to"):
            client.publish_soon("t", b"x")
        await client.ready()
        assert (await client.publish_soon("t", b"x")).count == 1


async def test_pending_messages_are_sent_again_in_the_next_session() -> None:
    async with connected() as (home, client):
        pending = client.publish_soon("quiet", b"x", level="stored")
        await asyncio.sleep(1.0)
        home.__class__ = Home  # it answers now
        home.pipes[0].close("gone")
        assert (await pending).homes == ("home",)


# --- failures that nobody looks at


async def test_an_unread_failure_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected() as (_, client):
        client.publish_soon("t", b"the first after a pause leaves alone")
        for _ in range(3):
            client.publish_soon("bad", b"x", level="stored")
        await client.publish("t", b"x")
        gc.collect()
        (record,) = caplog.records
        assert record.levelno == logging.WARNING and record.name == "mesh"
        assert record.getMessage() == (
            "nobody looked at the outcome of 3 published messages: broker home refused the message: "
            "nobody keeps bad"
        )
        assert client.statistics().unheard == 3


async def test_a_failure_that_was_read_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (_, client):
        pending = client.publish_soon("bad", b"x", level="stored")
        await until(pending.done)
        assert isinstance(pending.exception(), NotAccepted)
        del pending
        gc.collect()
        assert not caplog.records and client.statistics().unheard == 0


async def test_a_flood_of_failures_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (_, client):
        for _ in range(200):
            client.publish_soon("bad", b"x", level="stored")
            await client.publish("t", b"x")
        gc.collect()
        assert len(caplog.records) == 10 and client.statistics().unheard == 200


# --- callbacks


async def test_a_callback_is_called_once_with_the_outcome() -> None:
    async with connected() as (_, client):
        called: list[Pending] = []
        good, bad = client.publish_soon("t", b"x"), client.publish_soon("bad", b"x", level="stored")
        for pending in (good, bad):
            pending.on_done(called.append)
        assert called == []
        await until(lambda: len(called) == 2)
        assert set(called) == {good, bad} and called[called.index(good)].result().count == 1
        assert isinstance(bad.exception(), NotAccepted)
        good.on_done(called.append)
        assert called[2:] == [good]


async def test_a_callback_may_publish() -> None:
    async with connected(pending_max=1) as (home, client):
        left = [50]

        def another(pending: Pending) -> None:
            if left[0]:
                left[0] -= 1
                client.publish_soon("t", b"x").on_done(another)

        client.publish_soon("t", b"x").on_done(another)
        await until(lambda: sum(row.count for row in home.rows) == 51)


async def test_a_callback_that_raises_is_logged_and_harms_no_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected() as (_, client):
        called: list[Pending] = []
        first, second = client.publish_soon("t", b"x"), client.publish_soon("t", b"x")
        first.on_done(lambda pending: print(1 // 0))
        second.on_done(called.append)
        assert (await second).count == 1 and called == [second]
        (record,) = caplog.records
        assert record.getMessage() == "a callback of <Pending succeeded> raised"
        assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError
        assert client.connected


# --- closing


async def test_closing_ends_pending_messages() -> None:
    async with connected() as (_, client):
        called: list[Pending] = []
        sent = client.publish_soon("quiet", b"x")
        sent.on_done(called.append)
        await asyncio.sleep(1.0)
        waiting = asyncio.ensure_future(sent)
        await client.aclose()
        with pytest.raises(Unknown, match="the client was closed before the broker answered"):
            await waiting
        assert called == [sent]


async def test_gathered_messages_are_sent_when_the_client_closes() -> None:
    async with connected() as (home, client):
        pending = [client.publish_soon("t", b"x") for _ in range(5)]
        await client.aclose()
        assert sum(row.count for row in home.rows) == 5 and all(each.result() for each in pending)


# --- batches


async def test_a_batch_waits_for_all_of_its_messages_and_has_one_receipt() -> None:
    async with connected(pending_max=64) as (home, client):
        async with client.batch(level="stored") as batch:
            for number in range(1000):
                await batch.publish("ab"[number % 2], b"%d" % number, headers={"n": number})
            with pytest.raises(MeshError, match="once it has ended"):
                print(batch.receipt)
        assert len(batch) == 1000 and client._conversation.pendings.count == 0
        receipt = batch.receipt
        assert (receipt.level, receipt.seq, receipt.count, receipt.homes) == ("stored", 1, 1000, ("home",))
        assert sum(row.count for row in home.rows) == 1000


async def test_an_empty_batch_has_a_receipt_too() -> None:
    async with connected() as (_, client):
        async with client.batch() as batch:
            pass
        assert batch.receipt.count == 0


async def test_a_batch_says_how_many_failed_and_why_each_of_them(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (_, client):
        with pytest.raises(BatchFailed) as caught:
            async with client.batch(level="stored", timeout=2.0) as batch:
                for topic in ("t", "bad", "t", "quiet", "bad"):
                    await batch.publish(topic, b"x")
        error = caught.value
        assert str(error) == (
            "of 5 messages 2 were not accepted and 1 may have been accepted: broker home refused the message:"
            " nobody keeps bad; no acknowledgement in 2 s: connected to home"
        )
        assert {place: type(each) for place, each in error.errors.items()} == {
            1: NotAccepted,
            3: Unknown,
            4: NotAccepted,
        }
        assert (error.not_accepted, error.unknown) == (2, 1)
        del batch, caught
        gc.collect()
        assert not caplog.records, "a program that catches the error knows each failure"


async def test_a_batch_that_is_left_by_an_exception_waits_for_nothing() -> None:
    async with connected() as (_, client):
        began = now()
        with pytest.raises(ZeroDivisionError):
            async with client.batch() as batch:
                await batch.publish("quiet", b"x")
                print(1 // 0)
        assert now() == pytest.approx(began, abs=0.01)


async def test_a_batch_without_room_in_time_is_left_with_an_error() -> None:
    async with connected(pending_max=1) as (_, client):
        client.publish_soon("quiet", b"x")
        with pytest.raises(NotReady, match="no room for a message in 1 s"):
            async with client.batch(timeout=1.0) as batch:
                await batch.publish("t", b"x")


async def test_a_cancelled_batch_is_left_at_once() -> None:
    async with connected() as (_, client):

        async def publish() -> None:
            async with client.batch() as batch:
                await batch.publish("quiet", b"x")

        task = asyncio.create_task(publish())
        await asyncio.sleep(1.0)
        began = now()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert now() == pytest.approx(began, abs=0.01)


async def test_a_batch_of_level_sent_is_not_waited_for() -> None:
    async with connected() as (home, client):
        async with client.batch(level="sent") as batch:
            for _ in range(10):
                await batch.publish("t", b"x")
        assert (batch.receipt.level, batch.receipt.count) == ("sent", 10)
        await until(lambda: sum(row.count for row in home.rows) == 10)
