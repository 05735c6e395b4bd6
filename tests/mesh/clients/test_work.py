"""Durable subscriptions of a `Client`, with homes that the test plays (`homes.Home`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mesh.clients.client import Client
from mesh.clients.jobs import Job
from mesh.clients.resending import BODY_S
from mesh.clients.work import HANDS_MIN, Work
from mesh.errors import (
    Detached,
    Disconnected,
    HeldElsewhere,
    MeshTimeout,
    NotAccepted,
    OtherPatterns,
    Unknown,
)
from mesh.wire import blocks
from mesh.wire.durable_frames import Durable, work_head
from mesh.wire.session_frames import Kind, encode
from protocols import Pipe, RawSocket, Rep0, SharedListener
from tests.mesh.clients.homes import Home, forgets_pieces
from tests.mesh.clients.taking import LOOPBACK
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


@asynccontextmanager
async def serving(home: Home, url: str = LOOPBACK) -> AsyncIterator[str]:
    """Serve a home at an address."""
    listener = SharedListener(url)
    async with RawSocket(Rep0, receiver=home) as rep:
        await rep.listen(listener)
        await listener.start()
        try:
            yield listener.url
        finally:
            await listener.aclose()


@asynccontextmanager
async def working(window: int = 256, **options: object) -> AsyncIterator[tuple[Home, Client, Work]]:
    home = Home(asyncio.get_running_loop().time, **options)  # type: ignore[arg-type]
    async with serving(home) as url, Client(url) as client:
        async with client.subscribe("jobs.#", durable="mail", window=window) as work:
            yield home, client, work


async def take(count: int, work: Work) -> list[Job]:
    return [await anext(work) for _ in range(count)]


async def test_a_subscription_is_attached_settled_and_left() -> None:
    async with working() as (home, _, work):
        home.unreached = ["slow"]
        assert (work.name, work.patterns, work.home, work.unreached) == ("mail", ("jobs.#",), "home", ())
        home.publish(b"1", b"2", b"3")
        one, two, three = await take(3, work)
        assert one.done() and two.drop("broken")
        await until(lambda: home.left == 1)
        assert home.dead == [(b"2", "broken")]
    assert home.left == 1 and not home.queue.snapshot().consumers
    assert not three.done() and work.late == 1
    kinds = [kind for kind, *_ in home.settling]
    assert kinds == [Durable.DROP, Durable.DONE, Durable.DETACH]


async def test_settlements_of_one_loop_turn_share_one_frame() -> None:
    async with working() as (home, _, work):
        home.publish(*[b"x"] * 30)
        for job in await take(30, work):
            job.done()
        assert home.settling == []
        await until(lambda: not home.left)
        assert home.done == [(1, 0, (1 << 30) - 1)]


async def test_a_stream_of_settlements_is_sent_once_a_millisecond() -> None:
    """A program that awaits for each message had one frame sent for each."""
    async with working() as (home, _, work):
        home.publish(*[b"x"] * 50)
        for _ in range(50):
            (await anext(work)).done()
            await asyncio.sleep(0)
        await until(lambda: not home.left)
        assert len(home.done) <= 3


async def test_settlements_of_a_program_that_never_awaits_are_still_sent() -> None:
    """All messages of a window were handed out in one turn, and the home had nothing to do meanwhile."""
    async with working(window=8) as (home, _, work):
        home.publish(*[b"%d" % number for number in range(100)])
        got = []
        async for job in work:
            got.append(int(job.body))
            job.done()
            if len(got) == 100:
                break
        assert got == list(range(100))
        await until(lambda: not home.left)
        assert len(home.done) >= 100 // 4, "two are a quarter of the window"


async def test_batches_are_done_in_one_call() -> None:
    async with working(window=1000) as (home, _, work):
        home.publish(*[b"x"] * 600)
        home.publish(b"y", topic="jobs.b")
        count = 0
        async for batch in work.batches():
            count += len(batch)
            assert batch.done()
            if count == 601:
                assert (batch.topics[-1], batch.bodies[-1]) == ("jobs.b", b"y")
                break
        await until(lambda: not home.left)


async def test_an_exception_retries_the_message_in_hand_and_returns_the_others() -> None:
    with pytest.raises(ZeroDivisionError):
        async with working() as (home, _client, work):
            home.publish(b"1", b"2", b"3")
            async for job in work:
                if job.body == b"2":
                    raise ZeroDivisionError
                job.done()
    retried = [fields for kind, *fields in home.settling if kind == Durable.RETRY]
    assert [fields[1:3] for fields in retried] == [[1, 1]]
    assert home.queue.snapshot().delayed == 1 and home.left == 2


async def test_leaving_without_an_exception_or_by_being_cancelled_is_no_failed_attempt() -> None:
    async def hold(started: asyncio.Event) -> None:
        async with working() as (home, _, work):
            homes.append(home)
            home.publish(b"1")
            async for _ in work:
                started.set()
                await asyncio.Event().wait()

    homes: list[Home] = []
    started = asyncio.Event()
    task = asyncio.create_task(hold(started))
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with working() as (home, _, work):
        homes.append(home)
        home.publish(b"1")
        async for _ in work:
            break
    for home in homes:
        assert [kind for kind, *_ in home.settling] == [Durable.DETACH] and home.left == 1


async def test_only_the_failed_task_of_a_pool_has_its_message_retried() -> None:
    async def take_one(work: Work, fails: asyncio.Event) -> None:
        job = await anext(work)
        await fails.wait()
        if job.body == b"1":
            raise ZeroDivisionError
        await asyncio.Event().wait()

    home = None
    with pytest.raises(ExceptionGroup):
        async with working() as (home, _, work):
            home.publish(b"0", b"1", b"2")
            fails = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(take_one(work, fails))
                await until(lambda: len(work._hands) == 3)
                fails.set()
    assert home is not None
    retried = [fields[1:3] for kind, *fields in home.settling if kind == Durable.RETRY]
    assert retried == [[1, 1]]


async def test_tasks_with_settled_messages_are_not_remembered() -> None:
    async with working() as (home, _, work):
        for _ in range(5):
            home.publish(*[b"x"] * 100)
        for _ in range(500):
            (await asyncio.create_task(anext(work))).done()  # type: ignore[arg-type]
            assert len(work._hands) <= HANDS_MIN + 1
        await until(lambda: not home.left)


async def test_retry_brings_it_back_with_its_attempt_counted_until_it_is_dead() -> None:
    async with working() as (home, _, work):
        home.publish(b"1")
        for attempt in (1, 2, 3):
            (job,) = await take(1, work)
            assert (job.attempt, job.redelivered) == (attempt, attempt > 1)
            job.retry(0)
        await until(lambda: home.dead)
        assert home.dead == [(b"1", "it was to be tried again, at attempt 3")]


async def test_a_cancelled_wait_loses_nothing() -> None:
    async with working() as (home, _, work):
        got = []
        for number in range(50):
            waiting = asyncio.create_task(anext(work))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            waiting.cancel()
            home.publish(b"%d" % number)
            (result,) = await asyncio.gather(waiting, return_exceptions=True)
            if isinstance(result, Job):
                got.append(result.body)
        while len(got) < 50:
            got.append((await anext(work)).body)
        assert got == [b"%d" % number for number in range(50)]


async def test_a_lost_session_is_made_anew_and_its_messages_come_again() -> None:
    async with working() as (home, client, work):
        home.publish(b"1", b"2", b"3")
        one, two = await take(2, work)
        home.pipes[-1].close("lost")
        await until(lambda: not client.connected)
        again = await asyncio.wait_for(anext(work), 60.0)  # type: ignore[arg-type]
        assert (again.body, again.redelivered) == (b"1", True), "not what was left of the lost session"
        assert not one.done() and not two.retry() and work.late == 2 and work.interrupted == 1
        again.done()
        for job in await take(2, work):
            job.done()
        await until(lambda: not home.left)


async def test_closing_ends_iteration_of_all_tasks() -> None:
    async with working() as (_home, _client, work):
        tasks = [asyncio.create_task(_all(work)) for _ in range(3)]
        await until(lambda: len(work._feed.waiters) == 3)
        await work.aclose()
        await work.aclose()
        assert await asyncio.gather(*tasks) == [[], [], []]
        assert await _all(work) == []


async def test_closing_the_client_closes_its_work_in_order() -> None:
    home = Home(asyncio.get_running_loop().time)
    async with serving(home) as url:
        client = Client(url)
        await client.open()
        work = await client.subscribe("jobs.#", durable="mail").__aenter__()
        home.publish(b"1")
        (job,) = await take(1, work)
        job.done()
        iterating = asyncio.create_task(_all(work))
        await client.aclose()
        assert await iterating == [] and home.left == 0


async def _all(work: Work) -> list[bytes]:
    return [job.body async for job in work]


# --- the home is another broker


async def test_a_client_follows_to_the_home() -> None:
    clock = asyncio.get_running_loop().time
    home, entry = Home(clock), Home(clock, "entry")
    async with serving(home) as url, serving(entry) as entry_url, Client(entry_url) as client:
        entry.detach = ("held_elsewhere", "the home of mail is home", url)
        async with client.subscribe("jobs.#", durable="mail") as work:
            assert work.home == "home" and client.broker == "entry"
            home.publish(b"1")
            (job,) = await take(1, work)
            job.done()
        assert not home.left
        await until(lambda: not home.pipes)
    assert [kind for kind, *_ in home.settling] == [Durable.DONE, Durable.DETACH]


async def test_work_ends_with_the_client_also_at_another_home() -> None:
    clock = asyncio.get_running_loop().time
    home, entry = Home(clock), Home(clock, "entry")
    async with serving(home) as url, serving(entry) as entry_url:
        entry.detach = ("held_elsewhere", "elsewhere", url)
        async with Client(entry_url) as client:
            work = await client.subscribe(durable="mail").__aenter__()
            iterating = asyncio.create_task(_all(work))
            await until(lambda: work._feed.waiters)
        assert await iterating == []
        await until(lambda: not home.pipes)


async def test_a_home_that_comes_back_at_another_address_is_found_by_the_entry() -> None:
    clock = asyncio.get_running_loop().time
    home, entry = Home(clock), Home(clock, "entry")
    async with serving(entry) as entry_url, Client(entry_url) as client:
        async with serving(home) as url:
            entry.detach = ("held_elsewhere", "elsewhere", url)
            work = await client.subscribe("jobs.#", durable="mail").__aenter__()
            home.publish(b"1")
            (job,) = await take(1, work)
            waiting = asyncio.create_task(anext(work))  # type: ignore[arg-type]
            await until(lambda: work._feed.waiters)
            entry.detach = ("held_elsewhere", "home is away", "")
        await until(lambda: len(entry.attached) >= 4)
        assert not waiting.done() and not job.done()
        async with serving(home) as url:
            entry.detach = ("held_elsewhere", "elsewhere", url)
            again = await waiting
            assert again.redelivered and again.done()
            await until(lambda: not home.left)
            await work.aclose()
        assert (work.late, work.interrupted) == (1, 1)


async def test_an_unreachable_home_ends_the_first_attempt_with_a_sentence() -> None:
    entry = Home(asyncio.get_running_loop().time, "entry")
    async with serving(entry) as url, Client(url) as client:
        entry.detach = ("held_elsewhere", "the home of mail is away", "")
        with pytest.raises(HeldElsewhere, match="broker entry: the home of mail is away"):
            async with client.subscribe("x", durable="mail"):
                pass
        entry.detach = ("held_elsewhere", "elsewhere", "tcp://127.0.0.1:9")
        with pytest.raises(Disconnected, match="the home of mail cannot be reached: no broker at tcp://127"):
            async with client.subscribe("x", durable="mail"):
                pass
        entry.detach = ("held_elsewhere", "elsewhere", "nonsense")
        with pytest.raises(Disconnected, match="the home of mail cannot be reached: .*nonsense"):
            async with client.subscribe("x", durable="mail"):
                pass


async def test_two_brokers_that_name_each_other_end_in_a_timeout() -> None:
    clock = asyncio.get_running_loop().time
    one, two = Home(clock, "one"), Home(clock, "two")
    async with serving(one) as url, serving(two) as other, Client(url) as client:
        one.detach = ("held_elsewhere", "elsewhere", other)
        two.detach = ("held_elsewhere", "elsewhere", url)
        with pytest.raises(MeshTimeout, match="no broker gave work of mail in 10 s"):
            async with client.subscribe("x", durable="mail"):
                pass
        assert len(one.attached) + len(two.attached) < 40, "each step waits longer than the one before"
        await until(lambda: len(one.pipes) + len(two.pipes) == 1)


async def test_a_refusal_is_raised_when_it_is_entered() -> None:
    home = Home(asyncio.get_running_loop().time)
    async with serving(home) as url, Client(url) as client:
        for reason, kind in (("other_patterns", OtherPatterns), ("no_state", NotAccepted)):
            home.detach = (reason, "so it is", "")
            with pytest.raises(kind, match="broker home: so it is"):
                async with client.subscribe("x", durable="mail"):
                    pass
        home.detach, home.silent = None, True
        with pytest.raises(MeshTimeout, match="no broker gave work of mail in 10 s: connected to home"):
            async with client.subscribe("x", durable="mail"):
                pass
        with pytest.raises(ValueError, match="exclude each other"):
            client.subscribe("x", durable="mail", answers=True)  # type: ignore[call-overload]
        assert client.connected, "a refusal costs no session"


async def test_a_subscription_that_is_removed_ends_iteration_with_a_sentence() -> None:
    async with working() as (home, _, work):
        waiting = asyncio.create_task(anext(work))  # type: ignore[arg-type]
        await until(lambda: work._feed.waiters)
        number = work._feed.number
        home.send(encode(Durable.DETACHED, number, "removed", "mail was removed", ""))
        with pytest.raises(Detached, match="broker home: mail was removed"):
            await waiting
        with pytest.raises(Detached):
            async for _ in work.batches():
                pass


# --- publishing


async def test_stored_messages_are_consumed() -> None:
    async with working() as (home, client, work):
        receipt = await client.publish("jobs.a", b"1", level="stored")
        assert (receipt.level, receipt.homes) == ("stored", ("home",))
        receipt = await client.publish_many([("jobs.a", b"2"), ("jobs.b", b"3")], level="stored")
        assert (receipt.count, receipt.homes) == (2, ("home",))
        bodies = set()
        for job in await take(3, work):
            bodies.add(job.body)
            job.done()
        assert bodies == {b"1", b"2", b"3"}
        await until(lambda: not home.left)


async def test_a_large_body_is_consumed() -> None:
    async with working() as (home, _, work):
        body = bytes(3 * blocks.SPLIT)
        pieces = blocks.seal_pieces(b"jobs.a", body, publisher=5, boot=6, sequence=9, level=blocks.STORED)
        consumer = next(iter(home._consumers.values()))
        home.publish(b"first")
        (first,) = await take(1, work)
        for piece in pieces:
            home.send(work_head(consumer.number, 77, 0, 1, 0, len(piece)) + piece)
        (job,) = await take(1, work)
        assert job.body == body and job.done() and first.done()
        await until(lambda: (77, 0, 1) in home.done)


async def test_a_second_copy_that_is_refused_is_sent_again_within_the_call() -> None:
    home = Home(asyncio.get_running_loop().time)
    received, left = home._received, [3]

    def refuse_some(pipe: Pipe, prefix: bytes, frame: bytes) -> None:
        if frame[5] != Kind.DATA or not left[0]:
            received(pipe, prefix, frame)
            return
        left[0] -= 1
        if left[0] == 2:
            pipe.close("the ACK of the first copy is lost")
        else:
            pipe.send_many([prefix + encode(Kind.REFUSED, [[1, 1]], "no link to the home")])

    home._received = refuse_some  # type: ignore[method-assign]
    async with serving(home) as url, Client(url) as client:
        receipt = await client.publish("jobs.a", b"1", level="stored")
        assert receipt.homes == ("home",) and left == [0]


async def test_a_slow_large_body_is_sent_again_within_the_call() -> None:
    home = Home(asyncio.get_running_loop().time)
    came = forgets_pieces(home)
    async with serving(home) as url, Client(url) as client:
        began = asyncio.get_running_loop().time()
        receipt = await client.publish("jobs.a", bytes(200_000), level="stored")
        assert receipt.homes == ("home",) and came == [*came[:4]] * 2
        assert asyncio.get_running_loop().time() - began == pytest.approx(BODY_S, abs=0.1)


async def test_a_timeout_names_the_homes_that_confirmed_and_those_that_did_not() -> None:
    home = Home(asyncio.get_running_loop().time)
    received = home._received

    def keep_waiting(pipe: Pipe, prefix: bytes, frame: bytes) -> None:
        if frame[5] == Kind.DATA:
            pipe.send_many([prefix + encode(Durable.PENDING, 1, 1, ["h1"], ["h2", "h3"])])
        else:
            received(pipe, prefix, frame)

    home._received = keep_waiting  # type: ignore[method-assign]
    async with serving(home) as url, Client(url) as client:
        with pytest.raises(Unknown, match="in 1 s: kept by h1, not yet by h2, h3; connected to home"):
            await client.publish("jobs.a", b"1", level="stored", timeout=1.0)
