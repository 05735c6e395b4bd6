"""Pair0: one partner, both ways, pushing back."""

from __future__ import annotations

import asyncio

import pytest

from protocols import Pair0, PipeRefused, SocketOptions, Timeout, WouldBlock
from tests.support.link import Link, Peer
from tests.support.waiting import turns, until


async def test_messages_go_both_ways_in_order() -> None:
    async with Pair0() as a, Pair0() as b:
        Link(a, b)
        for number in range(100):
            await a.send(b"a%d" % number)
            await b.send(b"b%d" % number)
        assert [await b.recv() for _ in range(100)] == [b"a%d" % number for number in range(100)]
        assert [await a.recv() for _ in range(100)] == [b"b%d" % number for number in range(100)]


async def test_a_second_peer_is_refused_and_the_first_stays() -> None:
    async with Pair0() as pair:
        first = Peer(pair)
        with pytest.raises(PipeRefused, match="already paired"):
            Peer(pair)
        await pair.send(b"still")
        await until(lambda: first.heard == [b"still"])
        assert pair.statistics().peers == 1


async def test_after_the_first_left_another_is_taken() -> None:
    async with Pair0() as pair:
        Peer(pair).hang_up()
        second = Peer(pair)
        await pair.send(b"hello")
        await until(lambda: second.heard == [b"hello"])


async def test_send_without_a_peer_waits_and_can_time_out() -> None:
    async with Pair0() as pair:
        with pytest.raises(WouldBlock):
            pair.send_nowait(b"x")
        with pytest.raises(Timeout, match="within 0.01 s"):
            await pair.send(b"x", timeout=0.01)
        waiting = asyncio.create_task(pair.send(b"late"))
        await turns()
        peer = Peer(pair)
        await waiting
        await until(lambda: peer.heard == [b"late"])


async def test_send_waits_when_the_peer_does_not_read() -> None:
    async with Pair0(options=SocketOptions(send_queue=3)) as pair:
        peer = Peer(pair, reads=False)
        for number in range(3):
            await pair.send(b"%d" % number, timeout=1.0)
        with pytest.raises(Timeout):
            await pair.send(b"x", timeout=0.01)
        waiting = asyncio.create_task(pair.send(b"3"))
        await turns()
        assert not waiting.done()
        peer.connection.release()
        await waiting
        await until(lambda: peer.heard == [b"0", b"1", b"2", b"3"])


async def test_a_full_inbox_stops_reading_and_loses_nothing() -> None:
    options = SocketOptions(send_queue=4, recv_queue=4)
    async with Pair0(options=options) as a, Pair0(options=options) as b:
        link = Link(a, b)
        sending = asyncio.create_task(a.send_many([b"%d" % number for number in range(50)]))
        await until(lambda: link.b.paused)
        await turns(20)
        assert not sending.done()
        assert [await b.recv(timeout=5.0) for _ in range(50)] == [b"%d" % number for number in range(50)]
        await sending
