"""The core of a blocking socket behind its calls: a pattern, its pipes, its endpoints and one lock.

A call takes the lock, asks its lane, and waits on the lock if the lane has nothing. The I/O thread takes the
lock to read, write and keep time, and wakes waiting threads. So any thread may make any call, and several may
make calls at once.

Threads refer to the core, and the core does not refer to the socket. If a program drops an open socket, the
I/O thread closes it (`abandon`). It also closes what a dropped context leaves behind (`drop_lane`). A context
keeps its socket alive.

The I/O thread also does the closing. A thread that calls `close` marks the core, wakes the I/O thread and
waits for it to end. A signal handler in the middle of a call does not wait: the I/O thread closes when that
call releases the lock. So no call loses its peers while it runs. A call that Ctrl-C interrupts makes the I/O
thread check everything again (`ended_by`).
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from protocols.blocking.connecting import WAIT_S
from protocols.blocking.dialling import Dialer
from protocols.blocking.io_thread import IoThread
from protocols.blocking.listening import Listener
from protocols.blocking.lock import BlockingLock
from protocols.blocking.log_thread import LogThread
from protocols.blocking.stream import Stream
from protocols.errors import Closed, PipeRefused
from protocols.patterns.base import Lane, Pattern
from protocols.pipe import Pipe
from protocols.pipe_view import PipeView
from protocols.roster import Roster
from protocols.wire.handshake import Greeting

T = TypeVar("T")

CLOSED: Final = "the socket is closed"
JOIN_S: Final = 0.5
"""Seconds that closing waits for a logging handler, and for a dialling thread: nothing can interrupt a name
look-up.
"""


class Core:
    """See the module. ``name`` is the socket's name in messages."""

    def __init__(self, name: str, pattern: Pattern, rng: random.Random) -> None:
        self.name = name
        self.pattern = pattern
        self.options = pattern.options
        self.rng = rng
        self.greeting = Greeting.of(int(pattern.protocol), int(pattern.peer))
        self.lock = BlockingLock("socket")
        """Held by every call, and by the I/O thread while it works."""
        self.log = LogThread(f"log of {name}", self.lock)
        self.closed = False
        """Once true, calls raise `Closed`, and the I/O thread does the rest."""
        self.dialers: list[Dialer] = []
        self.listeners: list[Listener] = []
        """Endpoints that were not closed explicitly."""
        self._dialling: list[Dialer] = []
        """All endpoints whose thread may be running."""
        self.roster = Roster(pattern)
        self._lanes: list[Lane] = []
        self._dropped: deque[Lane] = deque()
        self._io: IoThread | None = None
        self._closing = False
        """The I/O thread has begun to close."""
        self._cutting = False
        """Closing does not wait for the peers to read what is queued."""
        self._armed: float | None = None

    def __repr__(self) -> str:
        return f"<blocking {self.name} with {len(self.roster.pipes)} peers>"

    # --- calls

    def settle(self) -> None:
        """Write what this call queued. Every call that may have queued something ends with this."""
        if self._io is not None:
            self._io.settle()

    def now(self) -> float:
        """The clock of patterns and of the I/O thread."""
        return time.monotonic()

    def check_open(self) -> None:
        if self.closed:
            raise Closed(CLOSED)

    def wait(self, look: Callable[[], T | None], limit_s: float | None) -> T | None:
        """Return the first value of ``look`` that is not None, or None when the time is up. Call it with the
        lock.
        """
        deadline = None if limit_s is None else time.monotonic() + limit_s
        try:
            while True:
                told = self.lock.told
                if (found := look()) is not None:
                    return found
                left_s = WAIT_S if deadline is None else deadline - time.monotonic()
                if left_s <= 0:
                    return None
                self.settle()
                self.lock.wait(min(left_s, WAIT_S), told)
        except BaseException as error:
            self.ended_by(error)
            raise

    def ended_by(self, error: BaseException) -> None:
        """End an interrupted call. Ctrl-C can strike anywhere, so the I/O thread completes what is left
        undone.
        """
        if not isinstance(error, Exception) and self._io is not None:
            self._io.look_again()

    def open_lane(self, lane: Any) -> None:
        """Make a lane notify waiting threads. It is closed with the socket."""
        self._close_dropped()
        lock = self.lock
        lane.readable = lambda count: lock.notify_all()
        lane.writable = lock.notify_all
        self._lanes.append(lane)

    def close_lane(self, lane: Lane) -> None:
        """Close a lane. The call may be repeated if it was interrupted."""
        if lane in self._lanes:
            lane.close()
            self._lanes.remove(lane)
            self.settle()
            self.lock.notify_all()

    def drop_lane(self, lane: Lane) -> None:
        """Have the I/O thread close the lane.

        Any thread may call this, whatever locks it holds: the garbage collector may run anywhere, even inside
        a pattern. Without an I/O thread, the next context to be opened closes the lane.
        """
        self._dropped.append(lane)
        if self._io is not None:
            self._io.wake()

    def _close_dropped(self) -> None:
        while self._dropped:
            self.close_lane(self._dropped.popleft())

    # --- life

    @property
    def io(self) -> IoThread:
        """The I/O thread. The first use starts it."""
        if self._io is None:
            self._io = IoThread(f"i/o of {self.name}", self.lock, self)
            if self.closed:  # a signal handler closed it just now
                self._io.wake()
        return self._io

    @property
    def forgotten(self) -> bool:
        """True if the program should have closed the socket, and still can."""
        return self._io is not None and not self.closed and not self.lock.foreign

    def close(self) -> None:
        """Close, after giving the peers up to ``linger_s`` to read what is queued for them.

        An interrupted close still closes everything, but does not wait for what is queued. A second call
        waits for the first.
        """
        if self.lock.foreign:
            self.closed = True  # a forked child: the connections are its parent's
            return
        try:
            self.closed = True
            if self._close_soon():
                return
            with self.lock.held:
                if self._io is None:
                    self._shut()
                    return
                self.wait(self._has_ended, None)
                self.wait(self._dialers_ended, JOIN_S)
        except BaseException:
            self._cutting = True
            self._close_soon()
            raise
        self._join()

    def _close_soon(self) -> bool:
        """Have the I/O thread close. Returns True if the caller cannot wait for that."""
        if self._io is not None:
            self._io.wake()
        if self.lock.owned:
            self.lock.notify_all()
            return True
        return False

    def _has_ended(self) -> bool | None:
        return None if self._io is None or not self._io.ended else True

    def _dialers_ended(self) -> bool | None:
        return all(dialer.ended for dialer in self._dialling) or None

    def _join(self) -> None:
        """Wait for the last steps of the threads, which need no lock."""
        if self._io is not None:
            self._io.join()
        for dialer in self._dialling:
            if dialer.ended:
                dialer.join(JOIN_S)
        self.log.join(JOIN_S)

    def abandon(self) -> None:
        """Close without a caller. Any thread may call this, whatever locks it holds; the I/O thread does the
        work.
        """
        self.closed = True
        if self._io is not None:
            self._io.wake()

    def woken(self) -> None:
        """The I/O thread calls this after somebody woke it."""
        self._close_dropped()
        if self.closed and not self._closing:
            self._begin_close()
        if self._cutting:
            self._cut()

    def look_again(self) -> None:
        """The I/O thread calls this after a call was interrupted anywhere."""
        for pipe in list(self.roster.connected):
            stream = pipe.connection
            assert isinstance(stream, Stream)
            stream.look_again()
        self._armed = None
        if not self.closed:
            self.arm()

    def failed(self, error: BaseException) -> None:
        """The I/O thread failed by a defect: close the socket, so that no caller waits forever."""
        self._shut()
        self._close_endpoints()
        self._cut()

    def thread_ended(self) -> None:
        """The I/O thread calls this when it no longer needs the lock."""
        self.log.stop()
        self.lock.notify_all()

    def _begin_close(self) -> None:
        """In the I/O thread: end once the peers have read what is queued, or ``linger_s`` is over."""
        self._closing = True
        if self.options.linger_s is not None:
            self.io.call_at(self.now() + self.options.linger_s, self._cut)
        self._shut()
        self._close_endpoints()
        for pipe in list(self.roster.connected):
            pipe.close(CLOSED, flush=True)
        self.settle()
        self._end_if_drained()

    def _shut(self) -> None:
        self.closed = True
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        self.lock.notify_all()

    def _close_endpoints(self) -> None:
        for dialer in self.dialers:
            dialer.close()
        for listener in self.listeners:
            listener.close()

    def _cut(self) -> None:
        for pipe in list(self.roster.connected):
            pipe.connection.abort()
        self.io.stop()

    def _end_if_drained(self) -> None:
        if self._closing and not self.roster.connected:
            self.io.stop()

    # --- time

    def arm(self) -> None:
        """Make the I/O thread tell the pattern when it reaches the next deadline."""
        deadline = self.pattern.next_deadline()
        if deadline is not None and (self._armed is None or deadline < self._armed):
            self.io.call_at(deadline, self._deadline_reached)
            self._armed = deadline

    def _deadline_reached(self) -> None:
        if self.closed:
            return
        now = self.now()
        if self._armed is not None and self._armed <= now:
            self._armed = None
        self.pattern.deadline_reached(now)
        self.arm()

    # --- endpoints, with the lock

    def dial(self, url: str) -> Dialer:
        self.check_open()
        dialer = Dialer(self, url)
        self._dialling = [each for each in self._dialling if not each.ended] + [dialer]
        self.dialers.append(dialer)
        self._start(dialer)
        return dialer

    def listen(self, url: str) -> Listener:
        self.check_open()
        listener = Listener(self, url)
        self.listeners.append(listener)
        self._start(listener)
        return listener

    def _start(self, endpoint: Dialer | Listener) -> None:
        """Start an endpoint that is already in its list, so that `close` finds it if this call is
        interrupted.
        """
        try:
            endpoint.start()
        except BaseException:
            endpoint.close()
            raise

    def forget(self, endpoint: object) -> None:
        """Forget an endpoint that was closed explicitly. Those that close with the socket keep their
        statistics.
        """
        if not self.closed:
            self.dialers = [each for each in self.dialers if each is not endpoint]
            self.listeners = [each for each in self.listeners if each is not endpoint]

    def attach(self, stream: Stream, *, url: str, dialed: bool) -> Pipe:
        """Make a pipe of a stream, completely or not at all. Raises `PipeRefused`."""
        if self.closed:
            raise PipeRefused(CLOSED)
        pipe = self.roster.new_pipe(stream, self, url=url, dialed=dialed)
        pipe.view = SafeView(pipe)
        self.roster.attach(pipe, self.now())
        self.roster.connected[pipe] = None
        stream.start(pipe)
        self.arm()
        self.lock.notify_all()
        return pipe

    # --- PipeOwner

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        self.pattern.received(pipe, frames, self.now())

    def pipe_writable(self, pipe: Pipe) -> None:
        self.pattern.pipe_writable(pipe, self.now())
        self.arm()

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        if not self.roster.detach(pipe, self.now(), closing=self.closed):
            return
        if not self.closed:
            self.arm()
        self.lock.notify_all()

    def pipe_gone(self, pipe: Pipe) -> None:
        self.roster.connected.pop(pipe, None)
        self._end_if_drained()
        self.lock.notify_all()


class SafeView(PipeView):
    """A peer, as programs see it. Any thread may close it."""

    __slots__ = ()

    def close(self, reason: str, *, flush: bool = False) -> None:
        """Have the I/O thread close the pipe, and wait for that, except in the middle of an interrupted
        call.
        """
        core, pipe = self._pipe.owner, self._pipe
        assert isinstance(core, Core)
        in_a_call = core.lock.owned
        with core.lock.held:
            core.io.call_at(core.now(), partial(pipe.close, reason, flush=flush))
            if not in_a_call:
                core.wait(lambda: pipe.closed or core.io.ended or None, None)
