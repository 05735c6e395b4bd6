"""Dialers keep reconnecting, and a single attempt leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from protocols.dialling import Dialer, dial_once
from protocols.errors import (
    AddressError,
    Closed,
    ConnectionRefused,
    HandshakeError,
    PipeRefused,
    Timeout,
)
from protocols.listening import Listener
from protocols.options import DEFAULT, SocketOptions
from protocols.pipe import Connection, Pipe
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.transports.support import FakeSocket, listen_url, until
from tests.support.ports import free_port

FAST = SocketOptions(reconnect_min_s=0.01, reconnect_max_s=0.05)


# --- Dialer


async def test_a_dialer_may_come_first_and_comes_back_when_the_listener_does(
    scheme: str, tmp_path: Path
) -> None:
    url = listen_url(scheme, tmp_path).replace(":0", f":{free_port()}")
    owner, peer = FakeSocket(options=FAST), FakeSocket(options=FAST)
    dialer = Dialer(owner, url)
    dialer.start()
    await until(lambda: dialer.statistics().failed.get("refused", 0) >= 2)
    assert "nobody listens" in dialer.last_error
    for round_number in range(1, 4):
        listener = Listener(peer, url)
        await listener.start()
        pipe = (await dialer.wait_connected())._pipe
        assert dialer.last_error == ""
        pipe.send(b"round %d" % round_number)
        await until(lambda: len(peer.received) == round_number)  # noqa: B023
        await listener.aclose()
        for attached in list(peer.pipes):
            attached.close("restart")
        await until(lambda: len(owner.lost) == round_number)  # noqa: B023
    assert dialer.statistics().connected == 3
    await dialer.aclose()
    await owner.aclose()
    await peer.aclose()


async def test_a_peer_that_disconnects_at_once_is_dialled_with_growing_pauses() -> None:
    """Accepting a connection is not a success if the pipe does not last."""
    accepted: list[float] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(asyncio.get_running_loop().time())
        writer.write(encode_header(ProtocolNumber.PAIR0))
        await reader.readexactly(8)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    owner = FakeSocket(options=SocketOptions(reconnect_min_s=0.02, reconnect_max_s=10.0))
    dialer = Dialer(owner, f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    dialer.start()
    await until(lambda: len(accepted) >= 6)
    assert accepted[5] - accepted[4] >= 0.02 * 2**4 / 2
    await dialer.aclose()
    await owner.aclose()
    server.close()


async def test_a_pipe_that_lived_resets_the_back_off(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path / 'x.sock'}"
    owner = FakeSocket(options=SocketOptions(reconnect_min_s=0.01, reconnect_max_s=1000.0))
    dialer = Dialer(owner, url)
    dialer.start()
    await until(lambda: dialer.statistics().attempts >= 5)
    peer = FakeSocket()
    listener = Listener(peer, url)
    await listener.start()
    loop = asyncio.get_running_loop()
    await dialer.wait_connected()
    up_at = loop.time()
    await until(lambda: loop.time() > up_at + 0.4)  # longer than the previous pause
    peer.pipes[0].close("again")
    await until(lambda: dialer.statistics().connected == 2, 5.0)
    await dialer.aclose()
    await listener.aclose()
    await owner.aclose()
    await peer.aclose()


async def test_a_socket_that_wants_no_peer_is_asked_again_and_again(scheme: str, tmp_path: Path) -> None:
    owner, peer = FakeSocket(options=FAST), FakeSocket()
    listener = Listener(peer, listen_url(scheme, tmp_path))
    await listener.start()
    owner.refusing = True
    dialer = Dialer(owner, listener.url)
    dialer.start()
    await until(lambda: dialer.statistics().failed.get("not wanted", 0) >= 2)
    owner.refusing = False
    await dialer.wait_connected()
    await dialer.aclose()
    await listener.aclose()
    await owner.aclose()
    await peer.aclose()


async def test_closing_a_dialer_leaves_its_pipe_and_dials_no_more(scheme: str, tmp_path: Path) -> None:
    owner, peer = FakeSocket(options=FAST), FakeSocket()
    listener = Listener(peer, listen_url(scheme, tmp_path))
    await listener.start()
    dialer = Dialer(owner, listener.url)
    dialer.start()
    pipe = (await dialer.wait_connected())._pipe
    await dialer.aclose()
    assert not pipe.closed
    pipe.send(b"still here")
    await until(lambda: peer.received == [b"still here"])
    attempts = dialer.statistics().attempts
    pipe.close("over")
    await until(lambda: peer.lost)
    assert dialer.statistics().attempts == attempts
    await listener.aclose()
    await owner.aclose()
    await peer.aclose()


async def test_waiting_for_a_dialer_that_is_closed_ends() -> None:
    dialer = Dialer(FakeSocket(options=FAST), f"tcp://127.0.0.1:{free_port()}")
    dialer.start()
    waiting = asyncio.create_task(dialer.wait_connected())
    await asyncio.sleep(0)
    await dialer.aclose()
    with pytest.raises(Closed):
        await waiting


async def test_a_closed_dialer_keeps_no_pipe(scheme: str, tmp_path: Path) -> None:
    """Its socket still has the pipe; the dialer's could be closed by now."""
    owner, peer = FakeSocket(options=FAST), FakeSocket(options=FAST)
    listener = Listener(peer, listen_url(scheme, tmp_path))
    await listener.start()
    dialer = Dialer(owner, listener.url)
    dialer.start()
    await dialer.wait_connected()
    await dialer.aclose()
    assert dialer.pipe is None and len(owner.pipes) == 1
    with pytest.raises(Closed):
        await dialer.wait_connected()
    await listener.aclose()
    await owner.aclose()
    await peer.aclose()


