"""Asking in one call, answering with a function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from protocols import Closed, Rep0, Req0, RequestLost, Respondent0, StateError, Surveyor0, Timeout
from tests.support.link import Link, Peer
from tests.support.waiting import turns, until


async def test_a_request_returns_its_answer_and_any_number_of_tasks_may_ask() -> None:
    async with Req0() as req, Rep0() as rep:
        Link(req, rep)
        serving = asyncio.create_task(rep.serve(bytes.upper, concurrency=3))
        words = [b"word %d" % number for number in range(50)]
        assert await asyncio.gather(*map(req.request, words)) == [word.upper() for word in words]
        await rep.aclose()
        await serving


async def test_a_request_leaves_no_context_behind() -> None:
    async with Req0() as req, Rep0() as rep:
        Link(req, rep)
        serving = asyncio.create_task(rep.serve(bytes.upper))
        for _ in range(3):
            await req.request(b"x")
        with pytest.raises(Timeout):
            await Req0().request(b"to nobody", timeout=0.001)
        assert not req._core.channels
        await rep.aclose()
        await serving


@pytest.mark.parametrize("there", [True, False])
async def test_the_timeout_of_a_request_covers_the_wait_for_room_and_for_the_answer(there: bool) -> None:
    async with Req0(recv_timeout_s=20.0, send_timeout_s=20.0) as req:
        if there:
            Peer(req)
        with pytest.raises(Timeout, match="no answer in time"):
            await req.request(b"q", timeout=0.01)


async def test_a_request_is_lost_when_its_replier_leaves_and_resending_is_off() -> None:
    async with Req0(resend_s=None) as req:
        peer = Peer(req)
        asking = asyncio.create_task(req.request(b"q"))
        await until(lambda: peer.heard)
        peer.hang_up()
        with pytest.raises(RequestLost):
            await asking


async def test_serving_handles_as_many_questions_at_a_time_as_it_was_told() -> None:
    running = most = 0
    go_on = asyncio.Event()

    async def handler(question: bytes) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        return question

    async with Req0() as req, Rep0() as rep:
        Link(req, rep)
        serving = asyncio.create_task(rep.serve(handler, concurrency=2))
        asking = [asyncio.create_task(req.request(b"%d" % number)) for number in range(5)]
        await until(lambda: running == 2)
        await turns(50)
        assert running == 2
        go_on.set()
        assert await asyncio.gather(*asking) == [b"0", b"1", b"2", b"3", b"4"]
        assert most == 2
        await rep.aclose()
        await serving


async def test_a_handler_that_raises_is_reported_and_the_next_question_is_answered() -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reports.append(report))

    def handler(question: bytes) -> bytes:
        if question == b"bad":
            raise ValueError("a bad question")
        return b"" if question == b"none" else question

    async with Req0() as req, Rep0() as rep:
        Link(req, rep)
        serving = asyncio.create_task(rep.serve(handler))
        with pytest.raises(Timeout):
            await req.request(b"bad", timeout=0.05)
        assert await req.request(b"none") == b""
        assert [str(report["exception"]) for report in reports] == ["a bad question"]
        assert rep.statistics().drops == {"not answered": 1}
        await rep.aclose()
        await serving


@pytest.mark.parametrize("answer", ["text", None, 5])
async def test_an_answer_that_is_not_bytes_is_the_handlers_mistake(answer: object) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reports.append(report))
    async with Rep0() as rep:
        Peer(rep).say(b"\x80\0\0\x01q")
        handler: Callable[[bytes], Any] = lambda question: answer  # noqa: E731
        serving = asyncio.create_task(rep.serve(handler))
        await until(lambda: reports)
        assert isinstance(reports[0]["exception"], TypeError)
        await rep.aclose()
        await serving


async def test_a_cancelled_server_gives_up_its_contexts() -> None:
    async with Rep0() as rep:
        serving = asyncio.create_task(rep.serve(bytes.upper, concurrency=3))
        await turns()
        assert len(rep._core.channels) == 3
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert not rep._core.channels


async def test_respondents_serve_too() -> None:
    async with Surveyor0() as surveyor, Respondent0() as respondent:
        Link(surveyor, respondent)
        serving = asyncio.create_task(respondent.serve(bytes.upper))
        result = await surveyor.survey(b"who?")
        assert [answer.body for answer in result.answers] == [b"WHO?"]
        await respondent.aclose()
        await serving


async def test_serving_refuses_impossible_calls() -> None:
    async with Rep0() as rep:
        with pytest.raises(ValueError, match="concurrency is 0"):
            await rep.serve(bytes.upper, concurrency=0)
    with pytest.raises(Closed):
        await rep.serve(bytes.upper)
    with pytest.raises(StateError, match="async with"):
        await Rep0(listen="inproc://x").serve(bytes.upper)


async def test_a_context_asks_in_one_call() -> None:
    """Only the socket could, though its ``request`` uses a context."""
    async with Rep0(listen="inproc://context-asks") as rep, Req0(dial="inproc://context-asks") as req:
        serving = asyncio.create_task(rep.serve(bytes.upper))
        async with req.new_context() as one, req.new_context() as other:
            answers = await asyncio.gather(one.request(b"one"), other.request(b"other", timeout=60.0))
            assert answers == [b"ONE", b"OTHER"]
            assert await one.request(b"again") == b"AGAIN"
        await rep.aclose()
        await serving


@pytest.mark.virtual
async def test_a_request_is_bounded_by_the_time_to_receive() -> None:
    """With only ``recv_timeout_s`` set, it waited for a peer without limit."""
    now = asyncio.get_running_loop().time
    async with Req0(recv_timeout_s=5.0) as req:
        begin = now()
        with pytest.raises(Timeout, match="no answer in time"):
            await req.request(b"nobody is there")
        assert now() - begin == pytest.approx(5.0, abs=0.01)
    async with Req0(recv_timeout_s=5.0, send_timeout_s=2.0) as req:
        begin = now()
        with pytest.raises(Timeout, match=r"within 2 s"):
            await req.request(b"nobody is there")
        assert now() - begin == pytest.approx(2.0, abs=0.01)
