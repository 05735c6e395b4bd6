"""Listeners: how peers that dial connect to a socket.

A `Listener` serves one socket and sends its header at once. A `SharedListener` waits for the dialler's header
and gives the connection to the socket that serves the dialler's protocol. So one address serves every pattern
(every known SP implementation writes its header without waiting).

Both keep at most ``headerless_max`` connections without a header and drop the *oldest* beyond that, since an
honest peer's header arrives within milliseconds. A loop accepts a whole backlog before it reads any of it. So
a connection is judged only after the loop had a chance to read it.

`Acceptor.gather` saves processor time under a flood of short connections: new ones are then read in groups.
Waking up costs more than the work that it is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from protocols.endpoint import EndpointOwner, turns
from protocols.errors import (
    Closed,
    HandshakeError,
    NotSupported,
    PipeRefused,
    RemoteProtocolError,
    StateError,
)
from protocols.options import SocketOptions, options_or
from protocols.peer_warnings import PeerWarnings, name_of
from protocols.pipe import Connection
from protocols.transports.base import Binding
from protocols.transports.descriptors import descriptor_limit
from protocols.transports.registry import check_url, find_transport
from protocols.wire.handshake import Greeting, protocol_name

if TYPE_CHECKING:
    from protocols.transports.certificates import Certificates

HEADERLESS_MAX: Final = 256
"""The most connections without a header that a listener keeps."""

GATHERED_MAX: Final = 64
"""The most connections in one group. A full group is read at once."""

ACCEPTING_TURNS: Final = 3
"""Loop turns until an accepted connection is known here: asyncio accepts in one, makes the transport in the
next and tells the protocol in the third.
"""


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """Cumulative counters, except ``headerless``, which is current.

    ``accepted`` counts streams, and ``connected`` those that became pipes. ``refused`` counts the others by
    reason; ``handshake_timeouts`` is one of these reasons. ``broken`` counts pipes whose peer broke a rule,
    by reason: ``too large``, ``bad frame``, ``bad message`` (a rule of the pattern), and those of TLS and
    WebSocket.
    """

    accepted: int
    connected: int
    refused: dict[str, int]
    handshake_timeouts: int
    broken: dict[str, int]
    headerless: int


OnRefused = Callable[[str, str], None]
"""Called with the peer's address and a sentence."""


