"""``ws://host:port/path`` and ``wss://``, ``ws4://`` to ``wss6://`` for one family only: WebSocket over TCP.

Hosts, ports and wildcards are those of `protocols.transports.tcp`. A URL without a port means 80, or 443 for
``wss``; one without a path means ``/``. The bytes are those of `protocols.wire.websocket`, for ``wss`` inside
TLS with the certificates of ``SocketOptions.tls``.

Several listeners of one event loop can share a port, each at a separate path. The first one opens the port,
the last one to close closes it. A path is compared as it is written (NNG does so), without its query.

Only its request shows which listener a connection belongs to. Until then the port's oldest listener watches
it with its own options, limits it, and counts it if it never reaches a listener. Then the connection is moved
to the listener at the requested path. Listeners on one port are all plain or all of one TLS configuration,
since certificates are shown before any path is known.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from protocols.errors import AddressError, AddressInUse, HandshakeError, RemoteProtocolError
from protocols.options import SocketOptions
from protocols.pipe import Connection
from protocols.tls import TlsConfig
from protocols.transports.base import Binding, Watcher
from protocols.transports.certificates import Certificates
from protocols.transports.loops import loop_state
from protocols.transports.stream import StreamConnection, StreamKind
from protocols.transports.tcp import (
    FAMILIES,
    TcpAddress,
    connect_stream,
    describe,
    format_address,
    is_wildcard_host,
    parse_address,
    serve_stream,
    stop_accepting,
    tune,
)
from protocols.transports.tls import accepting_codec, dialling_codec, listening_certificates
from protocols.wire.codec import Codec
from protocols.wire.handshake import Greeting
from protocols.wire.upgrade import AcceptingUpgrade, DiallingUpgrade, Route
from protocols.wire.websocket import WebSocketCodec

PORTS: Final = {"ws": 80, "wss": 443}
"""The port of a URL without one."""

PortKey = tuple[str, str, int]
"""Scheme without its security (``ws``, ``ws4``, ``ws6``), host and port."""


@dataclass(frozen=True, slots=True)
class WebSocketAddress:
    """``host`` is empty for a wildcard; ``authority`` is host and port as the URL has them, in ASCII."""

    host: str
    port: int
    path: str
    query: str
    authority: str


def parse_websocket_address(scheme: str, address: str) -> WebSocketAddress:
    """``host[:port][/path][?query]``. Raises `AddressError`."""
    url = f"{scheme}://{address}"
    start = min((at for at in (address.find("/"), address.find("?")) if at >= 0), default=len(address))
    authority, target = address[:start], address[start:]
    path, mark, query = target.partition("?")
    if not all("!" <= character <= "~" and character != "#" for character in target):
        raise AddressError(f"{url}: a path has visible ASCII and no #; write other characters as %XX")
    has_port = ":" in authority.rpartition("]")[2]
    default = PORTS[scheme.rstrip("46")]
    tcp = parse_address(scheme, authority if has_port else f"{authority}:{default}")
    return WebSocketAddress(
        tcp.host, tcp.port, path or "/", mark + query, _in_ascii(tcp, authority, has_port)
    )


def _in_ascii(tcp: TcpAddress, authority: str, has_port: bool) -> str:
    if authority.isascii():
        return authority
    host = tcp.host.encode("idna").decode()
    return f"{host}:{tcp.port}" if has_port else host


def check_websocket_target(scheme: str, address: str) -> WebSocketAddress:
    """Parse an address to dial. Raises `AddressError` for wildcards and port 0."""
    target = parse_websocket_address(scheme, address)
    if is_wildcard_host(target.host) or not target.port:
        raise AddressError(
            f"{scheme}://{address}: dialling needs a host and a port; wildcards and 0 are for listening"
        )
    return target


def check_websocket_listener(scheme: str, address: str) -> WebSocketAddress:
    """Parse an address to listen on. Raises `AddressError` for a query: it chooses no listener."""
    target = parse_websocket_address(scheme, address)
    if target.query:
        raise AddressError(f"{scheme}://{address}: a listener is found by its path; leave out the query")
    return target


class WebSocketTransport:
    """See the module; one instance per scheme."""

    def __init__(self, scheme: str = "ws") -> None:
        self.scheme = scheme
        self._secure = scheme.startswith("wss")
        self._base = "wss" if self._secure else "ws"
        self._plain = scheme.replace("wss", "ws")
        self._family = FAMILIES[self._plain.replace("ws", "tcp")]

    def check(self, address: str) -> None:
        parse_websocket_address(self.scheme, address)

    def check_dialable(self, address: str) -> None:
        check_websocket_target(self.scheme, address)

    def is_wildcard(self, address: str) -> bool:
        return is_wildcard_host(parse_websocket_address(self.scheme, address).host)

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        url = f"{self.scheme}://{address}"
        target = check_websocket_target(self.scheme, address)
        upgrade = DiallingUpgrade(
            greeting, target.authority, target.path + target.query, options.recv_size_max
        )
        codec: Codec = WebSocketCodec(upgrade)
        if self._secure:
            codec = dialling_codec(codec, options, target.host, url)
        kind = StreamKind(partial(describe, scheme=self._base), tune, lambda greeting, options: codec)
        factory = partial(StreamConnection, kind, greeting, options, watcher)
        await connect_stream(factory, TcpAddress(target.host, target.port), self._family, url, options)

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> Binding:
        url = f"{self.scheme}://{address}"
        target = check_websocket_listener(self.scheme, address)
        hosts = (target.authority.rpartition(":")[0] or target.authority, *options.ws_hosts)
        route = Route(greeting, options.recv_size_max, options.ws_origins, hosts)
        endpoint = Endpoint(route, options, watcher)
        key = (self._plain, target.host, target.port)
        state = loop_state()
        async with state.websocket_lock:  # otherwise two at once would both try to open the port
            port = state.websocket_ports.get(key)
            if port is None:
                certificates = listening_certificates(options, url) if self._secure else None
                port = WebSocketPort(self._base, certificates)
                port.add(target.path, endpoint, url)
                await port.open(key, self._family, url)
            else:
                port.check_security(self._base, options.tls, url)
                port.add(target.path, endpoint, url)
        return WebSocketBinding(port, target.path)


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """One listener on a port."""

    route: Route
    options: SocketOptions
    watcher: Watcher


class WebSocketPort:
    """One bound port of an event loop, and its listeners by path."""

    def __init__(self, scheme: str, certificates: Certificates | None) -> None:
        self.certificates = certificates
        self.endpoints: dict[str, Endpoint] = {}
        self.origin = ""
        """The URL as bound, without a path."""
        self._scheme = scheme
        self._servers: list[asyncio.Server] = []
        self._keys: list[PortKey] = []
        self._last: Endpoint | None = None  # its watcher refuses connections that are accepted while we close

    async def open(self, key: PortKey, family: int, url: str) -> None:
        """Bind, and let further listeners of this loop find the port. Raises `AddressError`."""
        plain, host, number = key
        self._servers = await serve_stream(self._accept, TcpAddress(host, number), family, url)
        bound_host, bound_number = self._servers[0].sockets[0].getsockname()[:2]
        self.origin = format_address(bound_host, bound_number, self._scheme)
        self._keys = list(dict.fromkeys(((plain, host, bound_number), (plain, bound_host, bound_number))))
        ports = loop_state().websocket_ports
        for each in self._keys:
            ports[each] = self

    def check_security(self, scheme: str, tls: TlsConfig | None, url: str) -> None:
        """Raise `AddressError` if a listener of this kind cannot join."""
        if scheme != self._scheme:
            raise AddressError(
                f"{url}: this port is open for {self._scheme}:// already; choose another port for {scheme}://"
            )
        if self.certificates is not None and self.certificates.config != tls:
            raise AddressError(
                f"{url}: this port has another TLS configuration already, and certificates are shown before "
                "a path is known; use the same options or another port"
            )

    def add(self, path: str, endpoint: Endpoint, url: str) -> None:
        """Serve ``path``. Raises `AddressInUse`."""
        if path in self.endpoints:
            raise AddressInUse(f"{url} is in use by another listener of this program; choose another path")
        self.endpoints[path] = endpoint

    def remove(self, path: str) -> None:
        """Stop serving ``path``; without any path the port is closed."""
        self._last = self.endpoints.pop(path)
        if self.endpoints:
            return
        for server in self._servers:
            stop_accepting(server)
        ports = loop_state().websocket_ports
        for key in self._keys:
            ports.pop(key, None)

    def _accept(self) -> StreamConnection:
        oldest = next(iter(self.endpoints.values()), self._last)
        assert oldest is not None, "a port is opened for somebody"
        watcher = PathWatcher(self, oldest.watcher)
        codec: Codec = WebSocketCodec(AcceptingUpgrade(watcher.find))
        if self.certificates is not None:
            codec = accepting_codec(codec, self.certificates)
        kind = StreamKind(partial(describe, scheme=self._scheme), tune, lambda greeting, options: codec)
        return StreamConnection(kind, oldest.route.greeting, oldest.options, watcher)


class PathWatcher:
    """The watcher of one accepted connection: first the port's oldest listener, then the requested one."""

    __slots__ = ("_endpoint", "_port", "_watcher")

    def __init__(self, port: WebSocketPort, watcher: Watcher) -> None:
        self._port = port
        self._watcher = watcher
        self._endpoint: Endpoint | None = None

    def find(self, path: str) -> Route | None:
        self._endpoint = self._port.endpoints.get(path)
        return self._endpoint.route if self._endpoint is not None else None

    def connection_opened(self, connection: Connection) -> None:
        self._watcher.connection_opened(connection)

    def connection_ready(self, connection: Connection) -> None:
        endpoint = self._endpoint
        assert endpoint is not None, "no peer without a path"
        if endpoint.watcher is not self._watcher:
            self._watcher.connection_moved(connection)
            self._watcher = endpoint.watcher
            cast(StreamConnection, connection).adopt(endpoint.options)
            self._watcher.connection_opened(connection)
        self._watcher.connection_ready(connection)

    def connection_moved(self, connection: Connection) -> None:
        raise AssertionError("nobody but a port moves its connections")

    def connection_failed(self, connection: Connection, error: HandshakeError) -> None:
        self._watcher.connection_failed(connection, error)

    def connection_ended(self, connection: Connection, error: RemoteProtocolError | None) -> None:
        self._watcher.connection_ended(connection, error)

    def connection_gone(self, connection: Connection) -> None:
        self._watcher.connection_gone(connection)


class WebSocketBinding:
    """One listener's path on a port."""

    def __init__(self, port: WebSocketPort, path: str) -> None:
        self.url = port.origin + path
        self.certificates = port.certificates
        self._port: WebSocketPort | None = port
        self._path = path

    def close(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            port.remove(self._path)
