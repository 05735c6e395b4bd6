"""The second engine: the same cooked sockets over pynng, which is NNG, in C, with threads of its own.

    from protocols import nng

    async with nng.Pull0(listen="tcp://127.0.0.1:7000") as pull:
        async for body in pull:
            print(body)

It exists to prove the native engine against, with the same program on both sides, and needs the extra
``nng``. Constructor arguments, calls and errors are those of `protocols`; what pynng has no public call for
raises `NotSupported`: raw sockets, Star0, shared listeners, single peers, hooks.

What the two do not share:

==========================  ==================================================================================
queues                      NNG's: of sizes 1 to 8192, and a message in flight beside each
a cancelled ``recv``        loses nothing: what NNG hands over late is the next ``recv``'s
a cancelled ``send``        was not taken, unless NNG took it in that very moment
``recv_nowait``             is not for surveys and contexts: NNG would end the survey, pynng has no call
``send_nowait``             is not for answers and contexts: NNG would forget the question
a late ``send``             of an answer gives up the right to answer
a late ``recv``             leaves a survey or a request open (with bare pynng it ends both)
an unread answer            is lost at the end of its survey, but for the one that a ``recv`` had asked for
``aclose``                  drops what is queued: NNG does not linger, and cannot say what is left
a ``StateError`` of Rep0    may follow a ``recv`` that was given up just as a question came: `recv` gives it
``statistics``              counts bodies that this program sent and received, and peers; no queues
fork                        NNG panics in the child; make sockets after the fork
a listener's ipc path       NNG would remove any file that is there; here only a socket may be in its place
==========================  ==================================================================================

The bridge between NNG's threads and the event loop is pynng's own: an operation that has to wait is a task
round one of its coroutines. Such a task for ``recv`` outlives whoever waits for it, since cancelling it would
end a request or a survey, and since pynng swallows a cancellation that comes too late. Operations that need
not wait cost no task.
"""

from __future__ import annotations

import asyncio
import os
import random
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, NoReturn, Self
from urllib.parse import urlsplit

from protocols.context import Body, PartlySent, Waiters, as_bytes, as_topic, deadline_of
from protocols.errors import (
    AddressError,
    AddressInUse,
    Closed,
    ConnectionRefused,
    NoPeers,
    NotSupported,
    SPError,
    StateError,
    Timeout,
    WouldBlock,
)
from protocols.options import SocketOptions
from protocols.patterns.reqrep import RequestLost
from protocols.socket import Addresses, Started
from protocols.tls import TlsConfig, TlsConfigError

try:
    import pynng
except ImportError as missing:
    raise ImportError("the engine over NNG needs pynng; install mangrove-mesh[nng]") from missing

QUEUE_MAX: Final = 8192
TTL_MAX: Final = 15
REPLACED: Final = "replaced by a newer request or survey"

_ERRORS: Final[tuple[tuple[type[Exception], type[SPError], str], ...]] = (
    (pynng.Timeout, Timeout, "NNG gave up waiting: the survey is over"),
    (pynng.Closed, Closed, "the socket is closed"),
    (pynng.BadState, StateError, "it is not this socket's turn"),
    (pynng.TryAgain, WouldBlock, "it would have to wait"),
    (pynng.NotSupported, NotSupported, "this pattern cannot do that"),
    (pynng.ConnectionReset, RequestLost, "the peer that had the request is gone"),
    (pynng.Canceled, StateError, REPLACED),
)

_ADDRESS_ERRORS: Final[tuple[tuple[type[Exception], type[AddressError], str], ...]] = (
    (pynng.AddressInUse, AddressInUse, "somebody listens there already"),
    (pynng.ConnectionRefused, ConnectionRefused, "nobody listens there"),
    (pynng.NotSupported, AddressError, "NNG has no such transport"),
    (pynng.InvalidOperation, AddressError, "NNG cannot understand it"),
    (pynng.AddressInvalid, AddressError, "not an address that can be used so"),
    (pynng.NoEntry, AddressError, "its folder does not exist"),
    (pynng.PermissionDenied, AddressError, "permission denied"),
)


def translated(error: Exception) -> SPError:
    """What we call an error of NNG's."""
    for theirs, ours, sentence in _ERRORS:
        if isinstance(error, theirs):
            return ours(sentence)
    return SPError(f"NNG says: {error}")


