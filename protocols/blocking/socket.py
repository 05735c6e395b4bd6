"""The calls of blocking sockets and their contexts: sending, receiving, opening, closing, and listing
peers.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack

from protocols.blocking.core import Core
from protocols.blocking.dialling import Dialer
from protocols.blocking.listening import Listener
from protocols.channel import REPLACED, Body, as_bytes
from protocols.errors import (
    Closed,
    NoPeers,
    NotSupported,
    PartlySent,
    SPError,
    StateError,
    Timeout,
    WouldBlock,
)
from protocols.message import Message
from protocols.options import (
    DEFAULT,
    OptionKeywords,
    SocketOptions,
    TimeLimit,
    check_integer,
    seconds,
)
from protocols.patterns.base import Pattern, QueueLane, StateLane
from protocols.pipe_view import PipeView, view_of
from protocols.socket import Addresses, options_of, rng_of
from protocols.statistics import SocketStatistics
from protocols.transports.base import url_list


class Channel:
    """A lane and the lock under which it is used: the common part of sockets and contexts."""

    _ends: ClassVar[tuple[type[SPError], ...]] = (Closed,)
    """The exceptions that end an iteration."""
    _shut = False

    def _open(self, core: Core, lane: Any) -> None:
        self._core = core
        self._lane: Any = lane
        self._receiving = False
        core.open_lane(lane)

    @property
    def closed(self) -> bool:
        return self._shut or self._core.closed

    # --- calls

    def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        """Hand one message to the pattern, which decides whether the call may wait, and for what.

        Raises:
            Timeout, Closed: see each.
            StateError: it is not this side's turn.
            NoPeers: with ``fail_without_peers``.
            NotSupported: the pattern only receives.
        """
        frame = as_bytes(body)
        limit_s = seconds(timeout, self._core.options.send_timeout_s)
        with self._core.lock.held:
            if self._put(frame, None):
                return
            epoch = getattr(self._lane, "epoch", None)
            taken = self._core.wait(lambda: self._put(frame, epoch) or None, limit_s)
            if taken is None:
                raise Timeout(f"no peer took the message within {limit_s:g} s")

    def recv(self, timeout: TimeLimit = DEFAULT) -> bytes:
        """Return the next message. A call that times out takes none.

        Raises:
            Timeout, Closed: see each.
            StateError: no message can come now.
            NotSupported: the pattern only sends.
        """
        with self._core.lock.held:
            return self._take(timeout)

    def recv_message(self, timeout: TimeLimit = DEFAULT) -> Message[PipeView]:
        """Like `recv`, with the peer that sent the message."""
        with self._core.lock.held:
            body = self._take(timeout)
            return Message(view_of(self._lane.origin()), b"", body)

    def send_nowait(self, body: Body) -> None:
        """Like `send`, but raises `WouldBlock` instead of waiting."""
        with self._core.lock.held:
            if not self._put(as_bytes(body), None):
                raise WouldBlock("no peer has room for the message")

    def recv_nowait(self) -> bytes:
        """Like `recv`, but raises `WouldBlock` instead of waiting."""
        with self._core.lock.held:
            body = self._get(False)
            if body is None:
                raise WouldBlock("nothing has been received")
            return body

    def send_many(self, bodies: Sequence[Body], timeout: TimeLimit = DEFAULT) -> None:
        """Send in order, waiting for room as often as needed.

        A call that times out may have sent some leading messages. `PartlySent` (a `Timeout`) has their number
        in ``sent``, as do `Closed` and `NoPeers`.
        """
        ready = [as_bytes(body) for body in bodies]
        core = self._core
        limit_s = seconds(timeout, core.options.send_timeout_s)
        sent = 0

        def put() -> bool | None:
            nonlocal sent
            while sent < len(ready):
                piece = ready[sent : sent + core.options.send_queue]
                taken = self._queue().put_many(piece)
                sent += taken
                core.settle()
                if taken < len(piece):
                    return None
            return True

        with core.lock.held:
            try:
                if put() is None and core.wait(put, limit_s) is None:
                    raise PartlySent(sent, len(ready))
            except (Closed, NoPeers) as error:
                error.sent = sent
                raise
            except BaseException as error:
                core.ended_by(error)
                raise

    def recv_many(self, timeout: TimeLimit = DEFAULT) -> list[bytes]:
        """Return all messages that have arrived, at least one."""
        with self._core.lock.held:
            self._queue()
            bodies = [self._take(timeout)]
            inbox = self._queue().inbox
            if inbox:
                try:
                    bodies += inbox
                    inbox.clear()
                    self._queue().emptied()
                except BaseException as error:
                    self._core.ended_by(error)
                    raise
            return bodies

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return self.recv()
        except self._ends:
            raise StopIteration from None

    # --- with the lock

    def _put(self, frame: bytes, epoch: int | None) -> bool:
        self._check_open()
        lane = self._lane
        try:
            try:
                if isinstance(lane, QueueLane):
                    return lane.put(frame)
                taken: bool = lane.send(frame, self._core.now(), epoch)
                if taken or epoch is None:
                    self._core.lock.notify_all()  # a request or survey may have been replaced
                self._core.arm()
                return taken
            finally:
                self._core.settle()
        except BaseException as error:
            self._core.ended_by(error)
            raise

    def _get(self, waited: bool) -> bytes | None:
        self._check_open()
        lane = self._lane
        try:
            if isinstance(lane, QueueLane):
                return lane.take()
            body: bytes | None = lane.recv(self._core.now(), waited)
            return body
        except BaseException as error:
            self._core.ended_by(error)
            raise

    def _take(self, timeout: TimeLimit) -> bytes:
        core, lane = self._core, self._lane
        limit_s = seconds(timeout, core.options.recv_timeout_s)
        exclusive = isinstance(lane, StateLane) and lane.exclusive
        if exclusive and self._receiving:
            raise StateError("another recv waits here already; concurrent calls take a context each")
        body = self._get(False)
        if body is not None:
            return body
        epoch = getattr(lane, "epoch", None)

        def look() -> bytes | None:
            self._check_open()
            if epoch is not None and lane.epoch != epoch:
                raise StateError(REPLACED)
            return self._get(True)

        self._receiving = True
        try:
            body = core.wait(look, limit_s)
        finally:
            self._receiving = False
        if body is None:
            raise Timeout(f"nothing received within {limit_s:g} s")
        return body

    def _queue(self) -> QueueLane:
        self._check_open()
        if not isinstance(self._lane, QueueLane):
            raise NotSupported("this pattern speaks in turns: send and recv take one message at a time")
        return self._lane

    def _check_open(self) -> None:
        self._core.check_open()
        if self._shut:
            raise Closed("the context is closed")


class Socket(Channel):
    """The common part of all patterns.

    Args:
        dial: URLs to keep a connection to.
        listen: URLs to accept connections at.
        options: see `SocketOptions`; single ones may be given by keyword, as in ``send_queue=16``.
        rng: the source of ids and jitter; by default each socket has its own, seeded by the system.
    """

    _pattern_type: ClassVar[type[Pattern]]

    def __init__(
        self,
        *,
        dial: Addresses = (),
        listen: Addresses = (),
        options: SocketOptions | None = None,
        rng: random.Random | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        rng = rng_of(rng)
        pattern = self._pattern_type(options_of(options, keywords), rng)
        self._open(Core(type(self).__name__, pattern, rng), pattern.lane)
        self._prepare()
        try:
            for url in url_list(listen):
                self.listen(url)
            for url in url_list(dial):
                self.dial(url)
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        """Prepare the pattern before its first peer."""

    def __repr__(self) -> str:
        return repr(self._core)

    def __del__(self) -> None:
        core: Core | None = getattr(self, "_core", None)
        if core is not None and core.forgotten:
            core.abandon()
            warnings.warn(
                f"unclosed {self!r}; use with, or close()", ResourceWarning, stacklevel=2, source=self
            )

    # --- life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close, after giving the peers up to ``linger_s`` to read what is queued for them.

        Calls that wait in other threads raise `Closed`. A second call waits for the first. An interrupted
        close still closes everything, but does not wait for what is queued. A signal handler may call it.
        """
        self._core.close()

    # --- endpoints

    @property
    def dialers(self) -> list[Dialer]:
        """The dialers, oldest first."""
        return list(self._core.dialers)

    @property
    def listeners(self) -> list[Listener]:
        """The listeners, oldest first."""
        return list(self._core.listeners)

    def dial(self, url: str) -> Dialer:
        """Keep a connection to ``url``. Returns at once; `Dialer.wait_connected` waits for a peer.

        Raises `AddressError` for a URL that can never work.
        """
        core = self._core
        with core.lock.held:
            return core.dial(url)

    def listen(self, url: str) -> Listener:
        """Accept peers at ``url``. The listener's ``url`` attribute has port 0 resolved.

        Raises:
            AddressInUse, AddressError: cannot listen there.
        """
        core = self._core
        with core.lock.held:
            return core.listen(url)

    def new_context(self) -> Any:
        """Open a separate reader or conversation on this socket. Raises `NotSupported` for patterns without
        contexts.
        """
        raise NotSupported(f"{self._core.pattern.name} sockets have no contexts")

    # --- who is there

    @property
    def options(self) -> SocketOptions:
        return self._core.options

    @property
    def protocol(self) -> int:
        """Our protocol number."""
        return int(self._core.pattern.protocol)

    @property
    def peer(self) -> int:
        """The protocol number of our peers."""
        return int(self._core.pattern.peer)

    @property
    def pipes(self) -> list[PipeView]:
        """The attached peers, oldest first."""
        with self._core.lock.held:
            return [view_of(pipe) for pipe in self._core.roster.pipes.values()]

    def wait_for_peers(self, count: int = 1, timeout: TimeLimit = DEFAULT) -> None:
        """Return once ``count`` peers are attached, by default without a time limit. Raises `Timeout`."""
        check_integer("count", count, 0)
        limit_s = seconds(timeout, None)
        core = self._core
        pipes = core.roster.pipes

        def look() -> bool | None:
            core.check_open()
            return True if len(pipes) >= count else None

        with core.lock.held:
            if core.wait(look, limit_s) is None:
                raise Timeout(f"{len(pipes)} of {count} peers within {limit_s:g} s")

    def statistics(self) -> SocketStatistics:
        with self._core.lock.held:
            return self._core.roster.statistics()


class Context(Channel):
    """A separate conversation, or separate topics, on a shared socket. Each context is for one thread."""

    def __init__(self, socket: Socket, lane: Any) -> None:
        self._socket = socket  # keeps the socket alive while a context of it is in use
        self._open(socket._core, lane)

    def __del__(self) -> None:
        core: Core | None = getattr(self, "_core", None)
        if core is None or self.closed or core.lock.foreign:
            return
        core.drop_lane(self._lane)
        if core.forgotten:
            sentence = f"unclosed context of {core!r}; use with, or close()"
            warnings.warn(sentence, ResourceWarning, stacklevel=2, source=self)

    def close(self) -> None:
        """Give up what is under way; calls that wait here raise `Closed`. A signal handler may call it."""
        core = self._core
        if not core.lock.foreign and core.lock.owned:  # a signal handler in the middle of a call
            self._shut = True
            core.drop_lane(self._lane)
            return
        self._close()

    def _close(self) -> None:
        core = self._core
        if core.lock.foreign:
            self._shut = True
            return
        with core.lock.held:
            if self.closed:
                return
            self._shut = True
            try:
                core.close_lane(self._lane)
            except BaseException:
                core.drop_lane(self._lane)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