class Acceptor:
    """The common part of both listeners: it watches accepted connections; the protocol determines the
    owner.
    """

    def __init__(
        self,
        url: str,
        options: SocketOptions,
        *,
        wait: bool,
        headerless_max: int = HEADERLESS_MAX,
        on_refused: OnRefused | None = None,
    ) -> None:
        self.url = check_url(url)
        """The URL as bound (port 0 resolved) once started; before that, as given."""
        self.closed = False
        self._options = options
        self._serves: dict[int, int] = {}
        self._owners: dict[int, EndpointOwner] = {}
        self._greeting = Greeting(self._serves, wait)
        self._headerless_max = headerless_max
        self._headerless: dict[Connection, int] = {}
        self._unattached: dict[Connection, None] = {}
        """Open connections that are no pipes: those without a header, and refused ones that are still
        closing.
        """
        self._crowding = False
        self._gather_s = 0.0
        self._gathered: dict[Connection, None] = {}
        """New connections that are not read yet."""
        self._gathering: asyncio.TimerHandle | None = None
        self.on_refused = on_refused
        """Gets the address and a sentence for every connection that became no pipe, instead of the log."""
        self._binding: Binding | None = None
        self._accepted = 0
        self._opened = 0
        self._connected = 0
        self._refused: dict[str, int] = {}
        self._broken: dict[str, int] = {}
        self._warnings = PeerWarnings()
        self.forget: Callable[[Acceptor], None] | None = None
        """Called once the listener is closed; set by the keeper of a list of listeners."""
        self.last_refused = ""
        """The peer that was refused last, and why, as a sentence."""

    async def start(self) -> None:
        """Bind and accept. Raises `AddressInUse`, `AddressError`."""
        if self.closed:
            raise Closed(f"the listener of {self.url} is closed")
        if self._binding is not None:
            return
        transport, address = find_transport(self.url)
        binding = await transport.listen(address, self._greeting, self._options, self)
        if self.closed:  # closed in the meantime
            binding.close()
            await turns(ACCEPTING_TURNS)
            raise Closed(f"the listener of {self.url} is closed")
        self._binding = binding
        self.url = binding.url

    def statistics(self) -> ListenerStatistics:
        return ListenerStatistics(
            accepted=self._accepted,
            connected=self._connected,
            refused=dict(self._refused),
            handshake_timeouts=self._refused.get("timeout", 0),
            broken=dict(self._broken),
            headerless=len(self._headerless),
        )

    def gather(self, interval_s: float) -> None:
        """Read new connections in groups from now on, each at most ``interval_s`` after it was accepted; 0 to
        read each at once. Connections that are pipes are not affected. On uvloop each is read at once in any
        case: it cannot pause a connection that is being made.
        """
        self._gather_s = interval_s
        if not interval_s:
            self._read_gathered()

    async def aclose(self) -> None:
        """Accept no more and drop connections without a header. Pipes stay open until their socket closes
        them.

        A cancelled call has done the same, but does not wait until the dropped connections are gone.
        """
        self.closed = True
        try:
            if self._binding is not None:
                self._binding.close()
                self._binding = None
                await turns(ACCEPTING_TURNS)
        finally:
            self._headerless.clear()
            self.gather(0.0)
            dropped = list(self._unattached)
            for connection in dropped:
                connection.abort()
            if self.forget is not None:
                self.forget(self)
        for connection in dropped:
            await connection.wait_closed()

    @property
    def certificates(self) -> Certificates | None:
        """The certificates that a TLS listener shows; None without TLS, and before it is started."""
        return getattr(self._binding, "certificates", None)

    def reload_certificates(self) -> None:
        """Read the certificate files now, for all further connections. Changed files are also read
        automatically.

        Raises:
            NotSupported: the listener has no TLS.
            TlsConfigError: the files cannot be used; the former certificates stay in use.
        """
        certificates = self.certificates
        if certificates is None:
            raise NotSupported(f"the listener of {self.url} has no certificates to load")
        certificates.reload()

    # --- Watcher

    def connection_opened(self, connection: Connection) -> None:
        self._unattached[connection] = None
        if self.closed:  # accepted in the loop turn in which we closed
            connection.abort()
            return
        self._accepted += 1
        if connection.descriptor > descriptor_limit():
            self._refuse(connection, "no descriptors", "almost no file descriptors are left; raise ulimit -n")
            connection.abort()
            return
        self._opened += 1
        self._headerless[connection] = self._opened
        if len(self._headerless) > self._headerless_max and not self._crowding:
            self._crowding = True
            loop = asyncio.get_running_loop()
            # The loop watches these since this turn, so two turns later it has read what they sent by now.
            loop.call_soon(loop.call_soon, self._crowd_out, self._opened)
        if self._gather_s:
            self._gather(connection)

    def _gather(self, connection: Connection) -> None:
        connection.pause_reading()
        if not self._gathered:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(self._gather_s, self._read_gathered)
        self._gathered[connection] = None
        if len(self._gathered) >= max(1, min(GATHERED_MAX, self._headerless_max // 4)):
            self._read_gathered()

    def _read_gathered(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        gathered, self._gathered = self._gathered, {}
        for connection in gathered:
            connection.resume_reading()

    def _crowd_out(self, judged: int) -> None:
        """Drop the oldest connections beyond the bound, among the first ``judged`` opened."""
        loop = asyncio.get_running_loop()
        while len(self._headerless) > self._headerless_max:
            oldest, number = next(iter(self._headerless.items()))
            if number > judged:
                loop.call_soon(loop.call_soon, self._crowd_out, self._opened)
                return
            message = f"no header yet and {self._headerless_max} newer connections wait too"
            self._refuse(oldest, "crowded out", message)
            oldest.abort()
        self._crowding = False

    def connection_moved(self, connection: Connection) -> None:
        self._unattached.pop(connection, None)
        if self._headerless.pop(connection, None) is not None:
            self._accepted -= 1

    def connection_failed(self, connection: Connection, error: HandshakeError) -> None:
        if connection in self._headerless:
            self._refuse(connection, error.reason, str(error))

    def connection_ready(self, connection: Connection) -> None:
        del self._headerless[connection]
        if connection in self._gathered:  # it moved here, read already
            del self._gathered[connection]
            connection.resume_reading()
        owner = self._owners[connection.peer]
        try:
            owner.attach(connection, url=self.url, dialed=False)
        except BaseException as error:
            connection.abort()
            if not isinstance(error, PipeRefused):
                raise
            self._refuse(connection, error.reason, str(error))
        else:
            self._connected += 1
            self._unattached.pop(connection, None)

    def connection_ended(self, connection: Connection, error: RemoteProtocolError | None) -> None:
        if error is not None:
            self._broken[error.reason] = self._broken.get(error.reason, 0) + 1
            now = asyncio.get_running_loop().time()
            self._warnings.broke_a_rule(now, self.url, connection, error)

    def connection_gone(self, connection: Connection) -> None:
        self._unattached.pop(connection, None)
        self._gathered.pop(connection, None)

    # ---

    def _serve(self, owner: EndpointOwner) -> None:
        other = self._owners.get(owner.peer)
        if other is not None and other is not owner:
            peer = protocol_name(owner.peer)
            raise StateError(f"the listener of {self.url} already has a socket for {peer} peers")
        self._serves[owner.peer] = owner.protocol
        self._owners[owner.peer] = owner

    def _refuse(self, connection: Connection, reason: str, message: str) -> None:
        self._headerless.pop(connection, None)
        self._refused[reason] = self._refused.get(reason, 0) + 1
        self.last_refused = f"{name_of(connection)}: {message}"
        if self.on_refused is not None:
            self.on_refused(connection.remote_address, message)
        else:
            now = asyncio.get_running_loop().time()
            self._warnings.refused(now, self.url, connection, reason, message)


class Listener(Acceptor):
    """Accepts connections at ``url`` for one socket. Its header goes out at once, as NNG does."""

    def __init__(self, owner: EndpointOwner, url: str, options: SocketOptions | None = None) -> None:
        super().__init__(url, options_or(options, owner.options), wait=False)
        self._serve(owner)


class SharedListener(Acceptor):
    """One address for several sockets of different protocols; see the module.

    ``options`` are those of the connections (limits, deadlines, read budget), whichever socket gets them.
    ``on_refused(remote_address, sentence)`` is called for every connection that became no pipe, instead of
    the log. It listens from `start` on, or inside ``async with``, which also closes it.
    """

    def __init__(
        self,
        url: str,
        *,
        options: SocketOptions | None = None,
        on_refused: OnRefused | None = None,
        headerless_max: int = HEADERLESS_MAX,
    ) -> None:
        super().__init__(
            url,
            options_or(options, SocketOptions()),
            wait=True,
            headerless_max=headerless_max,
            on_refused=on_refused,
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def serve(self, owner: EndpointOwner) -> None:
        """Give ``owner`` the peers of its protocol from now on. Sockets call this in
        ``socket.listen(listener)``.

        Raises:
            StateError: another socket here already serves these peers.
            TypeError: ``owner`` makes no pipes of connections, as the cooked sockets themselves do not.
        """
        if not callable(getattr(owner, "attach", None)):
            raise TypeError(f"{owner!r} cannot be served directly; write await socket.listen(listener)")
        self._serve(owner)

    def stop_serving(self, owner: EndpointOwner) -> None:
        """Refuse new peers of this socket; its pipes stay open."""
        if self._owners.get(owner.peer) is owner:
            del self._owners[owner.peer]
            del self._serves[owner.peer]
