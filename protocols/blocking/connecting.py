"""Connecting in the calling thread: a plain socket and the codec of its scheme, hands shaken.

The codecs are those of the event loop's transports (plain, TLS, WebSocket): bytes in, frames out.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from protocols.errors import AddressError, ConnectionRefused, HandshakeError, Timeout
from protocols.options import SocketOptions
from protocols.tls import TlsConfig
from protocols.transports.base import split_url
from protocols.transports.certificates import Certificates
from protocols.transports.ipc import parse_path
from protocols.transports.registry import check_dialable
from protocols.transports.tcp import FAMILIES, parse_address, system_message
from protocols.transports.tls import named_codec
from protocols.wire.codec import Codec
from protocols.wire.framing import IPC_LEAD, TCP_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec

READ_SIZE: Final = 65536
SCHEMES: Final = ("tcp", "ipc", "unix", "abstract", "tls+tcp", "ws", "wss")
NEXT_ADDRESS_S: Final = 0.25
"""How long one address of a name may take before the next is tried beside it."""

Target = tuple[str, int, int] | str | bytes
"""Host, port and address family; or a Unix path or abstract name."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection whose handshake is done; its socket does not block. ``frames`` came with the handshake."""

    sock: socket.socket
    codec: Codec
    frames: list[bytes]


class Connecting:
    """What it takes to connect to one URL, time and again. ``clock`` gives seconds and never goes back.

    Raises `AddressError` for a URL that can never work.
    """

    def __init__(
        self, url: str, greeting: Greeting, options: SocketOptions, clock: Callable[[], float]
    ) -> None:
        self.url = check_dialable(url)
        self._scheme, self._address = split_url(self.url)
        self._plain = self._scheme.rstrip("46")
        if self._plain not in SCHEMES:
            raise AddressError(f"{url}: without an event loop there are tcp, ipc, tls+tcp, ws and wss")
        self._greeting = greeting
        self._size_max = options.recv_size_max
        self._nodelay = options.nodelay
        self._tls = options.tls or TlsConfig()
        self._clock = clock
        self._certificates: Certificates | None = None

    def connect(self, timeout: float) -> Opened:
        """Connect and shake hands within ``timeout`` seconds. Raises OSError, SPError."""
        deadline = self._clock() + timeout
        target, codec = self._target_and_codec()
        sock = _connected(target, timeout, self._nodelay, self._clock)
        try:
            frames = self._shake_hands(sock, codec, deadline)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return Opened(sock, codec, frames)

    def connect_or_say_why(self, timeout: float) -> Opened:
        """As `connect`, but what goes wrong is one of ours. Raises `AddressError`, `HandshakeError`,
        `Timeout`."""
        try:
            return self.connect(timeout)
        except TimeoutError as error:
            raise Timeout(f"no connection to {self.url} within {timeout:g} s") from error
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise ConnectionRefused(f"nobody listens at {self.url}") from error
        except ConnectionResetError as error:
            raise HandshakeError(str(error), reason="closed") from error
        except OSError as error:
            raise AddressError(f"cannot dial {self.url}: {system_message(error)}") from error

    def _target_and_codec(self) -> tuple[Target, Codec]:
        """Where to, and what is spoken there. Raises `AddressError`, `TlsConfigError`."""
        greeting = self._greeting
        scheme, address, plain = self._scheme, self._address, self._plain
        if plain in ("ipc", "unix", "abstract"):
            return parse_path(address, scheme), SpCodec(greeting, self._size_max, IPC_LEAD)
        if plain in ("ws", "wss"):
            return self._websocket(scheme, plain, address, greeting)
        to = parse_address(scheme, address)
        codec: Codec = SpCodec(greeting, self._size_max, TCP_LEAD)
        if plain == "tls+tcp":
            codec = self._secured(codec, to.host)
        return (to.host, to.port, FAMILIES[scheme.removeprefix("tls+")]), codec

    def _websocket(self, scheme: str, plain: str, address: str, greeting: Greeting) -> tuple[Target, Codec]:
        from protocols.transports.websocket import check_websocket_target  # loads wsproto
        from protocols.wire.upgrade import DiallingUpgrade
        from protocols.wire.websocket import WebSocketCodec

        to = check_websocket_target(scheme, address)
        codec = WebSocketCodec(DiallingUpgrade(greeting, to.authority, to.path + to.query, self._size_max))
        family = FAMILIES["tcp" + scheme.removeprefix(plain)]
        return (to.host, to.port, family), self._secured(codec, to.host) if plain == "wss" else codec

    def _secured(self, inner: Codec, host: str) -> Codec:
        if self._certificates is None:
            self._certificates = Certificates(self._tls, server_side=False)
        context = self._certificates.context(self._clock())
        return named_codec(inner, context, self._tls.server_name or host, self.url)

    def _shake_hands(self, sock: socket.socket, codec: Codec, deadline: float) -> list[bytes]:
        sock.sendall(codec.begin())
        if codec.failure is not None:
            raise codec.failure
        frames: list[bytes] = []
        while not codec.peer:
            sock.settimeout(max(deadline - self._clock(), 0.001))
            chunk = sock.recv(READ_SIZE)
            if not chunk:
                raise ConnectionResetError(f"the listener closed the connection after {codec.progress()}")
            frames = codec.receive(chunk)
            reply, codec.reply = codec.reply, b""
            if reply:
                with contextlib.suppress(OSError) if codec.failure else contextlib.nullcontext():
                    sock.sendall(reply)
            if codec.failure is not None:
                raise codec.failure
        return frames


def _connected(target: Target, timeout: float, nodelay: bool, clock: Callable[[], float]) -> socket.socket:
    if isinstance(target, tuple):
        host, port, family = target
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        if not found:
            raise OSError(f"{host} has no address")
        sock = _connected_first(_alternating([(each[0], each[4]) for each in found]), timeout, clock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
        return sock
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        sock.connect(target)
    except BaseException:
        sock.close()
        raise
    return sock


def _alternating(found: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """As `protocols.transports.happy_eyeballs.alternating`, of what a socket connects to."""
    first = [each for each in dict.fromkeys(found) if each[0] == found[0][0]]
    others = [each for each in dict.fromkeys(found) if each[0] != found[0][0]]
    pairs = itertools.zip_longest(first, others)
    return [each for pair in pairs for each in pair if each is not None]


def _connected_first(
    addresses: list[tuple[int, Any]], timeout: float, clock: Callable[[], float]
) -> socket.socket:
    """A connection to the first address that accepts (Happy Eyeballs, RFC 8305). Raises OSError."""
    deadline = clock() + timeout
    waiting = deque(addresses)
    problem: OSError | None = None
    with selectors.DefaultSelector() as trying, contextlib.ExitStack() as opened:
        while waiting or trying.get_map():
            if waiting:
                family, address = waiting.popleft()
                sock = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                sock.setblocking(False)
                code = sock.connect_ex(address)
                if code not in (0, errno.EINPROGRESS):
                    problem = problem or OSError(code, os.strerror(code))
                    continue
                trying.register(sock, selectors.EVENT_WRITE)
            left_s = deadline - clock()
            if left_s <= 0:
                break
            for key, _ in trying.select(min(left_s, NEXT_ADDRESS_S) if waiting else left_s):
                tried = cast(socket.socket, key.fileobj)
                trying.unregister(tried)
                code = tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not code:
                    connected = tried.dup()  # the one that was tried is closed with the others
                    connected.settimeout(timeout)
                    return connected
                problem = problem or OSError(code, os.strerror(code))
    raise problem or TimeoutError(f"no address answers within {timeout:g} s")
