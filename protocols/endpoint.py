"""Dialers and listeners: how pipes come to a socket, and come again.

An endpoint opens connections and hands each one, handshake done, to its `EndpointOwner` (a socket), which
makes a pipe of it or refuses it. Pipes belong to the socket: closing an endpoint ends dialling or
accepting, no pipe.

A `Dialer` is one task that repeats:

```
connect --ok--> attach --ok--> wait for the end --> pause --> connect
   |               |                                  ^
   +---- failed ---+---- refused ---------------------+
```

The pause doubles with every round that brought no pipe, or one that ended soon: before it had lived as long
as the pause before it and ten times the shortest pause. A Pair0 that has another partner ends its second
one like that, and so does a peer that receives a message above its limit. Some failures last until one of the
two ends is changed, such as a wrong protocol or an untrusted certificate. After these the pause is the
longest.

Failures are counted, and logged as warnings by `protocols.peer_warnings`: a dialer's first failure and each
one of another kind, a refused peer, a connection that is closed because the peer broke a rule. A listener
with ``on_refused`` reports its refusals there instead.

A `Listener` serves one socket and sends its header at once. A `SharedListener` waits for the dialler's
header and gives the connection to the socket that the dialler's protocol asks for, so one address serves
every pattern (every known SP implementation writes its header without waiting). Both hold at most
``headerless_max`` connections without a header; beyond them the *oldest* are dropped, since an honest
peer's header is there within milliseconds. A loop accepts a whole backlog before it reads any of it, so
only those are judged that the loop had a chance to read.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from protocols.errors import (
    AddressError,
    Closed,
    HandshakeError,
    NotSupported,
    PipeRefused,
    RemoteProtocolError,
    SPError,
    StateError,
    Timeout,
    TlsConfigError,
)
from protocols.options import SocketOptions
from protocols.peer_warnings import PeerWarnings, log, name_of
from protocols.pipe import CLOSED_BY_PEER, Connection, Pipe
from protocols.pipe_view import PipeView, view_of
from protocols.transports.base import Binding
from protocols.transports.descriptors import descriptor_limit
from protocols.transports.loops import loop_state
from protocols.transports.registry import check_dialable, check_url, find_transport
from protocols.wire.handshake import Greeting, protocol_name

if TYPE_CHECKING:
    from protocols.transports.certificates import Certificates

HEADERLESS_MAX: Final = 256
"""Connections a listener keeps that have not sent their header."""

ACCEPTING_TURNS: Final = 3
"""Loop turns after which a connection that the loop had accepted is known here: asyncio accepts in one,
makes the transport in the next and tells the protocol in the third."""

PASSING: Final = frozenset({"closed", "timeout", "websocket: refused", "tls: refused by peer", "tls: error"})
"""Reasons of a failed handshake that may be gone at the next attempt; all others last."""

LONGEST: Final = 40
"""As a number of failures: the pause after it is the longest."""

SOON_OVER: Final = 3
"""Pipes in a row that ended soon before the dialer says so."""


class EndpointOwner(Protocol):
    """A socket, as its endpoints see it."""

    @property
    def protocol(self) -> int:
        """Our protocol number."""

    @property
    def peer(self) -> int:
        """The number of the protocol we talk to."""

    @property
    def options(self) -> SocketOptions: ...

    @property
    def rng(self) -> random.Random: ...

    def attach(self, connection: Connection, *, url: str, dialed: bool) -> Pipe:
        """Make a pipe, call ``connection.start(pipe)``. Raises `PipeRefused`; the endpoint then closes."""


def backoff_s(attempt: int, minimum_s: float, maximum_s: float, rng: random.Random) -> float:
    """Seconds to wait after ``attempt`` failures in a row (0 = the first): doubling, upper half at random.

    A ``maximum_s`` below ``minimum_s`` means no growth. The jitter keeps the peers of a restarted broker from
    coming back in one instant.
    """
    ceiling = min(max(maximum_s, minimum_s), minimum_s * 2.0 ** min(attempt, LONGEST))
    return ceiling * (0.5 + 0.5 * rng.random())


# --- dialling


class Attempt:
    """The watcher of one connection that we dial to ``url``."""

    def __init__(self, url: str, warnings: PeerWarnings) -> None:
        self.url = url
        self._warnings = warnings
        self.connection: Connection | None = None
        self.ready: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[RemoteProtocolError | None] = asyncio.get_running_loop().create_future()

    def connection_opened(self, connection: Connection) -> None:
        self.connection = connection

    def connection_ready(self, connection: Connection) -> None:
        if not self.ready.done():
            self.ready.set_result(connection)

    def connection_moved(self, connection: Connection) -> None:
        raise AssertionError("a connection that was dialled is nobody else's")

    def connection_failed(self, connection: Connection, error: HandshakeError) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)

    def connection_ended(self, connection: Connection, error: RemoteProtocolError | None) -> None:
        if error is not None:
            warn_of_broken_rule(self._warnings, self.url, connection, error)
        if not self.ended.done():
            self.ended.set_result(error)

    def connection_gone(self, connection: Connection) -> None:
        """Nothing to do: `_leave` waits for the connection itself."""

    async def connect(
        self, owner: EndpointOwner, timeout: float | None, options: SocketOptions
    ) -> Connection:
        """Open and shake hands; cancelled or late, nothing is left open.

        ``timeout`` bounds all of it. Without one each step has ``handshake_timeout_s``: looking up the name,
        each address until one accepts, the handshake.

        Raises:
            Timeout: not done in time.
            AddressError, ConnectionRefused, HandshakeError: as they say.
        """
        transport, address = find_transport(self.url)
        limit_s = options.handshake_timeout_s
        greeting = Greeting.of(owner.protocol, owner.peer)
        try:
            async with asyncio.timeout(timeout):
                await transport.connect(address, greeting, options, self)
                async with asyncio.timeout(limit_s):  # a stream has this limit, too; others may not
                    return await self.ready
        except BaseException as error:
            await self._leave(error)
            if type(error) is TimeoutError:
                waited_s = limit_s if timeout is None else timeout
                raise Timeout(f"no connection to {self.url} within {waited_s:g} s") from error
            if isinstance(error, HandshakeError) and error.reason == "timeout":
                raise Timeout(f"no connection to {self.url}: {error}") from error
            raise

    async def _leave(self, error: BaseException) -> None:
        """Wait until nothing is left of the connection. A peer that broke a rule may still read why."""
        if not self.ready.cancel() and not self.ready.cancelled():
            self.ready.exception()  # retrieved, or the loop would log it
        if self.connection is None:
            return
        try:
            if isinstance(error, HandshakeError):
                await self.connection.wait_closed()  # it is dropped after ``linger_s`` at most
        finally:
            await dropped(self.connection)


async def dial_once(
    owner: EndpointOwner, url: str, timeout: float | None = None, options: SocketOptions | None = None
) -> Pipe:
    """One attempt, handshake included, no reconnecting. ``options`` are the owner's by default.

    Raises:
        ConnectionRefused, AddressError, HandshakeError, Timeout: no connection; see each.
        PipeRefused: the socket did not want the peer.
    """
    check_dialable(url)
    attempt = Attempt(url, loop_state().warnings)
    connection = await attempt.connect(owner, timeout, options or owner.options)
    return await attach_dialled(owner, connection, url)


async def attach_dialled(owner: EndpointOwner, connection: Connection, url: str) -> Pipe:
    """Hand the connection over; of what is refused nothing is left."""
    try:
        return owner.attach(connection, url=url, dialed=True)
    except BaseException:
        await dropped(connection)
        raise


async def turns(count: int) -> None:
    """Let the loop run what it has been given."""
    for _ in range(count):
        await asyncio.sleep(0)


async def dropped(connection: Connection) -> None:
    """Drop a connection and wait until it is gone, a few turns of the loop."""
    connection.abort()
    await connection.wait_closed()


@dataclass(frozen=True, slots=True)
class DialerStatistics:
    """Cumulative.

    ``failed`` counts attempts that brought no pipe, by reason; ``ended`` the pipes that are gone, by cause
    (`Pipe.close_cause`); ``bad_frames`` those of them that a peer lost by breaking a rule.
    """

    attempts: int
    connected: int
    failed: dict[str, int]
    ended: dict[str, int]
    bad_frames: int


class Dialer:
    """Keeps one pipe to ``url``, until it is closed. Raises `AddressError` for a URL that can never work.

    ``options`` are those of its connections, by default the owner's.
    """

    def __init__(self, owner: EndpointOwner, url: str, options: SocketOptions | None = None) -> None:
        self.url = check_dialable(url)
        self._pipe: Pipe | None = None
        self.last_error = ""
        """Why there is no pipe, as a sentence: the last attempt failed, or the last pipe ended. Empty while
        connected."""
        self._owner = owner
        self._options = options or owner.options
        self._attempts = 0
        self._connected = 0
        self._failed: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._bad_frames = 0
        self._warnings = PeerWarnings()
        self._complaint = ""
        """The sentence that was logged last; empty since a pipe lasted."""
        self._soon_over = 0
        self._task: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self.forget: Callable[[Dialer], None] | None = None
        """Called once it is closed, by whoever keeps a list of dialers."""

    @property
    def pipe(self) -> PipeView | None:
        """The peer, while there is one. A dialer that is closed shows none."""
        pipe = self._pipe
        return None if pipe is None or pipe.closed else view_of(pipe)

    def start(self) -> None:
        """Begin to dial, in a task that `aclose` ends."""
        assert self._task is None, "a dialer is started once"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"dial {self.url}")
        self._task.add_done_callback(self._stopped)

    async def wait_connected(self) -> PipeView:
        """Return the peer, once there is one. Raises `Closed` when nothing dials, or no longer does."""
        while (pipe := self.pipe) is None:
            if self._task is None or self._task.done():
                raise Closed(f"nothing dials {self.url}{f': {self.last_error}' if self.last_error else ''}")
            self._up.clear()  # it may be set for a pipe that has ended since
            await self._up.wait()
        return pipe

    def statistics(self) -> DialerStatistics:
        return DialerStatistics(
            self._attempts, self._connected, dict(self._failed), dict(self._ended), self._bad_frames
        )

    async def aclose(self) -> None:
        """Stop dialling. The pipe, if there is one, lives on until its socket closes it."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._pipe = None
        self._up.set()
        if self.forget is not None:
            self.forget(self)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        options = self._options
        failures = 0
        pause_s = 0.0
        while True:
            lived_s = -1.0
            attempt = Attempt(self.url, self._warnings)
            error = await self._connect(attempt)
            if error is None:
                since = loop.time()
                self._count_end(await attempt.ended)
                lived_s = loop.time() - since
            if lived_s >= max(pause_s, 10 * options.reconnect_min_s):
                failures = self._soon_over = 0
                self._complaint = ""
            lasting = error is not None and is_lasting(error)
            pause_s = backoff_s(
                LONGEST if lasting else failures,
                options.reconnect_min_s,
                options.reconnect_max_s,
                self._owner.rng,
            )
            failures += 1
            if error is not None:
                self._warn_of_failure(str(error), lasting)
            else:
                self._soon_over += 1
                self._warn_of_soon_over(lived_s)
            await asyncio.sleep(pause_s)

    async def _connect(self, attempt: Attempt) -> SPError | None:
        """One round; why it brought no pipe, or None."""
        self._attempts += 1
        try:
            connection = await attempt.connect(self._owner, None, self._options)
            self._pipe = await attach_dialled(self._owner, connection, self.url)
        except (AddressError, HandshakeError, Timeout, PipeRefused) as error:
            reason = "timeout" if isinstance(error, Timeout) else error.reason
            self._failed[reason] = self._failed.get(reason, 0) + 1
            self.last_error = str(error)
            return error
        if self.last_error:
            log.info("connected to %s after %d attempts", self.url, self._attempts)
        self.last_error = ""
        self._connected += 1
        self._up.set()
        return None

    def _count_end(self, error: RemoteProtocolError | None) -> None:
        pipe, self._pipe = self._pipe, None
        self._up.clear()
        if error is not None:
            self._bad_frames += 1
        cause, reason = CLOSED_BY_PEER, CLOSED_BY_PEER
        if pipe is not None and pipe.close_cause:  # it may have ended before its owner has been told
            cause, reason = pipe.close_cause, pipe.close_reason
        elif error is not None:
            cause, reason = error.reason, str(error)
        self._ended[cause] = self._ended.get(cause, 0) + 1
        self.last_error = reason

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """The task has ended: by `aclose`, or by a defect in the owner or a transport. A defect is reported
        to the loop's exception handler, and ends `wait_connected`."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.last_error = f"dialling ended by a defect: {error!r}"
            task.get_loop().call_exception_handler(
                {"message": f"the dialer of {self.url} ended by an error", "exception": error, "task": task}
            )
        self._up.set()

    # --- what is worth a warning

    def _warn_of_failure(self, sentence: str, lasting: bool) -> None:
        if sentence == self._complaint:
            return
        self._complaint = sentence
        longest_s = max(self._options.reconnect_min_s, self._options.reconnect_max_s)
        self._warn(
            "dialling %s failed: %s; %s",
            self.url,
            sentence,
            f"one of the two ends must be changed, the next attempts are {longest_s:g} s apart"
            if lasting
            else f"it is tried again, at least every {longest_s:g} s",
        )

    def _warn_of_soon_over(self, lived_s: float) -> None:
        """One pipe that ends soon is everyday; several in a row will go on like that."""
        if self._soon_over < SOON_OVER or self._complaint == self.last_error:
            return
        self._complaint = self.last_error
        self._warn(
            "the connection to %s ended soon after it was made, %d times in a row, now after %.3g s: %s; "
            "the pause before the next one grows to %g s (does the peer have another partner, or is a "
            "message sent again and again that is above its limit, such as recv_size_max?)",
            self.url,
            self._soon_over,
            lived_s,
            self.last_error,
            max(self._options.reconnect_min_s, self._options.reconnect_max_s),
        )

    def _warn(self, message: str, *arguments: object) -> None:
        self._warnings.warn(asyncio.get_running_loop().time(), None, message, *arguments)


def is_lasting(error: SPError) -> bool:
    """True if dialling fails for this reason until one of the two ends is changed."""
    if isinstance(error, HandshakeError):
        return error.reason not in PASSING
    return isinstance(error, TlsConfigError)


def warn_of_broken_rule(
    warnings: PeerWarnings, url: str, connection: Connection, error: RemoteProtocolError
) -> None:
    """The peer of a connection at ``url`` lost it by breaking a rule of the wire."""
    now = asyncio.get_running_loop().time()
    peer = name_of(connection)
    key = (peer.rpartition(":")[0], error.reason)
    warnings.warn(now, key, "the connection of %s at %s was closed: %s", peer, url, error)


# --- listening


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """Cumulative, but ``headerless``, which is now.

    ``accepted`` counts streams, ``connected`` those that became pipes, ``refused`` the others by reason
    (``handshake_timeouts`` being one of them), ``broken`` pipes that a peer lost by breaking a rule, by
    reason: ``too large``, ``bad frame``, those of TLS and WebSocket.
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
    """What both listeners are: the watcher of accepted connections; the protocol number chooses the owner."""

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
        """As bound once started (port 0 is resolved), as given before."""
        self.closed = False
        self._options = options
        self._serves: dict[int, int] = {}
        self._owners: dict[int, EndpointOwner] = {}
        self._greeting = Greeting(self._serves, wait)
        self._headerless_max = headerless_max
        self._headerless: dict[Connection, int] = {}
        self._unattached: dict[Connection, None] = {}
        """Open connections that are no pipes: the headerless, and refused ones that are not gone yet."""
        self._crowding = False
        self.on_refused = on_refused
        """Told of every connection that became no pipe, instead of the log: its address and a sentence."""
        self._binding: Binding | None = None
        self._accepted = 0
        self._opened = 0
        self._connected = 0
        self._refused: dict[str, int] = {}
        self._broken: dict[str, int] = {}
        self._warnings = PeerWarnings()
        self.forget: Callable[[Acceptor], None] | None = None
        """Called once it is closed, by whoever keeps a list of listeners."""
        self.last_refused = ""
        """Who was turned away last, and why, as a sentence."""

    async def start(self) -> None:
        """Bind and accept. Raises `AddressInUse`, `AddressError`."""
        if self.closed:
            raise Closed(f"the listener of {self.url} is closed")
        if self._binding is not None:
            return
        transport, address = find_transport(self.url)
        binding = await transport.listen(address, self._greeting, self._options, self)
        if self.closed:  # meanwhile
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

    async def aclose(self) -> None:
        """Accept no more and drop what has no header. Pipes live on until their socket closes them."""
        self.closed = True
        if self._binding is not None:
            self._binding.close()
            self._binding = None
            await turns(ACCEPTING_TURNS)
        self._headerless.clear()
        for connection in list(self._unattached):
            await dropped(connection)
        if self.forget is not None:
            self.forget(self)

    @property
    def certificates(self) -> Certificates | None:
        """What a TLS listener shows its peers; None without TLS, and before it is started."""
        return getattr(self._binding, "certificates", None)

    def reload_certificates(self) -> None:
        """Read the certificate files now, for connections from now on; it also happens by itself, once they
        have changed.

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
            self._refuse(connection, "no descriptors", "hardly a file descriptor is left; raise ulimit -n")
            connection.abort()
            return
        self._opened += 1
        self._headerless[connection] = self._opened
        if len(self._headerless) > self._headerless_max and not self._crowding:
            self._crowding = True
            loop = asyncio.get_running_loop()
            # Two turns on, what these have sent by now is read: they are watched since this turn.
            loop.call_soon(loop.call_soon, self._crowd_out, self._opened)

    def _crowd_out(self, judged: int) -> None:
        """Drop the oldest beyond the bound, among the first ``judged`` that were opened."""
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
            warn_of_broken_rule(self._warnings, self.url, connection, error)

    def connection_gone(self, connection: Connection) -> None:
        self._unattached.pop(connection, None)

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
        peer = name_of(connection)
        self.last_refused = f"{peer}: {message}"
        if self.on_refused is not None:
            self.on_refused(connection.remote_address, message)
        elif reason != "closed":  # it went by itself, as a check of the port does
            now = asyncio.get_running_loop().time()
            key = (peer.rpartition(":")[0], reason)
            self._warnings.warn(now, key, "%s refused %s: %s", self.url, peer, message)


class Listener(Acceptor):
    """Accepts connections at ``url`` for one socket. Its header goes out at once, as NNG does."""

    def __init__(self, owner: EndpointOwner, url: str, options: SocketOptions | None = None) -> None:
        super().__init__(url, options or owner.options, wait=False)
        self._serve(owner)


class SharedListener(Acceptor):
    """One address for several sockets of different protocols; see the module.

    ``options`` are those of the connections (limits, deadlines, read budget), whichever socket gets them.
    ``on_refused(remote_address, sentence)`` is told of every connection that became no pipe, instead of the
    log. It listens from `start`, or inside ``async with``, which also closes it.
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
            options or SocketOptions(),
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
        """Give ``owner`` the peers it talks to, from now on. Raises `StateError` if they have a socket."""
        self._serve(owner)

    def stop_serving(self, owner: EndpointOwner) -> None:
        """Refuse new peers of this socket; its pipes live on."""
        if self._owners.get(owner.peer) is owner:
            del self._owners[owner.peer]
            del self._serves[owner.peer]
