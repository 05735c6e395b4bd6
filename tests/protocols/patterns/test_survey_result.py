"""survey(): answers with their peers, the missing peers by name, and an early end once no more can come."""

from __future__ import annotations

import asyncio
import random
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols import (
    Answer,
    Closed,
    Respondent0,
    SocketOptions,
    StateError,
    Surveyor0,
    WouldBlock,
)
from protocols.patterns.survey import Surveyor
from protocols.wire.backtrace import END_BIT, encode_word
from tests.support.link import Link, Peer, Plug
from tests.support.waiting import turns, until

LONG = SocketOptions(survey_s=30.0)


def answer(survey: bytes, body: bytes) -> bytes:
    return survey[:4] + body


async def test_a_survey_ends_once_all_peers_have_answered_and_names_the_peer_of_each_answer() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        respondents = [Respondent0() for _ in range(20)]
        links = [Link(surveyor, respondent) for respondent in respondents]

        async def serve(number: int) -> None:
            async for body in respondents[number]:
                await respondents[number].send(body + b" %d" % number)

        serving = [asyncio.create_task(serve(number)) for number in range(20)]
        for round_ in range(10):
            async with asyncio.timeout(10.0):  # a third of the survey's own time
                result = await surveyor.survey(b"round %d" % round_)
            assert result.complete
            assert {(each.pipe, each.body) for each in result.answers} == {
                (link.first, b"round %d %d" % (round_, number)) for number, link in enumerate(links)
            }
        for respondent in respondents:
            await respondent.aclose()
        await asyncio.gather(*serving)


async def test_the_silent_the_lost_and_those_not_asked_are_named() -> None:
    async with Surveyor0(options=SocketOptions(survey_s=0.05, send_queue=1)) as surveyor:
        good, silent, leaver, full = (
            Peer(surveyor, name=name) for name in ("good", "silent", "leaver", "full")
        )
        full.connection.hold()
        full.pipe.send(b"fills its queue")
        running = asyncio.create_task(surveyor.survey(b"q"))
        await until(lambda: good.heard)
        good.say(answer(good.heard[0], b"here"))
        leaver.hang_up()
        result = await running
        assert result.answers == (Answer(b"here", good.pipe),)
        assert result.missing == (silent.pipe,)
        assert result.lost == (leaver.pipe,)
        assert result.not_asked == (full.pipe,)
        full.connection.release()
        assert not result.complete
        assert surveyor.statistics().drops == {"peer slow": 1}


async def test_a_survey_ends_when_the_last_silent_peer_leaves() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        peer = Peer(surveyor)
        running = asyncio.create_task(surveyor.survey(b"q"))
        await until(lambda: peer.heard)
        peer.hang_up()
        result = await asyncio.wait_for(running, 5.0)
        assert (result.answers, result.lost) == ((), (peer.pipe,))


async def test_a_survey_without_peers_ends_at_once_and_is_not_complete() -> None:
    """A survey without answers does not count as complete."""
    async with Surveyor0(options=LONG) as surveyor:
        result = await asyncio.wait_for(surveyor.survey(b"q"), 5.0)
        assert not result.complete and result.answers == ()


async def test_a_survey_may_wait_for_several_answers_of_one_peer() -> None:
    async with Surveyor0() as surveyor:
        device = Peer(surveyor)
        running = asyncio.create_task(surveyor.survey(b"q", survey_s=0.1, early=False))
        await until(lambda: device.heard)
        device.say(answer(device.heard[0], b"1"))
        await turns()
        device.say(answer(device.heard[0], b"2"))
        result = await running
        assert [each.body for each in result.answers] == [b"1", b"2"]
        assert result.complete


async def test_a_peer_that_floods_cannot_take_the_place_of_another() -> None:
    """The queue bounds second answers; the first of each peer is always kept."""
    async with Surveyor0(options=SocketOptions(survey_s=30.0, recv_queue=2)) as surveyor:
        flood, *others = [Peer(surveyor, name=str(number)) for number in range(6)]
        running = asyncio.create_task(surveyor.survey(b"q"))
        await until(lambda: flood.heard)
        flood.say(*[answer(flood.heard[0], b"f")] * 10)
        for peer in others:
            peer.say(answer(peer.heard[0], b"o"))
        result = await running
        assert [each.body for each in result.answers] == [b"f"] * 3 + [b"o"] * 5
        assert surveyor.statistics().drops == {"inbox full": 7}