def translated_address(error: Exception, url: str) -> SPError:
    """The same for an endpoint that could not be opened."""
    for theirs, ours, sentence in _ADDRESS_ERRORS:
        if isinstance(error, theirs):
            return ours(f"{url}: {sentence}")
    if isinstance(error, pynng.Closed):
        return translated(error)
    return AddressError(f"{url}: NNG says: {error}")


@dataclass(frozen=True, slots=True)
class NngStatistics:
    """What this side knows: bodies through ``send`` and ``recv``, peers, and ``drops`` of its own making."""

    protocol: str
    peers: int
    attached: int
    detached: int
    frames_in: int
    bytes_in: int
    frames_out: int
    bytes_out: int
    drops: dict[str, int]


class Counters:
    """Of one socket and its contexts."""

    def __init__(self) -> None:
        self.frames_in = 0
        self.bytes_in = 0
        self.frames_out = 0
        self.bytes_out = 0
        self.drops: dict[str, int] = {}


class NngPipe:
    """One attached peer, as far as NNG tells; a snapshot taken when it came."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self.id: int = pipe.id
        self.peer: int = _asked(lambda: pipe.peer, 0)
        self.dialer_id: int = _asked(lambda: pipe.dialer.id, -1)
        self.url: str = _asked(lambda: pipe.url, "")
        self.local_address: str = _asked(lambda: str(pipe.local_address), "")
        self.remote_address: str = _asked(lambda: str(pipe.remote_address), "")
        self.closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} from {self.remote_address}>"

    def close(self, reason: str = "") -> None:
        """Drop this peer; a dialer of ours will dial it again."""
        try:
            self._pipe.close()
        except pynng.NNGException:
            pass  # it went by itself


def _asked(ask: Callable[[], Any], otherwise: Any) -> Any:
    """A pipe may be gone before we ask it anything."""
    try:
        return ask()
    except (pynng.NNGException, LookupError, TypeError):
        return otherwise


class NngEndpoint:
    """A dialer or listener of NNG's."""

    def __init__(self, socket: Socket, endpoint: Any, url: str) -> None:
        self.url = url
        """As bound, with port 0 resolved."""
        self._socket = socket
        self._endpoint = endpoint
        self._id: int = endpoint.id

    def _close(self) -> None:
        if self._endpoint is not None:
            endpoint, self._endpoint = self._endpoint, None
            endpoint.close()


class NngListener(NngEndpoint):
    """Accepts peers."""

    async def aclose(self) -> None:
        """Accept no more. NNG drops the pipes that came by this listener, too."""
        self._close()


class NngDialer(NngEndpoint):
    """Dials for ever; NNG does not tell why an attempt failed, so ``last_error`` is always empty."""

    last_error: Final = ""

    @property
    def pipe(self) -> NngPipe | None:
        """The peer, while it is attached."""
        return next((pipe for pipe in self._socket.pipes if pipe.dialer_id == self._id), None)

    async def wait_connected(self) -> NngPipe:
        """Return the pipe, once there is one."""
        while (pipe := self.pipe) is None:
            if self._endpoint is None or self._socket.closed:
                raise Closed(f"nothing dials {self.url}")
            await self._socket._peer_waiters.wait(None)
        return pipe

    async def aclose(self) -> None:
        """Stop dialling. NNG drops the pipe, too."""
        self._close()
        self._socket._peer_waiters.wake_all()


