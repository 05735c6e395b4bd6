"""``tcp://host:port``, and ``tcp4://``, ``tcp6://`` for one family only.

A listener may leave the host out or write ``*`` for every interface, and port 0 for any free one. A name
stands for all its addresses. IPv6 addresses are written in brackets. Frames have no lead byte.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from protocols.errors import AddressError, AddressInUse, ConnectionRefused, SPError, Timeout
from protocols.options import SocketOptions
from protocols.transports.base import Binding, Watcher
from protocols.transports.descriptors import backlog
from protocols.transports.happy_eyeballs import (
    Factory,
    Failure,
    NoneAccepted,
    connect_first,
    is_numeric,
    resolve,
)
from protocols.transports.stream import StreamConnection, StreamKind
from protocols.wire.framing import TCP_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec

FAMILIES: Final = {"tcp": socket.AF_UNSPEC, "tcp4": socket.AF_INET, "tcp6": socket.AF_INET6}
PORT_TRIES: Final = 16
"""The number of ports to try to find one that is free on all addresses of a listener."""
_WILDCARDS: Final = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """``host`` is empty for a wildcard."""

    host: str
    port: int


def parse_address(scheme: str, address: str) -> TcpAddress:
    """``host:port``, ``[v6]:port``, ``*:port`` or ``:port``. Raises `AddressError`."""
    host, colon, port = address.rpartition(":")
    url = f"{scheme}://{address}"
    if not colon:
        raise AddressError(f"{url} has no port; write {scheme}://{address or 'host'}:7770")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise AddressError(f"{url}: the port must be a number from 0 to 65535, not {port[:20]!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(f"{url}: write an IPv6 address in brackets, as in {scheme}://[::1]:7770")
    if any(character in "/[]?#@;" or character <= " " for character in host):
        raise AddressError(f"{url}: {host!r} is not a host name or an address")
    try:
        host.encode("idna")  # the form that the resolver gets
    except UnicodeError as error:
        sentence = "its labels, between the dots, have 1 to 63 letters"
        raise AddressError(f"{url}: {host!r} is not a host name or an address; {sentence}") from error
    return TcpAddress("" if host == "*" else host, int(port))


def format_address(host: str, port: int, scheme: str = "tcp") -> str:
    """The URL of a host and port."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def describe(address: object, scheme: str = "tcp") -> str:
    """A socket address as a URL; empty if there is none (a connection that is already gone)."""
    if isinstance(address, tuple) and len(address) >= 2:
        return format_address(str(address[0]), int(address[1]), scheme)
    return ""


def tune(transport: asyncio.Transport, options: SocketOptions) -> None:
    """Set TCP_NODELAY and keepalive. A simulated transport has no socket, and a closed one no options.

    With ``keepalive_s``, a vanished peer is detected after four times as long: silence, then three probes.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(options.nodelay))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(options.keepalive))
        if options.keepalive and options.keepalive_s is not None:
            for name, value in (
                ("TCP_KEEPIDLE", options.keepalive_s),
                ("TCP_KEEPINTVL", options.keepalive_s),
                ("TCP_KEEPCNT", 3),
            ):
                if hasattr(socket, name):  # not on every system
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError:
        pass  # the peer is gone already; connection_lost follows


def open_codec(greeting: Greeting, options: SocketOptions) -> SpCodec:
    return SpCodec(greeting, options.recv_size_max, TCP_LEAD)


KIND: Final = StreamKind(describe, tune, open_codec)


class TcpTransport:
    """See the module; one instance per scheme."""

    def __init__(self, scheme: str = "tcp") -> None:
        self.scheme = scheme
        self._family = FAMILIES[scheme]

    def check(self, address: str) -> None:
        parse_address(self.scheme, address)

    def check_dialable(self, address: str) -> None:
        check_target(self.scheme, address)

    def is_wildcard(self, address: str) -> bool:
        return is_wildcard_host(parse_address(self.scheme, address).host)

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        target = parse_address(self.scheme, address)
        factory = partial(StreamConnection, KIND, greeting, options, watcher)
        await connect_stream(factory, target, self._family, f"{self.scheme}://{address}", options)

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> Binding:
        target = parse_address(self.scheme, address)
        factory = partial(StreamConnection, KIND, greeting, options, watcher)
        servers = await serve_stream(factory, target, self._family, f"{self.scheme}://{address}")
        return TcpBinding(servers, describe(servers[0].sockets[0].getsockname()))


class TcpBinding:
    """The addresses of a listener. If there are several, ``url`` is the first (for a wildcard, IPv4's)."""

    def __init__(self, servers: list[asyncio.Server], url: str) -> None:
        self._servers = servers
        self.url = url

    def close(self) -> None:
        for server in self._servers:
            stop_accepting(server)


# --- for every transport over TCP


def check_target(scheme: str, address: str) -> TcpAddress:
    """Parse an address to dial. Raises `AddressError` for wildcards and port 0."""
    target = parse_address(scheme, address)
    if is_wildcard_host(target.host) or not target.port:
        raise AddressError(
            f"{scheme}://{address}: dialling needs a host and a port; wildcards and 0 are for listening"
        )
    return target


def is_wildcard_host(host: str) -> bool:
    """True if a bound host stands for every interface."""
    return host in ("", *_WILDCARDS.values())


async def connect_stream(
    factory: Factory, target: TcpAddress, family: int, url: str, options: SocketOptions
) -> None:
    """Open one connection, to the first address of the host that accepts.

    The name look-up may take ``handshake_timeout_s``, and so may each attempt at an address. ``url`` is for
    the messages of errors: `Timeout`, `AddressError` and its subclasses.
    """
    limit_s = options.handshake_timeout_s
    try:
        if is_numeric(target.host):
            async with asyncio.timeout(limit_s):
                loop = asyncio.get_running_loop()
                await loop.create_connection(factory, target.host, target.port, family=family)
            return
        addresses = await resolve(target.host, target.port, family, limit_s)
        await connect_first(factory, addresses, delay_s=options.happy_eyeballs_delay_s, limit_s=limit_s)
    except NoneAccepted as error:
        raise _none_accepted(url, error.failures, limit_s) from error
    except OSError as error:
        if isinstance(error, TimeoutError) and error.errno is None:
            raise Timeout(f"no connection to {url} within {limit_s:g} s") from error
        raise dial_error(url, error) from error


def _none_accepted(url: str, failures: Sequence[Failure], limit_s: float) -> SPError:
    """One error that says why none of a name's addresses can be reached."""
    late = [each for each in failures if each.late]
    if len(late) == len(failures):
        return Timeout(f"no connection to {url} within {limit_s:g} s")
    if not late:
        for each in failures:
            if each.error.errno == errno.ECONNREFUSED:
                return dial_error(url, each.error)
        if len(failures) == 1:
            return dial_error(url, failures[0].error)
    reasons = (
        f"no answer from {each.address} within {limit_s:g} s"
        if each.late
        else f"{each.address}: {system_message(each.error)}"
        for each in failures
    )
    return AddressError(f"cannot reach {url}: {'; '.join(reasons)}")


async def serve_stream(factory: Factory, target: TcpAddress, family: int, url: str) -> list[asyncio.Server]:
    """Listen at every address of the host, all on one port; a wildcard means both families.

    Addresses and families that this machine lacks are left out, unless it lacks all. Raises `AddressError`,
    `AddressInUse`.
    """
    tries = 1 if target.port else PORT_TRIES
    try:
        hosts = await _hosts(target, family)
        while True:
            tries -= 1
            try:
                return await _serve_all(factory, hosts, target.port, family)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not tries:
                    raise
    except OSError as error:
        raise listen_error(url, error) from error


async def _hosts(target: TcpAddress, family: int) -> list[str]:
    if not target.host:
        return wildcards(family)
    if is_numeric(target.host):
        return [target.host]
    return [each.host for each in await resolve(target.host, target.port, family, None)]


def wildcards(family: int) -> list[str]:
    """The addresses that stand for every interface, IPv4 before IPv6."""
    return [_WILDCARDS[each] for each in _WILDCARDS if family in (socket.AF_UNSPEC, each)]


def is_lacking(error: OSError) -> bool:
    """True if the error says that this machine lacks the address or its family."""
    lacking = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, None)  # asyncio sets no errno if no address was left
    return error.errno in lacking or isinstance(error, socket.gaierror)


