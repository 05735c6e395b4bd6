"""The socket: a pattern's machine, its pipes, its endpoints and one timer, on one event loop.

`Socket` is the same for all patterns: it makes pipes of connections, hands runs of frames to the pattern,
keeps the pattern's deadline and closes. What differs by pattern is in `protocols.sockets`.

A socket belongs to the event loop that first uses it and starts no tasks but those of its dialers.
"""

from __future__ import annotations

import asyncio
import random
import warnings
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, overload

from protocols.context import (
    Channel,
    Context,
    ContextLife,
    RefusingLane,
    Waiters,
    deadline_of,
)
from protocols.endpoint import Acceptor, Dialer, Listener, SharedListener, dial_once
from protocols.errors import Closed, NotSupported, PipeRefused, StateError, Timeout
from protocols.events import EVENTS_MAX, PipeEvents, PipeNews
from protocols.message import Message
from protocols.options import DEFAULT, SocketOptions, TimeLimit, seconds
from protocols.patterns.base import OutputPipe, Pattern, WeighedPipe
from protocols.patterns.raw import Raw
from protocols.pipe import Connection, Pipe
from protocols.statistics import Departures, SocketStatistics, sum_of
from protocols.transports.base import check_string, url_list

E_co = TypeVar("E_co", covariant=True)
C = TypeVar("C", bound=Context)
Addresses = str | Sequence[str]
Admit = Callable[[Pipe], object]
"""Asked of each peer before it is attached. Raises `PipeRefused`, or closes the pipe, to turn it away."""

CLOSED: Final = "the socket is closed"
PIPE_ID_MAX: Final = 0x7FFFFFFF


class Receiver(Protocol):
    """Who gets a raw socket's frames, in the loop turn that read them. None of these may wait or raise."""

    def pipe_attached(self, pipe: Pipe) -> None:
        """A peer is there. May raise `PipeRefused`: the connection is closed and nothing follows."""

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        """It is gone; called once for each that was attached."""

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        """A run of whole frames, header words in front; the list is the receiver's to keep."""

    def pipe_writable(self, pipe: Pipe) -> None:
        """A pipe that refused a frame has room again."""


class Started(Generic[E_co]):
    """Something that is already under way; awaiting it gives it, at once."""

    def __init__(self, value: E_co) -> None:
        self.value = value

    def __await__(self) -> Generator[None, None, E_co]:
        return self.value
        yield