class Channel:
    """What sockets and contexts have in common: ``send`` and ``recv`` over pynng's coroutines."""

    _turns: ClassVar[bool] = False
    _asks: ClassVar[bool] = False
    """Sending gives up what was asked before, its unread answers and whoever waits for them."""
    _may_peek: ClassVar[bool] = True
    """NNG can be asked for a message without waiting, and without harm."""
    _may_try: ClassVar[bool] = True
    """NNG can be given a message without waiting, and without harm."""
    _answers: ClassVar[bool] = False
    """Receiving takes a debt on: a ``recv`` given up must not take one on behind the caller's back."""
    _exclusive: ClassVar[bool] = False
    _waits_for_room: ClassVar[bool] = True
    _needs_peer: ClassVar[bool] = False
    _iteration_ends: ClassVar[tuple[type[SPError], ...]] = (Closed,)

    options: SocketOptions

    def _open(self, nng: Any, options: SocketOptions, counters: Counters) -> None:
        self._nng = nng
        self.options = options
        self._counters = counters
        self.closed = False
        self._receiving: asyncio.Task[bytes] | None = None
        self._readers = 0
        self._epoch = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- sending

    async def send(self, body: Body, timeout: float | None = None) -> None:
        """As `protocols.Socket.send`; cancelled, it was not taken unless NNG took it in that moment."""
        frame = self._ready(body)
        if self._answers:
            await self._end_given_up()
        if not self._put(frame):
            if self.options.best_effort and self._waits_for_room:
                self._counters.drops["no room"] = self._counters.drops.get("no room", 0) + 1
                return
            limit_s = self.options.send_timeout_s if timeout is None else timeout
            await self._put_later(frame, limit_s)
        self._count_out(frame)

    def send_nowait(self, body: Body) -> None:
        """As `send`, but raises `WouldBlock` instead of waiting; not for answers and contexts."""
        if not self._may_try:
            raise NotSupported("NNG cannot send here without waiting; use send(timeout=...)")
        frame = self._ready(body)
        if not self._put(frame):
            raise WouldBlock("no peer has room for the message")
        self._count_out(frame)

    async def send_many(self, bodies: Sequence[Body], timeout: float | None = None) -> None:
        """Send in order; late, the `PartlySent` says how many were."""
        if self._turns:
            raise NotSupported("this pattern speaks in turns: send and recv take one message at a time")
        frames = [as_bytes(body) for body in bodies]
        deadline = deadline_of(self.options.send_timeout_s if timeout is None else timeout)
        for sent, frame in enumerate(frames):
            left = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0)
            try:
                await self.send(frame, left)
            except Timeout as error:
                raise PartlySent(sent, len(frames)) from error

    def _ready(self, body: Body) -> bytes:
        frame = as_bytes(body)
        self._check_open()
        if self._needs_peer and self.options.fail_without_peers and not self._has_peers():
            raise NoPeers("there is no peer to send to")
        if self._asks:
            self._epoch += 1
            self._let_go()
        return frame

    def _put(self, frame: bytes) -> bool:
        if not self._may_try:
            return False
        try:
            self._nng.send(frame, block=False)
        except pynng.TryAgain:
            return False
        except pynng.NNGException as error:
            raise translated(error) from error
        return True

    async def _put_later(self, frame: bytes, limit_s: float | None) -> None:
        task = self._task(self._nng.asend(frame))
        try:
            await asyncio.wait((task,), timeout=limit_s)
            late = not task.done()
            if late:
                task.cancel()
                await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.cancelled():
            self._result(task)  # taken, if only in the last moment
        elif self.closed:
            raise Closed("the socket is closed")
        elif late:
            raise Timeout(f"no peer took the message within {limit_s:g} s")
        else:
            raise StateError(REPLACED)

    def _count_out(self, frame: bytes) -> None:
        self._counters.frames_out += 1
        self._counters.bytes_out += len(frame)

    # --- receiving

    async def recv(self, timeout: float | None = None) -> bytes:
        """As `protocols.Socket.recv`; cancelled or late, the next call gets what NNG hands over meanwhile."""
        self._check_open()
        if self._exclusive and self._readers:
            raise StateError("another recv waits here already; concurrent calls take a context each")
        limit_s = self.options.recv_timeout_s if timeout is None else timeout
        deadline = deadline_of(limit_s)
        epoch = self._epoch
        self._readers += 1
        try:
            while (body := self._take()) is None:
                await self._wait(deadline, limit_s)
                if self._epoch != epoch:
                    raise StateError(REPLACED)
        finally:
            self._readers -= 1
            if self._answers and not self._readers and self._receiving is not None:
                self._receiving.cancel()
        self._counters.frames_in += 1
        self._counters.bytes_in += len(body)
        return body

    def recv_nowait(self) -> bytes:
        """As `recv`, but raises `WouldBlock` instead of waiting; not for surveys and contexts."""
        self._check_open()
        if not self._may_peek:
            raise NotSupported("NNG cannot look here without waiting; use recv(timeout=...)")
        body = self._take()
        if body is None:
            raise WouldBlock("nothing has been received")
        self._counters.frames_in += 1
        self._counters.bytes_in += len(body)
        return body

    async def recv_many(self, timeout: float | None = None) -> list[bytes]:
        """All messages that are there, at least one, at most ``recv_queue``."""
        if self._turns:
            raise NotSupported("this pattern speaks in turns: send and recv take one message at a time")
        bodies = [await self.recv(timeout)]
        while len(bodies) < self.options.recv_queue:
            try:
                bodies.append(self.recv_nowait())
            except WouldBlock:
                break
        return bodies

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except self._iteration_ends:
            raise StopAsyncIteration from None

    def _take(self) -> bytes | None:
        """What is there: from the operation under way, which comes first, or from NNG itself."""
        task = self._receiving
        if task is None:
            return self._take_now()
        if not task.done():
            return None
        self._receiving = None
        if task.cancelled():
            if self.closed:
                raise Closed("the socket is closed")
            return self._take_now()
        body: bytes = self._result(task)
        return body

    def _take_now(self) -> bytes | None:
        self._check_open()
        if not self._may_peek:
            return None
        try:
            body: bytes = self._nng.recv_msg(block=False).bytes
        except pynng.TryAgain:
            return None
        except pynng.NNGException as error:
            raise translated(error) from error
        return body

    async def _wait(self, deadline: float | None, limit_s: float | None) -> None:
        """Return when the operation under way has ended. Raises `Timeout`."""
        if self._receiving is None:
            self._receiving = self._task(self._receive())
        left = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0)
        done, _ = await asyncio.wait((self._receiving,), timeout=left)
        if not done:
            raise Timeout(f"nothing received within {limit_s:g} s")

    async def _receive(self) -> bytes:
        # `recv_msg` and not `recv`, which cannot take an empty body (pynng 0.9)
        message = await self._nng.arecv_msg()
        body: bytes = message.bytes
        return body

    def _let_go(self) -> None:
        """What was under way belongs to the former request or survey; begun too late, it would take the
        answer to the new one."""
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    async def _end_given_up(self) -> None:
        """Before an answer goes out: has a given-up ``recv`` taken another question?"""
        task = self._receiving
        if task is None or self._readers:
            return
        await asyncio.wait((task,))
        if task.cancelled():
            self._receiving = None
        elif task.exception() is None:
            raise StateError("a newer question came as recv was given up; recv() gives it")

    # ---

    def _task(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: nobody may be waiting for it any more

    def _result(self, task: asyncio.Task[Any]) -> Any:
        try:
            return task.result()
        except pynng.NNGException as error:
            raise translated(error) from error

    def _has_peers(self) -> bool:
        raise NotImplementedError

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("the socket is closed")

    async def _shut(self) -> None:
        """Whoever waits here finds what it waited for cancelled, and raises `Closed`."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
        self._nng.close()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))


class Context(Channel):
    """A conversation of its own on a shared socket.

    pynng has no calls on a context that do not wait, so there is neither ``send_nowait`` nor ``recv_nowait``.
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
    """Everything that is the same for all patterns; arguments as of `protocols.Socket`, for cooked sockets.

    Raises:
        NotSupported: an argument or option that pynng has no way for.
        ValueError: a value beyond what NNG takes (queues of 1 to 8192, 15 hops).
    """

    _kind: ClassVar[str]
    raw: ClassVar[bool] = False

    def __init__(
        self,
        *,
        dial: Addresses = (),
        listen: Addresses = (),
        raw: bool = False,
        receiver: object = None,
        options: SocketOptions | None = None,
        rng: random.Random | None = None,
        admit: object = None,
    ) -> None:
        if raw or receiver is not None:
            raise NotSupported("pynng opens no raw sockets; use protocols.Socket for those")
        if rng is not None:
            raise NotSupported("NNG draws its ids itself; leave rng out")
        if admit is not None:
            raise NotSupported("pynng asks its hooks in threads of NNG's; leave admit out")
        options = options or SocketOptions()
        self.dialers: list[NngDialer] = []
        self.listeners: list[NngListener] = []
        self._contexts: list[Context] = []
        self._to_dial = [dial] if isinstance(dial, str) else list(dial)
        self._to_listen = [listen] if isinstance(listen, str) else list(listen)
        self._pipes: dict[int, NngPipe] = {}
        self._attached = 0
        self._detached = 0
        self._peer_waiters = Waiters()
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
        """Close at once; what NNG had queued is lost."""
        if self.closed:
            return
        for context in tuple(self._contexts):
            await context.aclose()
        await self._shut()
        self._peer_waiters.wake_all()
        self._detached += len(self._pipes)
        self._pipes.clear()

    # --- endpoints

    def dial(self, url: str, *, options: SocketOptions | None = None) -> Started[NngDialer]:
        """Keep a connection to ``url``, for ever, without waiting for it. Raises `AddressError`."""
        self._check_endpoint(options)
        self._use_tls(url, server=False)
        try:
            dialer = self._nng.dial(url, block=False)
        except pynng.NNGException as error:
            raise translated_address(error, url) from error
        self.dialers.append(NngDialer(self, dialer, url))
        return Started(self.dialers[-1])

    def listen(self, where: str, *, options: SocketOptions | None = None) -> Started[NngListener]:
        """Accept peers at a URL; ``.url`` of what awaiting gives has port 0 resolved.

        Raises:
            AddressInUse, AddressError: cannot listen there.
            NotSupported: a shared listener.
        """
        if not isinstance(where, str):
            raise NotSupported("NNG opens its listeners itself; a shared one takes native sockets only")
        self._check_endpoint(options)
        self._use_tls(where, server=True)
        spare_files(where)
        try:
            listener = self._nng.listen(where)
        except pynng.NNGException as error:
            raise translated_address(error, where) from error
        self.listeners.append(NngListener(self, listener, _asked(lambda: listener.url, where)))
        return Started(self.listeners[-1])

    def _check_endpoint(self, options: SocketOptions | None) -> None:
        self._check_open()
        if options is not None:
            raise NotSupported("pynng opens an endpoint with its socket's options; give them to the socket")
        self._loop = asyncio.get_running_loop()

    def _use_tls(self, url: str, *, server: bool) -> None:
        """NNG has one TLS configuration a socket, which an endpoint takes over as it is opened."""
        if url.partition("://")[0] in TLS_SCHEMES:
            self._nng.tls_config = tls_config(self.options.tls or TlsConfig(), url, server=server)

    async def wait_for_peers(self, count: int = 1, timeout: float | None = None) -> None:
        """Return once ``count`` peers are attached; ``timeout`` None is for ever. Raises `Timeout`."""
        deadline = deadline_of(timeout)
        while len(self._pipes) < count:
            self._check_open()
            if not await self._peer_waiters.wait(deadline):
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
        """A conversation of its own on this socket. Raises `NotSupported` for patterns without."""
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
            pass  # the loop is closed; nobody is left to care

    def _note_came(self, pipe: Any) -> None:
        if self.closed:
            return
        attached = NngPipe(pipe)
        self._pipes[attached.id] = attached
        self._attached += 1
        self._peer_waiters.wake_all()

    def _note_went(self, pipe: Any) -> None:
        attached = self._pipes.pop(pipe.id, None)
        if attached is not None:
            attached.closed = True
            self._detached += 1

    # --- what pynng has no public call for

    async def dial_once(self, url: str, timeout: float | None = None) -> NoReturn:
        raise NotSupported("NNG dials for ever; use dial() and wait_for_peers()")

    def send_to(self, pipe: object, frames: object, *, control: bool = False) -> NoReturn:
        raise NotSupported("pynng cannot send to a single peer")

    def send_message(self, message: object) -> NoReturn:
        raise NotSupported("pynng cannot send to a single peer")

    async def recv_run(self, timeout: float | None = None) -> NoReturn:
        raise NotSupported("pynng opens no raw sockets, which alone tell pipes apart")

    async def recv_message(self, timeout: float | None = None) -> NoReturn:
        raise NotSupported("pynng opens no raw sockets, which alone tell pipes apart")

    def events(self) -> NoReturn:
        raise NotSupported("pynng tells of pipes in threads of NNG's; use wait_for_peers() and pipes")


# --- options

TLS_SCHEMES: Final = ("tls+tcp", "tls+tcp4", "tls+tcp6", "wss", "wss4", "wss6")


def check_options(options: SocketOptions) -> None:
    """Raises what `Socket` says for options that NNG cannot honour."""
    for name in ("send_queue", "recv_queue"):
        value = getattr(options, name)
        if not 1 <= value <= QUEUE_MAX:
            raise ValueError(f"{name} is {value}; NNG's queues hold 1 to {QUEUE_MAX} messages")
    if not 1 <= options.ttl <= TTL_MAX:
        raise ValueError(f"ttl is {options.ttl}; NNG allows 1 to {TTL_MAX} hops")
    for name in ("keepalive_s", "ipc_owner", "ipc_group"):
        if getattr(options, name) is not None:
            raise NotSupported(f"pynng has no option for {name}; leave it out")


def configure(socket: Any, options: SocketOptions) -> None:
    """Set on NNG's socket what it has; what belongs to other patterns it refuses, and that is right."""
    settings: tuple[tuple[str, Any], ...] = (
        ("send_buffer_size", options.send_queue),
        ("recv_buffer_size", options.recv_queue),
        ("recv_max_size", options.recv_size_max),
        ("reconnect_time_min", milliseconds(options.reconnect_min_s)),
        ("reconnect_time_max", milliseconds(options.reconnect_max_s)),
        ("ttl_max", options.ttl),
        ("tcp_nodelay", options.nodelay),
        ("tcp_keepalive", options.keepalive),
    )
    if isinstance(socket, pynng.Req0):
        settings += (("resend_time", milliseconds(options.resend_s or 0.0)),)
    if isinstance(socket, pynng.Surveyor0):
        settings += (("survey_time", milliseconds(options.survey_s)),)
    for name, value in settings:
        try:
            setattr(socket, name, value)
        except pynng.NotSupported:
            continue
    pynng.nng.IntOption("ipc:permissions").__set__(socket, options.ipc_permissions)
    if isinstance(socket, pynng.Sub0):
        pynng.nng.BooleanOption("sub:prefnew").__set__(socket, options.prefer_new)


def milliseconds(seconds: float) -> int:
    """NNG's unit; something above zero does not become zero, which means something else."""
    return 0 if seconds <= 0 else max(round(seconds * 1000), 1)


def spare_files(url: str) -> None:
    """NNG removes what stands at an ipc path, even an ordinary file. Raises `AddressInUse` for one."""
    scheme, _, path = url.partition("://")
    if scheme not in ("ipc", "unix"):
        return
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return  # nothing is there, or NNG will say what is wrong
    if not stat.S_ISSOCK(mode):
        raise AddressInUse(
            f"{url}: something that is not a socket is there; move it away or use another path"
        )


def tls_config(tls: TlsConfig, url: str, *, server: bool) -> Any:
    """A `TlsConfig` in NNG's words. Raises `TlsConfigError`, `NotSupported`."""
    if (tls.version_min, tls.version_max) != ("1.2", "1.3"):
        raise NotSupported("pynng cannot choose TLS versions; leave version_min and version_max out")
    verify = tls.verify or ("none" if server else "required")
    modes = {
        "none": pynng.TLSConfig.AUTH_MODE_NONE,
        "optional": pynng.TLSConfig.AUTH_MODE_OPTIONAL if server else pynng.TLSConfig.AUTH_MODE_REQUIRED,
        "required": pynng.TLSConfig.AUTH_MODE_REQUIRED,
    }
    if server and not tls.has_certificate:
        raise TlsConfigError(f"{url}: a TLS listener needs a certificate; give cert_file and key_file")
    if verify != "none" and not tls.has_authority:
        raise TlsConfigError(f"{url}: NNG trusts nobody by itself; give ca_file, or verify='none'")
    certificate = pem(tls.cert, tls.cert_file)
    try:
        config = pynng.TLSConfig(
            pynng.TLSConfig.MODE_SERVER if server else pynng.TLSConfig.MODE_CLIENT,
            server_name=None if server else tls.server_name or host_of(url),
            ca_string=pem(tls.ca, tls.ca_file),
            own_cert_string=certificate,
            own_key_string=pem(tls.key, tls.key_file) or certificate,
            passwd=tls.key_password,
        )
        config.set_auth_mode(modes[verify])  # 0 is a mode too, which the constructor would pass over
    except pynng.NNGException as error:
        raise TlsConfigError(f"{url}: NNG cannot use these certificates or keys: {error}") from error
    return config


def pem(text: str | None, file: str | None) -> str | None:
    if file is None:
        return text
    try:
        return Path(file).read_text("ascii")
    except OSError as error:
        raise TlsConfigError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeError as error:
        raise TlsConfigError(f"{file} is not PEM") from error


def host_of(url: str) -> str:
    """The name that the listener's certificate must have."""
    return urlsplit(url).hostname or ""


# --- the sockets by name


class Pair0(Socket):
    """One peer, both ways."""

    _kind = "Pair0"
    _needs_peer = True


class Pair1(Socket):
    """One peer, both ways, with a hop count."""

    _kind = "Pair1"
    _needs_peer = True


class Push0(Socket):
    """Each message to one puller, in turn."""

    _kind = "Push0"
    _needs_peer = True


class Pull0(Socket):
    """Receives what pushers deal out."""

    _kind = "Pull0"


class Pub0(Socket):
    """Everything to every subscriber; never waits."""

    _kind = "Pub0"
    _waits_for_room = False


class Sub0(Socket):
    """What begins with one of the ``topics``; without topics, nothing."""

    _kind = "Sub0"

    def __init__(self, *, topics: Sequence[str | Body] = (), **others: Any) -> None:
        if isinstance(topics, (str, bytes)):
            raise TypeError(f"topics is a list of prefixes, as in topics=[{topics!r}]")
        super().__init__(**others)
        self._topics: tuple[bytes, ...] = ()
        for topic in topics:
            self.subscribe(topic)

    def subscribe(self, topic: str | Body) -> None:
        """Receive what begins with ``topic`` (a str is encoded as UTF-8); ``""`` is everything."""
        self._check_open()
        self._nng.subscribe(as_topic(topic))
        self._topics = tuple(dict.fromkeys((*self._topics, as_topic(topic))))

    def unsubscribe(self, topic: str | Body) -> None:
        """Undo it, and drop what is queued and no longer wanted. Raises `StateError` if not subscribed."""
        self._check_open()
        try:
            self._nng.unsubscribe(as_topic(topic))
        except pynng.NoEntry as error:
            raise StateError(f"not subscribed to {as_topic(topic)!r}") from error
        self._topics = tuple(each for each in self._topics if each != as_topic(topic))

    def _take(self) -> bytes | None:
        """NNG purges its queue when a topic goes, but not what a given-up `recv` has been handed."""
        while (body := super()._take()) is not None and not body.startswith(self._topics):
            continue
        return body


class Bus0(Socket):
    """Everybody to everybody directly connected, best effort."""

    _kind = "Bus0"
    _waits_for_room = False


class Req0(Socket):
    """A question to one of the peers, and its answer."""

    _kind = "Req0"
    _turns = True
    _exclusive = True
    _asks = True
    _needs_peer = True


class Rep0(Socket):
    """Takes a question, gives an answer."""

    _kind = "Rep0"
    _turns = True
    _exclusive = True
    _answers = True
    _may_try = False  # NNG forgets the question when it refuses the answer for want of room


class Surveyor0(Socket):
    """A question to everybody; iterating yields the answers and ends when the survey is over."""

    _kind = "Surveyor0"
    _turns = True
    _asks = True
    _may_peek = False  # NNG takes a recv that does not wait for one that gave up, and ends the survey
    _waits_for_room = False
    _iteration_ends = (Closed, Timeout, StateError)

    def new_context(self, *, survey_s: float | None = None) -> Context:
        """A survey of its own on this socket, open for ``survey_s`` seconds (the socket's by default)."""
        context = super().new_context()
        if survey_s is not None:
            pynng.nng.MsOption("surveyor:survey-time").__set__(context._nng, milliseconds(survey_s))
        return context

    async def survey(self, body: Body, **others: Any) -> NoReturn:
        raise NotSupported("NNG does not tell whom it asked; use send() and iterate")


class Respondent0(Socket):
    """Takes a survey, gives an answer."""

    _kind = "Respondent0"
    _turns = True
    _exclusive = True
    _answers = True
    _may_try = False  # NNG forgets the question when it refuses the answer for want of room


class Star0(Socket):
    """NNG has no Star; making one raises `NotSupported`."""

    def __init__(self, **others: Any) -> None:
        raise NotSupported("NNG has no star; use protocols.Star0")
