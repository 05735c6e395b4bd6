"""An external transport: a class with five methods, registered under a scheme, serves every socket."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocols import (
    AddressError,
    AddressInUse,
    Bus0,
    ConnectionRefused,
    HandshakeError,
    Pair0,
    Pub0,
    Pull0,
    Push0,
    Rep0,
    Req0,
    Respondent0,
    SharedListener,
    Socket,
    SocketOptions,
    Sub0,
    Surveyor0,
    check_dialable,
    register_transport,
)
from protocols.transports import registry
from protocols.transports.base import Watcher
from protocols.transports.stream import StreamConnection, StreamKind
from protocols.wire.framing import TCP_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec
from tests.support.waiting import until

# [mem transport]
KIND = StreamKind(
    describe=lambda address: "mem://",
    tune=lambda transport, options: None,
    codec=lambda greeting, options: SpCodec(greeting, options.recv_size_max, TCP_LEAD),
)


class MemTransport:
    """``mem://name``: two ends of a socketpair, within this process."""

    def __init__(self) -> None:
        self.bound: dict[str, MemBinding] = {}

    def check(self, address: str) -> None:
        if not address.isidentifier():
            raise AddressError(f"mem://{address}: a name is letters and digits")

    check_dialable = check

    def is_wildcard(self, address: str) -> bool:
        return False

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        binding = self.bound.get(address)
        if binding is None:
            raise ConnectionRefused(f"nobody listens at mem://{address}")
        here, there = socket.socketpair()
        loop = asyncio.get_running_loop()
        await loop.create_connection(binding.accepted, sock=there)
        await loop.create_connection(lambda: StreamConnection(KIND, greeting, options, watcher), sock=here)

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> MemBinding:
        if address in self.bound:
            raise AddressInUse(f"mem://{address} is in use")
        self.bound[address] = MemBinding(self, address, greeting, options, watcher)
        return self.bound[address]


class MemBinding:
    """A name with an open listener."""

    def __init__(
        self,
        transport: MemTransport,
        address: str,
        greeting: Greeting,
        options: SocketOptions,
        watcher: Watcher,
    ) -> None:
        self.url = f"mem://{address}"
        self.accepted = lambda: StreamConnection(KIND, greeting, options, watcher)
        self._forget = lambda: transport.bound.pop(address, None)

    def close(self) -> None:
        self._forget()


# [end]


@pytest.fixture(autouse=True)
def mem(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemTransport]:
    """Registered for one test; a program registers once."""
    transport = MemTransport()
    monkeypatch.setattr(registry, "_TRANSPORTS", dict(registry._TRANSPORTS))
    register_transport("mem", transport)
    yield transport
    assert transport.bound == {}, "closing a listener frees its name"


PAIRS = [(Pair0, Pair0), (Bus0, Bus0), (Push0, Pull0), (Pub0, Sub0), (Req0, Rep0), (Surveyor0, Respondent0)]


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("swap", [False, True])
async def test_every_pattern_crosses_a_registered_transport(
    first: type[Socket], second: type[Socket], swap: bool
) -> None:
    a = first()
    b = Sub0(topics=[""]) if second is Sub0 else second()
    async with a, b:
        listening, dialling = (b, a) if swap else (a, b)
        await listening.listen("mem://here")
        dialling.dial("mem://here")
        await a.wait_for_peers()
        await b.wait_for_peers()
        await a.send(b"there")
        assert await b.recv(timeout=10) == b"there"
        if first in (Req0, Surveyor0):
            await b.send(b"back")
            assert await a.recv(timeout=10) == b"back"


async def test_a_shared_listener_serves_several_sockets_over_it() -> None:
    shared = SharedListener("mem://here")
    async with Rep0() as rep, Pull0() as pull, Req0() as req, Push0() as push:
        await rep.listen(shared)
        await pull.listen(shared)
        await shared.start()
        await req.dial_once("mem://here")
        await push.dial_once("mem://here")
        await req.send(b"q")
        await push.send(b"p")
        assert await rep.recv(timeout=10) == b"q"
        assert await pull.recv(timeout=10) == b"p"
        with pytest.raises(HandshakeError):
            async with Pair0() as pair:
                await pair.dial_once("mem://here")
        await until(lambda: shared.statistics().refused.get("wrong protocol") == 1)
        await shared.aclose()


async def test_errors_of_a_registered_transport_are_those_of_every_transport() -> None:
    async with Pull0() as pull, Push0() as push:
        with pytest.raises(AddressError, match="letters and digits"):
            push.dial("mem://a/b")
        with pytest.raises(ConnectionRefused):
            await push.dial_once("mem://here")
        await pull.listen("mem://here")
        with pytest.raises(AddressInUse):
            await pull.listen("mem://here")
    assert check_dialable("mem://here") == "mem://here"


async def test_closing_drains_over_a_registered_transport() -> None:
    bodies = [b"%4d" % number * 50_000 for number in range(60)]
    async with Pull0(listen="mem://here") as pull:
        async with Push0() as push:
            await push.dial_once("mem://here")
            await push.send_many(bodies)
        assert [await pull.recv(timeout=10) for _ in bodies] == bodies


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "mem", "ws", "tls+tcp"])
def test_a_scheme_that_is_taken_is_not_replaced(scheme: str) -> None:
    with pytest.raises(ValueError, match=r"has a transport already; choose another scheme"):
        register_transport(scheme, MemTransport())


@pytest.mark.parametrize("scheme", ["", "a b", "a/b", "é", "a:b"])
def test_a_scheme_must_be_able_to_stand_in_a_url(scheme: str) -> None:
    with pytest.raises(ValueError, match="cannot be a URL's scheme"):
        register_transport(scheme, MemTransport())


def test_a_transport_with_libraries_is_loaded_at_its_first_use() -> None:
    code = (
        "import sys, protocols; assert 'wsproto' not in sys.modules;"
        "protocols.check_url('ws://127.0.0.1:1/x'); assert 'wsproto' in sys.modules"
    )
    root = Path(__file__).resolve().parents[3]
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stderr
