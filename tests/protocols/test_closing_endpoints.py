"""A closed endpoint leaves nothing open: no connection that was just accepted, no dial in progress.

The loop may end as soon as ``aclose`` returns; anything still open then is a leak.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocols import Pair0, Pull0, SharedListener, SocketOptions
from protocols.dialling import Dialer
from protocols.listening import ACCEPTING_TURNS, Listener
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.transports.support import FakeSocket
from tests.support.waiting import until

HEADER = encode_header(ProtocolNumber.PAIR0)
FAST = SocketOptions(reconnect_min_s=0.0, reconnect_max_s=0.0, linger_s=0.5)


def connected(url: str) -> socket.socket:
    """A peer that the kernel has connected, and the listener's loop does not know yet."""
    scheme, _, address = url.partition("://")
    if scheme == "ipc":
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(address)
    else:
        host, _, port = address.removesuffix("/").rpartition(":")
        peer = socket.create_connection((host, int(port)))
    peer.settimeout(1.0)
    return peer


def assert_closed(peer: socket.socket) -> None:
    """The other end is closed now, without another turn of the loop."""
    try:
        while peer.recv(1000):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        raise AssertionError("the listener's end is still open") from None
    finally:
        peer.close()


def assert_nothing_runs() -> None:
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture(params=["tcp", "ipc", "ws"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{tmp_path}/x", "ws": "ws://127.0.0.1:0"}[request.param]


@pytest.mark.parametrize("turns", range(7))
@pytest.mark.parametrize("says", [b"", HEADER], ids=["silent", "header"])
async def test_a_connection_that_is_being_accepted_is_closed_with_its_listener(
    url: str, turns: int, says: bytes
) -> None:
    owner = FakeSocket()
    listener = Listener(owner, url)
    await listener.start()
    peers = [connected(listener.url) for _ in range(3)]
    for peer in peers:
        peer.sendall(says)
    for _ in range(turns):
        await asyncio.sleep(0)
    await listener.aclose()
    await owner.aclose()
    assert_nothing_runs()
    for peer in peers:
        assert_closed(peer)


@pytest.mark.parametrize("turns", range(1, 5))
async def test_a_listener_whose_closing_is_cancelled_has_dropped_its_connections(
    url: str, turns: int
) -> None:
    """They stayed open until the deadline of their handshake, even after a second ``aclose``."""
    async with Pull0(options=SocketOptions(handshake_timeout_s=1e6)) as pull:
        listener = await pull.listen(url)
        accepted = connected(listener.url)
        await until(lambda: listener.statistics().headerless)
        accepting = connected(listener.url)
        closing = asyncio.create_task(listener.aclose())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.sleep(0)
        assert pull.listeners == []
        assert_closed(accepted)
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        assert_closed(accepting)


@pytest.mark.parametrize("turns", range(7))
async def test_a_socket_that_closes_leaves_no_refused_connection_open(url: str, turns: int) -> None:
    """A Pair0 has one partner; a second comes at the moment when everything ends."""
    async with Pair0(listen=url, options=FAST) as pair:
        first = connected(pair.listeners[0].url)
        if not url.startswith("ws"):
            first.sendall(HEADER)
            await pair.wait_for_peers()
        second = connected(pair.listeners[0].url)
        second.sendall(HEADER)
        for _ in range(turns):
            await asyncio.sleep(0)
        first.close()
    assert_nothing_runs()
    assert_closed(second)


@asynccontextmanager
async def mute(url: str) -> AsyncIterator[tuple[str, socket.socket]]:
    """A listener whose kernel accepts connections, and nobody does anything else."""
    scheme, _, address = url.partition("://")
    with socket.socket(socket.AF_UNIX if scheme == "ipc" else socket.AF_INET) as listening:
        listening.bind(address if scheme == "ipc" else ("127.0.0.1", 0))
        listening.listen()
        if scheme != "ipc":
            url = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        yield url, listening


@pytest.mark.parametrize("turns", range(12))
async def test_a_dialer_that_closes_leaves_no_attempt_open(url: str, turns: int) -> None:
    async with mute(url) as (where, listening):
        dialer = Dialer(FakeSocket(options=FAST), where)
        dialer.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        await dialer.aclose()
        assert_nothing_runs()
        listening.settimeout(0)
        try:
            accepted, _ = listening.accept()
        except BlockingIOError:
            return  # it had not begun
        accepted.settimeout(1.0)
        assert_closed(accepted)


async def test_a_dial_that_is_given_up_leaves_no_attempt_open(url: str) -> None:
    async with mute(url) as (where, listening), Pull0() as pull:
        listening.settimeout(0)
        for turns in range(12):
            attempt = asyncio.create_task(pull.dial_once(where))
            for _ in range(turns):
                await asyncio.sleep(0)
            attempt.cancel()
            await asyncio.wait([attempt])
            assert_nothing_runs()
            try:
                accepted, _ = listening.accept()
            except BlockingIOError:
                continue  # it had not begun
            accepted.settimeout(1.0)
            assert_closed(accepted)


async def test_a_shared_listener_closes_connections_that_it_has_not_assigned() -> None:
    for turns in range(7):
        shared = SharedListener("tcp://127.0.0.1:0")
        await shared.start()
        peer = connected(shared.url)
        for _ in range(turns):
            await asyncio.sleep(0)
        await shared.aclose()
        assert_nothing_runs()
        assert_closed(peer)


async def test_a_peer_that_is_accepted_too_late_gets_no_header() -> None:
    """With a header it would consider itself attached, and send messages that are lost."""
    for turns in (2, 3):
        listener = Listener(FakeSocket(), "tcp://127.0.0.1:0")
        await listener.start()
        peer = connected(listener.url)
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.aclose()
        try:
            assert peer.recv(1000) == b""
        except ConnectionResetError:
            pass
        peer.close()


async def test_a_dialer_that_is_refused_again_and_again_leaves_nothing_open(tmp_path: Path) -> None:
    """Each of its connections is made, attached and ended by the peer; it closes in the middle of that."""
    for turns in range(30):
        async with Pair0(listen=f"ipc://{tmp_path}/{turns}") as pair:
            url = pair.listeners[0].url
            async with Pair0(dial=url) as first:
                await first.wait_for_peers()
                owner = FakeSocket(options=FAST)
                dialer = Dialer(owner, url)
                dialer.start()
                await until(lambda: dialer.statistics().connected >= 2)  # noqa: B023
                for _ in range(turns):
                    await asyncio.sleep(0)
                await dialer.aclose()
                await owner.aclose()
        assert_nothing_runs()
