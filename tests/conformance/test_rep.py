"""Items 57 to 66: Rep0."""

from __future__ import annotations

import asyncio

import pytest

from protocols import Closed, Device, ProtocolNumber, StateError
from tests.support.waiting import turns, until

from .declaring import EACH, OURS_OURS, PAIRS, STREAMS, TRANSPORTS, item
from .links import Link, soon

REQ = ProtocolNumber.REQ0
ID = b"\x80\x00\x00\x07"


@item(57, pairs=EACH)
async def test_sending_before_receiving_is_out_of_turn(link: Link) -> None:
    async with link:
        with pytest.raises(StateError):
            await link.first("Rep0").send(b"to whom?")


@item(58, pairs=EACH)
async def test_a_second_recv_beside_a_waiting_one_is_refused(link: Link) -> None:
    async with link:
        rep = link.first("Rep0")
        first = await soon(rep.recv())
        with pytest.raises(StateError):
            await rep.recv()
        await rep.aclose()
        with pytest.raises(Closed):
            await first


@item(59, transports=STREAMS, pairs=EACH)
async def test_the_later_of_two_questions_taken_is_answered(link: Link) -> None:
    async with link.scripted("Rep0", REQ) as (rep, peer):
        await peer.send(b"\x80\x00\x00\x01one", b"\x80\x00\x00\x02two")
        assert [await rep.recv(), await rep.recv()] == [b"one", b"two"]
        await rep.send(b"answer")
        assert await peer.recv() == b"\x80\x00\x00\x02answer"
        with pytest.raises(StateError):
            await rep.send(b"again")


@item(60, transports=STREAMS, pairs=EACH)
async def test_an_answer_to_a_requester_that_left_is_dropped_silently(link: Link) -> None:
    async with link.scripted("Rep0", REQ) as (rep, peer):
        await peer.send(ID + b"question")
        assert await rep.recv() == b"question"
        await peer.aclose()
        await until(lambda: not rep.pipes)
        await rep.send(b"answer")
        second = await link.script(REQ, rep)
        await second.send(ID + b"next")
        assert await rep.recv() == b"next"
        await rep.send(b"heard")
        assert await second.recv() == ID + b"heard"


@item(61, transports=STREAMS, pairs=EACH)
async def test_a_requester_that_leaves_during_a_large_answer_harms_no_other(link: Link) -> None:
    async with link.scripted("Rep0", REQ) as (rep, peer):
        await peer.send(ID + b"question")
        assert await rep.recv() == b"question"
        await rep.send(bytes(20 << 20))  # more than kernels hold
        await peer.aclose()
        await until(lambda: not rep.pipes)
        second = await link.script(REQ, rep)
        await second.send(ID + b"next")
        assert await rep.recv() == b"next"


@item(61, transports=TRANSPORTS, pairs=(OURS_OURS,))
async def test_an_answer_that_waits_for_room_ends_with_its_requester(link: Link) -> None:
    async with link:
        rep = link.first("Rep0", send_queue=1)
        req = link.ours("Req0", raw=True, recv_queue=1)
        await link.meet(rep, req)
        await req.send_many([(0x80000000 + number).to_bytes(4) + b"q" for number in range(64)])
        for _ in range(64):
            await rep.recv()
            sending = await soon(rep.send(bytes(2 << 20)))
            if not sending.done():
                break
        assert not sending.done(), "the requester never filled up"
        await req.aclose()
        await sending


@pytest.mark.parametrize("junk", [b"", b"abc", b"\x00\x00\x00\x01", b"\x00\x00\x00\x01\x00\x00\x00\x02"])
@item(62, transports=STREAMS, pairs=EACH)
async def test_garbage_costs_the_pipe_and_the_socket_continues(junk: bytes, link: Link) -> None:
    async with link.scripted("Rep0", REQ) as (rep, good):
        bad = await link.script(REQ, rep)
        await bad.send(junk)
        await bad.read_all()
        await until(lambda: len(rep.pipes) == 1)
        await good.send(ID + b"question")
        assert await rep.recv() == b"question"


@item(63, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_question_crosses_as_many_devices_as_its_ttl_allows(link: Link) -> None:
    """Three devices make four links: a ttl of 4 at the replier lets it pass, 3 does not."""
    async with link:
        far = link.first("Req0")
        near = link.ours("Req0")
        fronts = [link.ours("Rep0", raw=True) for _ in range(3)]
        backs = [link.ours("Req0", raw=True) for _ in range(3)]
        devices = [Device(front, back) for front, back in zip(fronts, backs, strict=True)]
        running = [asyncio.create_task(each.run()) for each in devices]
        strict, lenient = link.second("Rep0", ttl=3), link.second("Rep0", ttl=4)
        await link.meet(strict, backs[2])
        await link.meet(fronts[2], backs[1], near)
        await link.meet(fronts[1], backs[0])
        await link.meet(fronts[0], far)
        await far.send(b"from afar")
        await until(lambda: devices[2].statistics().forward.frames == 1)
        await near.send(b"from nearby")
        assert await strict.recv() == b"from nearby"
        await strict.aclose()
        await until(lambda: not backs[2].pipes)
        await link.meet(lenient, backs[2])
        await far.send(b"from afar again")
        while await lenient.recv() != b"from afar again":
            pass
        await lenient.send(b"heard")
        assert await far.recv() == b"heard"
        await asyncio.gather(*(front.aclose() for front in fronts))
        await asyncio.gather(*running)


@item(64, transports=TRANSPORTS, pairs=PAIRS)
async def test_an_answer_of_ten_megabytes_arrives_and_traffic_continues(link: Link) -> None:
    async with link.pair("Rep0", "Req0") as (rep, req):
        for body in (bytes(range(250)) * 40_000, b"small"):
            await req.send(b"question")
            assert await rep.recv() == b"question"
            await rep.send(body)
            assert await req.recv() == body


@item(65, transports=TRANSPORTS, pairs=PAIRS)
async def test_contexts_serve_in_parallel(link: Link) -> None:
    async with link.pair("Rep0", "Req0") as (rep, req):
        askers = [req.new_context() for _ in range(4)]
        servers = [rep.new_context() for _ in range(4)]
        for number, asker in enumerate(askers):
            await asker.send(b"%d" % number)
        bodies = [await server.recv() for server in servers]
        assert sorted(bodies) == [b"0", b"1", b"2", b"3"]
        for server, body in reversed(list(zip(servers, bodies, strict=True))):
            await server.send(b"re " + body)
        for number, asker in enumerate(askers):
            assert await asker.recv() == b"re %d" % number


@item(66, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_recv_ends_with_its_socket_and_outlives_its_peers(link: Link) -> None:
    async with link:
        rep = link.first("Rep0")
        await link.meet(rep)
        receiving = await soon(rep.recv())
        for _ in range(3):
            req = link.second("Req0")
            await link.join(rep, req)
            await req.aclose()
            await until(lambda: not rep.pipes)
        assert not receiving.done()
        await rep.aclose()
        with pytest.raises(Closed):
            await receiving
        await turns()
