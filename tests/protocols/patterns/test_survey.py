"""Surveyor0: one question to all, answers until the deadline."""

from __future__ import annotations

import asyncio
import random

import pytest

from protocols import (
    Closed,
    SocketOptions,
    StateError,
    Surveyor0,
    SurveyOver,
    Timeout,
    WouldBlock,
)
from protocols.patterns.survey import Surveyor
from protocols.wire.backtrace import END_BIT, encode_word
from tests.support.link import Peer, Plug
from tests.support.waiting import turns, until

pytestmark = pytest.mark.virtual
"""Seconds; a busy machine may stall for longer than a short survey takes."""

LONG = SocketOptions(survey_s=30.0)
SHORT = SocketOptions(survey_s=0.02)


def answer(survey: bytes, body: bytes) -> bytes:
    return survey[:4] + body


async def test_recv_without_a_survey_is_a_state_error() -> None:
    async with Surveyor0() as surveyor:
        with pytest.raises(StateError, match="no survey is open"):
            await surveyor.recv()


async def test_send_without_peers_succeeds() -> None:
    async with Surveyor0(options=SHORT) as surveyor:
        await surveyor.send(b"q")
        surveyor.send_nowait(b"q")


async def test_the_deadline_ends_a_blocked_recv_and_the_survey() -> None:
    async with Surveyor0(options=SHORT) as surveyor:
        Peer(surveyor)
        await surveyor.send(b"q")
        with pytest.raises(SurveyOver, match="the survey is over"):
            await surveyor.recv()
        with pytest.raises(StateError):
            await surveyor.recv()
        await surveyor.send(b"again")
        with pytest.raises(SurveyOver):
            await surveyor.recv()


async def test_an_answer_in_time_can_be_read_after_the_deadline() -> None:
    async with Surveyor0(options=SHORT) as surveyor:
        peer = Peer(surveyor)
        await surveyor.send(b"q")
        await until(lambda: peer.heard)
        peer.say(answer(peer.heard[0], b"in time"))
        peer.say(answer(peer.heard[0], b"twice"))
        await asyncio.sleep(0.03)
        peer.say(answer(peer.heard[0], b"late"))
        assert await surveyor.recv() == b"in time"
        assert await surveyor.recv() == b"twice"
        with pytest.raises(StateError):
            await surveyor.recv()
        assert surveyor.statistics().drops == {"late": 1}


async def test_a_new_survey_gives_up_the_former_and_its_answers() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        peer = Peer(surveyor)
        await surveyor.send(b"1")
        await until(lambda: peer.heard)
        peer.say(answer(peer.heard[0], b"unread"))
        await surveyor.send(b"2")
        waiting = asyncio.create_task(surveyor.recv())
        await turns()
        await surveyor.send(b"3")
        with pytest.raises(StateError, match="replaced"):
            await waiting
        await until(lambda: len(peer.heard) == 3)
        peer.say(answer(peer.heard[0], b"stale"), answer(peer.heard[2], b"fresh"))
        assert await surveyor.recv() == b"fresh"
        assert surveyor.statistics().drops == {"survey given up": 1, "late": 1}


async def test_more_answers_than_the_queue_holds_are_dropped_and_counted() -> None:
    async with Surveyor0(options=SocketOptions(survey_s=30.0, recv_queue=2)) as surveyor:
        peer = Peer(surveyor)
        await surveyor.send(b"q")
        await until(lambda: peer.heard)
        peer.say(*(answer(peer.heard[0], b"%d" % number) for number in range(5)))
        assert [surveyor.recv_nowait(), surveyor.recv_nowait()] == [b"0", b"1"]
        with pytest.raises(WouldBlock):
            surveyor.recv_nowait()
        assert surveyor.statistics().drops == {"inbox full": 3}


async def test_a_peer_that_does_not_read_never_blocks_a_survey() -> None:
    async with Surveyor0(options=SocketOptions(send_queue=10)) as surveyor:
        Peer(surveyor, reads=False)
        for number in range(200):
            await surveyor.send(b"%d" % number, timeout=1.0)
        assert surveyor.statistics().drops == {"peer slow": 190}


@pytest.mark.parametrize("frame", [b"", b"abc"])
async def test_an_answer_without_an_id_costs_the_pipe(frame: bytes) -> None:
    async with Surveyor0() as surveyor:
        peer = Peer(surveyor)
        peer.say(frame)
        assert peer.pipe.closed
        assert surveyor.statistics().drops == {"malformed": 1}


