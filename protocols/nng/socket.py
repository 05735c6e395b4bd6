"""The common part of all sockets over NNG, and their contexts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self, Unpack

from protocols.errors import NotSupported, Timeout
from protocols.nng.binding import pynng
from protocols.nng.channel import Channel, Counters
from protocols.nng.endpoints import NngDialer, NngListener, NngPipe
from protocols.nng.errors import translated_address
from protocols.nng.settings import TLS_SCHEMES, check_options, configure, spare_files, tls_config
from protocols.options import (
    DEFAULT,
    OptionKeywords,
    SocketOptions,
    TimeLimit,
    check_integer,
    seconds,
)
from protocols.socket import Addresses, options_of
from protocols.tls import TlsConfig
from protocols.transports.base import check_string, url_list
from protocols.waiting import Waiters, deadline_of


@dataclass(frozen=True, slots=True)
class NngStatistics:
    """What this side knows: bodies through ``send`` and ``recv``, peers, and its own ``drops``."""

    protocol: str
    peers: int
    attached: int
    detached: int
    frames_in: int
    bytes_in: int
    frames_out: int
    bytes_out: int
    drops: dict[str, int]


class Context(Channel):
    """A separate conversation on a shared socket.

    pynng has no non-blocking calls on a context, so there is neither ``send_nowait`` nor ``recv_nowait``.
    """

    _turns = True
    _may_peek = False
    _may_try = False

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._exclusive = socket._exclusive  # type: ignore[misc]
        self._asks = socket._asks  # type: ignore[misc]
        self._answers = socket._answers  # type: ignore[misc]
        self._needs_peer = socket._needs_peer  # type: ignore[misc]
        self._iteration_ends = socket._iteration_ends  # type: ignore[misc]
        self._open(socket._nng.new_context(), socket.options, socket._counters)

    async def aclose(self) -> None:
        """Give up what is under way; calls that wait here raise `Closed`."""
        if not self.closed:
            self._socket._contexts.remove(self)
            await self._shut()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _has_peers(self) -> bool:
        return self._socket._has_peers()


class Socket(Channel):
    """The common part of all patterns; arguments as for `protocols.Socket`, for cooked sockets.

    Raises:
        NotSupported: pynng cannot express an argument or option.
        ValueError: a value beyond NNG's limits (queues of 1 to 8192, 15 hops).
    """

    _kind: ClassVar[str]

    def __init__(
        self,
        *,
        dial: Addresses = (),
        listen: Addresses = (),
        options: SocketOptions | None = None,
        rng: random.Random | None = None,
        admit: object = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        if rng is not None:
            raise NotSupported("NNG draws its ids itself; leave rng out")
        if admit is not None:
            raise NotSupported("pynng asks its hooks in threads of NNG's; leave admit out")
        options = options_of(options, keywords)
        self.dialers: list[NngDialer] = []
        self.listeners: list[NngListener] = []
        self._contexts: list[Context] = []
        self._to_dial = url_list(dial)
        self._to_listen = url_list(listen)
        self._pipes: dict[int, NngPipe] = {}
        self._attached = 0
        self._detached = 0
        self.peer_waiters = Waiters()
        self._loop: asyncio.AbstractEventLoop | None = None
        check_options(options)
        self._open(getattr(pynng, self._kind)(async_backend="asyncio"), options, Counters())
        self.protocol: int = self._nng.protocol
        self.peer: int = self._nng.peer
        configure(self._nng, options)
        self._nng.add_post_pipe_connect_cb(self._pipe_came)
        self._nng.add_post_pipe_remove_cb(self._pipe_went)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over NNG with {len(self._pipes)} peers>"

    # --- life

    async def __aenter__(self) -> Self:
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
        """Close at once; messages that NNG has queued are lost."""
        if self.closed:
            return
        for context in tuple(self._contexts):
            await context.aclose()
        await self._shut()
        self.peer_waiters.wake_all()
        self._detached += len(self._pipes)
        self._pipes.clear()

    # --- endpoints

    def dial(self, url: str, *, options: SocketOptions | None = None) -> NngDialer:
        """Keep a connection to ``url``, without waiting for it. Raises `AddressError`."""
        self._check_endpoint(options)
        check_string(url)
        self._use_tls(url, server=False)
        try:
            dialer = self._nng.dial(url, block=False)
        except pynng.NNGException as error:
            raise translated_address(error, url) from error
        self.dialers.append(NngDialer(self, dialer, url))
        return self.dialers[-1]

    async def listen(self, where: str, *, options: SocketOptions | None = None) -> NngListener:
        """Accept peers at a URL. The listener's ``url`` attribute has port 0 resolved.

        Raises:
            AddressInUse, AddressError: cannot listen there.
            NotSupported: a shared listener.
        """
        if not isinstance(where, str | bytes):
            raise NotSupported("NNG opens its listeners itself; a shared one takes native sockets only")
        self._check_endpoint(options)
        check_string(where)
        self._use_tls(where, server=True)
        spare_files(where)
        try:
            listener = self._nng.listen(where)
        except pynng.NNGException as error:
            raise translated_address(error, where) from error
        self.listeners.append(NngListener(self, listener, where))
        return self.listeners[-1]

    def _check_endpoint(self, options: SocketOptions | None) -> None:
        self._check_open()
        if options is not None:
            raise NotSupported("pynng opens an endpoint with its socket's options; give them to the socket")
        self._loop = asyncio.get_running_loop()

    def _use_tls(self, url: str, *, server: bool) -> None:
        """Set the TLS configuration. NNG has one for each socket, which an endpoint copies as it is
        opened.
        """
        if url.partition("://")[0] in TLS_SCHEMES:
            self._nng.tls_config = tls_config(self.options.tls or TlsConfig(), url, server=server)

    async def wait_for_peers(self, count: int = 1, timeout: float | None = None) -> None:
        """Return once ``count`` peers are attached; ``timeout`` None means no limit. Raises `Timeout`."""
        check_integer("count", count, 0)
        deadline = deadline_of(seconds(timeout, None))
        while len(self._pipes) < count:
            self._check_open()
            if not await self.peer_waiters.wait(deadline):
                raise Timeout(f"{len(self._pipes)} of {count} peers within {timeout:g} s")

    # --- what is there

    @property
    def pipes(self) -> list[NngPipe]:
        """The attached peers, oldest first."""
        return list(self._pipes.values())

    def statistics(self) -> NngStatistics:
        """See `NngStatistics`; NNG's own queues and drops have no public call in pynng."""
        counters = self._counters
        return NngStatistics(
            protocol=self._kind.lower(),
            peers=len(self._pipes),
            attached=self._attached,
            detached=self._detached,
            frames_in=counters.frames_in,
            bytes_in=counters.bytes_in,
            frames_out=counters.frames_out,
            bytes_out=counters.bytes_out,
            drops=dict(counters.drops),
        )

    def new_context(self) -> Context:
        """Open a separate conversation on this socket. Raises `NotSupported` for patterns without
        contexts.
        """
        self._check_open()
        if not self._turns:
            raise NotSupported(f"{self._kind.lower()} sockets have no contexts here")
        context = Context(self)
        self._contexts.append(context)
        return context

    def _has_peers(self) -> bool:
        return bool(self._pipes)

    # --- called by NNG, in its threads

    def _pipe_came(self, pipe: Any) -> None:
        self._tell(self._note_came, pipe)

    def _pipe_went(self, pipe: Any) -> None:
        self._tell(self._note_went, pipe)

    def _tell(self, note: Callable[[Any], None], pipe: Any) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(note, pipe)
        except RuntimeError:
            pass  # the loop is closed, so nobody needs the news

    def _note_came(self, pipe: Any) -> None:
        if self.closed:
            return
        attached = NngPipe(pipe)
        self._attached += 1
        if attached.gone:  # NNG may report the end before the arrival, and does not repeat it
            self._detached += 1
            return
        self._pipes[attached.id] = attached
        self.peer_waiters.wake_all()

    def _note_went(self, pipe: Any) -> None:
        attached = self._pipes.pop(pipe.id, None)
        if attached is not None:
            attached.closed = True
            self._detached += 1

    # --- what pynng has no public call for

    async def dial_once(
        self, url: str, timeout: TimeLimit = DEFAULT, *, options: SocketOptions | None = None
    ) -> NoReturn:
        raise NotSupported("NNG dials until closed; use dial() and wait_for_peers()")

    async def recv_message(self, timeout: TimeLimit = DEFAULT) -> NoReturn:
        raise NotSupported("pynng's coroutines do not tell which peer a message came from")

    def events(self, *, limit: int = 0) -> NoReturn:
        raise NotSupported("pynng tells of pipes in threads of NNG's; use wait_for_peers() and pipes")