async def test_answers_of_an_earlier_survey_never_count() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        peer = Peer(surveyor)
        await surveyor.survey(b"1", survey_s=0.01)
        running = asyncio.create_task(surveyor.survey(b"2"))
        await until(lambda: len(peer.heard) == 2)
        peer.say(answer(peer.heard[0], b"stale"), encode_word(END_BIT | 1), answer(peer.heard[1], b"fresh"))
        assert [each.body for each in (await running).answers] == [b"fresh"]
        assert surveyor.statistics().drops == {"late": 2}


async def test_contexts_survey_side_by_side() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        peer = Peer(surveyor)
        contexts = [surveyor.new_context() for _ in range(10)]
        running = [
            asyncio.create_task(context.survey(b"%d" % number)) for number, context in enumerate(contexts)
        ]
        hasty = asyncio.create_task(surveyor.survey(b"hasty", survey_s=0.01))
        await until(lambda: len(peer.heard) == 11)
        assert (await hasty).missing == (peer.pipe,)
        peer.say(*(answer(frame, b"re " + frame[4:]) for frame in reversed(peer.heard[:10])))
        for number, result in enumerate(await asyncio.gather(*running)):
            assert [each.body for each in result.answers] == [b"re %d" % number]


async def test_more_contexts_than_a_queue_holds_may_ask_in_one_turn() -> None:
    async with Surveyor0(options=SocketOptions(survey_s=30.0, send_queue=10)) as surveyor:
        peer = Peer(surveyor)
        contexts = [surveyor.new_context() for _ in range(100)]
        running = [asyncio.create_task(context.survey(b"q")) for context in contexts]
        await until(lambda: len(peer.heard) == 100)
        peer.say(*peer.heard)
        assert all(result.complete for result in await asyncio.gather(*running))


async def test_a_newer_survey_begun_in_either_way_replaces_the_former() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        peer = Peer(surveyor)
        first = asyncio.create_task(surveyor.survey(b"1"))
        await until(lambda: peer.heard)
        second = asyncio.create_task(surveyor.survey(b"2"))
        with pytest.raises(StateError, match="replaced"):
            await first
        await surveyor.send(b"3")
        with pytest.raises(StateError, match="replaced"):
            await second
        await until(lambda: len(peer.heard) == 3)
        peer.say(answer(peer.heard[2], b"a"))
        assert await surveyor.recv() == b"a"


async def test_recv_beside_a_survey_call_is_a_state_error() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        peer = Peer(surveyor)
        await surveyor.send(b"0")
        reader = asyncio.create_task(surveyor.recv())
        await turns()
        running = asyncio.create_task(surveyor.survey(b"1"))
        with pytest.raises(StateError, match="replaced"):
            await reader
        with pytest.raises(StateError, match="collects the answers"):
            await surveyor.recv()
        peer.say(answer(peer.heard[1], b"a"))
        assert (await running).complete
        with pytest.raises(StateError, match="the survey is over"):
            await surveyor.recv()


async def test_a_cancelled_survey_call_leaves_the_survey_open_and_its_answers_readable() -> None:
    async with Surveyor0(options=LONG) as surveyor:
        peer = Peer(surveyor)
        running = asyncio.create_task(surveyor.survey(b"q", early=False))
        await until(lambda: peer.heard)
        peer.say(answer(peer.heard[0], b"before"))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        peer.say(answer(peer.heard[0], b"after"))
        assert [await surveyor.recv(), await surveyor.recv()] == [b"before", b"after"]
        with pytest.raises(WouldBlock):
            surveyor.recv_nowait()


async def test_closing_ends_a_survey_call() -> None:
    surveyor = Surveyor0(options=LONG)
    context = surveyor.new_context()
    Peer(surveyor)
    running = [asyncio.create_task(surveyor.survey(b"q")), asyncio.create_task(context.survey(b"q"))]
    await turns()
    await surveyor.aclose()
    for task in running:
        with pytest.raises(Closed):
            await task
    with pytest.raises(Closed):
        await surveyor.survey(b"q")


