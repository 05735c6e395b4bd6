"""Dialers and listeners of blocking sockets.

A dialer is a thread: it connects, hands the connection over, waits for its end and begins again after a
pause, as `protocols.endpoint` does. A listener has no thread: the socket's I/O thread accepts for it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from selectors import EVENT_READ
from typing import Any, Final, Protocol

from protocols.blocking.connecting import Connecting
from protocols.blocking.io_thread import IoThread
from protocols.blocking.stream import State, Stream
from protocols.errors import AddressError, Closed, HandshakeError, PipeRefused, SPError, Timeout
from protocols.identity import PeerIdentity
from protocols.options import SocketOptions, seconds
from protocols.pipe import Pipe
from protocols.pipe_view import PipeView, view_of
from protocols.transports import ipc, tcp, unix_path
from protocols.transports.base import split_url
from protocols.transports.certificates import Certificates
from protocols.transports.descriptors import backlog
from protocols.transports.registry import check_url
from protocols.transports.tls import listening_certificates
from protocols.wire.codec import Codec
from protocols.wire.framing import IPC_LEAD, TCP_LEAD
from protocols.wire.handshake import Greeting
from protocols.wire.sp import SpCodec
from protocols.wire.tls import TlsCodec

HEADERLESS_MAX: Final = 256
"""Accepted connections that a listener keeps without a handshake; beyond them new ones are closed."""


class Owner(Protocol):
    """A blocking socket, as its endpoints see it."""

    lock: threading.Condition
    greeting: Greeting
    options: SocketOptions

    def io(self) -> IoThread: ...

    def attach(self, stream: Stream, *, url: str, dialed: bool) -> Pipe: ...

    def backoff_s(self, failures: int) -> float: ...


class _Extra:
    """A socket, where the functions of the event loop's transports expect a transport."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self._sock if name == "socket" else None


def stream_of(
    owner: Owner, url: str, sock: socket.socket, codec: Codec, opened: Callable[[Stream], None] | None
) -> Stream:
    """A stream of a connected socket, with names for its ends."""
    scheme = split_url(url)[0].rstrip("46")
    over_ip = sock.family in (socket.AF_INET, socket.AF_INET6)
    extra: Any = _Extra(sock)
    identity: PeerIdentity | None = None if over_ip else ipc.identify(extra)

    def name(address: object) -> str:
        return tcp.describe(address, scheme) if over_ip else ipc.describe(address)

    with contextlib.suppress(OSError):
        return Stream(
            owner.io(),
            sock,
            codec,
            local_address=name(sock.getsockname()),
            remote_address=name(sock.getpeername()),
            identity=identity,
            opened=opened,
        )
    return Stream(
        owner.io(), sock, codec, local_address="", remote_address="", identity=identity, opened=opened
    )


class Dialer:
    """Keeps one pipe to ``url``, until it is closed."""

    def __init__(self, owner: Owner, url: str) -> None:
        self.last_error = ""
        """Why there is no pipe, as a sentence. Empty while connected."""
        self._owner = owner
        self._connecting = Connecting(url, owner.greeting, owner.options, time.monotonic)
        self.url = self._connecting.url
        self._pipe: Pipe | None = None
        self._over = threading.Event()  # the pipe has ended, or this is closed
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"dial {url}", daemon=True)
        self._thread.start()

    @property
    def pipe(self) -> PipeView | None:
        """The peer, while there is one."""
        pipe = self._pipe
        return None if pipe is None or pipe.closed else view_of(pipe)

    def wait_connected(self, timeout: float | None = None) -> PipeView:
        """Return the peer, once there is one. Raises `Timeout`, `Closed`."""
        limit_s = seconds(timeout, None)
        with self._owner.lock:
            if not self._owner.lock.wait_for(lambda: self._closed or self.pipe is not None, limit_s):
                why = f": {self.last_error}" if self.last_error else ""
                raise Timeout(f"no connection to {self.url} within {limit_s:g} s{why}")
            pipe = self.pipe
        if pipe is None:
            raise Closed(f"nothing dials {self.url}")
        return pipe

    def close(self) -> None:
        """Stop dialling. The pipe, if there is one, lives on until its socket closes it."""
        with self._owner.lock:
            self._closed = True
            self._owner.lock.notify_all()
        self._over.set()

    def join(self, timeout: float) -> None:
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        failures = 0
        while not self._closed:
            since = time.monotonic()
            pause_s = self._owner.backoff_s(failures)
            if self._connect():
                self._over.wait()
                self._over.clear()
                if time.monotonic() - since >= pause_s:
                    failures = 0
                    pause_s = self._owner.backoff_s(0)
            failures += 1
            if not self._closed:
                self._over.wait(pause_s)

    def _connect(self) -> bool:
        """One attempt; whether it brought a pipe."""
        try:
            opened = self._connecting.connect_or_say_why(self._owner.options.handshake_timeout_s)
        except (AddressError, HandshakeError, Timeout) as error:
            self.last_error = str(error)
            return False
        with self._owner.lock:
            if self._closed:
                opened.sock.close()
                return False
            stream = stream_of(self._owner, self.url, opened.sock, opened.codec, None)
            stream.on_end = self._ended
            try:
                self._pipe = self._owner.attach(stream, url=self.url, dialed=True)
            except SPError as error:
                self.last_error = str(error)
                stream.on_end = None
                stream.abort()
                return False
            self.last_error = ""
            stream.early(opened.frames)
            self._owner.io().settle()
            self._owner.lock.notify_all()
        return True

    def _ended(self, stream: Stream) -> None:
        if self._pipe is not None:
            self.last_error = self._pipe.close_reason
        self._pipe = None
        self._over.set()


