"""Items 67 to 90: Surveyor0 and Respondent0."""

from __future__ import annotations

import asyncio

import pytest

from protocols import Closed, ProtocolNumber, StateError, SurveyOver, Timeout
from tests.support.waiting import until

from .declaring import EACH, OURS_OURS, PAIRS, STREAMS, TRANSPORTS, item
from .links import Link, soon

SURVEYOR, RESPONDENT = ProtocolNumber.SURVEYOR0, ProtocolNumber.RESPONDENT0
SURVEY_S = 0.3
"""Long enough that a busy machine is back in time to wait for its end."""


@item(67, pairs=EACH)
async def test_receiving_without_a_survey_is_out_of_turn(link: Link) -> None:
    async with link:
        with pytest.raises(StateError):
            await link.first("Surveyor0").recv()


@item(68, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_survey_reaches_all_and_all_answers_come(link: Link) -> None:
    await broadcast(link, respondents=5, rounds=4)


@pytest.mark.long
@item(
    68,
    transports=("inproc", "tcp"),
    pairs=(OURS_OURS,),
    note="300 rounds of 100 respondents: marked long",
)
async def test_300_surveys_of_100_respondents(link: Link) -> None:
    await broadcast(link, respondents=100, rounds=300)


async def broadcast(link: Link, respondents: int, rounds: int) -> None:
    async with link:
        surveyor = link.first("Surveyor0")
        others = [link.second("Respondent0") for _ in range(respondents)]
        await link.meet(surveyor, *others)

        async def respond(number: int) -> None:
            for _ in range(rounds):
                body = await others[number].recv()
                await others[number].send(body + b" %d" % number)

        responding = [asyncio.create_task(respond(number)) for number in range(respondents)]
        for turn in range(rounds):
            await surveyor.send(b"%d" % turn)
            answers = {await surveyor.recv() for _ in range(respondents)}
            assert answers == {b"%d %d" % (turn, number) for number in range(respondents)}
        await asyncio.gather(*responding)


@item(69, pairs=EACH)
async def test_a_survey_without_peers_is_sent(link: Link) -> None:
    async with link:
        await link.first("Surveyor0").send(b"nobody")


@item(70, pairs=EACH)
async def test_the_deadline_ends_a_waiting_recv(link: Link) -> None:
    async with link:
        surveyor = link.first("Surveyor0", survey_s=SURVEY_S)
        await surveyor.send(b"nobody")
        with pytest.raises(SurveyOver):
            await surveyor.recv()


@item(71, transports=TRANSPORTS, pairs=PAIRS)
async def test_no_survey_is_open_after_the_deadline(link: Link) -> None:
    async with link.pair("Surveyor0", "Respondent0", a={"survey_s": SURVEY_S}) as (surveyor, respondent):
        await surveyor.send(b"1")
        with pytest.raises(SurveyOver):
            await surveyor.recv()
        with pytest.raises(StateError):
            await surveyor.recv()
        assert await respondent.recv() == b"1"
        context = surveyor.new_context(survey_s=10.0)
        await context.send(b"2")
        assert await respondent.recv() == b"2"
        await respondent.send(b"here")
        assert await context.recv() == b"here"


@item(72, transports=STREAMS, pairs=EACH)
async def test_a_late_answer_never_appears_in_the_next_survey(link: Link) -> None:
    async with link.scripted("Surveyor0", RESPONDENT) as (surveyor, peer):
        await surveyor.send(b"1")
        first = await peer.recv()
        await surveyor.send(b"2")
        second = await peer.recv()
        await peer.send(first[:4] + b"stale", second[:4] + b"fresh")
        assert await surveyor.recv() == b"fresh"


@item(72, transports=STREAMS, pairs=EACH)
async def test_a_new_survey_forgets_unread_answers(link: Link) -> None:
    async with link.scripted("Surveyor0", RESPONDENT) as (surveyor, peer):
        await surveyor.send(b"1")
        first = await peer.recv()
        await peer.send(first[:4] + b"unread", first[:4] + b"unread too")
        await asyncio.sleep(0.01)
        await surveyor.send(b"2")
        second = await peer.recv()
        await peer.send(second[:4] + b"fresh")
        assert await surveyor.recv() == b"fresh"


@item(73, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_new_survey_ends_a_recv_that_waits_for_the_old(link: Link) -> None:
    async with link.pair("Surveyor0", "Respondent0") as (surveyor, _):
        await surveyor.send(b"1")
        receiving = await soon(surveyor.recv())
        await surveyor.send(b"2")
        with pytest.raises(StateError):
            await receiving


@item(74, transports=STREAMS, note="NNG's queue holds 128, whatever is set")
async def test_answers_beyond_the_queue_are_dropped_and_counted(link: Link) -> None:
    async with link.scripted("Surveyor0", RESPONDENT, recv_queue=3) as (surveyor, peer):
        await surveyor.send(b"who?")
        id = (await peer.recv())[:4]
        await peer.send(*(id + b"%d" % number for number in range(5)))
        await until(lambda: surveyor.statistics().drops.get("inbox full") == 2)
        assert [await surveyor.recv() for _ in range(3)] == [b"0", b"1", b"2"]


@item(75, transports=TRANSPORTS, pairs=PAIRS)
async def test_surveys_to_a_peer_that_does_not_read_never_wait(link: Link) -> None:
    async with link.pair("Surveyor0", "Respondent0", a={"send_queue": 4}, b={"recv_queue": 1}) as (
        surveyor,
        _,
    ):
        for _ in range(200):
            await surveyor.send(bytes(10_000), timeout=5.0)


@pytest.mark.parametrize(
    "garbage", [b"\x80\x00", b"\xff\xff\xff\xff??", b"\x00\x00\x00\x01\x80\x00\x00\x00x"]
)
@item(76, transports=STREAMS, pairs=EACH)
async def test_garbage_answers_do_no_harm(garbage: bytes, link: Link) -> None:
    async with link.scripted("Surveyor0", RESPONDENT) as (surveyor, good):
        bad = await link.script(RESPONDENT, surveyor)
        await surveyor.send(b"who?")
        id = (await good.recv())[:4]
        await bad.recv()
        await bad.send(garbage)
        if len(garbage) < 4:
            await until(lambda: len(surveyor.pipes) == 1)
        await good.send(id + b"me")
        assert await surveyor.recv() == b"me"


@item(77, transports=TRANSPORTS, pairs=PAIRS, note="6 at a time: NNG queues 8 surveys a pipe")
async def test_concurrent_surveys_do_not_mix(link: Link) -> None:
    async with link.pair("Surveyor0", "Respondent0") as (surveyor, respondent):

        async def ask(number: int) -> bytes:
            context = surveyor.new_context()
            await context.send(b"%d" % number)
            answer: bytes = await context.recv()
            await context.aclose()
            return answer

        async def respond() -> None:
            for _ in range(6):
                await respondent.send(b"re " + await respondent.recv())

        responding = asyncio.create_task(respond())
        answers = await asyncio.gather(*(ask(number) for number in range(6)))
        assert answers == [b"re %d" % number for number in range(6)]
        await responding


@item(78, pairs=EACH)
async def test_each_context_has_its_own_survey_time(link: Link) -> None:
    async with link:
        surveyor = link.first("Surveyor0")
        short, long = surveyor.new_context(survey_s=SURVEY_S), surveyor.new_context()
        await short.send(b"short")
        await long.send(b"long")
        waiting = await soon(long.recv())
        with pytest.raises(SurveyOver):
            await short.recv()
        assert not waiting.done()
        await long.aclose()
        with pytest.raises(Closed):
            await waiting


@item(79, transports=TRANSPORTS, pairs=PAIRS, note="bare NNG ends the survey; our engine over it does not")
async def test_the_readers_own_timeout_leaves_the_survey_open(link: Link) -> None:
    async with link.pair("Surveyor0", "Respondent0") as (surveyor, respondent):
        await surveyor.send(b"who?")
        with pytest.raises(Timeout):
            await surveyor.recv(timeout=0.01)
        assert await respondent.recv() == b"who?"
        await respondent.send(b"me")
        assert await surveyor.recv() == b"me"


@item(80, transports=STREAMS, note="NNG, nanomsg and mangos lose it")
async def test_an_answer_in_time_can_be_read_after_the_deadline(link: Link) -> None:
    async with link.scripted("Surveyor0", RESPONDENT, survey_s=SURVEY_S) as (surveyor, peer):
        await surveyor.send(b"who?")
        id = (await peer.recv())[:4]
        await peer.send(id + b"in time")
        deadline = asyncio.get_running_loop().time() + SURVEY_S
        await until(lambda: asyncio.get_running_loop().time() > deadline + 0.01)
        assert await surveyor.recv() == b"in time"
        with pytest.raises(StateError):
            await surveyor.recv()


@item(81, transports=TRANSPORTS, pairs=PAIRS, note="bare NNG ends the survey; our engine over it does not")
async def test_a_cancelled_reader_leaves_the_survey_open(link: Link) -> None:
    async with link.pair("Surveyor0", "Respondent0") as (surveyor, respondent):
        await surveyor.send(b"who?")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(surveyor.recv(), 0.01)
        assert await respondent.recv() == b"who?"
        await respondent.send(b"me")
        assert await surveyor.recv() == b"me"


# --- the answering half


@item(82, pairs=EACH)
async def test_responding_before_a_survey_is_out_of_turn(link: Link) -> None:
    async with link:
        with pytest.raises(StateError):
            await link.first("Respondent0").send(b"to whom?")


@item(83, transports=STREAMS, pairs=EACH)
async def test_an_answer_to_a_surveyor_that_left_is_ignored(link: Link) -> None:
    async with link.scripted("Respondent0", SURVEYOR) as (respondent, peer):
        await peer.send(b"\x80\x00\x00\x01who?")
        assert await respondent.recv() == b"who?"
        await peer.aclose()
        await until(lambda: not respondent.pipes)
        await respondent.send(b"me")


@pytest.mark.parametrize("kind, asker", [("Respondent0", SURVEYOR), ("Rep0", ProtocolNumber.REQ0)])
@item(84, transports=STREAMS, pairs=EACH)
async def test_backtraces_of_0_2_and_7_words_come_back_as_they_went(
    kind: str, asker: ProtocolNumber, link: Link
) -> None:
    async with link.scripted(kind, asker) as (respondent, peer):
        for words in (0, 2, 7):
            trace = b"".join((number + 1).to_bytes(4) for number in range(words)) + b"\x80\x00\x00\x63"
            await peer.send(trace + b"question")
            assert await respondent.recv() == b"question"
            await respondent.send(b"answer")
            assert await peer.recv() == trace + b"answer"


@pytest.mark.parametrize("kind, asker", [("Respondent0", SURVEYOR), ("Rep0", ProtocolNumber.REQ0)])
@item(85, transports=STREAMS, pairs=EACH)
async def test_more_words_than_the_ttl_are_dropped_and_the_pipe_kept(
    kind: str, asker: ProtocolNumber, link: Link
) -> None:
    async with link.scripted(kind, asker) as (respondent, peer):
        words = b"".join((number + 1).to_bytes(4) for number in range(8))
        end = b"\x80\x00\x00\x01"
        await peer.send(words + end + b"too far", words[:28] + end + b"far enough")
        assert await respondent.recv() == b"far enough"
        assert len(respondent.pipes) == 1


@pytest.mark.parametrize("junk", [b"", b"abc", b"\x00\x00\x00\x01body"])
@item(86, transports=STREAMS, pairs=EACH)
async def test_a_survey_that_ends_inside_its_backtrace_costs_the_pipe(junk: bytes, link: Link) -> None:
    async with link.scripted("Respondent0", SURVEYOR) as (respondent, good):
        bad = await link.script(SURVEYOR, respondent)
        await bad.send(junk)
        await bad.read_all()
        await until(lambda: len(respondent.pipes) == 1)
        await good.send(b"\x80\x00\x00\x01who?")
        assert await respondent.recv() == b"who?"


@item(88, transports=STREAMS)
async def test_an_answer_waits_for_room_or_with_best_effort_is_dropped(link: Link) -> None:
    for best_effort in (False, True):
        async with link.scripted(
            "Respondent0", SURVEYOR, send_queue=1, best_effort=best_effort, send_timeout_s=0.05
        ) as (respondent, peer):
            await peer.send(*((0x80000000 + number).to_bytes(4) + b"q" for number in range(40)))
            timeouts = 0
            for _ in range(40):
                await respondent.recv()
                try:
                    await respondent.send(bytes(1 << 20))
                except Timeout:
                    timeouts += 1
                    break
            assert timeouts == (0 if best_effort else 1)
            assert bool(respondent.statistics().drops.get("peer slow")) is best_effort


@item(89, transports=TRANSPORTS, pairs=PAIRS)
async def test_contexts_answer_in_parallel(link: Link) -> None:
    async with link.pair("Respondent0", "Surveyor0") as (respondent, surveyor):
        askers = [surveyor.new_context() for _ in range(4)]
        servers = [respondent.new_context() for _ in range(4)]
        bodies = []
        for number, (asker, server) in enumerate(zip(askers, servers, strict=True)):
            await asker.send(b"%d" % number)  # one after the other: NNG keeps one unread survey a pipe
            bodies.append(await server.recv())
        for server, body in reversed(list(zip(servers, bodies, strict=True))):
            await server.send(b"re " + body)
        for number, asker in enumerate(askers):
            assert await asker.recv() == b"re %d" % number


@item(90, transports=STREAMS, pairs=EACH)
async def test_the_later_of_two_surveys_taken_is_answered(link: Link) -> None:
    async with link.scripted("Respondent0", SURVEYOR) as (respondent, peer):
        await peer.send(b"\x80\x00\x00\x01one")
        assert await respondent.recv() == b"one"
        await peer.send(b"\x80\x00\x00\x02two")
        assert await respondent.recv() == b"two"
        await respondent.send(b"answer")
        assert await peer.recv() == b"\x80\x00\x00\x02answer"
