"""Items 116 to 123: Bus0."""

from __future__ import annotations

import asyncio

import pytest

from protocols import AddressInUse, Device, ProtocolNumber
from tests.support.waiting import until

from .declaring import EACH, PAIRS, PYNNG, STREAMS, TRANSPORTS, item
from .links import Link

BUS = ProtocolNumber.BUS0


@item(116, transports=TRANSPORTS, pairs=PAIRS)
async def test_messages_go_to_all_direct_peers_without_an_echo(link: Link) -> None:
    async with link:
        hub = link.first("Bus0")
        others = [link.second("Bus0") for _ in range(3)]
        await link.meet(hub, *others)
        await hub.send(b"from the hub")
        for number, other in enumerate(others):
            assert await other.recv() == b"from the hub"
            await other.send(b"from %d" % number)
        assert {await hub.recv() for _ in others} == {b"from 0", b"from 1", b"from 2"}
        await others[0].send(b"last")
        assert await hub.recv() == b"last"  # and nothing of its own before


@item(117, transports=TRANSPORTS, pairs=PAIRS)
async def test_received_messages_are_not_forwarded(link: Link) -> None:
    async with link:
        hub = link.first("Bus0")
        left, right = link.second("Bus0"), link.second("Bus0")
        await link.meet(hub, left, right)
        await left.send(b"for the hub only")
        assert await hub.recv() == b"for the hub only"
        await hub.send(b"for both")
        assert await right.recv() == b"for both"


@item(118, transports=TRANSPORTS, pairs=PAIRS[:2], note="the raw end is ours: pynng has none")
async def test_a_raw_bus_names_the_pipe_of_a_message_and_can_exclude_one(link: Link) -> None:
    async with link:
        raw = link.first("Bus0", raw=True)
        left, right = link.second("Bus0"), link.second("Bus0")
        await link.meet(raw, left, right)
        await left.send(b"from the left")
        message = await raw.recv_message()
        assert (message.header, message.body) == (b"", b"from the left")
        assert message.pipe in raw.pipes
        for pipe in raw.pipes:
            if pipe is not message.pipe:
                assert raw.send_to(pipe, [b"from the left, passed on"])
        assert await right.recv() == b"from the left, passed on"
        await raw.send(b"to all")
        assert await left.recv() == b"to all"


@item(119, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_reflector_sends_to_all_except_the_origin(link: Link) -> None:
    async with link:
        middle = link.ours("Bus0", raw=True)
        running = asyncio.create_task(Device(middle).run())
        one, two, three = link.first("Bus0"), link.second("Bus0"), link.second("Bus0")
        await link.meet(middle, one, two, three)
        await one.send(b"from one")
        assert [await two.recv(), await three.recv()] == [b"from one"] * 2
        await two.send(b"from two")
        assert [await one.recv(), await three.recv()] == [b"from two"] * 2  # one did not hear itself
        await middle.aclose()
        await running


@item(120, transports=STREAMS, pairs=EACH)
async def test_bodies_that_begin_like_headers_pass_unchanged(link: Link) -> None:
    async with link.scripted("Bus0", BUS) as (bus, peer):
        for body in (b"", b"\x80\x00\x00\x01", b"\x00\x00\x00\x01body", b"ab"):
            await peer.send(body)
            assert await bus.recv() == body
            await bus.send(body)
            assert await peer.recv() == body


@item(121, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_flood_never_waits_and_drops_are_counted(link: Link) -> None:
    async with link.pair("Bus0", "Bus0", a={"send_queue": 8}, b={"recv_queue": 8}) as (bus, _):
        for number in range(1000):
            if link.case.pair[0] == PYNNG or number % 2:
                await bus.send(bytes(1000), timeout=5.0)
            else:
                bus.send_nowait(bytes(1000))
        if link.case.pair[0] != PYNNG:  # NNG counts no drops
            for number in range(20):
                bus.send_nowait(b"%d" % number)
            assert bus.statistics().drops["peer slow"] >= 12


@item(122, transports=STREAMS, note="NNG keeps the first, too; mangos stops reading")
async def test_a_full_inbox_keeps_the_first_and_counts_the_rest(link: Link) -> None:
    async with link.scripted("Bus0", BUS, recv_queue=3) as (bus, peer):
        await peer.send(*(b"%d" % number for number in range(8)))
        await until(lambda: bus.statistics().frames_in == 8)
        assert [await bus.recv() for _ in range(3)] == [b"0", b"1", b"2"]
        assert bus.statistics().drops == {"inbox full": 5}
        await peer.send(b"next")
        assert await bus.recv() == b"next"


@item(123, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_listen_that_fails_leaves_the_socket_as_it_was(link: Link) -> None:
    async with link.pair("Bus0", "Bus0") as (bus, other):
        third = link.first("Bus0")
        with pytest.raises(AddressInUse):
            await third.listen(link.url)
        await link.meet(third, late := link.second("Bus0"))
        await late.send(b"hello")
        assert await third.recv() == b"hello"
        await other.send(b"still here")
        assert await bus.recv() == b"still here"
