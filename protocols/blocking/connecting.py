"""Connects in the calling thread: opens a plain socket and completes the handshake with the codec of its
scheme.

The codecs are those of the event loop's transports (plain, TLS, WebSocket): bytes in, frames out. Another
thread may interrupt an attempt at any time, except during a name look-up: the system offers no way to end
one.
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

from protocols.blocking import inproc
from protocols.errors import AddressError, Closed, ConnectionRefused, HandshakeError, Timeout
from protocols.options import SocketOptions
from protocols.tls import TlsConfig
from protocols.transports.base import split_url
from protocols.transports.certificates import Certificates, Logger, log
from protocols.transports.ipc import parse_path
from protocols.transports.registry import check_dialable
from protocols.transports.tcp import FAMILIES, parse_address, system_message, tune
from protocols.transports.tls import named_codec
from protocols.wire.codec import Codec
from protocols.wire.framing import IPC_LEAD, TCP_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec

READ_SIZE: Final = 65536
SCHEMES: Final = ("tcp", "ipc", "unix", "abstract", "inproc", "tls+tcp", "ws", "wss")
WITHOUT_LOOP: Final = "without an event loop there are tcp, ipc, inproc, tls+tcp, ws and wss"
WAIT_S: Final = 3600.0
"""Longest single wait in seconds, since system clocks have bounds. Longer or unlimited waits are split."""

Target = tuple[str, int, int] | str | bytes | inproc.Name
"""Host, port and address family; or a Unix path or abstract name; or a name in this process."""


class Interrupt:
    """Ends a wait in another thread. Once set, it stays set."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._open = True

    def fileno(self) -> int:
        """A descriptor that is readable once the interrupt is set."""
        return self._reader

    def set(self) -> None:
        if self._open:
            os.write(self._writer, b"x")

    def close(self) -> None:
        """Close the descriptors. No other thread may be setting the interrupt meanwhile."""
        self._open = False
        os.close(self._reader)
        os.close(self._writer)


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection whose handshake is complete. Its socket does not block. ``frames`` arrived with the
    handshake.
    """

    sock: socket.socket
    codec: Codec
    frames: list[bytes]
    bytes_in: int
    bytes_out: int


class Connecting:
    """Connects to one URL, any number of times.

    ``clock`` returns seconds and never goes back. ``logger`` records that certificates have changed. Raises
    `AddressError` for a URL that can never work.
    """

    def __init__(
        self,
        url: str,
        greeting: Greeting,
        options: SocketOptions,
        clock: Callable[[], float],
        logger: Logger = log,
    ) -> None:
        self.url = check_dialable(url)
        self._scheme, self._address = split_url(self.url)
        self._plain = self._scheme.rstrip("46")
        if self._plain not in SCHEMES:
            raise AddressError(f"{url}: {WITHOUT_LOOP}")
        self._greeting = greeting
        self._size_max = options.recv_size_max
        self._options = options
        self._tls = options.tls or TlsConfig()
        self._clock = clock
        self._logger = logger
        self._certificates: Certificates | None = None

    def connect(self, timeout: float, interrupt: Interrupt | None = None) -> Opened:
        """Connect and complete the handshake within ``timeout`` seconds.

        Raises:
            Timeout: the time ran out.
            AddressError, ConnectionRefused, RemoteProtocolError: see each.
            Closed: another thread interrupted the attempt.
        """
        try:
            return self._attempt(timeout, interrupt)
        except TimeoutError as error:
            raise Timeout(f"no connection to {self.url} within {timeout:g} s") from error
        except (ConnectionRefusedError, FileNotFoundError) as error:
            why = str(error) if self._plain == "inproc" else f"nobody listens at {self.url}"
            raise ConnectionRefused(why) from error
        except ConnectionResetError as error:
            raise HandshakeError(str(error), reason="closed") from error
        except OSError as error:
            raise AddressError(f"cannot dial {self.url}: {system_message(error)}") from error

    def _attempt(self, timeout: float, interrupt: Interrupt | None) -> Opened:
        """Raises OSError, SPError."""
        wait = Wait(self._clock, timeout, interrupt)
        target, codec = self._target_and_codec()
        sock = self._connected(target, wait)
        try:
            sock.setblocking(False)
            return _shake_hands(sock, codec, wait)
        except BaseException:
            sock.close()
            raise

    def _target_and_codec(self) -> tuple[Target, Codec]:
        """The address to connect to, and the codec to use there. Raises `AddressError`, `TlsConfigError`."""
        greeting = self._greeting
        scheme, address, plain = self._scheme, self._address, self._plain
        if plain == "inproc":
            return inproc.Name(address), SpCodec(greeting, self._size_max, TCP_LEAD)
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
            self._certificates = Certificates(self._tls, server_side=False, logger=self._logger)
        context = self._certificates.context(self._clock())
        return named_codec(inner, context, self._tls.server_name or host, self.url)

    def _connected(self, target: Target, wait: Wait) -> socket.socket:
        if isinstance(target, inproc.Name):
            return inproc.connect(target)
        if isinstance(target, tuple):
            host, port, family = target
            try:
                found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            except UnicodeError as error:
                raise AddressError(f"cannot reach {self.url}: {host!r} is not a host name") from error
            if not found:
                raise OSError(f"{host} has no address")
            addresses = _alternating([(each[0], each[4]) for each in found])
            sock = _connected_first(addresses, wait, self._options.happy_eyeballs_delay_s)
            tune(cast(Any, Extra(sock)), self._options)
            return sock
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(min(wait.left_s(), WAIT_S))
        try:
            sock.connect(target)
        except BaseException:
            sock.close()
            raise
        return sock


class Extra:
    """Offers a plain socket where the functions of the event loop's transports expect a transport."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self._sock if name == "socket" else None