class Listener:
    """Accepts peers at ``url``, whose port 0 is resolved. Raises `AddressInUse`, `AddressError`."""

    def __init__(self, owner: Owner, url: str) -> None:
        self._owner = owner
        self._certificates: Certificates | None = None
        self._file: tuple[str, unix_path.FileIdentity] | None = None
        self._opening: dict[Stream, None] = {}
        self.closed = False
        self.refused: dict[str, int] = {}
        """Connections that became no pipe, by reason."""
        self._scheme, address = split_url(check_url(url))
        self._plain = self._scheme.rstrip("46")
        self._path = "/"
        self._hosts: tuple[str, ...] = ()
        if self._plain in ("ipc", "unix", "abstract"):
            self._listen_at_path(address, url)
        elif self._plain in ("tcp", "tls+tcp", "ws", "wss"):
            self._listen_at_port(address, url)
        else:
            raise AddressError(f"{url}: without an event loop there are tcp, ipc, tls+tcp, ws and wss")
        owner.io().watch_file(self._sock, self, EVENT_READ)

    def _listen_at_path(self, address: str, url: str) -> None:
        path = ipc.parse_path(address, self._scheme)
        self.url = url
        try:
            if path.startswith("\0"):
                self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._sock.bind(path)
                self._sock.listen(backlog())
                self._sock.setblocking(False)
            else:
                self._sock, identity = unix_path.listening_socket(path, self._owner.options)
                self._file = path, identity
        except OSError as error:
            if isinstance(error, AddressError):
                raise
            raise ipc.listen_error(url, error) from error

    def _listen_at_port(self, address: str, url: str) -> None:
        path = ""
        if self._plain in ("ws", "wss"):
            from protocols.transports.websocket import check_websocket_listener  # loads wsproto

            web = check_websocket_listener(self._scheme, address)
            host, port, path = web.host, web.port, web.path
            self._path = path
            self._hosts = (
                web.authority.rpartition(":")[0] or web.authority,
                *self._owner.options.ws_hosts,
            )
        else:
            target = tcp.parse_address(self._scheme, address)
            host, port = target.host, target.port
        if self._plain in ("tls+tcp", "wss"):
            self._certificates = listening_certificates(self._owner.options, url)
        family = tcp.FAMILIES["tcp" + self._scheme[len(self._plain) :]]
        try:
            found = socket.getaddrinfo(
                host or None, port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            kind, _, _, _, bound = found[0]
            self._sock = socket.socket(kind, socket.SOCK_STREAM)
            try:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._sock.bind(bound)
                self._sock.listen(backlog())
                self._sock.setblocking(False)
            except BaseException:
                self._sock.close()
                raise
        except OSError as error:
            raise tcp.listen_error(url, error) from error
        host, port = self._sock.getsockname()[:2]
        self.url = tcp.format_address(host, port, self._plain) + path

    def close(self) -> None:
        """Accept no more. Pipes live on until their socket closes them."""
        with self._owner.lock:
            if self.closed:
                return
            self.closed = True
            self._owner.io().watch_file(self._sock, self, 0)
            self._sock.close()
            if self._file is not None:
                unix_path.remove(*self._file)
            for stream in list(self._opening):
                stream.abort()

    # --- with the lock

    def happened(self, events: int) -> None:
        """The I/O thread: somebody connects."""
        for _ in range(backlog()):
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return  # nobody more, or no descriptor is left for now
            if len(self._opening) >= HEADERLESS_MAX:
                self._refuse("crowded out")
                sock.close()
                continue
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, self._owner.options.nodelay)
            stream = stream_of(self._owner, self.url, sock, self._codec(), self._opened)
            if stream.state is State.OPENING:
                self._opening[stream] = None
                stream.on_end = self._failed
                io = self._owner.io()
                deadline = io.time() + self._owner.options.handshake_timeout_s
                io.call_at(deadline, partial(self._late, stream))

    def _codec(self) -> Codec:
        greeting, size_max = self._owner.greeting, self._owner.options.recv_size_max
        codec: Codec
        if self._plain in ("ws", "wss"):
            from protocols.wire.upgrade import AcceptingUpgrade, Route
            from protocols.wire.websocket import WebSocketCodec

            route = Route(greeting, size_max, self._owner.options.ws_origins, self._hosts)
            codec = WebSocketCodec(AcceptingUpgrade(lambda path: route if path == self._path else None))
        else:
            over_ip = self._plain in ("tcp", "tls+tcp")
            codec = SpCodec(greeting, size_max, TCP_LEAD if over_ip else IPC_LEAD)
        if self._certificates is not None:
            codec = TlsCodec(codec, self._certificates.context(time.monotonic()), server_side=True)
        return codec

    def _opened(self, stream: Stream) -> None:
        self._opening.pop(stream, None)
        stream.on_end = None
        try:
            self._owner.attach(stream, url=self.url, dialed=False)
        except PipeRefused as error:
            self._refuse(error.reason)
            stream.abort()

    def _failed(self, stream: Stream) -> None:
        del self._opening[stream]
        self._refuse(stream.failure.reason if stream.failure is not None else "closed")

    def _late(self, stream: Stream) -> None:
        if stream in self._opening:
            stream.abort()

    def _refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1
