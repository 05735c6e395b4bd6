"""Push0 and Pull0: each message to one puller, with back-pressure."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from protocols import (
    Closed,
    NoPeers,
    NotSupported,
    PartlySent,
    Pull0,
    Push0,
    SocketOptions,
    Timeout,
    WouldBlock,
)
from tests.support.link import Link, Peer
from tests.support.waiting import turns, until

SMALL = SocketOptions(send_queue=4, recv_queue=4)


async def test_a_batch_is_dealt_in_slices() -> None:
    async with Push0() as push:
        peers = [Peer(push, name=str(number)) for number in range(2)]
        await push.send_many([b"%d" % number for number in range(10)])
        await until(lambda: sum(len(peer.heard) for peer in peers) == 10)
        assert [len(peer.heard) for peer in peers] == [5, 5]


async def test_a_puller_that_does_not_read_is_passed_over() -> None:
    async with Push0(options=SMALL) as push:
        stuck, quick = Peer(push, reads=False, name="stuck"), Peer(push, name="quick")
        bodies = [b"%d" % number for number in range(100)]
        for body in bodies:
            await push.send(body, timeout=5.0)
        await until(lambda: len(quick.heard) == 96)
        stuck.connection.release()
        assert sorted(stuck.heard + quick.heard) == sorted(bodies)


@pytest.mark.parametrize("batch", [False, True])
async def test_every_message_arrives_once_and_in_order_under_back_pressure(batch: bool) -> None:
    async with Push0(options=SMALL) as push, Pull0(options=SMALL) as pull:
        Link(push, pull)
        bodies = [b"%d" % number for number in range(500)]

        async def send() -> None:
            if batch:
                await push.send_many(bodies)
            else:
                for body in bodies:
                    await push.send(body)

        sending = asyncio.create_task(send())
        assert [await pull.recv(timeout=5.0) for _ in bodies] == bodies
        await sending
        assert push.statistics().drops == pull.statistics().drops == {}


@pytest.mark.parametrize("pullers", [1, 2, 5])
async def test_a_batch_of_any_size_crosses_many_full_queues(pullers: int) -> None:
    async with Push0(options=SMALL) as push:
        peers = [Peer(push, name=str(number)) for number in range(pullers)]
        bodies = [b"%d" % number for number in range(333)]
        await push.send_many(bodies, timeout=10.0)
        await until(lambda: sum(len(peer.heard) for peer in peers) == 333)
        assert sorted(body for peer in peers for body in peer.heard) == sorted(bodies)


async def test_send_waits_for_the_first_puller() -> None:
    async with Push0() as push:
        with pytest.raises(WouldBlock, match="no peer has room"):
            push.send_nowait(b"x")
        with pytest.raises(Timeout):
            await push.send(b"x", timeout=0.01)
        waiting = [asyncio.create_task(push.send(b"%d" % number)) for number in range(3)]
        await turns()
        peer = Peer(push)
        await asyncio.gather(*waiting)
        await until(lambda: peer.heard == [b"0", b"1", b"2"])


async def test_a_batch_that_found_room_partly_reports_how_much() -> None:
    async with Push0(options=SMALL) as push:
        Peer(push, reads=False)
        with pytest.raises(PartlySent, match="only 4 of 10") as caught:
            await push.send_many([b"x"] * 10, timeout=0.01)
        assert caught.value.sent == 4


async def test_a_batch_that_ended_early_reports_how_much_was_sent() -> None:
    async with Push0(options=replace(SMALL, fail_without_peers=True)) as push:
        stuck = Peer(push, reads=False)
        sending = asyncio.create_task(push.send_many([b"x"] * 10))
        await until(lambda: stuck.pipe.full)
        stuck.hang_up()
        with pytest.raises(NoPeers) as alone:
            await sending
        assert alone.value.sent == 4
        Peer(push, reads=False)
        sending = asyncio.create_task(push.send_many([b"x"] * 3))
        await sending
        sending = asyncio.create_task(push.send_many([b"x"] * 10))
        await turns()
    with pytest.raises(Closed) as closed:
        await sending
    assert closed.value.sent == 1


async def test_send_goes_to_another_when_the_full_puller_leaves() -> None:
    async with Push0(options=SMALL) as push:
        stuck = Peer(push, reads=False, name="stuck")
        await push.send_many([b"x"] * 4)
        waiting = asyncio.create_task(push.send(b"5"))
        await turns()
        stuck.hang_up()
        await turns()
        assert not waiting.done()
        other = Peer(push, name="other")
        await waiting
        await until(lambda: other.heard == [b"5"])
        assert push.statistics().drops == {"peer lost": 4}


async def test_unsolicited_data_is_ignored_and_counted() -> None:
    async with Push0() as push:
        peer = Peer(push)
        peer.say(b"hello?", b"anybody?")
        assert not peer.pipe.closed
        assert push.statistics().drops == {"unsolicited": 2}


async def test_directions() -> None:
    async with Push0() as push, Pull0() as pull:
        with pytest.raises(NotSupported, match="push0 sockets do not receive"):
            await push.recv()
        with pytest.raises(NotSupported):
            push.recv_nowait()
        with pytest.raises(NotSupported, match="only receives"):
            await pull.send(b"x")


async def test_a_puller_reads_all_its_pushers_fairly() -> None:
    """A pusher that floods fills the inbox, is paused, and cannot keep the other out."""
    async with Pull0(options=SMALL) as pull:
        flood, quiet = Peer(pull, name="flood"), Peer(pull, name="quiet")
        flood.say(*[b"flood"] * 4)
        assert flood.connection.paused
        quiet.say(b"quiet")
        assert quiet.connection.paused
        assert [await pull.recv() for _ in range(5)] == [b"flood"] * 4 + [b"quiet"]
        with pytest.raises(WouldBlock):
            pull.recv_nowait()
        assert not flood.connection.paused and not quiet.connection.paused


async def test_batches_come_out_as_lists() -> None:
    async with Pull0() as pull:
        peer = Peer(pull)
        waiting = asyncio.create_task(pull.recv_many())
        await turns()
        peer.say(b"1", b"2", b"3")
        assert await waiting == [b"1", b"2", b"3"]
        peer.say(b"")
        assert await pull.recv_many() == [b""]
        with pytest.raises(Timeout):
            await pull.recv_many(timeout=0.01)


@pytest.mark.parametrize("take", ["recv", "recv_nowait", "recv_many", "anext"])
async def test_taking_the_last_message_resumes_peers_at_once(take: str) -> None:
    """They stayed paused until the next call found the inbox empty."""
    async with Pull0(options=SocketOptions(recv_queue=2)) as pull:
        peer = Peer(pull)
        peer.say(b"1", b"2")
        assert peer.connection.paused
        if take == "recv_many":
            assert await pull.recv_many() == [b"1", b"2"]
        else:
            for _ in range(2):
                assert peer.connection.paused
                await {"recv": pull.recv, "anext": pull.__anext__}[take]() if take != "recv_nowait" else (
                    pull.recv_nowait()
                )
        assert not peer.connection.paused
