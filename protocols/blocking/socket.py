"""Blocking sockets: the same patterns for programs without an event loop, from any thread.

One lock a socket. A call takes it, asks its lane, and waits on it where the lane has nothing; the socket's
I/O thread takes it to read, write and keep time, and tells all who wait. So every call may be made by any
thread, and several at once.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar, Unpack

from protocols.blocking.endpoints import Dialer, Listener
from protocols.blocking.io_thread import IoThread
from protocols.blocking.stream import Stream
from protocols.channel import REPLACED, Body, as_bytes
from protocols.dial_schedule import backoff_s
from protocols.errors import (
    Closed,
    NoPeers,
    NotSupported,
    PartlySent,
    PipeRefused,
    SPError,
    StateError,
    Timeout,
    WouldBlock,
)
from protocols.message import Message
from protocols.options import DEFAULT, OptionKeywords, SocketOptions, TimeLimit, seconds
from protocols.patterns.base import Pattern, QueueLane, StateLane
from protocols.pipe import Pipe
from protocols.pipe_view import PipeView, view_of
from protocols.socket import Addresses, options_of
from protocols.statistics import Departures, SocketStatistics, sum_of
from protocols.transports.base import url_list
from protocols.wire.handshake import Greeting

T = TypeVar("T")

CLOSED: Final = "the socket is closed"
PIPE_ID_MAX: Final = 0x7FFFFFFF
WAIT_S: Final = 3600.0
"""Longest single wait: a longer one, or one without an end, is several. The system's clocks have bounds."""


class Channel:
    """A lane and the lock under which it is used: what sockets and contexts have in common."""

    closed = False
    _ends: ClassVar[tuple[type[SPError], ...]] = (Closed,)
    """What ends an iteration."""

    def _open(self, socket: Socket, lane: Any) -> None:
        self._socket = socket
        self._lane: Any = lane
        self._receiving = False
        lane.readable = lambda count: socket.lock.notify_all()
        lane.writable = socket.lock.notify_all

    # --- calls

    def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        """Hand one message to the pattern, which decides whether that may wait, and for what.

        Raises:
            Timeout, Closed: as they say.
            StateError: it is not this side's turn.
            NoPeers: with ``fail_without_peers``.
            NotSupported: the pattern only receives.
        """
        frame = as_bytes(body)
        limit_s = seconds(timeout, self._socket.options.send_timeout_s)
        with self._socket.call():
            if self._put(frame, None):
                return
            epoch = getattr(self._lane, "epoch", None)
            taken = self._socket.wait(lambda: self._put(frame, epoch) or None, limit_s)
            if taken is None:
                raise Timeout(f"no peer took the message within {limit_s:g} s")

    def recv(self, timeout: TimeLimit = DEFAULT) -> bytes:
        """The next message. Late, none was taken.

        Raises:
            Timeout, Closed: as they say.
            StateError: nothing can come now.
            NotSupported: the pattern only sends.
        """
        with self._socket.call():
            return self._take(timeout)

    def recv_message(self, timeout: TimeLimit = DEFAULT) -> Message[PipeView]:
        """As `recv`, with the peer that sent it."""
        with self._socket.call():
            body = self._take(timeout)
            return Message(view_of(self._lane.origin()), b"", body)

    def send_nowait(self, body: Body) -> None:
        """As `send`, but raises `WouldBlock` instead of waiting."""
        with self._socket.call():
            if not self._put(as_bytes(body), None):
                raise WouldBlock("no peer has room for the message")

    def recv_nowait(self) -> bytes:
        """As `recv`, but raises `WouldBlock` instead of waiting."""
        with self._socket.call():
            body = self._get(False)
            if body is None:
                raise WouldBlock("nothing has been received")
            return body

    def send_many(self, bodies: Sequence[Body], timeout: TimeLimit = DEFAULT) -> None:
        """Send in order, waiting for room as often as needed.

        Late, some leading messages have been sent: the `PartlySent` (a `Timeout`) says how many, as do
        `Closed` and `NoPeers`, in ``sent``.
        """
        ready = [as_bytes(body) for body in bodies]
        socket = self._socket
        limit_s = seconds(timeout, socket.options.send_timeout_s)
        sent = 0

        def put() -> bool | None:
            nonlocal sent
            while sent < len(ready):
                piece = ready[sent : sent + socket.options.send_queue]
                taken = self._queue().put_many(piece)
                sent += taken
                socket.io().settle()
                if taken < len(piece):
                    return None
            return True

        with socket.call():
            try:
                if put() is None and socket.wait(put, limit_s) is None:
                    raise PartlySent(sent, len(ready))
            except (Closed, NoPeers) as error:
                error.sent = sent
                raise

    def recv_many(self, timeout: TimeLimit = DEFAULT) -> list[bytes]:
        """All messages that are there, at least one."""
        with self._socket.call():
            self._queue()
            bodies = [self._take(timeout)]
            inbox = self._queue().inbox
            if inbox:
                bodies += inbox
                inbox.clear()
                self._queue().emptied()
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
        if isinstance(lane, QueueLane):
            taken = lane.put(frame)
        else:
            taken = lane.send(frame, self._socket.io().time(), epoch)
            self._socket.lock.notify_all()  # a request or survey may have been replaced
            self._socket.arm()
        self._socket.io().settle()
        return taken

    def _get(self, waited: bool) -> bytes | None:
        self._check_open()
        lane = self._lane
        if isinstance(lane, QueueLane):
            return lane.take()
        body: bytes | None = lane.recv(self._socket.io().time(), waited)
        return body

    def _take(self, timeout: TimeLimit) -> bytes:
        socket, lane = self._socket, self._lane
        limit_s = seconds(timeout, socket.options.recv_timeout_s)
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
            body = socket.wait(look, limit_s)
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
        if self.closed:
            raise Closed(CLOSED if self is self._socket else "the context is closed")

    def _shut(self) -> None:
        if not self.closed:
            self.closed = True
            self._lane.close()
            self._socket.lock.notify_all()


