"""The common part of all sockets: life, waiting, cancelling, closing, counting."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import socket as sockets
import struct
from pathlib import Path
from typing import Any

import pytest

from protocols import (
    AddressError,
    AddressInUse,
    Bus0,
    Closed,
    ConnectionRefused,
    HandshakeError,
    NotSupported,
    Pair0,
    PipeRefused,
    Pub0,
    Pull0,
    Push0,
    RawSocket,
    Rep0,
    Req0,
    Respondent0,
    SharedListener,
    Socket,
    SocketOptions,
    StateError,
    Sub0,
    Surveyor0,
    Timeout,
    WouldBlock,
)
from protocols.waiting import Waiters
from tests.support.link import Link, Peer
from tests.support.waiting import turns, until

ALL = [Pair0, Bus0, Pub0, Sub0, Push0, Pull0, Req0, Rep0, Surveyor0, Respondent0]
NUMBERS = [0x10, 0x70, 0x20, 0x21, 0x50, 0x51, 0x30, 0x31, 0x62, 0x63]
RECEIVERS = [Pair0, Bus0, Sub0, Pull0, Rep0, Respondent0]
QUICK = SocketOptions(reconnect_min_s=0.01, reconnect_max_s=0.05)
PAIRS = [
    (Pair0, Pair0),
    (Bus0, Bus0),
    (Push0, Pull0),
    (Pub0, Sub0),
    (Req0, Rep0),
    (Surveyor0, Respondent0),
]


def listening(scheme: str, folder: Path) -> str:
    return {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{folder}/here.sock", "inproc": "inproc://here"}[scheme]


# --- identity and directions


@pytest.mark.parametrize(("kind", "number"), list(zip(ALL, NUMBERS, strict=True)))
@pytest.mark.parametrize("raw", [False, True])
def test_each_socket_has_its_number_and_its_peers(kind: type[Socket], number: int, raw: bool) -> None:
    socket = RawSocket(kind) if raw else kind()
    assert socket.protocol == number
    assert socket.peer == (number if kind in (Pair0, Bus0) else number ^ 1)


def test_sockets_can_be_made_without_a_loop_and_cost_nothing() -> None:
    for kind in ALL:
        assert repr(kind()) == f"<{kind.__name__} with 0 peers>"


@pytest.mark.parametrize("body", ["text", None, 5, ["x"]])
async def test_a_body_that_is_not_bytes_is_a_type_error_at_once(body: Any) -> None:
    async with Pub0() as pub, Req0() as req:
        for call in (pub.send, req.send):
            with pytest.raises(TypeError, match="a body is bytes"):
                await call(body)
        with pytest.raises(TypeError):
            pub.send_nowait(body)
        with pytest.raises(TypeError):
            await pub.send_many([b"good", body])


async def test_bytearrays_and_memoryviews_are_copied_when_sent() -> None:
    async with Push0() as push:
        peer = Peer(push)
        body = bytearray(b"before")
        await push.send(body)
        await push.send_many([body, memoryview(body)])
        body[:] = b"after!"
        await until(lambda: peer.heard == [b"before"] * 3)


# --- waiting and cancelling


@pytest.mark.parametrize("kind", RECEIVERS)
async def test_recv_waits_times_out_or_returns_at_once_as_told(kind: type[Socket]) -> None:
    async with kind() as socket:
        with pytest.raises(WouldBlock, match="nothing has been received"):
            socket.recv_nowait()
        with pytest.raises(Timeout, match="nothing received within 0.01 s"):
            await socket.recv(timeout=0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(socket.recv(), 0.01)
    async with kind(options=SocketOptions(recv_timeout_s=0.01)) as socket:
        with pytest.raises(Timeout):
            await socket.recv()


async def test_a_cancelled_recv_loses_no_message() -> None:
    async with Pull0() as pull:
        peer = Peer(pull)
        for number in range(50):
            waiting = asyncio.create_task(pull.recv())
            await turns(number % 3)
            peer.say(b"%d" % number)
            await turns(number % 2)
            if waiting.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert await pull.recv() == b"%d" % number
            else:
                assert await waiting == b"%d" % number


async def test_several_waiting_readers_get_a_message_each() -> None:
    async with Pull0() as pull:
        peer = Peer(pull)
        readers = [asyncio.create_task(pull.recv()) for _ in range(10)]
        await turns()
        peer.say(b"first")
        peer.say(*(b"%d" % number for number in range(9)))
        assert sorted(await asyncio.gather(*readers)) == sorted(
            [b"first", *(b"%d" % number for number in range(9))]
        )


async def test_a_wake_up_passes_from_a_cancelled_reader_to_the_next() -> None:
    async with Pull0() as pull:
        peer = Peer(pull)
        first, second = (asyncio.create_task(pull.recv()) for _ in range(2))
        await turns()
        peer.say(b"x")
        first.cancel()
        assert await second == b"x"


async def test_waiters_forget_those_that_gave_up() -> None:
    waiters = Waiters()
    loop = asyncio.get_running_loop()
    assert not await waiters.wait(loop.time() + 0.001)
    waiting = asyncio.create_task(waiters.wait(None))
    await turns()
    assert len(waiters) == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert len(waiters) == 0
    waiters.wake(5)
    waiters.wake_all()


async def test_a_message_that_came_before_recv_was_called_is_delivered() -> None:
    async with Pull0() as pull:
        Peer(pull).say(b"early", b"")
        assert await pull.recv() == b"early"
        assert await pull.recv() == b""


async def test_a_cancelled_send_was_not_taken() -> None:
    async with Push0() as push:
        waiting = asyncio.create_task(push.send(b"no"))
        await turns()
        waiting.cancel()
        await asyncio.wait([waiting])
        peer = Peer(push)
        await push.send(b"yes")
        await until(lambda: peer.heard == [b"yes"])


# --- closing


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("raw", [False, True])
async def test_every_call_raises_closed_after_closing(kind: type[Socket], raw: bool) -> None:
    socket = RawSocket(kind) if raw else kind()
    assert not socket.closed
    await socket.aclose()
    await socket.aclose()
    assert socket.closed
    with pytest.raises(Closed, match="the socket is closed"):
        await socket.send(b"x")
    with pytest.raises(Closed):
        await socket.recv()
    with pytest.raises(Closed):
        socket.send_nowait(b"x")
    with pytest.raises(Closed):
        socket.recv_nowait()
    with pytest.raises(Closed):
        await socket.send_many([b"x"])
    with pytest.raises(Closed):
        socket.dial("inproc://x")
    with pytest.raises(Closed):
        await socket.dial_once("inproc://x")
    with pytest.raises(Closed):
        await socket.listen("inproc://x")
    with pytest.raises(Closed):
        await socket.wait_for_peers()
    with pytest.raises(PipeRefused):
        Peer(socket)


@pytest.mark.parametrize("kind", RECEIVERS)
async def test_closing_ends_calls_that_wait_and_iteration(kind: type[Socket]) -> None:
    socket, other = kind(), kind()

    async def iterate() -> list[bytes]:
        return [body async for body in other]

    receiving = asyncio.create_task(socket.recv())
    iterating = asyncio.create_task(iterate())
    waiting = asyncio.create_task(socket.wait_for_peers(5))
    await turns()
    await socket.aclose()
    await other.aclose()
    with pytest.raises(Closed):
        await receiving
    with pytest.raises(Closed):
        await waiting
    assert await iterating == []


async def test_closing_ends_a_send_that_waits() -> None:
    push = Push0()
    sending = asyncio.create_task(push.send(b"x"))
    batch = asyncio.create_task(push.send_many([b"x"]))
    await turns()
    await push.aclose()
    for task in (sending, batch):
        with pytest.raises(Closed):
            await task


async def test_received_and_unread_messages_are_gone_after_closing() -> None:
    pull = Pull0()
    Peer(pull).say(b"unread")
    await pull.aclose()
    with pytest.raises(Closed):
        await pull.recv()


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "inproc"])
async def test_closing_drains_queued_messages(scheme: str, tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(1000)]
    async with Pull0() as pull:
        listener = await pull.listen(listening(scheme, tmp_path))
        async with Push0() as push:
            push.dial(listener.url)
            await push.wait_for_peers()
            await push.send_many(bodies)
        got = [await pull.recv(timeout=5.0) for _ in bodies]
        assert got == bodies


async def test_closing_waits_no_longer_than_linger() -> None:
    loop = asyncio.get_running_loop()
    push = Push0(options=SocketOptions(linger_s=0.05))
    Peer(push, reads=False)
    await push.send(b"never read")
    before = loop.time()
    await push.aclose()
    assert 0.04 < loop.time() - before < 5.0


async def test_a_cancelled_close_closes_everything_and_a_second_one_waits_for_it() -> None:
    push = Push0(options=SocketOptions(linger_s=30.0))
    for number in range(3):
        push.dial(f"inproc://nobody-{number}")
        await push.listen(f"inproc://mine-{number}")
    peer = Peer(push, reads=False)
    await push.send(b"never read")
    await turns()
    closing = asyncio.create_task(push.aclose())
    second = asyncio.create_task(push.aclose())
    await turns(1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await second
    assert peer.connection.ended and peer.pipe.closed
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("dial")] == []
    for number in range(3):
        async with Pull0(listen=f"inproc://mine-{number}"):
            pass


async def test_a_peer_that_resets_while_we_close_does_no_harm() -> None:
    """Found with NNG: half-closing a connection that the kernel knows to be reset raises ENOTCONN."""
    async with Push0(options=SocketOptions(linger_s=0.5)) as push:
        listener = await push.listen("tcp://127.0.0.1:0")
        port = int(listener.url.rpartition(":")[2])
        peer = sockets.create_connection(("127.0.0.1", port))
        peer.sendall(b"\x00SP\x00\x00\x51\x00\x00")
        await push.wait_for_peers(1, timeout=5.0)
        peer.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        push.pipes[0].close("by hand", flush=True)


async def test_an_error_while_entering_leaves_nothing_open(tmp_path: Path) -> None:
    async with Pull0(listen="inproc://taken"):
        with pytest.raises(AddressInUse):
            async with Pull0(listen=["inproc://free", "inproc://taken"]):
                pass
        async with Pull0(listen="inproc://free"):
            pass
    with pytest.raises(AddressError):
        async with Push0(dial="nonsense"):
            pass


# --- endpoints


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "inproc"])
@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_every_pattern_crosses_every_transport(
    scheme: str, first: type[Socket], second: type[Socket], tmp_path: Path
) -> None:
    async with second(options=QUICK) as there, first(options=QUICK) as here:
        listener = await there.listen(listening(scheme, tmp_path))
        here.dial(listener.url)
        await here.wait_for_peers(1, timeout=5.0)
        await there.wait_for_peers(1, timeout=5.0)
        if isinstance(there, Sub0):
            there.subscribe("")
        await here.send(b"ping")
        assert await there.recv(timeout=5.0) == b"ping"
        if first not in (Pub0, Push0):
            await there.send(b"pong")
            assert await here.recv(timeout=5.0) == b"pong"
        assert here.statistics().bytes_out > 0


async def test_dial_and_listen_may_be_given_when_made_and_be_many(tmp_path: Path) -> None:
    urls = ["inproc://one", f"ipc://{tmp_path}/two.sock"]
    async with Pull0(listen=urls) as pull, Push0(dial=urls) as push:
        await push.wait_for_peers(2, timeout=5.0)
        assert [listener.url for listener in pull.listeners] == urls
        assert [dialer.url for dialer in push.dialers] == urls
        assert len(push.pipes) == 2 and {pipe.url for pipe in push.pipes} == set(urls)


async def test_dialling_before_listening_connects_later() -> None:
    async with Push0(options=QUICK) as push:
        dialer = push.dial("inproc://later")
        await until(lambda: dialer.statistics().attempts > 1)
        async with Pull0(listen="inproc://later") as pull:
            await push.wait_for_peers(1, timeout=5.0)
            await push.send(b"x")
            assert await pull.recv() == b"x"


async def test_endpoints_that_are_closed_by_hand_are_forgotten() -> None:
    async with Push0() as push:
        for _ in range(3):
            dialer = push.dial("inproc://nobody")
            listener = await push.listen("inproc://here")
            assert (push.dialers, push.listeners) == ([dialer], [listener])
            await dialer.aclose()
            await listener.aclose()
            assert (push.dialers, push.listeners) == ([], [])
        dialer = push.dial("inproc://nobody")
    assert push.dialers == [dialer]


async def test_dial_once_makes_one_pipe_or_says_why_not() -> None:
    async with Req0() as req:
        with pytest.raises(ConnectionRefused):
            await req.dial_once("inproc://nobody")
        async with Rep0(listen="inproc://rep"), Pub0(listen="inproc://pub"):
            pipe = await req.dial_once("inproc://rep")
            assert req.pipes == [pipe] and pipe.dialed
            with pytest.raises(HandshakeError):
                await req.dial_once("inproc://pub")
        await until(lambda: pipe.closed)
        assert req.pipes == []


async def test_wait_for_peers_counts_and_times_out() -> None:
    async with Bus0() as bus:
        await bus.wait_for_peers(0)
        Peer(bus, name="one")
        with pytest.raises(Timeout, match="1 of 2 peers within 0.01 s"):
            await bus.wait_for_peers(2, timeout=0.01)
        waiting = asyncio.create_task(bus.wait_for_peers(2))
        await turns()
        assert not waiting.done()
        Peer(bus, name="two")
        await waiting


async def test_several_sockets_share_one_address(tmp_path: Path) -> None:
    shared = SharedListener("tcp://127.0.0.1:0")
    local = SharedListener(f"ipc://{tmp_path}/shared.sock")
    async with Rep0() as rep, Sub0(topics=[""]) as sub, Pull0() as pull:
        for socket in (rep, sub, pull):
            await socket.listen(shared)
            assert await socket.listen(local) is local
        await shared.start()
        await local.start()
        for url in (shared.url, local.url):
            async with Req0(dial=url) as req, Pub0(dial=url) as pub, Push0(dial=url) as push:
                await req.send(b"q", timeout=5.0)
                assert await rep.recv(timeout=5.0) == b"q"
                await rep.send(b"a")
                assert await req.recv(timeout=5.0) == b"a"
                await pub.wait_for_peers(1, timeout=5.0)
                await pub.send(b"p")
                assert await sub.recv(timeout=5.0) == b"p"
                await push.send(b"t", timeout=5.0)
                assert await pull.recv(timeout=5.0) == b"t"
        async with Surveyor0() as surveyor:
            with pytest.raises(HandshakeError):
                await surveyor.dial_once(shared.url)
        async with Rep0() as second:
            with pytest.raises(StateError, match="already has a socket"):
                await second.listen(shared)
        await rep.aclose()
        async with Req0() as req:
            with pytest.raises(HandshakeError):
                await req.dial_once(shared.url)
    await shared.aclose()
    await local.aclose()


async def test_a_second_partner_of_a_pair_is_refused_over_tcp() -> None:
    async with Pair0() as pair, Pair0() as first, Pair0() as second:
        listener = await pair.listen("tcp://127.0.0.1:0")
        await first.dial_once(listener.url)
        await pair.wait_for_peers()
        pipe = await second.dial_once(listener.url)  # accepted by TCP and the handshake, then closed
        await until(lambda: pipe.closed)
        await pair.send(b"still yours")
        assert await first.recv(timeout=5.0) == b"still yours"
        assert listener.statistics().refused == {"not wanted": 1}


# --- counting


async def test_statistics_are_a_snapshot_that_outlives_peers() -> None:
    async with Bus0(options=SocketOptions(send_queue=2)) as bus:
        peer = Peer(bus)
        peer.say(b"1", b"2")
        await bus.send(b"x")
        await until(lambda: peer.heard)
        before = bus.statistics()
        assert (before.protocol, before.peers, before.attached, before.detached) == ("bus0", 1, 1, 0)
        assert (before.frames_in, before.frames_out, before.queued) == (2, 1, 0)
        peer.connection.hold()
        await bus.send_many([b"a", b"b", b"c"])
        assert bus.statistics().queued == 2
        peer.hang_up()
        after = bus.statistics()
        assert (after.peers, after.attached, after.detached) == (0, 1, 1)
        assert (after.frames_in, after.frames_out, after.refused, after.queued) == (2, 1, 1, 0)
        assert after.drops == {"peer slow": 1, "peer lost": 2}
        assert before.drops == {}


async def test_pipe_ids_are_counted_from_a_start_that_the_generator_gives() -> None:
    async def ids(seed: int) -> list[int]:
        async with Bus0(rng=random.Random(seed)) as bus:
            return [Peer(bus, name=str(number)).pipe.id for number in range(3)]

    first = await ids(1)
    assert first == await ids(1) != await ids(2)
    assert first[2] - first[0] == 2
    async with Bus0() as bus:
        bus._core.roster.last_pipe_id = 0x7FFFFFFE
        assert [Peer(bus, name=str(number)).pipe.id for number in range(3)] == [0x7FFFFFFF, 1, 2]


async def test_unsupported_contexts_are_refused_with_a_sentence() -> None:
    for kind in (Pair0, Bus0, Pub0, Push0, Pull0):
        with pytest.raises(NotSupported, match=f"{kind.__name__.lower()} sockets have no contexts"):
            kind().new_context()


async def test_patterns_that_speak_in_turns_take_no_batches() -> None:
    async with Rep0() as rep:
        with pytest.raises(NotSupported, match="in turns"):
            await rep.recv_many()
        with pytest.raises(NotSupported, match="in turns"):
            await rep.send_many([b"x"])


async def test_closing_a_socket_closes_its_contexts() -> None:
    req, sub = Req0(), Sub0()
    contexts = [req.new_context(), sub.new_context()]
    await req.aclose()
    await sub.aclose()
    for context in contexts:
        with pytest.raises(Closed, match="the socket is closed"):
            await context.recv()
        await context.aclose()
    with pytest.raises(Closed):
        req.new_context()
    with pytest.raises(Closed):
        sub.new_context()


# --- loops and processes


def test_each_loop_has_sockets_of_its_own() -> None:
    """Nothing in the package remembers a loop that is gone."""

    async def once() -> bytes:
        async with Rep0(listen="inproc://same") as rep, Req0(dial="inproc://same") as req:
            await req.send(b"q")
            await rep.send(await rep.recv())
            return await req.recv()

    assert [asyncio.run(once()) for _ in range(3)] == [b"q"] * 3


def child(url: str) -> None:
    async def main() -> None:
        async with Push0(dial=url) as push:
            await push.send(b"from the child", timeout=10.0)

    asyncio.run(main())


async def test_sockets_work_after_fork() -> None:
    context = multiprocessing.get_context("fork")
    async with Pull0() as pull, Push0() as push:
        listener = await pull.listen("tcp://127.0.0.1:0")
        await push.dial_once(listener.url)  # the parent has live sockets when it forks
        process = context.Process(target=child, args=(listener.url,))
        process.start()
        assert await pull.recv(timeout=20.0) == b"from the child"
        await push.send(b"from the parent")
        assert await pull.recv(timeout=5.0) == b"from the parent"
        await asyncio.to_thread(process.join, 20.0)
        assert process.exitcode == 0


async def test_two_sockets_with_a_cut_link_reconnect_over_another() -> None:
    async with Push0() as push, Pull0() as pull:
        link = Link(push, pull)
        await push.send(b"1")
        assert await pull.recv() == b"1"
        link.cut()
        Link(push, pull)
        await push.send(b"2")
        assert await pull.recv() == b"2"
        assert push.statistics().detached == 1