async def test_a_dialer_that_ends_by_a_defect_tells_the_loop_and_its_waiters(
    scheme: str, tmp_path: Path
) -> None:
    class Broken(FakeSocket):
        def attach(self, connection: Connection, *, url: str, dialed: bool) -> Pipe:
            raise RuntimeError("a defect in the owner")

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    owner, peer = Broken(), FakeSocket()
    listener = Listener(peer, listen_url(scheme, tmp_path))
    await listener.start()
    dialer = Dialer(owner, listener.url)
    dialer.start()
    with pytest.raises(Closed, match="a defect in the owner"):
        await dialer.wait_connected()
    assert "a defect in the owner" in dialer.last_error
    (context,) = told
    assert isinstance(context["exception"], RuntimeError) and listener.url in context["message"]
    await until(lambda: not peer.pipes)  # the connection was closed
    await dialer.aclose()
    await listener.aclose()
    await peer.aclose()


async def test_a_broken_frame_is_counted_and_the_peer_dialled_again() -> None:
    async def misbehave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_header(ProtocolNumber.PAIR0) + b"\xff" * 8)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(misbehave, "127.0.0.1", 0)
    owner = FakeSocket(options=FAST)
    dialer = Dialer(owner, f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    dialer.start()
    await until(lambda: dialer.statistics().bad_frames >= 2)
    await dialer.aclose()
    await owner.aclose()
    server.close()


def test_a_url_that_can_never_work_is_refused_at_once() -> None:
    for url in ("tcp://*:7770", "tcp://host:0", "nonsense", "http://x"):
        with pytest.raises(AddressError):
            Dialer(FakeSocket(), url)


# --- dial_once


async def test_dialling_once_without_a_listener_is_refused(scheme: str, tmp_path: Path) -> None:
    url = listen_url(scheme, tmp_path).replace(":0", f":{free_port()}")
    with pytest.raises(ConnectionRefused, match="nobody listens at"):
        await dial_once(FakeSocket(), url)


async def test_dialling_once_to_the_wrong_protocol_is_a_handshake_error(scheme: str, tmp_path: Path) -> None:
    peer = FakeSocket(ProtocolNumber.REP0)
    listener = Listener(peer, listen_url(scheme, tmp_path))
    await listener.start()
    with pytest.raises(HandshakeError):
        await dial_once(FakeSocket(ProtocolNumber.SUB0), listener.url)
    await until(lambda: sum(listener.statistics().refused.values()) == 1)
    assert peer.all_pipes == []
    await listener.aclose()


async def test_a_peer_that_never_answers_is_a_timeout_and_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(Timeout, match=r"within 0\.05 s"):
            await dial_once(FakeSocket(), f"tcp://127.0.0.1:{silent.getsockname()[1]}", 0.05)
        accepted, _ = silent.accept()
        accepted.setblocking(False)
        loop = asyncio.get_running_loop()
        with accepted:
            assert await loop.sock_recv(accepted, 100) == encode_header(ProtocolNumber.PAIR0)
            assert await loop.sock_recv(accepted, 100) == b""


async def test_a_cancelled_attempt_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        task = asyncio.create_task(dial_once(FakeSocket(), url))
        silent.setblocking(False)
        loop = asyncio.get_running_loop()
        accepted, _ = await loop.sock_accept(silent)
        with accepted:
            assert await loop.sock_recv(accepted, 100) == encode_header(ProtocolNumber.PAIR0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await loop.sock_recv(accepted, 100) == b""


async def test_a_refused_pipe_is_closed_and_raised(scheme: str, tmp_path: Path) -> None:
    peer, dialer = FakeSocket(), FakeSocket()
    listener = Listener(peer, listen_url(scheme, tmp_path))
    await listener.start()
    dialer.refusing = True
    with pytest.raises(PipeRefused, match="no peer is wanted"):
        await dial_once(dialer, listener.url)
    await until(lambda: peer.lost)
    await listener.aclose()
    await peer.aclose()


async def test_a_listening_socket_that_refuses_is_counted_and_serves_on(scheme: str, tmp_path: Path) -> None:
    peer, dialer = FakeSocket(), FakeSocket()
    listener = Listener(peer, listen_url(scheme, tmp_path))
    await listener.start()
    peer.refusing = True
    await dial_once(dialer, listener.url)  # as with Pair0, the handshake is done before the refusal
    await until(lambda: dialer.lost)
    assert listener.statistics().refused == {"not wanted": 1}
    peer.refusing = False
    await dial_once(dialer, listener.url)
    await until(lambda: peer.pipes)
    assert listener.statistics().connected == 1
    await listener.aclose()
    await dialer.aclose()
    await peer.aclose()


@pytest.mark.virtual
async def test_waiting_for_a_connection_may_have_a_limit() -> None:
    dialer = Dialer(FakeSocket(), "inproc://nobody-listens")
    dialer.start()
    for timeout in (0.0, 5.0):
        begin = asyncio.get_running_loop().time()
        with pytest.raises(Timeout, match=rf"within {timeout:g} s: nobody listens"):
            await dialer.wait_connected(timeout=timeout)
        assert asyncio.get_running_loop().time() - begin == pytest.approx(timeout, abs=0.01)
    with pytest.raises(ValueError, match="seconds from 0"):
        await dialer.wait_connected(-1)
    for unlimited in (None, DEFAULT):
        waiting = asyncio.create_task(dialer.wait_connected(unlimited))
        await asyncio.sleep(50.0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
    await dialer.aclose()
