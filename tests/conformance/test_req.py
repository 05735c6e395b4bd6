"""Items 40 to 56: Req0."""

from __future__ import annotations

import asyncio

import pytest

from protocols import Closed, NoPeers, ProtocolNumber, RequestLost, StateError
from tests.support.waiting import until

from .declaring import EACH, OURS, OURS_OURS, PAIRS, STREAMS, TRANSPORTS, item
from .links import Link, soon

REP = ProtocolNumber.REP0


def word(frame: bytes) -> int:
    return int.from_bytes(frame[:4])


@item(40, transports=TRANSPORTS, pairs=PAIRS)
async def test_question_and_answer(link: Link) -> None:
    async with link.pair("Req0", "Rep0") as (req, rep):
        for number in range(5):
            await req.send(b"%d" % number)
            assert await rep.recv() == b"%d" % number
            await rep.send(b"re %d" % number)
            assert await req.recv() == b"re %d" % number


@item(41, pairs=EACH)
async def test_receiving_before_sending_is_out_of_turn(link: Link) -> None:
    async with link:
        with pytest.raises(StateError):
            await link.first("Req0").recv()


@item(42, transports=STREAMS, pairs=EACH)
async def test_ids_have_bit_31_and_count_up(link: Link) -> None:
    async with link.scripted("Req0", REP) as (req, peer):
        ids = []
        for _ in range(4):
            await req.send(b"body")
            frame = await peer.recv()
            assert frame[4:] == b"body"
            ids.append(word(frame))
        assert all(id & 0x80000000 for id in ids)
        steps = [(later - ids[0]) % (1 << 31) for later in ids]
        if link.case.pair[0] == OURS:
            assert steps == [0, 1, 2, 3]
        else:  # a send that NNG could not take at once costs an id
            assert steps == sorted(set(steps)) and steps[-1] < 16


@item(43, transports=STREAMS, note="ours each resend_s; NNG each second after the first")
async def test_an_unanswered_request_is_sent_again_with_its_id(link: Link) -> None:
    async with link.scripted("Req0", REP, resend_s=0.02) as (req, peer):
        await req.send(b"anybody?")
        frames = [await peer.recv() for _ in range(3)]
        assert frames[0] == frames[1] == frames[2]
        await peer.send(frames[0][:4] + b"yes")
        assert await req.recv() == b"yes"


@item(44, transports=STREAMS, pairs=EACH)
async def test_a_request_is_sent_again_at_once_when_its_pipe_closes(link: Link) -> None:
    async with link.scripted("Req0", REP) as (req, first):
        await req.send(b"anybody?")
        frame = await first.recv()
        second = await link.script(REP, req)
        await first.aclose()
        assert await second.recv() == frame
        await second.send(frame[:4] + b"yes")
        assert await req.recv() == b"yes"


@item(45, transports=STREAMS, pairs=EACH)
async def test_a_request_is_sent_again_when_a_peer_connects_late(link: Link) -> None:
    async with link.scripted("Req0", REP) as (req, first):
        await req.send(b"anybody?")
        frame = await first.recv()
        await first.aclose()
        await until(lambda: not req.pipes)
        second = await link.script(REP, req)
        assert await second.recv() == frame


@item(46, transports=STREAMS, pairs=EACH)
async def test_a_lost_peer_is_an_error_with_resending_off(link: Link) -> None:
    async with link.scripted("Req0", REP, resend_s=0.0) as (req, peer):
        await req.send(b"only once")
        await peer.recv()
        receiving = await soon(req.recv())
        await peer.aclose()
        with pytest.raises(RequestLost):
            await receiving


@item(47, transports=STREAMS, pairs=EACH)
async def test_the_answer_to_a_replaced_request_is_ignored(link: Link) -> None:
    async with link.scripted("Req0", REP) as (req, peer):
        await req.send(b"old")
        old = await peer.recv()
        await req.send(b"new")
        new = await peer.recv()
        assert word(new) != word(old)
        await peer.send(old[:4] + b"late", new[:4] + b"in time")
        assert await req.recv() == b"in time"


@item(48, transports=("tcp",), pairs=PAIRS)
async def test_a_new_request_ends_a_recv_that_waits_for_the_old(link: Link) -> None:
    async with link.pair("Req0", "Rep0") as (req, _):
        await req.send(b"old")
        receiving = await soon(req.recv())
        await req.send(b"new")
        with pytest.raises(StateError):
            await receiving


@item(49, transports=STREAMS, pairs=EACH)
async def test_an_answer_that_came_before_the_new_request_is_not_delivered(link: Link) -> None:
    async with link.scripted("Req0", REP) as (req, peer):
        await req.send(b"old")
        old = await peer.recv()
        await peer.send(old[:4] + b"answer to the old")
        await asyncio.sleep(0.01)  # either order must work; this is the difficult one
        await req.send(b"new")
        new = await peer.recv()
        await peer.send(new[:4] + b"answer to the new")
        assert await req.recv() == b"answer to the new"


