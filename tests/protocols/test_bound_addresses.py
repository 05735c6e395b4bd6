"""The addresses that listeners bind: all addresses of the host, on one port. Both kinds of sockets agree."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import protocols
from protocols import AddressError, AddressInUse, blocking
from protocols.blocking import binding
from protocols.transports import tcp
from tests.support.certificates import config, local
from tests.support.ports import free_port

KINDS = ["event loop", "blocking"]


@asynccontextmanager
async def listening(kind: str, url: str) -> AsyncIterator[str]:
    """A listener's URL."""
    options: Any = {"tls": config(local())} if "tls" in url or "wss" in url else {}
    if kind == "blocking":
        with blocking.Pair0(listen=url, **options) as pair:
            yield pair.listeners[0].url
    else:
        async with protocols.Pair0(listen=url, **options) as other:
            yield other.listeners[0].url


def port_of(url: str) -> int:
    return int(url.rstrip("/").rpartition(":")[2])


def accepting(port: int) -> set[str]:
    """The addresses of this machine with a listener on that port."""
    found = set()
    for host in ("127.0.0.1", "127.0.0.2", "::1"):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            if probe.connect_ex((host, port)) == 0:
                found.add(host)
    return found


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def stands_for(patch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Make ``many.example`` resolve to these addresses."""
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, family: int = 0, *others: int, **named: Any) -> list[Any]:
        if host != "many.example":
            return real(host, port, family, *others, **named)
        found = [each for address in hosts for each in real(address, port, 0, *others, **named)]
        return [each for each in found if family in (0, each[0])]

    patch.setattr("socket.getaddrinfo", look_up)


@needs_ipv6
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["tcp", "tls+tcp", "ws", "wss"])
async def test_a_wildcard_is_every_address_of_both_families_on_one_port(kind: str, scheme: str) -> None:
    """A blocking listener bound the first family only."""
    for url in (f"{scheme}://*:0", f"{scheme}://:0"):
        async with listening(kind, url) as bound:
            assert bound.startswith(f"{scheme}://0.0.0.0:")
            assert accepting(port_of(bound)) == {"127.0.0.1", "127.0.0.2", "::1"}


@needs_ipv6
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("tcp4://*:0", {"127.0.0.1", "127.0.0.2"}),
        ("tcp6://*:0", {"::1"}),
        ("tcp://0.0.0.0:0", {"127.0.0.1", "127.0.0.2"}),
        ("tcp://[::]:0", {"::1"}),
        ("tcp://127.0.0.2:0", {"127.0.0.2"}),
    ],
)
async def test_one_family_or_address_is_bound_when_the_url_names_it(
    kind: str, url: str, hosts: set[str]
) -> None:
    """``[::]`` of a blocking listener was also IPv4, and kept others from listening there."""
    async with listening(kind, url) as bound:
        assert accepting(port_of(bound)) == hosts


@needs_ipv6
@pytest.mark.parametrize("kind", KINDS)
async def test_a_name_is_all_its_addresses_on_one_port(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blocking listener bound only the first; one of an event loop bound each to a different port."""
    stands_for(monkeypatch, "127.0.0.2", "::1", "127.0.0.2")
    async with listening(kind, "tcp://many.example:0") as bound:
        assert bound.startswith("tcp://127.0.0.2:")
        assert accepting(port_of(bound)) == {"127.0.0.2", "::1"}
    async with listening(kind, "tcp4://many.example:0") as bound:
        assert accepting(port_of(bound)) == {"127.0.0.2"}


@pytest.mark.parametrize("kind", KINDS)
async def test_addresses_that_the_machine_lacks_are_left_out_unless_it_lacks_all(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands_for(monkeypatch, "203.0.113.201", "127.0.0.1")
    async with listening(kind, "tcp://many.example:0") as bound:
        assert bound.startswith("tcp://127.0.0.1:")
        assert accepting(port_of(bound)) == {"127.0.0.1"}
    stands_for(monkeypatch, "203.0.113.201", "203.0.113.202")
    with pytest.raises(AddressError, match="cannot listen at tcp://many.example:0: cannot assign"):
        async with listening(kind, "tcp://many.example:0"):
            pass


@needs_ipv6
@pytest.mark.parametrize("kind", KINDS)
async def test_an_address_in_use_on_one_family_leaves_nothing_bound(kind: str) -> None:
    port = free_port()
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", port))
        other.listen()
        with pytest.raises(AddressInUse, match=f"tcp://\\*:{port} is in use"):
            async with listening(kind, f"tcp://*:{port}"):
                pass
        await asyncio.sleep(0)
        assert accepting(port) == {"::1"}


def taken(patch: pytest.MonkeyPatch, kind: str, times: int) -> list[str]:
    """Make the second address appear in use that often; return the requested ports."""
    asked: list[str] = []

    def refuse(host: str, port: int) -> None:
        if host == "::1":
            asked.append(host)
            if len(asked) <= times:
                raise OSError(98, "in use")

    if kind == "blocking":
        bind: Callable[..., Any] = binding.listening_socket

        def blocking_bind(family: int, address: Any) -> Any:
            refuse(address[0], address[1])
            return bind(family, address)

        patch.setattr(binding, "listening_socket", blocking_bind)
    else:
        serve: Callable[..., Any] = tcp._serve

        async def loops_bind(factory: Any, host: str, port: int, family: int) -> Any:
            refuse(host, port)
            return await serve(factory, host, port, family)

        patch.setattr(tcp, "_serve", loops_bind)
    return asked


@needs_ipv6
@pytest.mark.parametrize("kind", KINDS)
async def test_a_free_port_is_free_for_all_addresses(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port that the first address got may be in use on the second; the error ``:0 is in use`` helps
    nobody.
    """
    stands_for(monkeypatch, "127.0.0.1", "::1")
    with monkeypatch.context() as patch:
        asked = taken(patch, kind, 3)
        async with listening(kind, "tcp://many.example:0") as bound:
            assert accepting(port_of(bound)) == {"127.0.0.1", "::1"}
        assert len(asked) == 4
    with monkeypatch.context() as patch:
        asked = taken(patch, kind, 1000)
        with pytest.raises(AddressInUse):
            async with listening(kind, "tcp://many.example:0"):
                pass
        assert len(asked) == tcp.PORT_TRIES
