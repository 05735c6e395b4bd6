"""Items 108 to 115: Push0 and Pull0."""

from __future__ import annotations

import asyncio

import pytest

from protocols import ProtocolNumber, Timeout, WouldBlock
from tests.support.waiting import until

from .declaring import EACH, OURS_OURS, PAIRS, PYNNG, STREAMS, TRANSPORTS, item
from .links import End, Link, soon

PULL = ProtocolNumber.PULL0


@item(108, transports=TRANSPORTS, pairs=PAIRS)
async def test_each_message_reaches_one_puller_once(link: Link) -> None:
    async with link:
        push = link.first("Push0")
        pulls = [link.second("Pull0") for _ in range(3)]
        await link.meet(push, *pulls)
        got: list[bytes] = []

        async def drain(pull: End) -> None:
            while True:
                got.append(await pull.recv())

        draining = [asyncio.create_task(drain(pull)) for pull in pulls]
        bodies = [b"%d" % number for number in range(300)]
        for body in bodies:
            await push.send(body)
        await until(lambda: len(got) >= 300)
        for task in draining:
            task.cancel()
        await asyncio.gather(*draining, return_exceptions=True)
        assert sorted(got) == sorted(bodies)


@item(109, transports=TRANSPORTS, pairs=PAIRS, note="NNG: whichever pipe is free")
async def test_messages_are_distributed_in_turn(link: Link) -> None:
    async with link:
        push = link.first("Push0")
        pulls = [link.second("Pull0") for _ in range(3)]
        await link.meet(push, *pulls)
        for number in range(9):
            await push.send(b"%d" % number)
        if link.case.pair[0] == PYNNG:  # whichever of its pipes is free
            got = [asyncio.create_task(pull.recv()) for pull in pulls for _ in range(9)]
            await until(lambda: sum(each.done() for each in got) == 9)
            for waiting in got:
                waiting.cancel()
            heard = await asyncio.gather(*got, return_exceptions=True)
            bodies = [each for each in heard if isinstance(each, bytes)]
            assert sorted(bodies) == [b"%d" % number for number in range(9)]
        else:
            shares = [[int(await pull.recv()) for _ in range(3)] for pull in pulls]
            assert sorted(shares) == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


@item(110, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_late_puller_gets_the_waiting_messages(link: Link) -> None:
    async with link:
        push, pull = link.first("Push0", send_queue=1), link.second("Pull0")
        sending = await soon(send_all(push, [b"%d" % number for number in range(6)]))
        assert not sending.done()
        await link.meet(push, pull)
        assert [await pull.recv() for _ in range(6)] == [b"%d" % number for number in range(6)]
        await sending


async def send_all(push: End, bodies: list[bytes]) -> None:
    for body in bodies:
        await push.send(body)


@item(111, transports=TRANSPORTS, pairs=(OURS_OURS,), note="NNG takes what its socket-wide queue holds")
async def test_sending_does_not_wait_only_while_a_peer_has_room(link: Link) -> None:
    async with link:
        push, pull = link.first("Push0", send_queue=3), link.second("Pull0")
        with pytest.raises(WouldBlock):
            push.send_nowait(b"nobody")
        await link.meet(push, pull)
        for _ in range(3):
            push.send_nowait(b"room")
        with pytest.raises(WouldBlock):
            push.send_nowait(b"full")
        await push.send(b"room again")
        assert [await pull.recv() for _ in range(4)] == [b"room"] * 3 + [b"room again"]


@item(113, transports=TRANSPORTS, pairs=PAIRS)
async def test_several_pushers_are_read_in_turn(link: Link) -> None:
    """One pusher floods; the message of the other arrives while the flood goes on."""
    async with link:
        pull = link.first("Pull0", recv_queue=4)
        loud, quiet = link.second("Push0", send_queue=8, linger_s=0.0), link.second("Push0", send_queue=8)
        await link.meet(pull, loud, quiet)

        async def flood() -> None:
            while True:
                await loud.send(bytes(2000))
                await asyncio.sleep(0)

        flooding = asyncio.create_task(flood())
        for _ in range(100):
            await pull.recv()
        await quiet.send(b"listen")
        for _ in range(20_000):
            if await pull.recv() == b"listen":
                break
        else:
            pytest.fail("the quiet one was not heard among 20 000 messages")
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)


@item(114, transports=STREAMS, pairs=EACH)
async def test_messages_of_a_puller_are_ignored(link: Link) -> None:
    async with link.scripted("Push0", PULL) as (push, peer):
        await peer.send(b"unasked", b"again")
        await push.send(b"work")
        assert await peer.recv() == b"work"
        assert len(push.pipes) == 1


@item(115, transports=TRANSPORTS, pairs=PAIRS)
async def test_the_other_pullers_get_the_rest_when_one_leaves(link: Link) -> None:
    async with link:
        push = link.first("Push0", send_queue=1)
        gone, stays = link.second("Pull0"), link.second("Pull0")
        await link.meet(push, gone, stays)
        await gone.aclose()
        await until(lambda: len(push.pipes) == 1)
        for number in range(20):
            await push.send(b"%d" % number)
        assert [await stays.recv() for _ in range(20)] == [b"%d" % number for number in range(20)]
        await stays.aclose()
        await until(lambda: not push.pipes)
        with pytest.raises(Timeout):
            for _ in range(4):
                await push.send(b"nobody", timeout=0.02)
