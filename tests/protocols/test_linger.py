"""Closing gives the peers time to read what is queued for them, and not more than allowed.

NNG's ``close`` with 60 messages of 200 kB queued returned after 1 ms; 14 of them arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocols import Pair0, Pub0, Pull0, Push0, Req0, SharedListener, SocketOptions, Sub0, WouldBlock
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.interop.peers import Nng
from tests.protocols.transports.support import RawPeer, listen_url, raw_peer
from tests.support.link import Peer
from tests.support.ports import free_port
from tests.support.waiting import turns, until

SCHEMES = ["tcp", "ipc", "inproc"]
COUNT, SIZE = 60, 200_000
BODIES = [b"%4d" % number * (SIZE // 4) for number in range(COUNT)]
PULL = encode_header(ProtocolNumber.PULL0)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_12_megabytes_queued_at_the_moment_of_closing_all_arrive(scheme: str, tmp_path: Path) -> None:
    async with Pull0() as pull:
        listener = await pull.listen(listen_url(scheme, tmp_path))
        push = Push0()
        await push.dial_once(listener.url)
        await push.send_many(BODIES)
        assert push.statistics().queued == COUNT, "nothing has been written yet"
        await push.aclose()
        got = [await pull.recv(timeout=10) for _ in BODIES]
        assert got == BODIES


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_reader_that_begins_late_still_gets_everything(scheme: str, tmp_path: Path) -> None:
    """Its socket does not read while its inbox is full, so closing waits for its application."""
    async with Pull0(options=SocketOptions(recv_queue=1)) as pull:
        listener = await pull.listen(listen_url(scheme, tmp_path))
        push = Push0(options=SocketOptions(linger_s=30.0))
        await push.dial_once(listener.url)
        await push.send_many(BODIES)
        closing = asyncio.create_task(push.aclose())
        got = [await pull.recv(timeout=10) for _ in range(5)]
        assert not closing.done(), "12 MB do not fit into the kernel"
        got += [await pull.recv(timeout=10) for _ in range(COUNT - 5)]
        with pytest.raises(WouldBlock):
            pull.recv_nowait()  # it resumes reading when it is asked for more, and so sees our end
        await closing
        assert got == BODIES


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_linger_time_is_that_of_the_socket_and_not_of_its_listener(
    scheme: str, tmp_path: Path
) -> None:
    push = Push0(options=SocketOptions(linger_s=30.0))
    listener = SharedListener(listen_url(scheme, tmp_path), options=SocketOptions(linger_s=0.0))
    await push.listen(listener)
    await listener.start()
    async with Pull0(options=SocketOptions(recv_queue=1)) as pull:
        await pull.dial_once(listener.url)
        await push.wait_for_peers()
        await push.send_many(BODIES)
        closing = asyncio.create_task(push.aclose())
        assert [await pull.recv(timeout=10) for _ in BODIES] == BODIES
        with pytest.raises(WouldBlock):
            pull.recv_nowait()
        await closing
    await listener.aclose()


@pytest.mark.interop
@pytest.mark.isolated
async def test_queued_messages_for_nng_arrive_too() -> None:
    pytest.importorskip("pynng")
    url = f"tcp://127.0.0.1:{free_port()}"
    with Nng("Pull0") as pull:
        pull.socket.listen(url)
        async with Push0(options=SocketOptions(linger_s=0.5)) as push:
            await push.dial_once(url)
            await push.send_many(BODIES)
            receiving = asyncio.gather(asyncio.to_thread(lambda: [pull.socket.recv() for _ in BODIES]))
            await push.aclose()
        (received,) = await receiving
        assert received == BODIES


@asynccontextmanager
async def raw_peer_of(socket: Push0 | Pub0) -> AsyncIterator[RawPeer]:
    """A peer of raw bytes at the socket's first listener."""
    async with raw_peer(socket.listeners[0].url) as peer:
        yield peer


