"""The calls that all sockets have: opening and closing, dialling and listening, who is there.

How a socket sends and receives is its channel's (`protocols.channel`), what its pattern does is in
``protocols/patterns``, and what joins these to connections is its `Core`.
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
    """Everything that is the same for all patterns.

    Args:
        dial: URLs to keep a connection to; begun on entering ``async with``.
        listen: URLs to accept connections at; likewise.
        admit: called with each new peer's `PipeView` (address and identity told) before anything else may see
            it. It turns the peer away by raising `PipeRefused` or closing the pipe; an error of its own
            does so too and goes to the loop's exception handler. It may not wait.
        options: see `SocketOptions`; single ones may be given by keyword, as in ``send_queue=16``.
        rng: the source of ids and jitter; by default one of its own, seeded by the system.
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

    # --- what the channel of a pattern brings

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
        """A reader or conversation of its own on this socket. Raises `NotSupported` for patterns without."""
        raise NotSupported(f"{self._core.pattern.name} sockets have no contexts")

    # --- what is the same everywhere

    @property
    def options(self) -> SocketOptions:
        return self._core.options

    @property
    def protocol(self) -> int:
        """Our protocol number."""
        return self._core.protocol

    @property
    def peer(self) -> int:
        """The number of the protocol that we talk to."""
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
        """Never called: this is here to have `__enter__` asked."""

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

        A peer has read it all when it closes its side, as every implementation does when it has read to our
        end. Cancelled, everything is closed all the same, but without waiting for what is queued. A second
        call waits for the first.
        """
        self._core.enter_loop()
        if not self.closed:
            self._core.closed = True
            self._shut(CLOSED)
        await self._core.close()

    def _check_entered(self) -> None:
        """Raises `Closed`, or `StateError` for a socket whose URLs are not open yet."""
        self._core.check_open()
        if not self._entered:
            self.recv_nowait()

    # --- endpoints

    @property
    def dialers(self) -> list[Dialer]:
        """Those that were not closed by hand, oldest first."""
        return list(self._core.dialers)

    @property
    def listeners(self) -> list[Listener]:
        """Those that were not closed by hand, oldest first."""
        return list(self._core.listeners)

    def dial(self, url: str, *, options: SocketOptions | None = None) -> Dialer:
        """Keep a connection to ``url``, for ever. Returns at once; `Dialer.wait_connected` waits for a peer.

        ``options`` are those of the connections (see `SocketOptions`), by default the socket's. Raises
        `AddressError` for a URL that can never work.
        """
        return self._core.dial(url, options)

    async def dial_once(
        self, url: str, timeout: TimeLimit = DEFAULT, *, options: SocketOptions | None = None
    ) -> PipeView:
        """One attempt, handshake included, and no second one when the peer goes.

        ``timeout`` bounds all of it. Each step has ``handshake_timeout_s`` in any case: looking up the name,
        each address until one accepts, the handshake.

        Raises:
            ConnectionRefused, AddressError, HandshakeError, Timeout: no connection; see each.
            PipeRefused: this socket did not want the peer.
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
        """Accept peers at a URL (the listener's ``.url`` has port 0 resolved), or through a `SharedListener`,
        which serves this socket from now on.

        ``options`` are those of the connections, by default the socket's; a shared listener has its own.

        Raises:
            AddressInUse, AddressError: cannot listen there.
            StateError: the shared listener has a socket for our peers already.
        """
        if not isinstance(where, SharedListener):
            return await self._core.listen(check_string(where), options)
        if options is not None:
            raise TypeError("a SharedListener has options of its own: SharedListener(url, options=...)")
        self._core.listen_through(where)
        return where

    # --- who is there

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
        """What becomes of peers from now on, to iterate over; ends when the socket has closed.

        ``limit`` events wait for a slow reader; then the oldest are dropped and counted in ``.missed``.
        """
        self._core.check_open()
        return self._core.news.open(limit)

    def statistics(self) -> SocketStatistics:
        return self._core.statistics()


def options_of(options: SocketOptions | None, keywords: OptionKeywords) -> SocketOptions:
    """``options`` with what was given by keyword. Raises `TypeError` for an option that there is not."""
    return replace(options_or(options, SocketOptions()), **keywords)


def rng_of(rng: random.Random | None) -> random.Random:
    """The source of numbers that was given, else a new one. Raises `TypeError`."""
    if not isinstance(rng, random.Random | None):
        raise TypeError(f"rng is a random.Random or None, not {rng!r}")
    return rng or random.Random()
