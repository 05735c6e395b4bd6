"""One connection of a `BlockingClient`: a plain socket and the codec of its scheme, without asyncio.

The codecs are those of the event loop's transports (plain, TLS, WebSocket): bytes in, frames out. After the
handshake the socket does not block; what the kernel does not take at once waits in ``unsent``.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from typing import Final

from protocols import AddressError, HandshakeError, ProtocolNumber, SocketOptions, TlsConfig
from protocols.blocking.connecting import Connecting
from protocols.wire.codec import Codec
from protocols.wire.handshake import Greeting

READ_SIZE: Final = 65536
FRAME_MAX: Final = 1 << 20
BY_STREAM: Final = "without an event loop there are tcp, ipc, tls+tcp, ws and wss"


class BrokerDialer:
    """Connects to the broker at one URL, as often as asked. ``clock`` gives seconds and never goes back.

    Raises:
        AddressError: the URL can never be dialled, or cannot be understood.
        TypeError: ``tls`` is no `TlsConfig`.
    """

    def __init__(self, url: str, tls: TlsConfig | None, clock: Callable[[], float]) -> None:
        greeting = Greeting.of(ProtocolNumber.REQ0, ProtocolNumber.REP0)
        options = SocketOptions(recv_size_max=FRAME_MAX, tls=tls)
        if url.startswith("inproc:"):
            raise AddressError(f"{url} works in the broker's event loop only; {BY_STREAM}")
        self._connecting = Connecting(url, greeting, options, clock)

    def connect(self, timeout: float) -> BlockingConnection:
        """Connect and finish the handshake. Raises `SPError` with a sentence that names the URL or the peer's
        mistake."""
        opened = self._connecting.connect(timeout)
        if opened.frames or opened.codec.ended:
            opened.sock.close()
            raise HandshakeError("the listener spoke before it was asked; it is no broker")
        return BlockingConnection(opened.sock, opened.codec)


class BlockingConnection:
    """A connected socket and its codec.

    A thread polls without the client's lock, and another may close the connection meanwhile. The descriptor
    must stay open until the polling thread has returned. Otherwise that thread would poll whatever file got
    the same number next. ``watchers`` counts the polling threads (under the lock), and the last one to return
    closes the descriptor. The count is kept without calling a function, since Ctrl-C may arrive at each call.
    """

    def __init__(self, sock: socket.socket, codec: Codec) -> None:
        self.sock = sock
        self.unsent = bytearray()
        self._codec = codec
        self.watchers = 0
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
        """Return the frames that are there now. Raises OSError, and SPError when the connection is over."""
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

    def poll(self, events: int, beside: BlockingConnection | None = None) -> Callable[[float], object]:
        """Return a function that waits for events, for at most the given milliseconds, and is true if some
        came. It waits for any event of the connection ``beside``, too. A watcher calls it without the lock,
        and then calls `unwatched`."""
        poll = select.poll()
        poll.register(self.sock, events)
        if beside is not None:
            poll.register(beside.sock, select.POLLIN | (select.POLLOUT if beside.unsent else 0))
        return poll.poll

    def unwatched(self) -> None:
        """Note that one watcher has returned."""
        if self._over and not self.watchers:
            self.sock.close()

    def ready(self) -> bool:
        """True if there is something to read, or the connection has ended."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """End the connection, and wake the threads that poll it."""
        self._over = True
        with contextlib.suppress(OSError):
            last = self._codec.end()
            if last and not self.unsent:
                self.sock.send(last)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.unwatched()

    def leave(self) -> None:
        """Close this process's copy of the descriptor only; the connection belongs to another process."""
        self.sock.close()