async def test_an_answer_to_an_unknown_survey_is_dropped() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        peer = Peer(surveyor)
        await surveyor.send(b"q")
        peer.say(
            encode_word(END_BIT | 1), encode_word(1), answer(peer.heard[0], b"a") if peer.heard else b"1234"
        )
        assert not peer.pipe.closed
        assert surveyor.statistics().drops["late"] >= 2


async def test_contexts_run_surveys_side_by_side_each_with_its_own_time() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        peer = Peer(surveyor)
        contexts = [surveyor.new_context() for _ in range(30)]
        for number, context in enumerate(contexts):
            await context.send(b"%d" % number)
        hasty = surveyor.new_context(survey_s=0.01)
        await hasty.send(b"hasty")
        await until(lambda: len(peer.heard) == 31)
        peer.say(*(answer(frame, b"re " + frame[4:]) for frame in reversed(peer.heard[:30])))
        for number, context in enumerate(contexts):
            assert await context.recv() == b"re %d" % number
        with pytest.raises(SurveyOver):
            await hasty.recv()
        with pytest.raises(WouldBlock):
            contexts[0].recv_nowait()


async def test_several_readers_of_one_survey_are_all_told_of_its_end() -> None:
    async with Surveyor0(options=SHORT) as surveyor:
        await surveyor.send(b"q")
        ends = await asyncio.gather(*(surveyor.recv() for _ in range(3)), return_exceptions=True)
        assert [type(end) for end in ends] == [SurveyOver] * 3


async def test_iterating_yields_the_answers_and_ends_with_the_survey() -> None:
    async with Surveyor0(options=SHORT) as surveyor:
        peer = Peer(surveyor)
        await surveyor.send(b"q")
        await until(lambda: peer.heard)
        peer.say(answer(peer.heard[0], b"1"), answer(peer.heard[0], b"2"))
        assert [body async for body in surveyor] == [b"1", b"2"]


async def test_iterating_continues_past_the_receive_timeout_until_the_survey_ends() -> None:
    """The survey's end was a `Timeout` like the reader's own, so the first of the two ended the loop."""
    options = SocketOptions(survey_s=20.0, recv_timeout_s=0.001)
    async with Surveyor0(options=options) as surveyor:
        peer = Peer(surveyor)
        await surveyor.send(b"q")
        with pytest.raises(Timeout):
            await surveyor.recv()
        reading = asyncio.create_task(anext(surveyor))
        await until(lambda: peer.heard)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading), 0.01)
        peer.say(answer(peer.heard[0], b"in time"))
        assert await reading == b"in time"


async def test_iterating_without_a_survey_is_a_state_error() -> None:
    async with Surveyor0() as surveyor:
        with pytest.raises(StateError, match="no survey is open"):
            await anext(surveyor)


async def test_the_time_of_a_survey_is_0_or_more() -> None:
    async with Surveyor0() as surveyor:
        with pytest.raises(ValueError, match="-1"):
            surveyor.new_context(survey_s=-1)
        with pytest.raises(ValueError, match="-1"):
            await surveyor.survey(b"q", survey_s=-1)


async def test_closing_ends_a_blocked_recv() -> None:
    surveyor = Surveyor0(options=LONG)
    await surveyor.send(b"q")
    waiting = asyncio.create_task(surveyor.recv())
    await turns()
    await surveyor.aclose()
    with pytest.raises(Closed):
        await waiting


def test_an_answer_that_comes_before_the_timer_but_after_the_deadline_is_late() -> None:
    pattern = Surveyor(SocketOptions(survey_s=1.0), random.Random(1))
    plug = Plug(pattern)
    pattern.lane.send(b"q", 10.0)
    (survey,) = plug.take()
    assert pattern.next_deadline() == 11.0
    plug.say(answer(survey, b"in time"), now=10.9)
    plug.say(answer(survey, b"late"), now=11.0)
    assert pattern.lane.recv(11.5, False) == b"in time"
    with pytest.raises(SurveyOver):
        pattern.lane.recv(11.5, True)
    assert pattern.next_deadline() is None
    assert pattern.drops == {"late": 1}


def test_a_survey_without_time_is_over_at_once() -> None:
    pattern = Surveyor(SocketOptions(survey_s=0.0), random.Random(1))
    pattern.lane.send(b"q", 10.0)
    with pytest.raises(StateError):
        pattern.lane.recv(10.0, False)
