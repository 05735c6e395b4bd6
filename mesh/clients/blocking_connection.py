"""One connection of a `BlockingClient`: a plain socket and the codec of its scheme, without asyncio.

The codecs are those of the event loop's transports (plain, TLS, WebSocket): bytes in, frames out. The socket
does not block once hands are shaken; what the kernel does not take at once waits in ``unsent``.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import select
import selectors
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from protocols import ProtocolNumber, TlsConfig
from protocols.errors import AddressError
from protocols.transports.base import split_url
from protocols.transports.certificates import Certificates
from protocols.transports.ipc import parse_path
from protocols.transports.registry import check_dialable
from protocols.transports.tcp import FAMILIES, parse_address
from protocols.transports.tls import named_codec
from protocols.wire.codec import Codec
from protocols.wire.framing import IPC_LEAD, TCP_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec

READ_SIZE: Final = 65536
FRAME_MAX: Final = 1 << 20
NEXT_ADDRESS_S: Final = 0.25
"""How long one address of a name may take before the next is tried beside it."""

Target = tuple[str, int, int] | str | bytes
"""Host, port and address family, or a path."""
"""Host and port, or a Unix path or abstract name."""


class Dialling:
    """What it takes to connect to one URL, time and again. ``clock`` gives seconds and never goes back."""

    def __init__(self, url: str, tls: TlsConfig | None, clock: Callable[[], float]) -> None:
        self.url = url
        self._tls = tls or TlsConfig()
        self._clock = clock
        self._certificates: Certificates | None = None

    def connect(self, timeout: float) -> BlockingConnection:
        """Connected and shaken hands. Raises OSError, SPError."""
        deadline = self._clock() + timeout
        target, codec = self._target_and_codec()
        sock = _connected(target, timeout, self._clock)
        try:
            self._shake_hands(sock, codec, deadline)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return BlockingConnection(sock, codec)

    def _target_and_codec(self) -> tuple[Target, Codec]:
        """Where to, and what is spoken there. Raises `AddressError`, `TlsConfigError`."""
        greeting = Greeting.of(ProtocolNumber.REQ0, ProtocolNumber.REP0)
        scheme, address = split_url(check_dialable(self.url))
        plain = scheme.removesuffix("4").removesuffix("6")
        if plain in ("ipc", "unix", "abstract"):
            return parse_path(address, scheme), SpCodec(greeting, FRAME_MAX, IPC_LEAD)
        if plain in ("ws", "wss"):
            return self._websocket(scheme, plain, address, greeting)
        if plain not in ("tcp", "tls+tcp"):
            raise AddressError(
                f"{self.url}: BlockingClient speaks tcp, ipc, tls+tcp, ws and wss, not {plain}"
            )
        to = parse_address(scheme, address)
        codec: Codec = SpCodec(greeting, FRAME_MAX, TCP_LEAD)
        if plain == "tls+tcp":
            codec = self._secured(codec, to.host)
        return (to.host, to.port, FAMILIES[scheme.removeprefix("tls+")]), codec

    def _websocket(self, scheme: str, plain: str, address: str, greeting: Greeting) -> tuple[Target, Codec]:
        from protocols.transports.websocket import check_websocket_target  # loads wsproto
        from protocols.wire.upgrade import DiallingUpgrade
        from protocols.wire.websocket import WebSocketCodec

        to = check_websocket_target(scheme, address)
        codec = WebSocketCodec(DiallingUpgrade(greeting, to.authority, to.path + to.query, FRAME_MAX))
        family = FAMILIES["tcp" + scheme.removeprefix(plain)]
        return (to.host, to.port, family), self._secured(codec, to.host) if plain == "wss" else codec

    def _secured(self, inner: Codec, host: str) -> Codec:
        if self._certificates is None:
            self._certificates = Certificates(self._tls, server_side=False)
        context = self._certificates.context(self._clock())
        return named_codec(inner, context, self._tls.server_name or host, self.url)

    def _shake_hands(self, sock: socket.socket, codec: Codec, deadline: float) -> None:
        sock.sendall(codec.begin())
        if codec.failure is not None:
            raise codec.failure
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
            if frames or codec.ended:
                raise ConnectionResetError("the listener spoke before it was asked; it is no broker")


def _connected(target: Target, timeout: float, clock: Callable[[], float]) -> socket.socket:
    if isinstance(target, tuple):
        host, port, family = target
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        if not found:
            raise OSError(f"{host} has no address")
        sock = _connected_first(_alternating([(each[0], each[4]) for each in found]), timeout, clock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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


class BlockingConnection:
    """See the module.

    A thread polls without the client's lock while another may close the connection. Its descriptor must not
    go before that thread has come back, or the thread would poll whatever got the same number next: `watch`
    and `unwatch` (both with the lock) count who polls, and the last one to come back closes the descriptor.
    """

    def __init__(self, sock: socket.socket, codec: Codec) -> None:
        self.sock = sock
        self.unsent = bytearray()
        self._codec = codec
        self._watchers = 0
        self._over = False

    def send(self, frames: list[bytes]) -> None:
        """Queue frames and give the kernel what it takes. Raises OSError."""
        if frames:
            for part in self._codec.encode(frames):
                self.unsent += part
        while self.unsent:
            try:
                taken = self.sock.send(self.unsent)
            except BlockingIOError:
                return
            del self.unsent[:taken]

    def receive(self) -> list[bytes]:
        """Frames that are there now. Raises OSError, SPError when the connection is over."""
        codec = self._codec
        if codec.ended:
            raise ConnectionResetError("the broker closed the connection")
        try:
            data = self.sock.recv(READ_SIZE)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        frames = codec.receive(data)
        if codec.reply:
            self.unsent += codec.reply
            codec.reply = b""
            self.send([])
        if codec.failure is not None:
            raise codec.failure
        return frames

    def watch(self, events: int) -> Any:
        """A poll of this connection, to be used without the lock; `unwatch` must follow."""
        poll = select.poll()
        poll.register(self.sock, events)
        self._watchers += 1
        return poll

    def unwatch(self) -> None:
        self._watchers -= 1
        if self._over and not self._watchers:
            self.sock.close()

    def ready(self) -> bool:
        """Whether there is something to read, or the end."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """End the connection, which also wakes the threads that poll it."""
        self._over = True
        with contextlib.suppress(OSError):
            last = self._codec.end()
            if last and not self.unsent:
                self.sock.send(last)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if not self._watchers:
            self.sock.close()

    def leave(self) -> None:
        """Close this process's copy of the descriptor only; the connection is another's."""
        self.sock.close()
