"""Bus0: to all direct peers, best effort."""

from __future__ import annotations

import pytest

from protocols import Bus0, NotSupported, SocketOptions, WouldBlock
from tests.support.link import Link, Peer
from tests.support.waiting import turns, until


async def test_everybody_hears_it_but_the_sender() -> None:
    async with Bus0() as a, Bus0() as b, Bus0() as c:
        Link(a, b)
        Link(a, c)
        Link(b, c)
        await a.send(b"from a")
        assert await b.recv(timeout=5.0) == b"from a"
        assert await c.recv(timeout=5.0) == b"from a"
        await turns()
        for node in (a, b, c):
            with pytest.raises(WouldBlock):
                node.recv_nowait()


async def test_nothing_is_forwarded() -> None:
    async with Bus0() as a, Bus0() as b, Bus0() as c:
        Link(a, b)
        Link(b, c)
        await a.send(b"x")
        assert await b.recv(timeout=5.0) == b"x"
        await turns()
        with pytest.raises(WouldBlock):
            c.recv_nowait()


async def test_send_never_waits_and_counts_what_a_slow_peer_missed() -> None:
    async with Bus0(options=SocketOptions(send_queue=16)) as bus:
        await bus.send(b"nobody is there")
        slow, quick = Peer(bus, reads=False, name="slow"), Peer(bus, name="quick")
        for number in range(1000):
            await bus.send(b"%d" % number)
            quick.connection.flush()
        await bus.send_many([b"x"] * 5)
        await until(lambda: len(quick.heard) == 1005)
        assert bus.statistics().drops == {"peer slow": 1005 - 16}
        slow.connection.release()
        assert slow.heard == [b"%d" % number for number in range(16)]


async def test_a_full_inbox_drops_the_newest_and_counts() -> None:
    async with Bus0(options=SocketOptions(recv_queue=16)) as bus:
        peer = Peer(bus)
        peer.say(*(b"%d" % number for number in range(100)))
        assert await bus.recv_many() == [b"%d" % number for number in range(16)]
        assert bus.statistics().drops == {"inbox full": 84}
        assert not peer.connection.paused


async def test_a_bus_has_no_contexts() -> None:
    async with Bus0() as bus:
        with pytest.raises(NotSupported, match="bus0 sockets have no contexts"):
            bus.new_context()
