"""Listeners survive whatever peers do, and one address serves many sockets."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from protocols import Rep0, Req0
from protocols.dialling import dial_once
from protocols.errors import (
    Closed,
    HandshakeError,
    StateError,
)
from protocols.listening import Listener, SharedListener
from protocols.options import SocketOptions
from protocols.wire.framing import encode_frames
from protocols.wire.handshake import PEER_OF, ProtocolNumber, encode_header
from tests.protocols.transports.support import FakeSocket, listen_url, raw_peer, until
from tests.support.ports import free_port

FAST = SocketOptions(reconnect_min_s=0.01, reconnect_max_s=0.05)


# --- SharedListener

ROLES = [
    ProtocolNumber.BUS0,
    ProtocolNumber.REP0,
    ProtocolNumber.PUB0,
    ProtocolNumber.PULL0,
    ProtocolNumber.SUB0,
    ProtocolNumber.SURVEYOR0,
    ProtocolNumber.RESPONDENT0,
]


class Refusals:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def __call__(self, remote_address: str, sentence: str) -> None:
        self.told.append((remote_address, sentence))


@asynccontextmanager
async def sharing(
    url: str, options: SocketOptions = FAST, headerless_max: int = 256
) -> AsyncIterator[tuple[SharedListener, dict[int, FakeSocket], Refusals]]:
    """A shared listener with one socket for each of the roles a broker has."""
    refusals = Refusals()
    listener = SharedListener(url, options=options, on_refused=refusals, headerless_max=headerless_max)
    sockets = {int(role): FakeSocket(role, options) for role in ROLES}
    for each in sockets.values():
        listener.serve(each)
    await listener.start()
    try:
        yield listener, sockets, refusals
    finally:
        await listener.aclose()
        for each in sockets.values():
            await each.aclose()


async def test_every_protocol_is_served_at_one_address(scheme: str, tmp_path: Path) -> None:
    async with sharing(listen_url(scheme, tmp_path)) as (listener, sockets, _):
        for role in ROLES:
            dialer = FakeSocket(PEER_OF[role])
            pipe = await dial_once(dialer, listener.url)
            assert pipe.peer == role
            pipe.send(b"to %d" % role)
            await until(lambda: sockets[role].received == [b"to %d" % role])  # noqa: B023
            sockets[role].pipes[0].send(b"back")
            await until(lambda: dialer.received == [b"back"])  # noqa: B023
            await dialer.aclose()
        assert listener.statistics().connected == len(ROLES)


async def test_the_header_waits_for_the_diallers(tmp_path: Path) -> None:
    async with sharing(f"ipc://{tmp_path / 'x.sock'}") as (listener, _, _), raw_peer(listener.url) as peer:
        peer.writer.write(encode_header(ProtocolNumber.REQ0)[:7])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.reader.read(1), 0.05)
        peer.writer.write(b"\x00")
        assert await peer.reader.readexactly(8) == encode_header(ProtocolNumber.REP0)


@pytest.mark.parametrize("number", [ProtocolNumber.PAIR0, ProtocolNumber.STAR0, 0xF000])
async def test_a_protocol_that_nothing_serves_is_refused_with_a_sentence(number: int) -> None:
    async with sharing("tcp://127.0.0.1:0") as (listener, sockets, refusals):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(encode_header(number) + encode_frames([b"ignored"]))
            assert await peer.read_all() == b""
        assert listener.statistics().refused == {"wrong protocol": 1}
        ((address, sentence),) = refusals.told
        assert address.startswith("tcp://127.0.0.1:")
        assert "; this address takes " in sentence
        assert not any(each.all_pipes for each in sockets.values())


async def test_a_connection_without_a_header_ends_at_the_deadline() -> None:
    options = replace(FAST, handshake_timeout_s=0.05)
    async with sharing("tcp://127.0.0.1:0", options) as (listener, sockets, refusals):
        async with raw_peer(listener.url) as silent:
            assert await silent.read_all() == b""
        assert listener.statistics().handshake_timeouts == 1
        assert refusals.told[0][1] == "0 of 8 header bytes after 0.05 s"
        dialer = FakeSocket(ProtocolNumber.REQ0)
        await dial_once(dialer, listener.url)
        await dialer.aclose()
        assert sockets[ProtocolNumber.REP0].all_pipes


async def test_too_many_without_a_header_crowd_out_the_oldest_of_themselves() -> None:
    async with sharing("tcp://127.0.0.1:0", headerless_max=5) as (listener, sockets, _):
        silent = [socket.create_connection(("127.0.0.1", int(listener.url.rpartition(":")[2])))]
        for _ in range(7):
            count = listener.statistics().accepted
            silent.append(socket.create_connection(silent[0].getpeername()))
            await until(lambda: listener.statistics().accepted > count)  # noqa: B023
        await until(lambda: listener.statistics().headerless == 5)
        assert listener.statistics().refused == {"crowded out": 3}
        assert [each.recv(1) for each in silent[:3]] == [b"", b"", b""]
        dialer = FakeSocket(ProtocolNumber.BUS0)
        await dial_once(dialer, listener.url)  # an honest peer gets in all the same
        await until(lambda: sockets[ProtocolNumber.BUS0].pipes)
        await dialer.aclose()
        for each in silent:
            each.close()


async def test_a_burst_of_connections_with_headers_crowds_out_no_other() -> None:
    async with sharing("tcp://127.0.0.1:0", headerless_max=5) as (listener, _, __):
        address = ("127.0.0.1", int(listener.url.rpartition(":")[2]))
        for _ in range(60):  # all accepted in one turn of the loop, before anything is read
            with socket.create_connection(address) as hasty:
                hasty.sendall(encode_header(ProtocolNumber.REQ0))
        await until(lambda: listener.statistics().accepted == 60 and not listener.statistics().headerless)
        assert listener.statistics().refused == {}
        assert listener.statistics().connected == 60


NEVER_S = 86_400.0


@asynccontextmanager
async def hasty_peers(listener: SharedListener, count: int) -> AsyncIterator[None]:
    """Peers that have connected and sent their header."""
    accepted = listener.statistics().accepted + count
    address = ("127.0.0.1", int(listener.url.split("/")[2].rpartition(":")[2]))
    peers = [socket.create_connection(address) for _ in range(count)]
    for each in peers:
        each.sendall(encode_header(ProtocolNumber.REQ0))
    try:
        await until(lambda: listener.statistics().accepted == accepted)
        yield
    finally:
        for each in peers:
            each.close()


async def test_new_connections_are_read_in_groups_once_this_is_asked_for() -> None:
    async with sharing("tcp://127.0.0.1:0") as (listener, sockets, _):
        dialer = FakeSocket(ProtocolNumber.REQ0)
        before = await dial_once(dialer, listener.url)
        listener.gather(NEVER_S)
        async with hasty_peers(listener, 3):
            before.send(b"from a connection that is a pipe")
            await until(lambda: sockets[ProtocolNumber.REP0].received)
            assert (listener.statistics().connected, listener.statistics().headerless) == (1, 3)
            listener.gather(0.0)
            await until(lambda: listener.statistics().connected == 4)
        await dial_once(dialer, listener.url)
        await dialer.aclose()


async def test_a_group_is_read_when_its_time_has_come_or_it_is_full() -> None:
    async with sharing("tcp://127.0.0.1:0", headerless_max=8) as (listener, _, __):
        listener.gather(0.001)
        async with hasty_peers(listener, 1):
            await until(lambda: listener.statistics().connected == 1)
        listener.gather(NEVER_S)
        async with hasty_peers(listener, 2):
            await until(lambda: listener.statistics().connected == 3)
        async with hasty_peers(listener, 1):
            assert listener.statistics().headerless == 1


async def test_a_connection_that_leaves_its_group_early_is_forgotten() -> None:
    async with sharing("tcp://127.0.0.1:0") as (listener, _, __):
        listener.gather(NEVER_S)
        async with hasty_peers(listener, 2):
            next(iter(listener._gathered)).abort()
            await until(lambda: len(listener._gathered) == 1)
            await listener.aclose()
            assert not listener._gathered and listener._gathering is None


async def test_a_connection_that_is_moved_to_a_path_was_read_already() -> None:
    async with sharing("ws://127.0.0.1:0/first") as (first, _, __):
        async with sharing(first.url.replace("first", "second")) as (second, sockets, __):
            second.gather(NEVER_S)
            dialer = FakeSocket(ProtocolNumber.REQ0)
            pipe = await dial_once(dialer, second.url)
            pipe.send(b"read")
            await until(lambda: sockets[ProtocolNumber.REP0].received == [b"read"])
            assert not second._gathered
            await dialer.aclose()


async def test_several_listeners_may_serve_one_socket(tmp_path: Path) -> None:
    socket_ = FakeSocket(ProtocolNumber.REP0)
    listeners = [SharedListener(url) for url in ("tcp://127.0.0.1:0", f"ipc://{tmp_path / 'x.sock'}")]
    dialer = FakeSocket(ProtocolNumber.REQ0)
    for listener in listeners:
        listener.serve(socket_)
        await listener.start()
        await dial_once(dialer, listener.url)
    await until(lambda: len(socket_.pipes) == 2)
    assert [pipe.url for pipe in socket_.pipes] == [listener.url for listener in listeners]
    for listener in listeners:
        await listener.aclose()
    await dialer.aclose()
    await socket_.aclose()


async def test_two_sockets_for_the_same_peers_are_a_mistake() -> None:
    listener = SharedListener("tcp://127.0.0.1:0")
    first = FakeSocket(ProtocolNumber.REP0)
    listener.serve(first)
    listener.serve(first)
    with pytest.raises(StateError, match="already has a socket for req0"):
        listener.serve(FakeSocket(ProtocolNumber.REP0))


async def test_a_socket_itself_cannot_be_served() -> None:
    """It was accepted, and each of its peers then ended by an AttributeError in the event loop."""
    async with SharedListener("tcp://127.0.0.1:0") as listener, Rep0() as rep, Req0(dial=listener.url) as req:
        with pytest.raises(TypeError, match=r"cannot be served directly; write await socket\.listen"):
            listener.serve(rep)  # type: ignore[arg-type]
        await rep.listen(listener)
        await req.wait_for_peers()


async def test_a_socket_that_is_no_longer_served_keeps_its_pipes_and_gets_no_more() -> None:
    async with sharing("tcp://127.0.0.1:0") as (listener, sockets, _):
        rep, dialer = sockets[ProtocolNumber.REP0], FakeSocket(ProtocolNumber.REQ0)
        await dial_once(dialer, listener.url)
        await until(lambda: rep.pipes)
        listener.stop_serving(rep)
        with pytest.raises(HandshakeError):
            await dial_once(FakeSocket(ProtocolNumber.REQ0), listener.url)
        assert listener.statistics().refused == {"wrong protocol": 1}
        assert len(rep.pipes) == 1
        await dialer.aclose()


# --- listeners in general


@pytest.mark.parametrize("make", [lambda url: Listener(FakeSocket(), url), SharedListener])
async def test_closing_a_listener_drops_connections_without_a_header(make: Callable[[str], Listener]) -> None:
    listener = make("tcp://127.0.0.1:0")
    await listener.start()
    async with raw_peer(listener.url) as silent:
        await until(lambda: listener.statistics().headerless == 1)
        await listener.aclose()
        assert len(await silent.read_all()) in (0, 8)
    with pytest.raises(Closed):
        await listener.start()


async def test_a_listener_survives_running_out_of_file_descriptors() -> None:
    """accept fails with EMFILE; asyncio pauses accepting for a second and goes on."""
    owner = FakeSocket()
    listener = Listener(owner, "tcp://127.0.0.1:0")
    await listener.start()
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: complaints.append(context["message"]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    peer = socket.socket()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (peer.fileno() + 1, hard))
        peer.connect(("127.0.0.1", int(listener.url.rpartition(":")[2])))
        await until(lambda: complaints)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "out of system resource" in complaints[0]
    peer.sendall(encode_header(ProtocolNumber.PAIR0) + encode_frames([b"at last"]))
    await until(lambda: owner.received == [b"at last"])
    peer.close()
    await listener.aclose()
    await owner.aclose()


async def test_garbage_of_every_kind_costs_only_its_sender(tmp_path: Path) -> None:
    """Random bytes, true headers with random frames, half of them cut off: a good pipe sees none of it."""
    rng = random.Random(3)
    async with sharing(f"ipc://{tmp_path / 'x.sock'}", replace(FAST, recv_size_max=1000)) as (
        listener,
        sockets,
        _,
    ):
        rep, good = sockets[ProtocolNumber.REP0], FakeSocket(ProtocolNumber.REQ0)
        pipe = await dial_once(good, listener.url)
        for i in range(300):
            header = encode_header(rng.choice(ROLES)) if rng.random() < 0.7 else rng.randbytes(8)
            noise = rng.randbytes(rng.randrange(60))
            if rng.random() < 0.5:
                noise = encode_frames([rng.randbytes(rng.randrange(1200))], b"\x01") + noise
            async with raw_peer(listener.url) as peer:
                peer.writer.write((header + noise)[: rng.randrange(1, 1300)])
                if rng.random() < 0.5:
                    peer.writer.write_eof()
            pipe.send(b"good %d" % i)
        await until(lambda: rep.received.count(b"good 299") == 1)
        assert [frame for frame in rep.received if frame.startswith(b"good ")] == [
            b"good %d" % i for i in range(300)
        ]
        await until(lambda: listener.statistics().headerless == 0)
        counted = listener.statistics()
        assert counted.connected + sum(counted.refused.values()) == counted.accepted == 301
        assert counted.broken
        await good.aclose()


async def test_a_thousand_connections_come_and_go(scheme: str, tmp_path: Path) -> None:
    owner = FakeSocket()
    listener = Listener(owner, listen_url(scheme, tmp_path))
    await listener.start()
    for _ in range(10):
        dialer = FakeSocket()
        await asyncio.gather(*(dial_once(dialer, listener.url) for _ in range(100)))
        for pipe in dialer.pipes:
            pipe.send(b"x")
        await until(lambda: len(owner.received) % 100 == 0 and len(owner.received) > 0 and owner.pipes)
        for pipe in list(dialer.pipes):
            pipe.close("done", flush=True)
        await dialer.aclose()
    await until(lambda: len(owner.received) == 1000 and not owner.pipes)
    assert listener.statistics().connected == 1000
    assert listener.statistics().headerless == 0
    await listener.aclose()


# --- interrupted starts


@pytest.mark.parametrize("kind", ["tcp", "wildcard", "ws", "ipc", "abstract", "inproc"])
@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_a_listener_given_up_while_it_begins_leaves_its_address_free(
    kind: str, how: str, tmp_path: Path
) -> None:
    port = free_port()
    url = {
        "tcp": f"tcp://127.0.0.1:{port}",
        "wildcard": f"tcp://*:{port}",
        "ws": f"ws://127.0.0.1:{port}/path",
        "ipc": f"ipc://{tmp_path / 'here.sock'}",
        "abstract": f"abstract://mangrove-test-{port}",
        "inproc": "inproc://here",
    }[kind]
    for turns in range(1, 9):
        listener = SharedListener(url)
        starting = asyncio.create_task(listener.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        if how == "cancelled":
            starting.cancel()
            await asyncio.wait([starting])
        await listener.aclose()
        await asyncio.wait([starting])
        again = SharedListener(url)
        await again.start()  # raises AddressInUse if another socket listens there
        await again.aclose()
        if not starting.cancelled():
            assert starting.exception() is None or isinstance(starting.exception(), Closed)


class Stream:
    """All that a listener knows about a connection that has sent nothing."""

    remote_address = "somewhere"
    descriptor = -1

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


async def test_connections_that_come_after_the_judgement_are_not_judged() -> None:
    """Some of those that were counted turn out to be another listener's, as at a shared WebSocket port."""
    listener = SharedListener("ws://127.0.0.1:0/path", headerless_max=3)
    streams = [Stream() for _ in range(8)]
    for stream in streams[:4]:
        listener.connection_opened(stream)  # type: ignore[arg-type]
    for stream in streams[1:4]:
        listener.connection_moved(stream)  # type: ignore[arg-type]
    for stream in streams[4:]:
        listener.connection_opened(stream)  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
    assert [stream.aborted for stream in streams] == [True] + [False] * 7
    for _ in range(5):
        await asyncio.sleep(0)
    assert [stream.aborted for stream in streams] == [True] + [False] * 3 + [True] + [False] * 3
    assert listener.statistics().accepted == 5
