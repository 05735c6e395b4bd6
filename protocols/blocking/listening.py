"""Listeners of blocking sockets. They have no thread: the socket's I/O thread accepts for them.

As on an event loop, a listener keeps at most `HEADERLESS_MAX` connections without a header, and drops the
oldest beyond that. Each round accepts half as many, so that those are read before they are judged.
"""

from __future__ import annotations

import errno
import socket
import time
from dataclasses import dataclass
from selectors import EVENT_READ
from typing import Any, Final, cast
from weakref import WeakMethod

from protocols.blocking import inproc
from protocols.blocking.binding import bound_sockets, listening_socket
from protocols.blocking.connecting import SCHEMES, WITHOUT_LOOP, Extra
from protocols.blocking.endpoint import EndpointOwner, lacking, stream_of
from protocols.blocking.stream import State, Stream
from protocols.errors import AddressError, PipeRefused
from protocols.listening import HEADERLESS_MAX
from protocols.peer_warnings import PeerWarnings
from protocols.transports import ipc, tcp, unix_path
from protocols.transports.base import split_url
from protocols.transports.certificates import Certificates
from protocols.transports.descriptors import backlog, descriptor_limit
from protocols.transports.registry import check_url
from protocols.transports.tls import listening_certificates
from protocols.wire.codec import Codec
from protocols.wire.framing import IPC_LEAD, TCP_LEAD
from protocols.wire.sp import SpCodec
from protocols.wire.tls import TlsCodec

EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors by which the system refuses one more connection; waiting connections stay in the backlog."""
EXHAUSTED_PAUSE_S: Final = 1.0
"""Seconds without accepting after such an error; asyncio's figure."""
NO_DESCRIPTORS: Final = "almost no file descriptors are left; raise ulimit -n"


@dataclass(frozen=True, slots=True, eq=False)
class BoundSocket:
    """One of the addresses that a listener bound."""

    listener: Listener
    sock: socket.socket

    def happened(self, events: int) -> None:
        self.listener.accept_from(self.sock)


