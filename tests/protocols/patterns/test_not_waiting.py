"""best_effort and fail_without_peers: senders that prefer loss or an error to waiting."""

from __future__ import annotations

import asyncio

import pytest

from protocols import (
    Context,
    NoPeers,
    Pair0,
    Pair1,
    PipeRefused,
    Pull0,
    Push0,
    RawSocket,
    Rep0,
    Req0,
    Respondent0,
    Socket,
    SocketOptions,
    Timeout,
)
from protocols.patterns.base import ORPHANS_MAX
from protocols.wire.backtrace import END_BIT, encode_word
from tests.support.link import Link, Peer, made
from tests.support.waiting import turns, until

ID = encode_word(END_BIT | 7)
BEST_EFFORT = SocketOptions(best_effort=True, send_queue=2)
FAIL = SocketOptions(fail_without_peers=True, send_queue=2)
SENDERS: list[type[Socket]] = [Push0, Pair0, Pair1]


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("kind", SENDERS)
async def test_best_effort_drops_and_counts_instead_of_waiting(kind: type[Socket], raw: bool) -> None:
    body = bytes(4)  # with a hop count in front, which raw pair1 needs
    async with made(kind, raw, options=BEST_EFFORT) as socket:
        await socket.send(body, timeout=1.0)
        socket.send_nowait(body)
        await socket.send_many([body] * 5, timeout=1.0)
        assert socket.statistics().drops == {"no peer": 7}
        peer = Peer(socket, reads=False)
        await socket.send_many([body] * 5, timeout=1.0)
        await socket.send(body, timeout=1.0)
        assert socket.statistics().drops == {"no peer": 7, "peer slow": 4}
        peer.connection.release()
        assert len(peer.heard) == 2
        await socket.send(body)
        await until(lambda: len(peer.heard) == 3)


async def test_best_effort_push_still_uses_every_puller_that_has_room() -> None:
    async with Push0(options=BEST_EFFORT) as push:
        peers = [Peer(push, reads=False, name=str(number)) for number in range(3)]
        for number in range(10):
            await push.send(b"%d" % number, timeout=1.0)
        for peer in peers:
            peer.connection.release()
        assert sum(len(peer.heard) for peer in peers) == 6
        assert push.statistics().drops == {"peer slow": 4}


async def test_a_best_effort_request_goes_to_the_first_peer_that_comes() -> None:
    async with Req0(options=BEST_EFFORT) as req:
        await req.send(b"early", timeout=1.0)
        waiting = asyncio.create_task(req.recv())
        await turns()
        peer = Peer(req)
        await until(lambda: peer.heard)
        peer.say(peer.heard[0][:4] + b"answer")
        assert await waiting == b"answer"


async def test_a_best_effort_request_that_is_replaced_is_never_sent() -> None:
    async with Req0(options=BEST_EFFORT) as req:
        for number in range(100):
            await req.send(b"%d" % number, timeout=1.0)
        peer = Peer(req)
        await until(lambda: peer.heard)
        assert [frame[4:] for frame in peer.heard] == [b"99"]


@pytest.mark.parametrize("kind", [Rep0, Respondent0])
async def test_a_best_effort_answer_to_a_full_peer_is_dropped_and_the_next_question_served(
    kind: type[Rep0] | type[Respondent0],
) -> None:
    async with kind(options=SocketOptions(best_effort=True, send_queue=1)) as rep:
        stubborn, honest = Peer(rep, reads=False, name="stubborn"), Peer(rep, name="honest")
        stubborn.say(*[ID + b"q"] * 4)
        honest.say(ID + b"q")
        for _ in range(5):
            await rep.recv(timeout=1.0)
            await rep.send(b"a", timeout=1.0)
        await until(lambda: honest.heard == [ID + b"a"])
        assert rep.statistics().drops == {"peer slow": 3}


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("kind", SENDERS)
async def test_send_without_peers_fails_at_once_before_and_after_there_was_one(
    kind: type[Socket], raw: bool
) -> None:
    body = bytes(4)
    async with made(kind, raw, options=FAIL) as socket:
        for _ in range(2):
            with pytest.raises(NoPeers, match=f"{kind.__name__.lower()} has no peer"):
                await socket.send(body)
            with pytest.raises(NoPeers):
                socket.send_nowait(body)
            with pytest.raises(NoPeers):
                await socket.send_many([body])
            peer = Peer(socket)
            await socket.send(body)
            peer.hang_up()


