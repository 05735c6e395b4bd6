"""Pair0: one partner, both ways, pushing back."""

from __future__ import annotations

import asyncio

import pytest

from protocols import Pair0, SocketOptions, Timeout, WouldBlock
from tests.support.link import Link, Peer
from tests.support.waiting import turns, until


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