async def deaf_peer(push: Push0, peer: RawPeer) -> None:
    """A puller that never reads, with more queued for it than the kernel holds."""
    peer.writer.write(PULL)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await push.wait_for_peers()
    await push.send_many(BODIES)


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
async def test_a_peer_that_never_reads_costs_linger_and_no_more(scheme: str, tmp_path: Path) -> None:
    """linger_s=0.3: closing took between 0.3 s and 2 s."""
    loop = asyncio.get_running_loop()
    push = Push0(listen=listen_url(scheme, tmp_path), options=SocketOptions(linger_s=0.3))
    async with push, raw_peer_of(push) as peer:
        await deaf_peer(push, peer)
        before = loop.time()
        await push.aclose()
        assert 0.29 < loop.time() - before < 2.0


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
async def test_no_linger_closes_at_once(scheme: str, tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    push = Push0(listen=listen_url(scheme, tmp_path), options=SocketOptions(linger_s=0))
    async with push, raw_peer_of(push) as peer:
        await deaf_peer(push, peer)
        before = loop.time()
        await push.aclose()
        assert loop.time() - before < 0.5


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_linger_time_of_none_has_no_limit(scheme: str, tmp_path: Path) -> None:
    """None means no limit, here as for every time: until the peer has read, is gone, or we are cancelled."""
    async with Pull0(options=SocketOptions(recv_queue=1)) as pull:
        listener = await pull.listen(listen_url(scheme, tmp_path))
        push = Push0(options=SocketOptions(linger_s=None))
        await push.dial_once(listener.url)
        await push.send_many(BODIES)
        closing = asyncio.create_task(push.aclose())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not closing.done()
        assert [await pull.recv(timeout=10) for _ in BODIES] == BODIES
        with pytest.raises(WouldBlock):
            pull.recv_nowait()
        await closing

    push = Push0(listen=listen_url("ipc", tmp_path), options=SocketOptions(linger_s=None))
    async with push, raw_peer_of(push) as peer:
        await deaf_peer(push, peer)
        closing = asyncio.create_task(push.aclose())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not closing.done()
        peer.writer.transport.abort()
        await closing


async def test_a_peer_that_does_not_read_delays_no_other(tmp_path: Path) -> None:
    async with Sub0(topics=[""]) as sub:
        pub = Pub0(listen=f"ipc://{tmp_path}/pub", options=SocketOptions(linger_s=1.0))
        async with pub, raw_peer_of(pub) as deaf:
            deaf.writer.write(encode_header(ProtocolNumber.SUB0))
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await sub.dial_once(pub.listeners[0].url)
            await pub.wait_for_peers(2)
            for body in BODIES:
                await pub.send(body)
            closing = asyncio.create_task(pub.aclose())
            assert [await sub.recv(timeout=10) for _ in BODIES] == BODIES
            assert not closing.done()
            await closing


async def test_a_request_without_a_peer_does_not_keep_a_socket_open() -> None:
    """A request that waits for a replier is not queued for any peer."""
    loop = asyncio.get_running_loop()
    req = Req0(dial="inproc://nobody", options=SocketOptions(linger_s=None))
    async with req:
        sending = asyncio.create_task(req.send(b"question"))
        await asyncio.sleep(0)
        before = loop.time()
        await req.aclose()
        assert loop.time() - before < 1.0
        await asyncio.wait([sending])
        sending.exception()


async def test_frames_of_one_pipe_drain_when_it_is_closed_by_hand(tmp_path: Path) -> None:
    async with Pull0(listen=f"ipc://{tmp_path}/x") as pull, Push0() as push:
        pipe = await push.dial_once(f"ipc://{tmp_path}/x")
        await push.send_many(BODIES)
        pipe.close("moving on", flush=True)
        assert [await pull.recv(timeout=10) for _ in BODIES] == BODIES
        await until(lambda: not pull.pipes)


async def test_a_socket_waits_for_a_pipe_that_was_closed_with_flush_before_it() -> None:
    """The pipe was no longer the socket's, so closing returned while it still drained."""
    async with Pair0(options=SocketOptions(linger_s=20.0)) as socket:
        peer = Peer(socket)
        peer.connection.hold()
        socket.send_nowait(b"last words")
        peer.pipe.close("enough", flush=True)
        closing = asyncio.create_task(socket.aclose())
        await turns(50)
        assert not closing.done()
        peer.connection.release()
        await closing
        assert peer.heard == [b"last words"]


async def test_a_pipe_that_drains_past_the_linger_time_is_cut_when_its_socket_closes() -> None:
    async with Pair0(options=SocketOptions(linger_s=0.01)) as socket:
        peer = Peer(socket)
        peer.connection.hold()
        socket.send_nowait(b"never read")
        peer.pipe.linger_s = None
        peer.pipe.close("enough", flush=True)
        await socket.aclose()
        assert peer.connection.ended


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "inproc://forgets"])
async def test_a_socket_forgets_connections_that_are_gone(url: str) -> None:
    async with Pull0(listen=url) as pull:
        for _ in range(3):
            async with Push0(dial=pull.listeners[0].url) as push:
                await push.send(b"x")
                assert await pull.recv() == b"x"
        await until(lambda: not pull._core.roster.connected)
