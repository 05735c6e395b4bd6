"""The calls that all sockets have: opening and closing, dialling and listening, and listing peers.

A socket's channel sends and receives (`protocols.channel`), its pattern is in ``protocols/patterns``, and its
`Core` joins these to connections.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self, Unpack, overload

from protocols.channel import Body
from protocols.core import CLOSED, Admit, Core
from protocols.dialling import Dialer, dial_once
from protocols.errors import NotSupported, SPError, StateError
from protocols.events import EVENTS_MAX, PipeEvents
from protocols.listening import Listener, SharedListener
from protocols.message import Message
from protocols.options import (
    DEFAULT,
    OptionKeywords,
    SocketOptions,
    TimeLimit,
    check_integer,
    options_or,
    seconds,
)
from protocols.patterns.base import Pattern
from protocols.pipe import Pipe
from protocols.pipe_view import PipeView, view_of
from protocols.statistics import SocketStatistics
from protocols.transports.base import check_string, url_list

Addresses = str | Sequence[str]


class Socket:
    """The common part of all patterns.

    Args:
        dial: URLs to keep a connection to; dialled on entering ``async with``.
        listen: URLs to accept connections at; opened on entering ``async with``.
        admit: called with each new peer's `PipeView` (its address and identity known) before anything else
            sees it. It refuses the peer by raising `PipeRefused` or closing the pipe. Any other error also
            refuses the peer and goes to the loop's exception handler. It may not wait.
        options: see `SocketOptions`; single ones may be given by keyword, as in ``send_queue=16``.
        rng: the source of ids and jitter; by default each socket has its own, seeded by the system.
    """

    _pattern_type: ClassVar[type[Pattern]]

    def __init__(
        self,
        *,
        dial: Addresses = (),
        listen: Addresses = (),
        admit: Admit | None = None,
        options: SocketOptions | None = None,
        rng: random.Random | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        rng = rng_of(rng)
        pattern = self._pattern_type(options_of(options, keywords), rng)
        self._begin(Core(type(self).__name__, pattern, rng, admit=admit), dial, listen)

    def _begin(self, core: Core, dial: Addresses, listen: Addresses) -> None:
        self._core = core
        self._to_dial = url_list(dial)
        self._to_listen = url_list(listen)
        self._open_on(core)
        if self._to_dial or self._to_listen:
            sentence = f"the URLs of this {core.name} are not open yet; enter it: async with socket"
            self._refuse(StateError, sentence)
            self._entered = False

    _entered = True

    # --- methods that a pattern's channel provides

    closed: bool

    def _open_on(self, core: Core) -> None:
        raise NotImplementedError

    def _use(self, lane: Any) -> None:
        raise NotImplementedError

    def _refuse(self, kind: type[SPError], sentence: str) -> None:
        raise NotImplementedError

    def _shut(self, sentence: str) -> None:
        raise NotImplementedError

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        raise NotImplementedError

    async def recv(self, timeout: TimeLimit = DEFAULT) -> bytes:
        raise NotImplementedError

    async def recv_message(self, timeout: TimeLimit = DEFAULT) -> Message[Any]:
        raise NotImplementedError

    def send_nowait(self, body: Body) -> None:
        raise NotImplementedError

    def recv_nowait(self) -> bytes:
        raise NotImplementedError

    async def send_many(self, bodies: Sequence[Body], timeout: TimeLimit = DEFAULT) -> None:
        raise NotImplementedError

    async def recv_many(self, timeout: TimeLimit = DEFAULT) -> list[bytes]:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        raise NotImplementedError

    def new_context(self) -> Any:
        """Open a separate reader or conversation on this socket. Raises `NotSupported` for patterns without
        contexts.
        """
        raise NotSupported(f"{self._core.pattern.name} sockets have no contexts")

    # --- the same for all patterns

    @property
    def options(self) -> SocketOptions:
        return self._core.options

    @property
    def protocol(self) -> int:
        """Our protocol number."""
        return self._core.protocol

    @property
    def peer(self) -> int:
        """The protocol number of our peers."""
        return self._core.peer

    def __repr__(self) -> str:
        return repr(self._core)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and core.forgotten:
            sentence = f"unclosed {self!r}; use async with, or await aclose()"
            warnings.warn(sentence, ResourceWarning, stacklevel=2, source=self)

    # --- life

    def __enter__(self) -> NoReturn:
        raise TypeError("enter it by async with; programs without an event loop use protocols.blocking")

    def __exit__(self, *error: object) -> None:
        """Never called; ``with`` looks for it before it calls `__enter__`, which explains the mistake."""

    async def __aenter__(self) -> Self:
        if not self._entered and not self.closed:
            self._entered = True
            self._use(self._core.pattern.lane)
        try:
            for url in self._to_listen:
                await self.listen(url)
            for url in self._to_dial:
                self.dial(url)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close, after giving the peers up to ``linger_s`` to read what is queued for them.

        A peer that has read everything closes its side; every implementation does so at our end of stream. A
        cancelled close still closes everything, but does not wait for what is queued. A second call waits for
        the first.
        """
        self._core.enter_loop()
        if not self.closed:
            self._core.closed = True
            self._shut(CLOSED)
        await self._core.close()

    def _check_entered(self) -> None:
        """Raise `Closed`, or `StateError` for a socket whose URLs are not open yet."""
        self._core.check_open()
        if not self._entered:
            self.recv_nowait()

    # --- endpoints

    @property
    def dialers(self) -> list[Dialer]:
        """The dialers that were not closed explicitly, oldest first."""
        return list(self._core.dialers)

    @property
    def listeners(self) -> list[Listener]:
        """The listeners that were not closed explicitly, oldest first."""
        return list(self._core.listeners)

    def dial(self, url: str, *, options: SocketOptions | None = None) -> Dialer:
        """Keep a connection to ``url``. Returns at once; `Dialer.wait_connected` waits for a peer.

        ``options`` are those of the connections (see `SocketOptions`), by default the socket's. Raises
        `AddressError` for a URL that can never work.
        """
        return self._core.dial(url, options)

    async def dial_once(
        self, url: str, timeout: TimeLimit = DEFAULT, *, options: SocketOptions | None = None
    ) -> PipeView:
        """Make one attempt, including the handshake, and do not reconnect when the peer leaves.

        ``timeout`` bounds all of it. In any case each step has ``handshake_timeout_s``: looking up the name,
        each address until one accepts, the handshake.

        Raises:
            ConnectionRefused, AddressError, HandshakeError, Timeout: no connection; see each.
            PipeRefused: this socket refused the peer.
        """
        return view_of(await self._dial_once(url, timeout, options))

    async def _dial_once(self, url: str, timeout: TimeLimit, options: SocketOptions | None) -> Pipe:
        self._core.check_open()
        self._core.enter_loop()
        return await dial_once(self._core, url, seconds(timeout, None), options)

    @overload
    async def listen(self, where: SharedListener) -> SharedListener: ...

    @overload
    async def listen(self, where: str, *, options: SocketOptions | None = None) -> Listener: ...

    async def listen(
        self, where: str | SharedListener, *, options: SocketOptions | None = None
    ) -> Listener | SharedListener:
        """Accept peers at a URL, or through a `SharedListener`, which serves this socket from now on.

        The returned listener's ``url`` attribute has port 0 resolved. ``options`` are those of the
        connections, by default the socket's; a shared listener has its own.

        Raises:
            AddressInUse, AddressError: cannot listen there.
            StateError: the shared listener already has a socket for our peers.
        """
        if not isinstance(where, SharedListener):
            return await self._core.listen(check_string(where), options)
        if options is not None:
            raise TypeError("a SharedListener has options of its own: SharedListener(url, options=...)")
        self._core.listen_through(where)
        return where

    # --- peers

    @property
    def pipes(self) -> Sequence[PipeView | Pipe]:
        """The attached peers, oldest first."""
        return [view_of(pipe) for pipe in self._core.pipes.values()]

    async def wait_for_peers(self, count: int = 1, timeout: TimeLimit = DEFAULT) -> None:
        """Return once ``count`` peers are attached; no limit by default. Raises `Timeout`."""
        self._check_entered()
        check_integer("count", count, 0)
        await self._core.wait_for_peers(count, seconds(timeout, None))

    def events(self, *, limit: int = EVENTS_MAX) -> PipeEvents:
        """Iterate over the arrivals and departures of peers from now on; ends when the socket has closed.

        ``limit`` events wait for a slow reader; then the oldest are dropped and counted in ``missed``.
        """
        self._core.check_open()
        return self._core.news.open(limit)

    def statistics(self) -> SocketStatistics:
        return self._core.statistics()


def options_of(options: SocketOptions | None, keywords: OptionKeywords) -> SocketOptions:
    """Return ``options`` changed by the keywords. Raises `TypeError` for an unknown option."""
    return replace(options_or(options, SocketOptions()), **keywords)


def rng_of(rng: random.Random | None) -> random.Random:
    """Return the given source of numbers, or else a new one. Raises `TypeError`."""
    if not isinstance(rng, random.Random | None):
        raise TypeError(f"rng is a random.Random or None, not {rng!r}")
    return rng or random.Random()