class Socket(Channel):
    """Everything that is the same for all patterns.

    Args:
        dial: URLs to keep a connection to; begun on entering ``async with``.
        listen: URLs to accept connections at; likewise.
        raw: no pattern state: whole frames, pipe by pipe (see `protocols.patterns.raw`).
        receiver: of a raw socket: gets runs of frames synchronously instead of ``recv``.
        admit: called with each new peer's `Pipe` (address and identity told) before anything else may see
            it. It turns the peer away by raising `PipeRefused` or closing the pipe; an error of its own
            does so too and goes to the loop's exception handler. It may not wait.
        options: see `SocketOptions`.
        rng: the source of ids and jitter; by default one of its own, seeded by the system.
    """

    _pattern_type: ClassVar[type[Pattern]]

    def __init__(
        self,
        *,
        dial: Addresses = (),
        listen: Addresses = (),
        raw: bool = False,
        receiver: Receiver | None = None,
        admit: Admit | None = None,
        options: SocketOptions | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if receiver is not None and not raw:
            raise NotSupported("a receiver is for raw sockets; pass raw=True")
        self._options = options or SocketOptions()
        self.rng = rng or random.Random()
        self._raw = raw
        self.dialers: list[Dialer] = []
        self.listeners: list[Listener] = []
        self._shared: list[SharedListener] = []
        self._to_dial = url_list(dial)
        self._to_listen = url_list(listen)
        self._receiver = receiver
        self._admit = admit
        self._news = PipeNews()
        self._attaching: Pipe | None = None
        self._pattern = self._make_pattern()
        self._hears_time = self._pattern.hears_time  # of a class, so slower to read for each run of frames
        self._pipes: dict[int, OutputPipe] = {}
        self._connected: dict[Pipe, None] = {}
        """Pipes whose connection is still there: those attached, and those that drain after their close."""
        self._last_pipe_id = self.rng.getrandbits(31)
        self._contexts: list[Channel] = []
        self._peer_waiters = Waiters()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Event | None = None
        self._attached = 0
        self._departed = Departures()
        self._open(self._pattern.lane, self.options, senders=Waiters(), receivers=Waiters())
        if self._to_dial or self._to_listen:
            sentence = f"the URLs of this {type(self).__name__} are not open yet; enter it: async with socket"
            self._use(RefusingLane(StateError, sentence))

    def _make_pattern(self) -> Pattern:
        if not self.raw:
            return self._pattern_type(self.options, self.rng)
        handed_over = self._receiver.frames_received if self._receiver is not None else None
        return Raw(self._pattern_type.protocol, self.options, self.rng, handed_over)

    @property
    def options(self) -> SocketOptions:
        return self._options

    @property
    def raw(self) -> bool:
        return self._raw

    @property
    def protocol(self) -> int:
        """Our protocol number."""
        return int(self._pattern.protocol)

    @property
    def peer(self) -> int:
        """The number of the protocol that we talk to."""
        return int(self._pattern.peer)

    def __del__(self) -> None:
        if getattr(self, "_loop", None) is not None and self._closing is None:
            sentence = f"unclosed {self!r}; use async with, or await aclose()"
            warnings.warn(sentence, ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{' raw' if self.raw else ''} with {len(self._pipes)} peers>"

    # --- life

    async def __aenter__(self) -> Self:
        if not self.closed:
            self._use(self._pattern.lane)
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
        if self._closing is not None:
            await self._closing.wait()
            return
        self._enter_loop()
        self._closing = asyncio.Event()
        try:
            await self._close()
        finally:
            self._news.close()
            self._closing.set()

    async def _close(self) -> None:
        self._shut(CLOSED)
        for context in self._contexts:
            context._shut(CLOSED)
        self._contexts.clear()
        self._peer_waiters.wake_all()
        if self._timer is not None:
            self._timer.cancel()
        for shared in self._shared:
            shared.stop_serving(self)
        pipes = list(self._connected)
        cancelled = None
        # One after the other whatever happens: a cancellation ends the waiting, not the closing.
        endpoints: list[Listener | Dialer] = [*self.listeners, *self.dialers]
        for endpoint in endpoints:
            try:
                await endpoint.aclose()
            except asyncio.CancelledError as error:
                cancelled = error
        try:
            if cancelled is None:
                await self._drained(pipes)
        finally:
            for pipe in pipes:
                pipe.close(CLOSED)
                pipe.connection.abort()
        if cancelled is not None:
            raise cancelled
        for pipe in pipes:
            await pipe.connection.wait_closed()

    async def _drained(self, pipes: list[Pipe]) -> None:
        for pipe in pipes:
            pipe.close(CLOSED, flush=True)
        try:
            async with asyncio.timeout(self.options.linger_s):
                for pipe in pipes:
                    await pipe.connection.wait_closed()
        except TimeoutError:
            pass

    # --- endpoints

    def dial(self, url: str, *, options: SocketOptions | None = None) -> Started[Dialer]:
        """Keep a connection to ``url``, for ever; works whether awaited or not, and does not wait for it.

        `wait_for_peers` does. ``options`` are those of the connections (see `SocketOptions`), by default the
        socket's. Raises `AddressError` for a URL that can never work.
        """
        self._check_open()
        self._enter_loop()
        dialer = Dialer(self, url, options)
        dialer.forget = self._forget_endpoint
        dialer.start()
        self.dialers.append(dialer)
        return Started(dialer)

    async def dial_once(
        self, url: str, timeout: TimeLimit = DEFAULT, *, options: SocketOptions | None = None
    ) -> Pipe:
        """One attempt, handshake included, and no second one when the peer goes.

        ``timeout`` is ``handshake_timeout_s`` by default, which bounds the handshake in any case.

        Raises:
            ConnectionRefused, AddressError, HandshakeError, Timeout: no connection; see each.
            PipeRefused: this socket did not want the peer.
        """
        self._check_open()
        self._enter_loop()
        limit_s = seconds(timeout, (options or self.options).handshake_timeout_s)
        return await dial_once(self, url, limit_s, options)

    @overload
    def listen(self, where: SharedListener) -> Started[SharedListener]: ...

    @overload
    def listen(
        self, where: str, *, options: SocketOptions | None = None
    ) -> Coroutine[Any, Any, Listener]: ...

    def listen(
        self, where: str | SharedListener, *, options: SocketOptions | None = None
    ) -> Started[SharedListener] | Coroutine[Any, Any, Listener]:
        """Accept peers at a URL (``.url`` of what awaiting gives has port 0 resolved), or through a
        `SharedListener`, which serves this socket from now on (it need not be awaited).

        ``options`` are those of the connections, by default the socket's; a shared listener has its own.

        Raises:
            AddressInUse, AddressError: cannot listen there.
            StateError: the shared listener has a socket for our peers already.
        """
        self._check_open()
        if not isinstance(where, SharedListener):
            return self._listen(check_string(where), options)
        if options is not None:
            raise TypeError("a SharedListener has options of its own: SharedListener(url, options=...)")
        where.serve(self)
        self._shared.append(where)
        return Started(where)

    async def _listen(self, url: str, options: SocketOptions | None) -> Listener:
        self._enter_loop()
        listener = Listener(self, url, options)
        await listener.start()
        if self.closed:
            await listener.aclose()
            raise Closed(CLOSED)
        listener.forget = self._forget_endpoint
        self.listeners.append(listener)
        return listener

    async def wait_for_peers(self, count: int = 1, timeout: float | None = None) -> None:
        """Return once ``count`` peers are attached; ``timeout`` None is for ever. Raises `Timeout`."""
        self._check_entered()
        self._enter_loop()
        deadline = deadline_of(seconds(timeout, None))
        while len(self._pipes) < count:
            self._check_open()
            if not await self._peer_waiters.wait(deadline):
                raise Timeout(f"{len(self._pipes)} of {count} peers within {timeout:g} s")

    def events(self, *, limit: int = EVENTS_MAX) -> PipeEvents:
        """What becomes of peers from now on, to iterate over; ends when the socket has closed.

        ``limit`` events wait for a slow reader; then the oldest are dropped and counted in ``.missed``.
        """
        self._check_open()
        return self._news.open(limit)

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(CLOSED)

    def _check_entered(self) -> None:
        if isinstance(self._any_lane, RefusingLane):
            self._any_lane.take()

    def _enter_loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, which must be the one that this socket has been used in before, if any."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._senders.settle(loop)
            self._receivers.settle(loop)
            self._loop = loop
        return loop

    def _forget_endpoint(self, endpoint: Dialer | Acceptor) -> None:
        """Closed by hand; those that close with the socket can still be asked for their statistics."""
        if self._closing is None:
            if isinstance(endpoint, Dialer):
                self.dialers = [each for each in self.dialers if each is not endpoint]
            else:
                self.listeners = [each for each in self.listeners if each is not endpoint]

    # --- contexts

    def new_context(self) -> ContextLife:
        """A reader or conversation of its own on this socket. Raises `NotSupported` for patterns without."""
        raise NotSupported(f"{self._pattern.name} sockets have no contexts")

    def _forget_context(self, context: Channel) -> None:
        self._contexts.remove(context)

    # --- raw

    def send_to(self, pipe: Pipe, frames: list[bytes], *, control: bool = False) -> bool:
        """Raw: queue whole frames for one peer, all or none; False: it is full (or gone).

        The receiver's ``pipe_writable`` follows a refusal. ``control`` frames go ahead of all others and
        are never refused; a peer that lets thousands pile up loses its pipe.
        """
        if not self.raw:
            raise NotSupported("send_to is for raw sockets; pass raw=True")
        if control:
            for frame in frames:
                pipe.send_control(frame)
            return not pipe.closed
        if len(frames) == 1:
            return pipe.send(frames[0])
        if len(frames) > self.options.send_queue:
            raise ValueError(f"{len(frames)} frames never fit in a queue of {self.options.send_queue}")
        assert isinstance(pipe, OutputPipe)
        return pipe.send_all(frames)

    async def recv_many(self, timeout: TimeLimit = DEFAULT) -> list[bytes]:
        if self.raw:
            raise NotSupported("a raw socket tells pipes apart: use recv_run()")
        return await super().recv_many(timeout)

    async def recv_run(self, timeout: TimeLimit = DEFAULT) -> tuple[Pipe, list[bytes]]:
        """Raw, without a receiver: everything that waits from one peer, peers in turn."""
        pattern = self._raw_pattern()
        return await self._taken(lambda: self._still_open(pattern.take_run()), timeout)

    async def recv_message(self, timeout: TimeLimit = DEFAULT) -> Message:
        """Raw, without a receiver: one frame, its header apart and its peer named."""
        pattern = self._raw_pattern()
        pipe, frame = await self._taken(lambda: self._still_open(pattern.take_frame()), timeout)
        offset = pattern.header_size(frame)
        return Message(pipe, frame[:offset], frame[offset:])

    def send_message(self, message: Message) -> bool:
        """Raw: queue one message for its pipe; False: it is full (or gone)."""
        return self.send_to(message.pipe, [message.frame])

    def _raw_pattern(self) -> Raw:
        if not isinstance(self._pattern, Raw):
            raise NotSupported("only raw sockets tell pipes apart; pass raw=True")
        if self._receiver is not None:
            raise NotSupported("this socket's frames go to its receiver")
        return self._pattern

    def _still_open(self, taken: Any) -> Any:
        self._check_open()
        return taken

    # --- what is there

    @property
    def pipes(self) -> list[Pipe]:
        """The attached peers, oldest first."""
        return list(self._pipes.values())

    def statistics(self) -> SocketStatistics:
        present = [pipe.statistics() for pipe in self._pipes.values()]
        total = sum_of(self._departed.counters, *present)
        return SocketStatistics(
            protocol=self._pattern.name,
            peers=len(present),
            attached=self._attached,
            detached=self._attached - len(present),
            frames_in=total.frames_in,
            bytes_in=total.bytes_in,
            frames_out=total.frames_out,
            bytes_out=total.bytes_out,
            refused=total.refused,
            queued=sum(pipe.queued for pipe in present),
            drops=dict(self._pattern.drops),
            closed=dict(self._departed.by_cause),
            recently_closed=tuple(self._departed.recent),
        )

    # --- EndpointOwner

    def attach(self, connection: Connection, *, url: str, dialed: bool) -> Pipe:
        """Make a pipe of a connection. Raises `PipeRefused`. For endpoints."""
        if self.closed:
            raise PipeRefused(CLOSED)
        if len(self._pipes) >= self.options.peers_max:
            sentence = f"{len(self._pipes)} peers are all there may be; the option peers_max raises that"
            raise PipeRefused(sentence, reason="too many peers")
        now = self._enter_loop().time()
        limit = self.options.send_queue
        kind = WeighedPipe if self._receiver is None else OutputPipe
        pipe = kind(self._new_pipe_id(), connection, self, url=url, dialed=dialed, limit=limit)
        pipe.linger_s = self.options.linger_s
        self._news.tell("attaching", pipe)
        self._ask_for_admission(pipe)
        self._pattern.pipe_attached(pipe, now)
        self._pipes[pipe.id] = pipe
        self._attached += 1
        if self._receiver is not None:
            self._hand_to_receiver(pipe, self._receiver)
        if not pipe.closed:
            self._news.tell("attached", pipe)
        self._connected[pipe] = None
        try:
            connection.start(pipe)
        except BaseException as error:
            pipe.close(f"the connection could not start: {error!r}")
            raise
        self._arm()  # requests may have found a peer
        self._peer_waiters.wake_all()
        return pipe

    def _ask_for_admission(self, pipe: Pipe) -> None:
        if self._admit is None:
            return
        try:
            self._admit(pipe)
        except PipeRefused:
            raise
        except Exception as error:  # a peer that nobody has admitted is refused
            raise self._hook_failed("the admit hook", error) from error
        if pipe.closed:
            raise PipeRefused(pipe.close_reason)

    def _hand_to_receiver(self, pipe: OutputPipe, receiver: Receiver) -> None:
        """The receiver may refuse the pipe, or close it, which then was never told to be attached."""
        before, self._attaching = self._attaching, pipe
        try:
            receiver.pipe_attached(pipe)
        except PipeRefused:
            self._undo_attach(pipe)
            raise
        except Exception as error:
            self._undo_attach(pipe)
            raise self._hook_failed("pipe_attached of the receiver", error) from error
        finally:
            self._attaching = before

    def _undo_attach(self, pipe: OutputPipe) -> None:
        if self._pipes.pop(pipe.id, None) is not None:
            self._attached -= 1
            self._pattern.pipe_detached(pipe, self._now())

    def _hook_failed(self, which: str, error: Exception) -> PipeRefused:
        """A user's function raised: the loop's exception handler is told, and the peer is refused."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{which} of {self!r} failed", "exception": error}
        )
        return PipeRefused(f"{which} failed: {error!r}", reason="hook failed")

    def _new_pipe_id(self) -> int:
        """Counted from a random start, so that ids of two runs differ; unique among this socket's pipes."""
        while True:
            self._last_pipe_id = self._last_pipe_id % PIPE_ID_MAX + 1
            if self._last_pipe_id not in self._pipes:
                return self._last_pipe_id

    # --- PipeOwner

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        pattern = self._pattern
        now = self._now() if self._hears_time else 0.0
        pattern.received(self._pipes[pipe.id], frames, now)

    def pipe_writable(self, pipe: Pipe) -> None:
        self._pattern.pipe_writable(self._pipes[pipe.id], self._now())
        if self._receiver is not None:
            self._receiver.pipe_writable(pipe)
        self._arm()  # a request may have found room

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        attached = self._pipes.pop(pipe.id, None)
        if attached is None:
            return  # the admit hook closed it
        self._departed.add(attached)
        if not self.closed:
            self._pattern.count_lost(attached)
        self._pattern.pipe_detached(attached, self._now())
        if self._receiver is not None:
            self._receiver.pipe_detached(pipe, reason)
        if not self.closed:
            self._arm()  # a request may have gone to another peer
        if self._attaching is not pipe:
            self._news.tell("detached", pipe, reason)

    def pipe_gone(self, pipe: Pipe) -> None:
        self._connected.pop(pipe, None)

    # --- time

    def _now(self) -> float:
        loop = self._loop
        if loop is None:
            loop = self._enter_loop()
        return loop.time()

    def _arm(self) -> None:
        timer = self._timer
        if timer is not None and self._pattern.deadlines_ascend:
            return
        deadline = self._pattern.next_deadline()
        if deadline is None or (timer is not None and timer.when() <= deadline):
            return  # a timer that fires early finds nothing due and is set again
        if timer is not None:
            timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._deadline_reached)

    def _deadline_reached(self) -> None:
        self._timer = None
        self._pattern.deadline_reached(self._now())
        self._arm()