@pytest.mark.parametrize("kind", SENDERS)
async def test_a_full_peer_is_a_peer_and_is_waited_for_until_it_goes(kind: type[Socket]) -> None:
    async with kind(options=FAIL) as socket:
        peer = Peer(socket, reads=False)
        await socket.send_many([b"1", b"2"])
        with pytest.raises(Timeout):
            await socket.send(b"3", timeout=0.01)
        waiting = [asyncio.create_task(socket.send(b"3")), asyncio.create_task(socket.send_many([b"4"]))]
        await turns()
        peer.hang_up()
        for task in waiting:
            with pytest.raises(NoPeers):
                await task


async def test_req_fails_without_peers_before_and_after_there_was_one() -> None:
    async with Req0(options=FAIL) as req:
        for _ in range(2):
            with pytest.raises(NoPeers, match="req0 has no peer"):
                await req.send(b"q")
            with pytest.raises(NoPeers):
                req.send_nowait(b"q")
            peer = Peer(req)
            await req.send(b"q")
            peer.hang_up()
            with pytest.raises(NoPeers):
                await req.recv(timeout=1.0)


async def test_requests_fail_when_the_last_peer_goes_and_not_before() -> None:
    async with Req0(options=FAIL) as req:
        one = Peer(req, name="one")
        contexts: list[Context] = [req.new_context() for _ in range(3)]
        for context in contexts:
            await context.send(b"q", timeout=1.0)
        await until(lambda: len(one.heard) == 3)
        waiting = [asyncio.create_task(context.recv()) for context in contexts]
        two = Peer(req, reads=False, name="two")
        await turns()
        one.hang_up()
        await turns()
        assert not any(task.done() for task in waiting)  # two has them now, or will
        sender = asyncio.create_task(req.send(b"no room"))
        await turns()
        two.hang_up()
        for task in waiting:
            with pytest.raises(NoPeers):
                await task
        with pytest.raises(NoPeers):
            await sender
        assert req.statistics().drops == {"peer lost": 3}


# --- inboxes that peers fill before they leave


@pytest.mark.parametrize("kind", [Pull0, Rep0, Respondent0, Pair0])
async def test_peers_that_fill_an_inbox_and_leave_cannot_fill_memory(kind: type[Socket]) -> None:
    async with kind(options=SocketOptions(recv_queue=4)) as socket:
        came = 0
        with pytest.raises(PipeRefused, match="filled the inbox and left"):
            for _ in range(ORPHANS_MAX + 10):
                peer = Peer(socket)
                came += 1
                peer.say(*[ID + b"x"] * 5)
                peer.hang_up()
        assert came == ORPHANS_MAX
        for _ in range(came * 5):
            await socket.recv(timeout=1.0)
        with pytest.raises(Timeout):
            await socket.recv(timeout=0.01)
        Peer(socket)


async def test_a_raw_inbox_keeps_frames_of_a_bounded_number_of_peers_that_left() -> None:
    async with RawSocket(Pull0) as pull:
        stays = Peer(pull, name="stays")
        stays.say(b"x")
        with pytest.raises(PipeRefused, match=f"{ORPHANS_MAX} peers left frames and went"):
            for _ in range(ORPHANS_MAX + 10):
                peer = Peer(pull)
                peer.say(b"x")
                peer.hang_up()
        for _ in range(ORPHANS_MAX + 1):
            await pull.recv_run(timeout=1.0)
        Peer(pull)


async def test_a_peer_that_reads_again_is_served_in_full() -> None:
    """The pauses that bound an inbox cost nothing that was sent."""
    options = SocketOptions(recv_queue=4, send_queue=4)
    async with Push0(options=options) as push, Pull0(options=options) as pull:
        Link(push, pull)
        sending = asyncio.create_task(push.send_many([b"%d" % number for number in range(100)]))
        assert [await pull.recv(timeout=5.0) for _ in range(100)] == [b"%d" % number for number in range(100)]
        await sending