async def test_a_question_is_bytes() -> None:
    async with Surveyor0() as cooked:
        with pytest.raises(TypeError, match="a body is bytes"):
            await cooked.survey("text")  # type: ignore[arg-type]


def test_an_answer_after_the_deadline_is_late_even_if_the_timer_is_later() -> None:
    pattern = Surveyor(SocketOptions(), random.Random(1))
    plug, other = Plug(pattern, 1), Plug(pattern, 2)
    tally = pattern.lane.collect(b"q", 10.0, 2.0, early=True)
    (survey,) = plug.take()
    plug.say(answer(survey, b"in time"), now=11.9)
    other.say(answer(survey, b"late"), now=12.0)
    assert not tally.over
    assert pattern.next_deadline() == 12.0
    pattern.deadline_reached(13.0)
    assert tally.over and pattern.next_deadline() is None
    result = pattern.lane.take_tally(tally)
    assert result is not None
    assert result.answers == (Answer(b"in time", plug.pipe),)
    assert result.missing == (other.pipe,)
    assert pattern.drops == {"late": 1}


def test_surveys_that_are_over_leave_no_state() -> None:
    """However many surveys end, early, late or replaced: the table of open ones has one entry a lane."""
    pattern = Surveyor(SocketOptions(), random.Random(1))
    plug = Plug(pattern, limit=10_000)
    lanes = [pattern.open_lane() for _ in range(3)]
    for number in range(1000):
        lanes[number % 3].collect(b"q", float(number), 1.0, early=True)
        assert len(pattern._open) <= 3
        if number % 2:
            plug.say(*(answer(frame, b"a") for frame in plug.take()), now=number + 0.5)
    pattern.deadline_reached(2000.0)
    assert pattern._open == {}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["answer", "stale", "leave", "come", "fill", "pass time", "again"]), st.integers(0, 4)
    ),
    max_size=40,
)


@given(STEPS, st.booleans())
def test_each_peer_of_a_survey_is_in_exactly_one_field_of_the_result(
    steps: list[tuple[str, int]], early: bool
) -> None:
    """And an early survey is over exactly when no peer is left to wait for, or its time is up."""
    pattern = Surveyor(SocketOptions(recv_queue=2), random.Random(1))
    ids = count(1)
    plugs = {number: Plug(pattern, next(ids), limit=2) for number in range(5)}
    now = 0.0
    stale = b"\x80\0\0\1"
    there = list(plugs.values())
    tally = pattern.lane.collect(b"q", now, 5.0, early=early)
    for what, number in steps:
        plug = plugs[number]
        if what == "answer" and plug in there and not plug.pipe.closed:
            plug.say(*(answer(frame, b"%d" % number) for frame in plug.take()[-1:]), now=now)
        elif what == "stale" and not plug.pipe.closed:
            plug.say(stale + b"old", now=now)
        elif what == "leave" and not plug.pipe.closed:
            plug.lose(now)
        elif what == "come" and plug.pipe.closed:
            plugs[number] = Plug(pattern, next(ids), limit=2, now=now)
        elif what == "fill" and not plug.pipe.closed:
            plug.pipe.send_many([b"x"] * 2)
        elif what == "pass time":
            now += number
            pattern.deadline_reached(now)
        elif what == "again":
            pattern.lane.take_tally(tally)
            there = [plug for plug in plugs.values() if not plug.pipe.closed]
            tally = pattern.lane.collect(b"q", now, 5.0, early=early)
        waiting = set(tally._waiting)
        assert tally.over == ((early and not waiting) or now >= pattern.lane.deadline)
    result = tally.result()
    places = [
        {each.pipe.id for each in result.answers},
        {pipe.id for pipe in result.missing},
        {pipe.id for pipe in result.lost},
        {pipe.id for pipe in result.not_asked},
    ]
    assert sorted(id for place in places for id in place) == sorted(plug.pipe.id for plug in there)
    assert result.complete == (bool(places[0]) and not any(places[1:]))
    assert len(pattern._open) <= 1