class Listener:
    """Accepts peers at ``url``; port 0 is resolved once the listener has started.

    Raises `AddressError` for a URL that can never work.
    """

    def __init__(self, owner: EndpointOwner, url: str) -> None:
        self._owner = owner
        self._certificates: Certificates | None = None
        self._file: tuple[str, unix_path.FileIdentity] | None = None
        self._opening: dict[Stream, float] = {}
        """Connections without a header yet, each with its deadline, oldest first."""
        self._warnings = PeerWarnings(owner.log)
        self._bound: list[BoundSocket] = []
        self._name: inproc.Name | None = None
        self._pausing = False
        self.closed = False
        self.refused: dict[str, int] = {}
        """The number of connections that became no pipe, by reason."""
        self.url = check_url(url)
        self._scheme, self._address = split_url(url)
        self._plain = self._scheme.rstrip("46")
        if self._plain not in SCHEMES:
            raise AddressError(f"{url}: {WITHOUT_LOOP}")
        self._path = "/"
        self._hosts: tuple[str, ...] = ()
        self._judging = False

    def start(self) -> None:
        """Accept peers from now on. If it fails, `close` releases what it leaves behind.

        Raises:
            AddressInUse, AddressError: it cannot listen there, or lacks a descriptor or thread.
        """
        try:
            io = self._owner.io  # before the address is taken
            if self._plain == "inproc":
                self._listen_in_process()
            elif self._plain in ("ipc", "unix", "abstract"):
                self._listen_at_path()
            else:
                self._listen_at_port()
            for bound in self._bound:
                io.watch_file(bound.sock, bound, EVENT_READ)
        except AddressError:
            raise  # some of these are OSErrors
        except (OSError, RuntimeError) as error:
            raise AddressError(f"cannot listen at {self.url}: {lacking(error)}") from error

    def _listen_in_process(self) -> None:
        self._name = inproc.Name(self._address)
        inproc.listen(self._name, self._handed_over)

    def _listen_at_path(self) -> None:
        path = ipc.parse_path(self._address, self._scheme)
        try:
            if path.startswith("\0"):
                sock = listening_socket(socket.AF_UNIX, path)
            else:
                sock, identity = unix_path.listening_socket(path, self._owner.options)
                self._file = path, identity
            self._bound = [BoundSocket(self, sock)]
        except OSError as error:
            if isinstance(error, AddressError):
                raise
            raise ipc.listen_error(self.url, error) from error

    def _listen_at_port(self) -> None:
        url, address, path = self.url, self._address, ""
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
            self._certificates = listening_certificates(self._owner.options, url, self._owner.log)
        family = tcp.FAMILIES["tcp" + self._scheme[len(self._plain) :]]
        try:
            socks = bound_sockets(host, port, family)
        except UnicodeError as error:
            raise AddressError(f"cannot listen at {url}: {host!r} is not a host name") from error
        except OSError as error:
            raise tcp.listen_error(url, error) from error
        self._bound = [BoundSocket(self, sock) for sock in socks]
        host, port = socks[0].getsockname()[:2]
        self.url = tcp.format_address(host, port, self._plain) + path

    def close(self) -> None:
        """Accept no more. Pipes stay open until their socket closes them."""
        if self._owner.lock.foreign:
            self.closed = True  # a forked child: address, file and connections belong to the parent
            return
        with self._owner.lock.held:
            self.closed = True
            self._let_go()
            self._owner.forget(self)

    def _let_go(self) -> None:
        """Release everything. Each step may be repeated: Ctrl-C can end `close` anywhere, and the next call
        goes on.
        """
        while self._bound:
            bound = self._bound[-1]
            if bound.sock.fileno() >= 0:
                self._owner.io.watch_file(bound.sock, bound, 0)
                bound.sock.close()
            self._bound.pop()
        if self._name is not None:
            inproc.stop(self._name, self._handed_over)
        if self._file is not None:
            unix_path.remove(*self._file)
            self._file = None
        for stream in list(self._opening):
            stream.abort()

    def _handed_over(self, sock: socket.socket) -> None:
        """In a dialling thread: take our end of a connection within the process."""
        with self._owner.lock.held:
            if self.closed:
                sock.close()
                raise ConnectionRefusedError(f"the listener of {self.url} has closed")
            self._accepted(sock)

    # --- with the lock

    def accept_from(self, bound: socket.socket) -> None:
        """In the I/O thread: accept waiting connections."""
        for _ in range(max(min(backlog(), HEADERLESS_MAX // 2 // len(self._bound)), 1)):
            try:
                sock, _ = bound.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._pause()
                return  # no more are waiting
            self._accepted(sock)

    def _accepted(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            tcp.tune(cast(Any, Extra(sock)), self._owner.options)
        stream = stream_of(self._owner, self.url, sock, self._codec(), self._opened)
        if stream.state is not State.OPENING:
            return
        io, limit_s = self._owner.io, self._owner.options.handshake_timeout_s
        self._opening[stream] = io.time() + limit_s
        stream.on_end = self._failed
        if stream.descriptor > descriptor_limit():
            self._turn_away(stream, "no descriptors", NO_DESCRIPTORS)
            return
        if len(self._opening) > HEADERLESS_MAX:
            sentence = f"no header yet and {HEADERLESS_MAX} newer connections wait too"
            self._turn_away(next(iter(self._opening)), "crowded out", sentence)
        if not self._judging and self._opening:
            self._judge_at(next(iter(self._opening.values())))

    def _judge_at(self, deadline: float) -> None:
        self._judging = True
        judge = WeakMethod(self._judge)  # the timer must not keep alive a listener that is closed explicitly

        def due() -> None:
            if (call := judge()) is not None:
                call()

        self._owner.io.call_at(deadline, due)

    def _judge(self) -> None:
        """Drop connections whose handshake time is over.

        One timer serves all, since they are in the order of their deadlines.
        """
        io = self._owner.io
        self._judging = False
        for stream, deadline in list(self._opening.items()):
            if deadline > io.time():
                self._judge_at(deadline)
                return
            stream.late(self._owner.options.handshake_timeout_s)

    def _pause(self) -> None:
        """Accept nothing for a while: otherwise the backlog would wake the thread again at once."""
        if self._pausing:
            return
        self._pausing = True
        io = self._owner.io
        for bound in self._bound:
            io.watch_file(bound.sock, bound, 0)
        io.call_at(io.time() + EXHAUSTED_PAUSE_S, self._resume)
        self._warnings.warn(time.monotonic(), "exhausted", "%s accepts nobody: %s", self.url, NO_DESCRIPTORS)

    def _resume(self) -> None:
        if not self.closed:
            self._pausing = False
            for bound in self._bound:
                self._owner.io.watch_file(bound.sock, bound, EVENT_READ)

    def _codec(self) -> Codec:
        greeting, size_max = self._owner.greeting, self._owner.options.recv_size_max
        codec: Codec
        if self._plain in ("ws", "wss"):
            from protocols.wire.upgrade import AcceptingUpgrade, Route
            from protocols.wire.websocket import WebSocketCodec

            route = Route(greeting, size_max, self._owner.options.ws_origins, self._hosts)
            codec = WebSocketCodec(AcceptingUpgrade(lambda path: route if path == self._path else None))
        else:
            over_a_path = self._plain in ("ipc", "unix", "abstract")
            codec = SpCodec(greeting, size_max, IPC_LEAD if over_a_path else TCP_LEAD)
        if self._certificates is not None:
            codec = TlsCodec(codec, self._certificates.context(time.monotonic()), server_side=True)
        return codec

    def _opened(self, stream: Stream) -> None:
        self._opening.pop(stream, None)
        stream.on_end = self._ended
        try:
            self._owner.attach(stream, url=self.url, dialed=False)
        except PipeRefused as error:
            self._turn_away(stream, error.reason, str(error))

    def _turn_away(self, stream: Stream, reason: str, sentence: str) -> None:
        self._opening.pop(stream, None)
        stream.on_end = None
        self._refuse(stream, reason, sentence)
        stream.abort()

    def _failed(self, stream: Stream) -> None:
        """The connection ended before it became a pipe."""
        self._opening.pop(stream, None)
        failure = stream.failure
        if failure is None:
            self._refuse(stream, "closed", "closed before its header")
        else:
            self._refuse(stream, failure.reason, str(failure))

    def _ended(self, stream: Stream) -> None:
        """A pipe has ended."""
        if stream.failure is not None:
            self._warnings.broke_a_rule(time.monotonic(), self.url, stream, stream.failure)

    def _refuse(self, stream: Stream, reason: str, sentence: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self._warnings.refused(time.monotonic(), self.url, stream, reason, sentence)