async def _serve_all(factory: Factory, hosts: Sequence[str], port: int, family: int) -> list[asyncio.Server]:
    """Use for all hosts the port that the first one gets for port 0: asyncio would give each another. Raises
    OSError.
    """
    servers: list[asyncio.Server] = []
    lacking = OSError("the host has no address")
    try:
        for host in hosts:
            try:
                server = await _serve(factory, host, port, family)
            except OSError as error:
                if not is_lacking(error):
                    raise
                lacking = error
            else:
                servers.append(server)
                port = server.sockets[0].getsockname()[1]
        if not servers:
            raise lacking
    except BaseException:
        close_servers(servers)
        raise
    return servers


async def _serve(factory: Factory, host: str, port: int, family: int) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        factory, host, port, family=family, backlog=backlog(), start_serving=False
    )
    if not server.sockets:  # in Python 3.11 this means that the machine lacks the family
        server.close()
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    await begin_serving(server)
    return server


async def begin_serving(server: asyncio.AbstractServer) -> None:
    """Accept from now on; if cancelled or failed, nothing stays bound."""
    try:
        await server.start_serving()
    except BaseException:
        server.close()
        raise


def stop_accepting(server: asyncio.AbstractServer) -> None:
    """Accept no more; the address is free a loop turn later.

    asyncio accepts a connection in one turn and makes its transport in the next. If the server is closed in
    between, that fails silently and leaves the socket open (CPython issue 109564). So the server is closed
    once the transports of this turn are made. Until then its sockets are not polled.
    """
    loop = server.get_loop()
    if not isinstance(loop, asyncio.SelectorEventLoop):
        server.close()
        return
    assert isinstance(server, asyncio.Server)
    for sock in server.sockets:
        loop.remove_reader(sock.fileno())
    loop.call_soon(server.close)


def close_servers(servers: list[asyncio.Server]) -> None:
    """Not awaited: since Python 3.12 ``wait_closed`` waits for accepted connections too."""
    for server in servers:
        server.close()


def dial_error(url: str, error: OSError) -> AddressError:
    """The system's error as one of ours."""
    if error.errno == errno.ECONNREFUSED:
        return ConnectionRefused(f"nobody listens at {url}")
    return AddressError(f"cannot reach {url}: {system_message(error)}")


def listen_error(url: str, error: OSError) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(f"{url} is in use by another program; choose another port or stop that program")
    return AddressError(f"cannot listen at {url}: {system_message(error)}")


def system_message(error: OSError) -> str:
    """The system's own words, without the numbers and addresses that asyncio adds."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror or error).lower()
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error)
