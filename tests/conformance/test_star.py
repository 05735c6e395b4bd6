"""Items 124 to 132: Star0. Only mangos has it too, so its peers here are ours or scripted."""

from __future__ import annotations

import asyncio

import pytest

from protocols import ProtocolNumber
from tests.support.waiting import until

from .declaring import OURS_OURS, STREAMS, TRANSPORTS, item
from .links import Link

STAR = ProtocolNumber.STAR0
NO_HOP, ONE_HOP = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"


@item(124, transports=STREAMS, note="counts as mangos: 0 when sent, one more at each node that passes it on")
async def test_a_message_is_passed_on_with_a_hop_more(link: Link) -> None:
    async with link.scripted("Star0", STAR) as (star, origin):
        other = await link.script(STAR, star)
        await origin.send(NO_HOP + b"news")
        assert await other.recv() == ONE_HOP + b"news"
        assert await star.recv() == b"news"
        await star.send(b"own")
        assert await origin.recv() == NO_HOP + b"own"
        assert await other.recv() == NO_HOP + b"own"


@item(124, 125, transports=TRANSPORTS, pairs=(OURS_OURS,))
async def test_all_except_the_origin_receive_a_message_over_two_nodes(link: Link) -> None:
    async with link:
        leaf, hub, far, end = (link.ours("Star0") for _ in range(4))
        await link.meet(hub, leaf, far)
        await link.meet(far, end)
        await leaf.send(b"one")
        for star in (hub, far, end):
            assert await star.recv() == b"one"
        await end.send(b"two")
        for star in (far, hub, leaf):  # the leaf has not heard itself
            assert await star.recv() == b"two"


@item(125, transports=STREAMS)
async def test_the_origin_never_gets_it_back(link: Link) -> None:
    async with link.scripted("Star0", STAR) as (star, origin):
        await origin.send(NO_HOP + b"news")
        assert await star.recv() == b"news"
        await star.send(b"own")
        assert await origin.recv() == NO_HOP + b"own"


@pytest.mark.parametrize("word", ["01000000", "00010000", "00000100"])
@item(126, transports=STREAMS)
async def test_reserved_bytes_drop_the_message_and_keep_the_pipe(word: str, link: Link) -> None:
    async with link.scripted("Star0", STAR) as (star, peer):
        await peer.send(bytes.fromhex(word) + b"bad", b"\x00\x00\x00\x03good")
        assert await star.recv() == b"good"
        assert star.statistics().drops == {"malformed": 1}


@item(127, transports=STREAMS)
async def test_hops_at_the_ttl_are_dropped(link: Link) -> None:
    async with link.scripted("Star0", STAR, ttl=4) as (star, peer):
        await peer.send(b"\x00\x00\x00\x04over", b"\x00\x00\x00\xffover", b"\x00\x00\x00\x03under")
        assert await star.recv() == b"under"
        assert star.statistics().drops == {"over ttl": 2}


@pytest.mark.parametrize("short", [b"", b"\x00", b"\x00\x00\x00"])
@item(128, transports=STREAMS)
async def test_short_messages_are_dropped(short: bytes, link: Link) -> None:
    async with link.scripted("Star0", STAR) as (star, peer):
        await peer.send(short, NO_HOP + b"good")
        assert await star.recv() == b"good"
        assert star.statistics().drops == {"malformed": 1}


@item(129, transports=STREAMS)
async def test_forwarding_to_a_peer_that_does_not_read_drops_and_never_waits(link: Link) -> None:
    async with link.scripted("Star0", STAR, send_queue=4) as (star, origin):
        await link.script(STAR, star)  # never reads
        reader = await link.script(STAR, star)
        body = bytes(256 << 10)
        for _ in range(64):
            await origin.send(NO_HOP + body)
            assert len(await reader.recv()) == 4 + len(body)
            await star.recv()
        assert star.statistics().drops["peer slow"] > 0


@item(130, transports=STREAMS, note="mangos stalls")
async def test_an_application_that_does_not_read_does_not_stall_forwarding(link: Link) -> None:
    async with link.scripted("Star0", STAR, recv_queue=2) as (star, origin):
        other = await link.script(STAR, star)
        for number in range(50):
            await origin.send(NO_HOP + b"%d" % number)
            assert await other.recv() == ONE_HOP + b"%d" % number
        assert star.statistics().drops == {"inbox full": 48}


@item(131, transports=STREAMS)
async def test_a_body_that_looks_like_a_header_passes_unchanged(link: Link) -> None:
    async with link.scripted("Star0", STAR) as (star, peer):
        for body in (b"\x00\x00\x00\x07looks like a header", b""):
            await star.send(body)
            assert await peer.recv() == NO_HOP + body


@item(132, transports=TRANSPORTS, pairs=(OURS_OURS,))
async def test_a_cycle_of_three_ends_by_its_ttl(link: Link) -> None:
    """In both directions a message makes 4 hops at a ttl of 4; each node's counters then stand still."""
    async with link:
        stars = [link.ours("Star0", ttl=4) for _ in range(3)]
        for number, star in enumerate(stars):
            await link.meet(star)
            await link.join(star, stars[(number + 1) % 3])
        await stars[0].send(b"round")
        await until(lambda: sum(star.statistics().drops.get("over ttl", 0) for star in stars) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        # each way: heard after hops 1, 2, 3 (its sender, too) and 4
        assert sum(star.statistics().frames_in for star in stars) == 10
