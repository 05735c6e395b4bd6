"""Items 26 to 39: Pair0 and Pair1."""

from __future__ import annotations

import asyncio

import pytest

from protocols import LocalProtocolError, ProtocolNumber, Timeout, WouldBlock
from tests.support.waiting import until

from .declaring import EACH, OURS_OURS, PAIRS, PYNNG, STREAMS, TRANSPORTS, item
from .links import Link, soon

KINDS = pytest.mark.parametrize("kind", ["Pair0", "Pair1"])
PAIR1 = ProtocolNumber.PAIR1


@KINDS
@item(26, transports=TRANSPORTS, pairs=PAIRS)
async def test_both_ways_in_order(kind: str, link: Link) -> None:
    async with link.pair(kind, kind) as (one, other):
        bodies = [b"%d" % number for number in range(100)]
        for sender, receiver in ((one, other), (other, one)):
            receiving = await soon(asyncio.gather(*(receiver.recv() for _ in range(1))))
            for body in bodies:
                await sender.send(body)
            got = await receiving + [await receiver.recv() for _ in bodies[1:]]
            assert got == bodies


@KINDS
@item(27, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_second_partner_is_refused_and_the_first_stays(kind: str, link: Link) -> None:
    async with link.pair(kind, kind) as (one, other):
        second = link.second(kind)
        second.dial(link.url)
        if link.case.pair[0] != PYNNG:
            await until(lambda: one.listeners[0].statistics().refused.get("not wanted", 0) >= 1)
        await one.send(b"for the first")
        assert await other.recv() == b"for the first"
        await other.send(b"from the first")
        assert await one.recv() == b"from the first"


@KINDS
@item(28, transports=TRANSPORTS, pairs=PAIRS)
async def test_another_partner_is_accepted_when_the_first_has_left(kind: str, link: Link) -> None:
    async with link:
        one, other = link.first(kind), link.second(kind)
        await link.meet(one, other)
        await other.aclose()
        await until(lambda: not one.pipes)
        await link.join(one, third := link.second(kind))
        await third.send(b"here")
        assert await one.recv() == b"here"


@KINDS
@item(29, transports=TRANSPORTS, pairs=PAIRS)
async def test_sending_waits_when_the_peer_does_not_read(kind: str, link: Link) -> None:
    small = {"send_queue": 2, "recv_queue": 2}
    async with link.pair(kind, kind, a=small, b=small) as (one, other):
        body = bytes(1 << 20)
        sent = 0
        with pytest.raises(Timeout):
            while sent < 200:
                await one.send(body, timeout=0.2)
                sent += 1
        for _ in range(sent):
            assert await other.recv() == body


@KINDS
@item(30, pairs=EACH)
async def test_sending_without_a_peer_waits(kind: str, link: Link) -> None:
    async with link:
        one = link.first(kind, send_queue=1)
        with pytest.raises(Timeout):
            for _ in range(3):  # NNG has room for its own queue
                await one.send(b"nobody", timeout=0.01)


@KINDS
@item(31, transports=TRANSPORTS, pairs=(OURS_OURS,), note="NNG has no best effort")
async def test_best_effort_drops_and_counts_instead_of_waiting(kind: str, link: Link) -> None:
    async with link:
        one = link.first(kind, best_effort=True, send_queue=4)
        await one.send(b"nobody")
        await link.meet(one, other := link.second(kind))
        for number in range(10):
            one.send_nowait(b"%d" % number)
        assert [await other.recv() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        assert one.statistics().drops == {"no peer": 1, "peer slow": 6}


@KINDS
@item(32, transports=TRANSPORTS, pairs=(OURS_OURS,))
async def test_a_queue_of_n_takes_n_messages_in_one_loop_turn(kind: str, link: Link) -> None:
    async with link.pair(kind, kind, a={"send_queue": 7}) as (one, other):
        for number in range(7):
            one.send_nowait(b"%d" % number)
        with pytest.raises(WouldBlock):
            one.send_nowait(b"7")
        assert [await other.recv() for _ in range(7)] == [b"%d" % number for number in range(7)]


@item(33, transports=STREAMS, pairs=EACH)
async def test_a_message_without_a_hop_count_costs_the_pipe(link: Link) -> None:
    async with link.scripted("Pair1", PAIR1) as (pair, peer):
        await peer.send(b"\x00\x00\x01")
        await peer.read_all()
        await until(lambda: not pair.pipes)


@item(34, transports=STREAMS, pairs=EACH)
async def test_a_message_over_ttl_is_dropped_and_its_pipe_kept(link: Link) -> None:
    async with link.scripted("Pair1", PAIR1, ttl=4) as (pair, peer):
        await peer.send(b"\x00\x00\x00\x05over", b"\x00\x00\x00\xffover", b"\x00\x00\x00\x04at the limit")
        assert await pair.recv() == b"at the limit"
        assert len(pair.pipes) == 1


@pytest.mark.parametrize("word", ["01000001", "00010001", "00000101", "ffffff01"])
@item(35, transports=STREAMS, pairs=EACH)
async def test_reserved_bits_cost_the_pipe(word: str, link: Link) -> None:
    async with link.scripted("Pair1", PAIR1) as (pair, peer):
        await peer.send(bytes.fromhex(word) + b"body")
        await peer.read_all()
        await until(lambda: not pair.pipes)


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x01", b"\x00\x00\x00\xff", b"\x01\x00\x00\x01", b"body"])
@item(36, transports=TRANSPORTS, pairs=(OURS_OURS,), note="pynng has no raw sockets")
async def test_a_raw_send_needs_a_hop_count_that_can_go_further(frame: bytes, link: Link) -> None:
    async with link.pair("Pair1", "Pair1", a={"raw": True}) as (raw, other):
        with pytest.raises(LocalProtocolError):
            await raw.send(frame)
        await raw.send(b"\x00\x00\x00\x00good")
        assert await other.recv() == b"good"


@item(37, transports=TRANSPORTS, pairs=PAIRS[:2], note="the raw end is ours: pynng has none")
async def test_each_raw_node_adds_a_hop(link: Link) -> None:
    async with link.pair("Pair1", "Pair1", a={"raw": True}, b={"ttl": 4}) as (raw, other):
        for hops in (4, 3):  # on the wire 5, which is over, and 4
            await raw.send(b"\x00\x00\x00" + bytes((hops,)) + b"%d" % hops)
        assert await other.recv() == b"3"
        await other.send(b"back")
        message = await raw.recv_message()
        assert (message.header, message.body) == (b"\x00\x00\x00\x01", b"back")


@item(38, transports=STREAMS, pairs=EACH)
async def test_cooked_strips_the_header_and_writes_its_own(link: Link) -> None:
    async with link.scripted("Pair1", PAIR1) as (pair, peer):
        await peer.send(b"\x00\x00\x00\x07question")
        question = await pair.recv()
        await pair.send(question + b" answered")
        assert await peer.recv() == b"\x00\x00\x00\x01question answered"


@item(39, transports=STREAMS, pairs=EACH)
async def test_first_hops_of_mangos_and_of_nng_are_accepted(link: Link) -> None:
    async with link.scripted("Pair1", PAIR1) as (pair, peer):
        await peer.send(b"\x00\x00\x00\x00mangos", b"\x00\x00\x00\x01nng")
        assert [await pair.recv(), await pair.recv()] == [b"mangos", b"nng"]