class Wait:
    """The time limit of one attempt, and the interrupt that may end it."""

    def __init__(self, clock: Callable[[], float], timeout: float, interrupt: Interrupt | None) -> None:
        self._clock = clock
        self._deadline = clock() + timeout
        self._interrupt = interrupt

    def left_s(self) -> float:
        """Seconds left. Raises `TimeoutError` when the time is up."""
        left_s = self._deadline - self._clock()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def selector(self) -> selectors.BaseSelector:
        made = selectors.DefaultSelector()
        if self._interrupt is not None:
            made.register(self._interrupt, selectors.EVENT_READ)
        return made

    def news(
        self, selector: selectors.BaseSelector, longest_s: float = WAIT_S
    ) -> list[tuple[socket.socket, int]]:
        """Wait for events from the selector until the time is up. Raises `TimeoutError`, `Closed`."""
        happened = selector.select(min(self.left_s(), longest_s))
        if any(key.fileobj is self._interrupt for key, _ in happened):
            raise Closed("interrupted")
        return [(cast(socket.socket, key.fileobj), events) for key, events in happened]


def _shake_hands(sock: socket.socket, codec: Codec, wait: Wait) -> Opened:
    unsent = bytearray(codec.begin())
    if codec.failure is not None:
        raise codec.failure
    frames: list[bytes] = []
    bytes_in, bytes_out = 0, len(unsent)
    with wait.selector() as selector:
        selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while unsent or not codec.peer:
            wanted = 0 if codec.peer else selectors.EVENT_READ
            selector.modify(sock, wanted | (selectors.EVENT_WRITE if unsent else 0))
            for _, events in wait.news(selector):
                if events & selectors.EVENT_WRITE:
                    del unsent[: sock.send(unsent)]
                if events & selectors.EVENT_READ:
                    chunk = _hear(sock, codec)
                    frames = codec.receive(chunk)
                    bytes_in += len(chunk)
                    bytes_out += len(codec.reply)
                    unsent += codec.reply
                    codec.reply = b""
            if codec.failure is not None:
                with contextlib.suppress(OSError):  # the peer may still read the reason
                    sock.send(unsent)
                raise codec.failure
    return Opened(sock, codec, frames, bytes_in, bytes_out)


def _hear(sock: socket.socket, codec: Codec) -> bytes:
    chunk = sock.recv(READ_SIZE)
    if not chunk:
        raise ConnectionResetError(f"the listener closed the connection after {codec.progress()}")
    return chunk


def _alternating(found: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Like `protocols.transports.happy_eyeballs.alternating`, for the addresses given to a socket."""
    first = [each for each in dict.fromkeys(found) if each[0] == found[0][0]]
    others = [each for each in dict.fromkeys(found) if each[0] != found[0][0]]
    pairs = itertools.zip_longest(first, others)
    return [each for pair in pairs for each in pair if each is not None]


def _connected_first(addresses: list[tuple[int, Any]], wait: Wait, delay_s: float | None) -> socket.socket:
    """Return a connection to the first address that accepts (Happy Eyeballs, RFC 8305). Raises OSError.

    The next address is tried in parallel after ``delay_s``. With None, it is tried once the earlier ones have
    failed or used up their share of the time.
    """
    waiting = deque(addresses)
    problem: OSError | None = None
    under_way: set[socket.socket] = set()
    with wait.selector() as trying, contextlib.ExitStack() as opened:
        while waiting or under_way:
            if waiting:
                family, address = waiting.popleft()
                try:
                    sock = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                except OSError as error:  # a system without IPv6, although the name has an IPv6 address
                    problem = problem or error
                    continue
                sock.setblocking(False)
                code = sock.connect_ex(address)
                if code not in (0, errno.EINPROGRESS):
                    problem = problem or OSError(code, os.strerror(code))
                    continue
                trying.register(sock, selectors.EVENT_WRITE)
                under_way.add(sock)
            longest_s = WAIT_S
            if waiting:  # an address that never answers leaves the others their share of the time
                share_s = wait.left_s() / (len(waiting) + 1)
                longest_s = min(share_s if delay_s is None else delay_s, WAIT_S)
            try:
                happened = wait.news(trying, longest_s)
            except TimeoutError as error:
                raise problem or error from None
            for tried, _ in happened:
                trying.unregister(tried)
                under_way.discard(tried)
                code = tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not code:
                    return tried.dup()  # the original is closed together with the other attempts
                problem = problem or OSError(code, os.strerror(code))
    raise problem or OSError("there is no address")