class Socket(Channel):
    """Everything that is the same for all patterns.

    Args:
        dial: URLs to keep a connection to, from now on.
        listen: URLs to accept connections at, from now on.
        options: see `SocketOptions`; single ones may be given by keyword, as in ``send_queue=16``.
        rng: the source of ids and jitter; by default one of its own, seeded by the system.
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
        self.options = options_of(options, keywords)
        self.lock = threading.Condition(threading.RLock())
        """Held by every call, and by the I/O thread while it works."""
        self.dialers: list[Dialer] = []
        self.listeners: list[Listener] = []
        self._rng = rng or random.Random()
        self._pattern = self._pattern_type(self.options, self._rng)
        self.greeting = Greeting.of(int(self._pattern.protocol), int(self._pattern.peer))
        self._pid = os.getpid()
        self._io: IoThread | None = None
        self._pipes: dict[int, Pipe] = {}
        self._connected: dict[Pipe, None] = {}  # those attached, and those that drain after their close
        self._contexts: list[Channel] = []
        self._last_pipe_id = self._rng.getrandbits(31)
        self._attached = 0
        self._departed = Departures()
        self._armed: float | None = None
        self._failure = ""
        self._open(self, self._pattern.lane)
        try:
            for url in url_list(listen):
                self.listen(url)
            for url in url_list(dial):
                self.dial(url)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<blocking {type(self).__name__} with {len(self._pipes)} peers>"

    # --- life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close, after giving the peers up to ``linger_s`` to read what is queued for them.

        Calls that wait in other threads raise `Closed`.
        """
        if os.getpid() != self._pid:
            self.closed = True  # a forked child: the connections are its parent's
            return
        with self.lock:
            if self.closed:
                return
            for channel in (self, *self._contexts):
                channel._shut()
            self._contexts.clear()
            for dialer in self.dialers:
                dialer.close()
            for listener in self.listeners:
                listener.close()
            io = self._io
            if io is not None:
                for pipe in list(self._connected):
                    pipe.close(CLOSED, flush=True)
                io.settle()
                self.wait(lambda: not self._connected or None, self.options.linger_s)
                for pipe in list(self._connected):
                    pipe.connection.abort()
                io.stop()
        if io is not None:
            io.join()
        for dialer in self.dialers:
            dialer.join(self.options.handshake_timeout_s)

    def io(self) -> IoThread:
        """The I/O thread, which begins with the first use."""
        if self._io is None:
            self._io = IoThread(f"i/o of {type(self).__name__}", self.lock, self._io_failed)
        return self._io

    def _io_failed(self, error: BaseException) -> None:
        self._failure = f"the I/O thread ended by a defect: {error!r}"
        for channel in (self, *self._contexts):
            channel._shut()

    # --- endpoints

    def dial(self, url: str) -> Dialer:
        """Keep a connection to ``url``, for ever. Returns at once; `Dialer.wait_connected` waits for a peer.

        Raises `AddressError` for a URL that can never work.
        """
        with self.call():
            self._check_open()
            dialer = Dialer(self, url)
            self.dialers.append(dialer)
            return dialer

    def listen(self, url: str) -> Listener:
        """Accept peers at ``url``; the listener's ``.url`` has port 0 resolved.

        Raises:
            AddressInUse, AddressError: cannot listen there.
        """
        with self.call():
            self._check_open()
            listener = Listener(self, url)
            self.listeners.append(listener)
            return listener

    # --- who is there

    @property
    def protocol(self) -> int:
        """Our protocol number."""
        return int(self._pattern.protocol)

    @property
    def peer(self) -> int:
        """The number of the protocol that we talk to."""
        return int(self._pattern.peer)

    @property
    def pipes(self) -> list[PipeView]:
        """The attached peers, oldest first."""
        with self.lock:
            return [view_of(pipe) for pipe in self._pipes.values()]

    def wait_for_peers(self, count: int = 1, timeout: float | None = None) -> None:
        """Return once ``count`` peers are attached; ``timeout`` None is for ever. Raises `Timeout`."""
        limit_s = seconds(timeout, None)

        def look() -> bool | None:
            self._check_open()
            return True if len(self._pipes) >= count else None

        with self.call():
            if look() is None and self.wait(look, limit_s) is None:
                raise Timeout(f"{len(self._pipes)} of {count} peers within {limit_s:g} s")

    def statistics(self) -> SocketStatistics:
        with self.lock:
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

    # --- for channels and endpoints, with the lock

    def call(self) -> Call:
        """The lock, of this process; what a call queued is written at its end."""
        if os.getpid() != self._pid:
            raise StateError("this socket is another process's; after a fork each makes its own")
        return Call(self)

    def wait(self, look: Callable[[], T | None], limit_s: float | None) -> T | None:
        """What ``look`` gives, as soon as it gives something; None when the time is over."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while (found := look()) is None:
            left_s = WAIT_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                return None
            if self._io is not None:
                self._io.settle()
            self.lock.wait(min(left_s, WAIT_S))
        return found

    def arm(self) -> None:
        """Have the I/O thread tell the pattern when its next deadline is reached."""
        deadline = self._pattern.next_deadline()
        if deadline is not None and (self._armed is None or deadline < self._armed):
            self._armed = deadline
            self.io().call_at(deadline, self._deadline_reached)

    def _deadline_reached(self) -> None:
        now = self.io().time()
        if self._armed is not None and self._armed <= now:
            self._armed = None
        self._pattern.deadline_reached(now)
        self.arm()

    def backoff_s(self, failures: int) -> float:
        return backoff_s(failures, self.options.reconnect_min_s, self.options.reconnect_max_s, self._rng)

    def attach(self, stream: Stream, *, url: str, dialed: bool) -> Pipe:
        if self.closed:
            raise PipeRefused(CLOSED)
        if len(self._pipes) >= self.options.peers_max:
            sentence = f"{len(self._pipes)} peers are all there may be; the option peers_max raises that"
            raise PipeRefused(sentence, reason="too many peers")
        pipe = Pipe(self._new_pipe_id(), stream, self, url=url, dialed=dialed, limit=self.options.send_queue)
        pipe.linger_s = self.options.linger_s
        self._pattern.pipe_attached(pipe, self.io().time())
        self._pipes[pipe.id] = pipe
        self._connected[pipe] = None
        self._attached += 1
        stream.start(pipe)
        self.arm()
        self.lock.notify_all()
        return pipe

    def _new_pipe_id(self) -> int:
        while True:
            self._last_pipe_id = self._last_pipe_id % PIPE_ID_MAX + 1
            if self._last_pipe_id not in self._pipes:
                return self._last_pipe_id

    # --- PipeOwner

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        self._pattern.received(pipe, frames, self.io().time())

    def pipe_writable(self, pipe: Pipe) -> None:
        self._pattern.pipe_writable(pipe, self.io().time())
        self.arm()

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        if self._pipes.pop(pipe.id, None) is None:
            return
        self._departed.add(pipe)
        if not self.closed:
            self._pattern.count_lost(pipe)
        self._pattern.pipe_detached(pipe, self.io().time())
        if not self.closed:
            self.arm()
        self.lock.notify_all()

    def pipe_gone(self, pipe: Pipe) -> None:
        self._connected.pop(pipe, None)
        self.lock.notify_all()


class Call:
    """One call: holds the lock, and writes at its end what it queued."""

    __slots__ = ("_socket",)

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    def __enter__(self) -> None:
        self._socket.lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            io = self._socket._io
            if io is not None:
                io.settle()
        finally:
            self._socket.lock.release()


class Context(Channel):
    """A conversation of its own, or topics of its own, on a shared socket; for one thread each."""

    def __init__(self, socket: Socket, lane: Any) -> None:
        self._open(socket, lane)

    def close(self) -> None:
        """Give up what is under way; calls that wait here raise `Closed`."""
        with self._socket.lock:
            if not self.closed:
                self._shut()
                self._socket._contexts.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
