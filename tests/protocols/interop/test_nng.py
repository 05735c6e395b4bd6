"""Every pattern against NNG 1.11 (through pynng), both roles, either side listening, over tcp and ipc."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocols import (
    Bus0,
    Pair0,
    Pub0,
    Pull0,
    Push0,
    Rep0,
    Req0,
    Respondent0,
    Socket,
    SocketOptions,
    StateError,
    Sub0,
    Surveyor0,
    SurveyOver,
)
from tests.support.waiting import until

from .peers import OPTIONS, Nng, address

pynng = pytest.importorskip("pynng")
pytestmark = [pytest.mark.interop, pytest.mark.isolated]

BODIES = [b"x", b"", bytes(range(256)), b"y" * 300_000, b"\x00", b"\x80\x00\x00\x00"]


@pytest.fixture(params=["tcp-we-listen", "tcp-they-listen", "ipc-we-listen", "ipc-they-listen"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, bool]:
    """An address, and whether we listen there."""
    scheme, _, who = request.param.partition("-")
    return address(scheme, tmp_path), who == "we-listen"


async def meet(way: tuple[str, bool], ours: Socket, theirs: Nng) -> None:
    """Connect the two; returns when each sees the other."""
    url, we_listen = way
    count = len(ours.pipes) + 1
    if we_listen:
        await ours.listen(url)
        theirs.socket.dial(url, block=False)  # a blocking dial would wait for our loop, inside our loop
    else:
        theirs.socket.listen(url)
        ours.dial(url)
    await ours.wait_for_peers(count, timeout=10.0)
    await until(lambda: theirs.socket.pipes)


@asynccontextmanager
async def both(
    way: tuple[str, bool], ours: Socket, kind: str, **options: object
) -> AsyncIterator[tuple[Socket, Nng]]:
    async with ours:
        with Nng(kind, **options) as theirs:
            await meet(way, ours, theirs)
            yield ours, theirs


async def test_pair(way: tuple[str, bool]) -> None:
    async with both(way, Pair0(options=OPTIONS), "Pair0") as (ours, theirs):
        for body in BODIES:
            await ours.send(body)
            assert await theirs.recv() == body
            await theirs.send(body)
            assert await ours.recv() == body


async def test_we_push_and_they_pull(way: tuple[str, bool]) -> None:
    bodies = [b"%d" % number for number in range(2000)] + BODIES
    async with both(way, Push0(options=OPTIONS), "Pull0") as (ours, theirs):
        receiving = asyncio.create_task(theirs.recv_all(len(bodies)))
        for body in bodies[:1000]:
            await ours.send(body)
        await ours.send_many(bodies[1000:])
        assert await receiving == bodies


async def test_they_push_and_we_pull(way: tuple[str, bool]) -> None:
    bodies = [b"%d" % number for number in range(2000)] + BODIES
    async with both(way, Pull0(options=OPTIONS), "Push0") as (ours, theirs):
        sending = asyncio.create_task(theirs.send_all(bodies))
        assert [await ours.recv() for _ in bodies] == bodies
        await sending


async def test_we_publish_and_they_subscribe(way: tuple[str, bool]) -> None:
    async with both(way, Pub0(options=OPTIONS), "Sub0", topics=[b"a"]) as (ours, theirs):
        await ours.send_many([b"b1", b"a1", b"", b"a2"])
        assert await theirs.recv_all(2) == [b"a1", b"a2"]


async def test_they_publish_and_we_subscribe(way: tuple[str, bool]) -> None:
    async with both(way, Sub0(topics=[b"a"], options=OPTIONS), "Pub0") as (ours, theirs):
        for body in (b"b1", b"a1", b"", b"a2"):
            await theirs.send(body)
        assert [await ours.recv(), await ours.recv()] == [b"a1", b"a2"]


async def test_we_ask_and_they_answer(way: tuple[str, bool]) -> None:
    async with both(way, Req0(options=OPTIONS), "Rep0") as (ours, theirs):
        for body in BODIES:
            await ours.send(body)
            assert await theirs.recv() == body
            await theirs.send(body + b"!")
            assert await ours.recv() == body + b"!"


async def test_they_ask_and_we_answer(way: tuple[str, bool]) -> None:
    async with both(way, Rep0(options=OPTIONS), "Req0") as (ours, theirs):
        for body in BODIES:
            await theirs.send(body)
            assert await ours.recv() == body
            await ours.send(body + b"!")
            assert await theirs.recv() == body + b"!"


async def test_many_contexts_of_theirs_ask_many_of_ours(way: tuple[str, bool]) -> None:
    async with both(way, Rep0(options=OPTIONS), "Req0") as (ours, theirs):
        assert isinstance(ours, Rep0)

        async def serve() -> None:
            async with ours.new_context() as context:
                async for body in context:
                    await context.send(b"re " + body)

        def ask(number: int) -> bytes:
            with theirs.socket.new_context() as context:
                context.send(b"%d" % number)
                answer: bytes = context.recv()
                return answer

        serving = [asyncio.create_task(serve()) for _ in range(4)]
        answers = await asyncio.gather(*(asyncio.to_thread(ask, number) for number in range(30)))
        assert answers == [b"re %d" % number for number in range(30)]
        await ours.aclose()
        await asyncio.gather(*serving)


async def test_many_contexts_of_ours_ask_theirs(way: tuple[str, bool]) -> None:
    async with both(way, Req0(options=OPTIONS), "Rep0") as (ours, theirs):
        assert isinstance(ours, Req0)

        async def ask(number: int) -> bytes:
            async with ours.new_context() as context:
                await context.send(b"%d" % number)
                return await context.recv()

        def serve() -> None:
            for _ in range(30):
                theirs.socket.send(b"re " + theirs.socket.recv())

        serving = asyncio.create_task(asyncio.to_thread(serve))
        answers = await asyncio.gather(*(ask(number) for number in range(30)))
        assert answers == [b"re %d" % number for number in range(30)]
        await serving


async def test_we_survey_and_they_respond(way: tuple[str, bool]) -> None:
    async with both(way, Surveyor0(options=OPTIONS), "Respondent0") as (ours, theirs):
        for body in (b"1", b"2"):
            await ours.send(body)
            assert await theirs.recv() == body
            await theirs.send(body + b"!")
            assert await ours.recv() == body + b"!"


async def test_they_survey_and_we_respond(way: tuple[str, bool]) -> None:
    async with both(way, Respondent0(options=OPTIONS), "Surveyor0", survey_time=20_000) as (ours, theirs):
        for body in (b"1", b"2"):
            await theirs.send(body)
            assert await ours.recv() == body
            await ours.send(body + b"!")
            assert await theirs.recv() == body + b"!"


async def test_bus(way: tuple[str, bool]) -> None:
    async with both(way, Bus0(options=OPTIONS), "Bus0") as (ours, theirs):
        for body in BODIES:
            await ours.send(body)
            assert await theirs.recv() == body
            await theirs.send(body)
            assert await ours.recv() == body


# --- after faults


async def test_their_second_partner_for_our_pair_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    url = address("tcp", tmp_path)
    async with both((url, True), Pair0(options=OPTIONS), "Pair0") as (ours, theirs):
        with Nng("Pair0") as second:
            second.socket.dial(url, block=False)
            await until(lambda: ours.listeners[0].statistics().refused.get("not wanted", 0) >= 1)
            await ours.send(b"for the first")
            assert await theirs.recv() == b"for the first"


async def test_a_request_goes_to_their_other_replier_when_the_first_goes_away(tmp_path: Path) -> None:
    async with Req0(options=OPTIONS) as req:
        first, second = Nng("Rep0"), Nng("Rep0")
        try:
            await meet((address("tcp", tmp_path), False), req, first)
            await meet((address("tcp", tmp_path), False), req, second)
            await req.send(b"q")
            assert await first.recv() == b"q"
            first.socket.close()
            assert await second.recv() == b"q"
            await second.send(b"a")
            assert await req.recv() == b"a"
        finally:
            first.socket.close()
            second.socket.close()


async def test_our_dialer_finds_their_listener_again(tmp_path: Path) -> None:
    url = address("tcp", tmp_path)
    async with Push0(options=OPTIONS) as push:
        push.dial(url)
        for turn in range(3):
            with Nng("Pull0") as pull:
                pull.socket.listen(url)
                await push.wait_for_peers(1, timeout=10.0)
                await push.send(b"%d" % turn)
                assert await pull.recv() == b"%d" % turn
            await until(lambda: not push.pipes)


async def test_their_dialer_finds_our_listener_again(tmp_path: Path) -> None:
    url = address("tcp", tmp_path)
    with Nng("Push0", reconnect_time_min=20, reconnect_time_max=100) as push:
        push.socket.dial(url, block=False)
        for turn in range(3):
            async with Pull0(options=OPTIONS) as pull:
                await pull.listen(url)
                await pull.wait_for_peers(1, timeout=10.0)
                await push.send(b"%d" % turn)
                assert await pull.recv() == b"%d" % turn


async def test_queued_messages_arrive_although_we_close_at_once(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(500)]
    with Nng("Pull0") as pull:
        push = Push0(options=OPTIONS)
        await meet((address("tcp", tmp_path), False), push, pull)
        receiving = asyncio.create_task(pull.recv_all(500))
        await push.send_many(bodies)
        await push.aclose()
        assert await receiving == bodies


async def test_a_slow_subscriber_of_theirs_does_not_slow_us(tmp_path: Path) -> None:
    options = SocketOptions(send_queue=16)
    async with both((address("tcp", tmp_path), True), Pub0(options=options), "Sub0", topics=[b""]) as (
        pub,
        _,
    ):
        sent = 0
        while not pub.statistics().drops.get("peer slow"):
            await pub.send(b"x" * 100_000, timeout=1.0)
            sent += 1
            assert sent < 20_000, "a subscriber that nobody reads from took 2 GB"
            if sent % 64 == 0:
                await asyncio.sleep(0)


async def test_survey_rules_hold_with_their_respondents(tmp_path: Path) -> None:
    options = SocketOptions(survey_s=0.3)
    async with both((address("tcp", tmp_path), True), Surveyor0(options=options), "Respondent0") as (
        ours,
        theirs,
    ):
        await ours.send(b"1")
        assert await theirs.recv() == b"1"
        with pytest.raises(SurveyOver):
            await ours.recv()
        with pytest.raises(StateError):
            await ours.recv()
        await theirs.send(b"late for 1")
        await ours.send(b"2")
        assert await theirs.recv() == b"2"
        await theirs.send(b"2!")
        assert await ours.recv() == b"2!"
        assert ours.statistics().drops == {"late": 1}
