"""Bus0: to all direct peers, best effort."""

from __future__ import annotations

import pytest

from protocols import Bus0, NotSupported, SocketOptions
from tests.support.link import Peer
from tests.support.waiting import until


async def test_send_never_waits_and_counts_messages_that_a_slow_peer_missed() -> None:
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


async def test_a_bus_has_no_contexts() -> None:
    async with Bus0() as bus:
        with pytest.raises(NotSupported, match="bus0 sockets have no contexts"):
            bus.new_context()
