"""A name with several addresses is reached by the first that accepts, whatever the others do (RFC 8305)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols import AddressError, ConnectionRefused, Pull0, Push0, SocketOptions, Timeout
from protocols.transports.happy_eyeballs import (
    Address,
    Candidate,
    NoneAccepted,
    alternating,
    connect_first,
    is_numeric,
    resolve,
)
from simulations import World
from simulations.world import Process
from tests.support.waiting import until

V4, V6 = socket.AF_INET, socket.AF_INET6
OPTIONS = SocketOptions(happy_eyeballs_delay_s=0.01, reconnect_min_s=0.01, reconnect_max_s=0.02)


# --- the order


def test_families_alternate_in_the_resolvers_order_without_repetitions() -> None:
    a6, b6, c6 = (Address(V6, f"::{letter}", 1) for letter in "abc")
    a4, b4 = Address(V4, "10.0.0.1", 1), Address(V4, "10.0.0.2", 1)
    assert alternating([a6, b6, a6, c6, a4, b4]) == [a6, a4, b6, b4, c6]
    assert alternating([a4, b4]) == [a4, b4]
    assert alternating([]) == []


@given(st.lists(st.tuples(st.sampled_from((V4, V6)), st.integers(1, 9)), max_size=20))
def test_every_address_is_tried_once_and_those_of_a_family_in_their_order(found: list[Any]) -> None:
    addresses = [Address(family, "host", port) for family, port in found]
    ordered = alternating(addresses)
    assert sorted(map(repr, ordered)) == sorted({repr(each) for each in addresses})
    for family in (V4, V6):
        of_family = [each for each in dict.fromkeys(addresses) if each.family == family]
        assert [each for each in ordered if each.family == family] == of_family


def test_addresses_that_need_no_resolver() -> None:
    assert all(is_numeric(host) for host in ("127.0.0.1", "::1", "fe80::1%eth0"))
    assert not any(is_numeric(host) for host in ("localhost", "1.2.3", "", "host%1", "\x00"))


async def test_a_link_local_address_keeps_its_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(host: str, port: int, **options: Any) -> list[Any]:
        return [(V6, socket.SOCK_STREAM, 6, "", ("fe80::1", port, 0, 3))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    assert await resolve("name", 7, 0, 1.0) == [Address(V6, "fe80::1%3", 7)]


# --- the race, over a scripted network


class Network:
    """The reaction of each host: ``accepts``, ``refuses``, ``hangs``, or accepts ``together`` with
    another.
    """

    def __init__(self, **hosts: str) -> None:
        self.hosts = hosts
        self.tried: list[str] = []
        self.transports: list[FakeTransport] = []
        self.given_up: list[str] = []
        self.both: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int, *, family: int, flags: int
    ) -> None:
        self.tried.append(host)
        does = self.hosts[host]
        try:
            if does == "refuses":
                raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
            if does == "unreachable":
                raise OSError(errno.EHOSTUNREACH, "no route")
            if does == "hangs":
                await asyncio.get_running_loop().create_future()
            if does == "together":
                if self.tried.count(host) and len(self.tried) == len(self.hosts):
                    self.both.set_result(None)
                await self.both
        except asyncio.CancelledError:
            self.given_up.append(host)
            raise
        transport = FakeTransport(host)
        self.transports.append(transport)
        transport.protocol = factory()
        transport.protocol.connection_made(transport)


class FakeTransport:
    def __init__(self, host: str) -> None:
        self.host = host
        self.aborted = False
        self.protocol: Any = None

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def abort(self) -> None:
        self.aborted = True


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Network]:
    def make(**hosts: str) -> Network:
        made = Network(**hosts)
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", made.create_connection)
        return made

    return make


async def race(network: Network, **options: Any) -> None:
    addresses = [Address(V4, host, 1) for host in network.hosts]
    given = {"delay_s": 0.001, "limit_s": 60.0, **options}
    await connect_first(asyncio.Protocol, addresses, **given)


async def test_the_next_address_is_tried_when_one_does_not_answer(
    network: Callable[..., Network],
) -> None:
    net = network(first="hangs", second="hangs", third="accepts")
    await race(net)
    assert net.tried == ["first", "second", "third"]
    assert sorted(net.given_up) == ["first", "second"]
    assert type(net.transports[0].protocol) is asyncio.Protocol, "the winner has the real protocol"


async def test_an_address_that_refuses_is_followed_at_once(network: Callable[..., Network]) -> None:
    net = network(first="refuses", second="accepts")
    await race(net, delay_s=1e6)
    assert net.tried == ["first", "second"]


async def test_an_address_that_accepts_soon_has_no_rival(network: Callable[..., Network]) -> None:
    net = network(first="accepts", second="accepts")
    await race(net, delay_s=1e6)
    assert net.tried == ["first"]


async def test_addresses_are_tried_one_after_the_other_without_a_delay(
    network: Callable[..., Network],
) -> None:
    net = network(first="hangs", second="accepts")
    await race(net, delay_s=None, limit_s=0.05)
    assert net.tried == ["first", "second"] and net.given_up == ["first"]


async def test_one_of_two_simultaneous_connections_is_dropped(network: Callable[..., Network]) -> None:
    net = network(first="together", second="together")
    await race(net)
    kept = [each for each in net.transports if not each.aborted]
    assert len(net.transports) == 2 and len(kept) == 1
    assert type(kept[0].protocol) is asyncio.Protocol
    assert all(type(each.protocol) is Candidate for each in net.transports if each.aborted)


async def test_each_attempt_has_its_own_limit(network: Callable[..., Network]) -> None:
    net = network(first="hangs", second="refuses", third="hangs")
    with pytest.raises(NoneAccepted) as caught:
        await race(net, limit_s=0.02)
    late = {failure.address.host: failure.late for failure in caught.value.failures}
    assert late == {"first": True, "second": False, "third": True}
    assert sorted(net.given_up) == ["first", "third"]


async def test_a_race_given_up_leaves_no_attempt(network: Callable[..., Network]) -> None:
    net = network(first="hangs", second="hangs")
    task = asyncio.create_task(race(net))
    await until(lambda: len(net.tried) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(net.given_up) == ["first", "second"]


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(["accepts", "refuses", "unreachable", "hangs"]), min_size=1, max_size=8),
    st.sampled_from([None, 0.0, 0.001]),
)
def test_the_first_address_that_accepts_wins_or_all_failures_are_reported(
    does: list[str], delay_s: float | None
) -> None:
    async def run() -> None:
        net = Network(**{f"{number}-{each}": each for number, each in enumerate(does)})
        loop = asyncio.get_running_loop()
        loop.create_connection = net.create_connection  # type: ignore[method-assign, assignment]
        try:
            await race(net, delay_s=delay_s, limit_s=0.005)
        except NoneAccepted as error:
            assert "accepts" not in does
            told = {failure.address.host: failure.late for failure in error.failures}
            assert told == {host: each == "hangs" for host, each in net.hosts.items()}
        else:
            kept = [each for each in net.transports if not each.aborted]
            assert len(kept) == 1 and net.hosts[kept[0].host] == "accepts"
        assert len(net.tried) == len(set(net.tried)), "none is tried twice"
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


async def test_a_defect_in_an_attempt_is_no_failure_of_its_address(network: Callable[..., Network]) -> None:
    network(first="accepts")

    def factory() -> asyncio.BaseProtocol:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        await connect_first(factory, [Address(V4, "first", 1)], delay_s=1.0, limit_s=60.0)


# --- sockets: their errors


def names(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, **known: list[int]) -> None:
    """Let each name stand for loopback addresses with these ports."""
    real = loop.getaddrinfo

    async def look_up(host: Any, port: Any, **options: Any) -> list[Any]:
        if host in known:
            return [(V4, socket.SOCK_STREAM, 6, "", ("127.0.0.1", number)) for number in known[host]]
        return await real(host, port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", look_up)


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port whose backlog is full: the kernel drops further connections without an answer."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        holding = []
        for _ in range(4):
            peer = socket.socket()
            peer.setblocking(False)
            peer.connect_ex(full.getsockname())
            holding.append(peer)
        yield full.getsockname()[1]
        for peer in holding:
            peer.close()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
async def test_a_name_is_connected_although_its_first_address_is_a_black_hole(
    scheme: str, black_hole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Pull0(listen=f"{scheme}://127.0.0.1:0") as pull:
        good = int(pull.listeners[0].url.removesuffix("/").rpartition(":")[2])
        names(asyncio.get_running_loop(), monkeypatch, dual=[black_hole, good])
        async with Push0(dial=f"{scheme}://dual:1", options=OPTIONS) as push:
            await push.send(b"by the second")
            assert await pull.recv() == b"by the second"
            assert push.dialers[0].statistics().attempts == 1
            assert push.pipes[0].remote_address.endswith(f":{good}")


async def test_a_name_without_an_answering_address_times_out(
    black_hole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(asyncio.get_running_loop(), monkeypatch, dead=[black_hole])
    async with Push0() as push:
        with pytest.raises(Timeout, match=r"no connection to tcp://dead:1 within 0\.05 s"):
            await push.dial_once("tcp://dead:1", options=replace(OPTIONS, handshake_timeout_s=0.05))


async def test_a_name_with_only_refusing_addresses_is_a_refused_connection(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(asyncio.get_running_loop(), monkeypatch, empty=[closed_port, closed_port])
    async with Push0() as push:
        with pytest.raises(ConnectionRefused, match="nobody listens at tcp://empty:1"):
            await push.dial_once("tcp://empty:1")


async def test_each_of_several_different_failures_of_addresses_is_reported(
    black_hole: int, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(asyncio.get_running_loop(), monkeypatch, mixed=[closed_port, black_hole])
    async with Push0() as push:
        with pytest.raises(AddressError) as caught:
            await push.dial_once("tcp://mixed:1", options=replace(OPTIONS, handshake_timeout_s=0.05))
    assert str(caught.value) == (
        f"cannot reach tcp://mixed:1: 127.0.0.1:{closed_port}: connection refused; "
        f"no answer from 127.0.0.1:{black_hole} within 0.05 s"
    )


async def test_a_resolver_that_does_not_answer_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(host: Any, port: Any, **options: Any) -> list[Any]:
        await asyncio.get_running_loop().create_future()
        return []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    async with Push0() as push:
        with pytest.raises(Timeout):
            await push.dial_once("tcp://nowhere:1", options=replace(OPTIONS, handshake_timeout_s=0.02))


async def test_a_deadline_over_all_bounds_every_address(
    black_hole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(asyncio.get_running_loop(), monkeypatch, dead=[black_hole])
    async with Push0() as push:
        with pytest.raises(Timeout, match=r"within 0\.05 s"):
            await push.dial_once("tcp://dead:1", timeout=0.05)


# --- in virtual time


def test_a_host_without_power_costs_a_quarter_of_a_second() -> None:
    """Brokers and sockets resolve by their loop, so a simulated name can have a dead address."""

    async def server(process: Process) -> None:
        async with Pull0(listen="tcp://*:7000", rng=process.stream("pull")) as pull:
            process.exposed = pull
            await process.stopping.wait()

    async def client(process: Process) -> None:
        loop = process.loop
        real = loop.getaddrinfo
        dead, good = (process.network.resolve(name) for name in ("dead", "good"))

        async def look_up(host: Any, port: Any, **options: Any) -> list[Any]:
            if host != "dual":
                return await real(host, port, **options)
            return [(V4, socket.SOCK_STREAM, 6, "", (address, port)) for address in (dead, good)]

        loop.getaddrinfo = look_up  # type: ignore[method-assign]
        begun = loop.time()
        async with Push0(dial="tcp://dual:7000", rng=process.stream("push")) as push:
            await push.wait_for_peers()
            process.exposed = loop.time() - begun
            await process.stopping.wait()

    with World(1) as world:
        world.add_node("server", server, host="good").start()
        world.network.add_host("dead").powered = False
        world.add_node("client", client, host="here").start()
        world.run_for(5)
        assert 0.25 <= world.node("client").exposed < 0.3
        assert not world.failures and not world.fence.escapes
