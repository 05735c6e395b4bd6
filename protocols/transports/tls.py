"""``tls+tcp://host:port``, and ``tls+tcp4://``, ``tls+tcp6://`` for one family only: TLS over TCP.

Addresses and the bytes inside are those of `protocols.transports.tcp` (sp-tls-v1). Certificates and trust
come from ``SocketOptions.tls``. A listener asks its certificates for the current context for each connection,
so replaced files take effect without a restart. Dialers of one loop with the same configuration share their
certificates.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from functools import partial
from typing import Final

from protocols.errors import AddressError, TlsConfigError
from protocols.options import SocketOptions
from protocols.tls import TlsConfig
from protocols.transports.base import Binding, Watcher
from protocols.transports.certificates import Certificates, Logger, log
from protocols.transports.loops import loop_state
from protocols.transports.stream import StreamConnection, StreamKind
from protocols.transports.tcp import (
    FAMILIES,
    TcpBinding,
    check_target,
    connect_stream,
    describe,
    is_wildcard_host,
    parse_address,
    serve_stream,
    tune,
)
from protocols.wire.codec import Codec
from protocols.wire.framing import TCP_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec
from protocols.wire.tls import TlsCodec

SCHEME: Final = "tls+tcp"
CONFIGS_MAX: Final = 64
"""Configurations whose dialers' certificates one loop keeps loaded. Beyond that, the oldest is loaded
again.
"""


def plain_codec(greeting: Greeting, options: SocketOptions) -> Codec:
    """The codec inside TLS."""
    return SpCodec(greeting, options.recv_size_max, TCP_LEAD)


class TlsTransport:
    """See the module; one instance per scheme."""

    def __init__(self, scheme: str = SCHEME) -> None:
        self.scheme = scheme
        self._family = FAMILIES[scheme.removeprefix("tls+")]

    def check(self, address: str) -> None:
        parse_address(self.scheme, address)

    def check_dialable(self, address: str) -> None:
        check_target(self.scheme, address)

    def is_wildcard(self, address: str) -> bool:
        return is_wildcard_host(parse_address(self.scheme, address).host)

    async def connect(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> None:
        url = f"{self.scheme}://{address}"
        target = check_target(self.scheme, address)
        codec = dialling_codec(plain_codec(greeting, options), options, target.host, url)
        kind = StreamKind(partial(describe, scheme=SCHEME), tune, lambda greeting, options: codec)
        factory = partial(StreamConnection, kind, greeting, options, watcher)
        await connect_stream(factory, target, self._family, url, options)

    async def listen(
        self, address: str, greeting: Greeting, options: SocketOptions, watcher: Watcher
    ) -> Binding:
        url = f"{self.scheme}://{address}"
        target = parse_address(self.scheme, address)
        certificates = listening_certificates(options, url)

        def codec(greeting: Greeting, options: SocketOptions) -> Codec:
            return accepting_codec(plain_codec(greeting, options), certificates)

        kind = StreamKind(partial(describe, scheme=SCHEME), tune, codec)
        factory = partial(StreamConnection, kind, greeting, options, watcher)
        servers = await serve_stream(factory, target, self._family, url)
        bound = describe(servers[0].sockets[0].getsockname(), SCHEME)
        return TlsBinding(servers, bound, certificates)


class TlsBinding(TcpBinding):
    """A bound address with its certificates."""

    def __init__(self, servers: list[asyncio.Server], url: str, certificates: Certificates) -> None:
        super().__init__(servers, url)
        self.certificates = certificates


# --- for every transport over TLS


def dialling_codec(inner: Codec, options: SocketOptions, host: str, url: str) -> TlsCodec:
    """TLS around the codec of one connection to ``host``. Raises `AddressError`, `TlsConfigError`."""
    config = options.tls or TlsConfig()
    certificates = _dialling_certificates(config)
    now = asyncio.get_running_loop().time()
    return named_codec(inner, certificates.context(now), config.server_name or host, url)


def named_codec(inner: Codec, context: ssl.SSLContext, name: str, url: str) -> TlsCodec:
    """TLS around a dialer's codec, without an event loop. Raises `AddressError`."""
    try:
        return TlsCodec(inner, context, server_side=False, server_name=name)
    except (ValueError, ssl.SSLError) as error:
        raise AddressError(f"{url}: {name!r} cannot be the name of a TLS server ({error})") from error


def listening_certificates(options: SocketOptions, url: str, logger: Logger = log) -> Certificates:
    """The certificates of one listener. Raises `TlsConfigError`."""
    if options.tls is None:
        raise TlsConfigError(f"{url} needs a certificate and its key; give the options tls=TlsConfig(...)")
    return Certificates(options.tls, server_side=True, logger=logger)


def accepting_codec(inner: Codec, certificates: Certificates) -> TlsCodec:
    """TLS around the codec of one accepted connection."""
    context = certificates.context(asyncio.get_running_loop().time())
    return TlsCodec(inner, context, server_side=True)


def _dialling_certificates(config: TlsConfig) -> Certificates:
    known = loop_state().certificates
    config = replace(config, server_name=None)  # part of each connection, not of the context
    certificates = known.get(config)
    if certificates is None:
        certificates = Certificates(config, server_side=False)
        if len(known) >= CONFIGS_MAX:
            del known[next(iter(known))]
        known[config] = certificates
    return certificates
