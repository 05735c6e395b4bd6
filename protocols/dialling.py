"""Dialling: how a socket connects to its peers, and reconnects.

A `Dialer` is one task that repeats:

```
connect --ok--> attach --ok--> wait for the end --> pause --> connect
   |               |                                  ^
   +---- failed ---+---- refused ---------------------+
```

`protocols.dial_schedule` decides the length of the pause and the warnings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from protocols.dial_schedule import DialSchedule
from protocols.endpoint import EndpointOwner, dropped
from protocols.errors import (
    AddressError,
    Closed,
    HandshakeError,
    PipeRefused,
    RemoteProtocolError,
    SPError,
    Timeout,
)
from protocols.options import DEFAULT, SocketOptions, TimeLimit, options_or, seconds
from protocols.peer_warnings import PeerWarnings, log
from protocols.pipe import CLOSED_BY_PEER, Connection, Pipe
from protocols.pipe_view import PipeView, view_of
from protocols.transports.loops import loop_state
from protocols.transports.registry import check_dialable, find_transport
from protocols.wire.handshake import Greeting


class Attempt:
    """Watches one connection that we dial to ``url``."""

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
            now = asyncio.get_running_loop().time()
            self._warnings.broke_a_rule(now, self.url, connection, error)
        if not self.ended.done():
            self.ended.set_result(error)

    def connection_gone(self, connection: Connection) -> None:
        """Do nothing: `_leave` waits for the connection itself."""

    async def connect(
        self, owner: EndpointOwner, timeout: float | None, options: SocketOptions
    ) -> Connection:
        """Connect and complete the handshake. A call that is cancelled or times out leaves nothing open.

        ``timeout`` bounds all of it. Without one, each step has ``handshake_timeout_s``: looking up the name,
        each address until one accepts, the handshake.

        Raises:
            Timeout: the time ran out.
            AddressError, ConnectionRefused, HandshakeError: see each.
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
        """Wait until the connection is gone. A peer that broke a rule may still read the reason."""
        if not self.ready.cancel() and not self.ready.cancelled():
            self.ready.exception()  # retrieve it, or the loop would log it
        if self.connection is None:
            return
        try:
            if isinstance(error, HandshakeError):
                await self.connection.wait_closed()  # it is dropped after at most ``linger_s``
        finally:
            await dropped(self.connection)


async def dial_once(
    owner: EndpointOwner, url: str, timeout: float | None = None, options: SocketOptions | None = None
) -> Pipe:
    """Make one attempt, including the handshake, without reconnecting. ``options`` are the owner's by
    default.

    Raises:
        ConnectionRefused, AddressError, HandshakeError, Timeout: no connection; see each.
        PipeRefused: the socket refused the peer.
    """
    check_dialable(url)
    attempt = Attempt(url, loop_state().warnings)
    connection = await attempt.connect(owner, timeout, options_or(options, owner.options))
    return await attach_dialled(owner, connection, url)


async def attach_dialled(owner: EndpointOwner, connection: Connection, url: str) -> Pipe:
    """Hand the connection over. A refused one is closed completely."""
    try:
        return owner.attach(connection, url=url, dialed=True)
    except BaseException:
        await dropped(connection)
        raise


@dataclass(frozen=True, slots=True)
class DialerStatistics:
    """Cumulative counters.

    ``failed`` counts attempts that gave no pipe, by reason. ``ended`` counts the pipes that have ended, by
    cause (`Pipe.close_cause`). ``bad_frames`` counts those pipes that ended because the peer broke a rule.
    """

    attempts: int
    connected: int
    failed: dict[str, int]
    ended: dict[str, int]
    bad_frames: int


class Dialer:
    """Keeps one pipe to ``url`` until it is closed. Raises `AddressError` for a URL that can never work.

    ``options`` are those of its connections, by default the owner's.
    """

    def __init__(self, owner: EndpointOwner, url: str, options: SocketOptions | None = None) -> None:
        self.url = check_dialable(url)
        self._pipe: Pipe | None = None
        self.last_error = ""
        """Why there is no pipe, as a sentence: the last attempt failed, or the last pipe ended. Empty while
        connected.
        """
        self._owner = owner
        self._options = options_or(options, owner.options)
        self._attempts = 0
        self._connected = 0
        self._failed: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._bad_frames = 0
        self._warnings = PeerWarnings()
        self._schedule = DialSchedule(
            self.url, self._options.reconnect_min_s, self._options.reconnect_max_s, owner.rng
        )
        self._task: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self.forget: Callable[[Dialer], None] | None = None
        """Called once the dialer is closed, by the keeper of a list of dialers."""

    @property
    def pipe(self) -> PipeView | None:
        """The pipe to the peer, or None. A closed dialer shows none."""
        pipe = self._pipe
        return None if pipe is None or pipe.closed else view_of(pipe)

    def start(self) -> None:
        """Begin to dial, in a task that `aclose` ends."""
        assert self._task is None, "a dialer is started once"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"dial {self.url}")
        self._task.add_done_callback(self._stopped)

    async def wait_connected(self, timeout: TimeLimit = DEFAULT) -> PipeView:
        """Return the peer as soon as there is one, by default without a time limit.

        Raises:
            Timeout: the time ran out; the error has the reason of the last failure.
            Closed: the dialer has not started or has ended.
        """
        limit_s = seconds(timeout, None)
        if limit_s is None:
            return await self._connected_at_last()
        try:
            async with asyncio.timeout(limit_s):
                return await self._connected_at_last()
        except TimeoutError as error:
            why = f": {self.last_error}" if self.last_error else ""
            raise Timeout(f"no connection to {self.url} within {limit_s:g} s{why}") from error

    def __await__(self) -> NoReturn:
        raise TypeError("dial() returns at once; to wait for the peer: await dialer.wait_connected()")

    async def _connected_at_last(self) -> PipeView:
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
        """Stop dialling. An existing pipe stays open until its socket closes it."""
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
        while True:
            attempt = Attempt(self.url, self._warnings)
            error = await self._connect(attempt)
            if error is None:
                since = loop.time()
                self._count_end(await attempt.ended)
                pause_s, sentence = self._schedule.ended(loop.time() - since, self.last_error)
            else:
                pause_s, sentence = self._schedule.failed(error)
            if sentence:
                self._warnings.warn(loop.time(), None, "%s", sentence)
            await asyncio.sleep(pause_s)

    async def _connect(self, attempt: Attempt) -> SPError | None:
        """Do one round; return why it gave no pipe, or None."""
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
        if pipe is not None and pipe.close_cause:  # it may have ended before its owner was told
            cause, reason = pipe.close_cause, pipe.close_reason
        elif error is not None:
            cause, reason = error.reason, str(error)
        self._ended[cause] = self._ended.get(cause, 0) + 1
        self.last_error = reason

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """The task has ended: by `aclose`, or by a defect in the owner or a transport.

        A defect is reported to the loop's exception handler, and ends `wait_connected`.
        """
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.last_error = f"dialling ended by a defect: {error!r}"
            task.get_loop().call_exception_handler(
                {"message": f"the dialer of {self.url} ended by an error", "exception": error, "task": task}
            )
        self._up.set()
