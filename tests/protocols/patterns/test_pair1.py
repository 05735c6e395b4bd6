"""Pair1: a pair with a hop count in front."""

from __future__ import annotations

import asyncio

import pytest

from protocols import LocalProtocolError, Pair1, PipeRefused, RawSocket, SocketOptions, Timeout
from protocols.wire.hops import HOP_WORDS
from tests.support.link import Link, Peer, made
from tests.support.waiting import turns, until

ONE = HOP_WORDS[1]


async def test_messages_go_both_ways_in_order_and_come_without_the_word() -> None:
    async with Pair1() as a, Pair1() as b:
        Link(a, b)
        for number in range(100):
            await a.send(b"a%d" % number)
        await b.send_many([b"b%d" % number for number in range(100)])
        assert [await b.recv() for _ in range(100)] == [b"a%d" % number for number in range(100)]
        assert [await a.recv() for _ in range(100)] == [b"b%d" % number for number in range(100)]


async def test_the_first_hop_is_one_on_the_wire() -> None:
    async with Pair1() as pair:
        peer = Peer(pair)
        await pair.send(b"body")
        await pair.send_many([b"1", b""])
        await until(lambda: peer.heard == [ONE + b"body", ONE + b"1", ONE])


@pytest.mark.parametrize("hops", [0, 1, 7, 8])
async def test_hops_up_to_the_ttl_are_accepted_zero_included(hops: int) -> None:
    async with Pair1() as pair:
        Peer(pair).say(HOP_WORDS[hops] + b"body")
        assert await pair.recv() == b"body"


async def test_more_hops_than_ttl_cost_the_message_and_not_the_pipe() -> None:
    async with Pair1(options=SocketOptions(ttl=3)) as pair:
        peer = Peer(pair)
        peer.say(ONE + b"1", HOP_WORDS[4] + b"lost", HOP_WORDS[3] + b"2")
        peer.say(HOP_WORDS[255] + b"lost")
        assert [pair.recv_nowait(), pair.recv_nowait()] == [b"1", b"2"]
        assert not peer.pipe.closed
        assert pair.statistics().drops == {"over ttl": 2}


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\1\0body", b"\1\0\0\1body"])
@pytest.mark.parametrize("raw", [False, True])
async def test_a_message_without_the_word_costs_the_pipe(frame: bytes, raw: bool) -> None:
    async with made(Pair1, raw) as pair:
        peer = Peer(pair)
        peer.say(ONE + b"before", frame, ONE + b"after")
        assert peer.pipe.closed
        assert await pair.recv() == (ONE if raw else b"") + b"before"
        with pytest.raises(Timeout):
            await pair.recv(timeout=0.01)
        assert pair.statistics().drops == {"malformed": 1}
        Peer(pair)


async def test_a_second_peer_is_refused_by_name() -> None:
    async with Pair1() as pair:
        Peer(pair)
        with pytest.raises(PipeRefused, match="pair1 is already paired with peer:remote"):
            Peer(pair)


async def test_send_waits_when_the_peer_does_not_read() -> None:
    async with Pair1(options=SocketOptions(send_queue=2)) as pair:
        peer = Peer(pair, reads=False)
        waiting = asyncio.create_task(pair.send_many([b"1", b"2", b"3"]))
        await turns()
        assert not waiting.done()
        peer.connection.release()
        await waiting
        await until(lambda: peer.heard == [ONE + b"1", ONE + b"2", ONE + b"3"])


# --- raw


async def test_raw_receives_the_word_and_adds_a_hop_by_sending() -> None:
    async with RawSocket(Pair1, options=SocketOptions(ttl=4)) as pair:
        peer = Peer(pair)
        peer.say(HOP_WORDS[3] + b"x")
        message = await pair.recv_message()
        assert (message.header, message.body) == (HOP_WORDS[3], b"x")
        await pair.send(message.frame)
        await pair.send_many([HOP_WORDS[0] + b"y", HOP_WORDS[254] + b"z"])
        await until(lambda: peer.heard == [HOP_WORDS[4] + b"x", ONE + b"y", HOP_WORDS[255] + b"z"])
        peer.say(HOP_WORDS[5] + b"too far", HOP_WORDS[4] + b"far")
        assert await pair.recv() == HOP_WORDS[4] + b"far"
        assert pair.statistics().drops == {"over ttl": 1}


@pytest.mark.parametrize("frame", [b"", b"abc", b"\0\0\1\0x", HOP_WORDS[255] + b"x"])
async def test_raw_sockets_refuse_to_send_frames_without_a_hop_count_or_at_its_limit(frame: bytes) -> None:
    async with RawSocket(Pair1) as pair:
        peer = Peer(pair)
        with pytest.raises(LocalProtocolError, match="hop count"):
            await pair.send(frame)
        with pytest.raises(LocalProtocolError, match="hop count"):
            await pair.send_many([ONE, frame])
        await turns()
        assert peer.heard == []