@item(50, transports=STREAMS, pairs=EACH)
async def test_answers_with_an_unknown_id_are_ignored(link: Link) -> None:
    async with link.scripted("Req0", REP) as (req, peer):
        await req.send(b"question")
        id = (await peer.recv())[:4]
        other = (word(id) ^ 1).to_bytes(4)
        await peer.send(other + b"not mine", b"\x00\x00\x00\x01" + id + b"not unwound", id + b"mine")
        assert await req.recv() == b"mine"


@item(50, transports=STREAMS, pairs=EACH)
async def test_answers_without_an_id_do_no_harm(link: Link) -> None:
    async with link.scripted("Req0", REP) as (req, peer):
        await req.send(b"question")
        await peer.recv()
        await peer.send(b"abc")
        await until(lambda: not req.pipes)
        second = await link.script(REP, req)
        frame = await second.recv()
        await second.send(frame[:4] + b"answer")
        assert await req.recv() == b"answer"


@item(51, transports=TRANSPORTS, pairs=PAIRS)
async def test_many_parallel_requests_never_cross(link: Link) -> None:
    async with link.pair("Req0", "Rep0") as (req, rep):

        async def ask(number: int) -> bytes:
            context = req.new_context()
            await context.send(b"%d" % number)
            answer: bytes = await context.recv()
            await context.aclose()
            return answer

        async def serve() -> None:
            for _ in range(40):
                body = await rep.recv()
                await rep.send(b"re " + body)

        serving = asyncio.create_task(serve())
        answers = await asyncio.gather(*(ask(number) for number in range(40)))
        assert answers == [b"re %d" % number for number in range(40)]
        await serving


@item(52, transports=("tcp",), pairs=PAIRS)
async def test_closing_a_context_ends_its_calls_and_no_others(link: Link) -> None:
    async with link.pair("Req0", "Rep0") as (req, rep):
        context = req.new_context()
        await context.send(b"from the context")
        receiving = await soon(context.recv())
        await context.aclose()
        with pytest.raises(Closed):
            await receiving
        assert await rep.recv() == b"from the context"
        await req.send(b"from the socket")
        assert await rep.recv() == b"from the socket"
        await rep.send(b"answer")
        assert await req.recv() == b"answer"


@item(52, pairs=EACH)
async def test_closing_a_context_ends_a_send_that_waits(link: Link) -> None:
    async with link:
        context = link.first("Req0").new_context()
        sending = await soon(context.send(b"nobody is there"))
        await context.aclose()
        with pytest.raises(Closed):
            await sending


@item(53, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_request_without_a_peer_is_sent_when_one_comes(link: Link) -> None:
    async with link:
        req, rep = link.first("Req0"), link.second("Rep0")
        sending = await soon(req.send(b"anybody?"))
        await link.meet(req, rep)
        await sending
        assert await rep.recv() == b"anybody?"
        await rep.send(b"yes")
        assert await req.recv() == b"yes"


@item(54, transports=TRANSPORTS, pairs=PAIRS, note="in turn; NNG: whichever pipe is free")
async def test_requests_are_distributed_to_all_repliers(link: Link) -> None:
    async with link:
        req = link.first("Req0")
        reps = [link.second("Rep0") for _ in range(3)]
        await link.meet(req, *reps)
        served = [0, 0, 0]

        async def serve(number: int) -> None:
            while True:
                await reps[number].recv()
                served[number] += 1
                await reps[number].send(b"answer")

        contexts = [req.new_context() for _ in range(9)]
        for context in contexts:
            await context.send(b"question")
        serving = [asyncio.create_task(serve(number)) for number in range(3)]
        for context in contexts:
            assert await context.recv() == b"answer"
        assert sum(served) == 9
        if link.case.pair[0] == OURS:
            assert served == [3, 3, 3]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


@item(55, transports=TRANSPORTS, pairs=(OURS_OURS,), note="an option of ours and mangos'")
async def test_a_request_without_peers_fails_at_once_if_configured(link: Link) -> None:
    async with link:
        req, rep = link.first("Req0", fail_without_peers=True), link.second("Rep0")
        with pytest.raises(NoPeers):
            await req.send(b"before")
        await link.meet(req, rep)
        await req.send(b"while there")
        assert await rep.recv() == b"while there"
        receiving = await soon(req.recv())
        await rep.aclose()
        with pytest.raises(NoPeers):
            await receiving
        with pytest.raises(NoPeers):
            await req.send(b"after")


@item(56, transports=TRANSPORTS, pairs=(OURS_OURS,), note="an option of ours and mangos'")
async def test_best_effort_sends_at_once_and_the_request_goes_when_a_peer_comes(link: Link) -> None:
    async with link:
        req, rep = link.first("Req0", best_effort=True), link.second("Rep0")
        req.send_nowait(b"nobody is there")
        await link.meet(req, rep)
        assert await rep.recv() == b"nobody is there"
        await rep.send(b"now I am")
        assert await req.recv() == b"now I am"
