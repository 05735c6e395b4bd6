"""The thread that reads, writes and keeps time for one blocking socket.

It works with the socket's lock held, but for waiting: so patterns and pipes are touched by one thread at a
time. A caller's thread holds the same lock during its call, and writes what that call queued at its end
(`settle`); what the kernel does not take then, this thread writes.

Ctrl-C and signal handlers come to callers, never to this thread. What an interrupted call may have left
undone is done here (`look_again`): when this thread has the lock, no call is in the middle of anything.
"""

from __future__ import annotations

import contextlib
import heapq
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from protocols.blocking.connecting import WAIT_S
from protocols.blocking.lock import BlockingLock
from protocols.blocking.stream import Stream


class Owner(Protocol):
    """The core of a socket, as its thread sees it; both with the lock."""

    def woken(self) -> None:
        """Somebody called `IoThread.wake`."""

    def look_again(self) -> None:
        """Somebody called `IoThread.look_again`."""

    def failed(self, error: BaseException) -> None:
        """A defect ends the thread."""

    def thread_ended(self) -> None:
        """The thread does nothing more with the lock."""


class Watched(Protocol):
    """What has news from the kernel."""

    def happened(self, events: int) -> None: ...


class IoThread:
    """See the module; ``lock`` is the socket's. Raises OSError where the system has no descriptor left, and
    RuntimeError where it has no thread."""

    def __init__(self, name: str, lock: BlockingLock, owner: Owner) -> None:
        self.ended = False
        """It does nothing more with the lock."""
        self._lock = lock
        self._owner = owner
        self._selector = selectors.DefaultSelector()
        self._wakers: tuple[socket.socket, ...] = ()
        self._watched: dict[Any, tuple[Watched | None, int]] = {}
        """What the selector watches. It is made again of this."""
        self._disturbed = False
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._sleeps_until: float | None = None
        self._to_flush: dict[Stream, None] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            # Objects: a number may be another file's by the time that somebody is woken.
            self._woken, self._waker = self._wakers = socket.socketpair()
            self._waker.setblocking(False)
            self._woken.setblocking(False)
            self.watch_file(self._woken, None, selectors.EVENT_READ)
            self._thread.start()
        except (OSError, RuntimeError):
            self._close_files()
            raise

    def time(self) -> float:
        return time.monotonic()

    # --- with the lock

    def watch(self, stream: Stream, events: int) -> None:
        self.watch_file(stream.sock, stream, events)

    def watch_file(self, file: Any, watched: Watched | None, events: int) -> None:
        """Tell ``watched`` when the file is readable or writable; 0: no more."""
        if self.ended:
            return
        known = file in self._watched
        if events:
            self._watched[file] = watched, events
        elif known:
            del self._watched[file]
        try:
            if not events:
                self._selector.unregister(file)
            elif known:
                self._selector.modify(file, events, watched)
            else:
                self._selector.register(file, events, watched)
        except (
            KeyError,
            FileExistsError,
            FileNotFoundError,
        ):  # an interrupted call told it half of something
            self.look_again()
        except OSError:
            self._watched.pop(file, None)
            raise

    def call_at(self, deadline: float, callback: Callable[[], None]) -> None:
        """Call it once ``time()`` has reached ``deadline``, with the lock."""
        self._timer_count += 1
        heapq.heappush(self._timers, (deadline, self._timer_count, callback))
        if self._sleeps_until is None or deadline < self._sleeps_until:
            self.wake()

    def flush_at_the_end(self, stream: Stream) -> None:
        self._to_flush[stream] = None

    def settle(self) -> None:
        """Write what was queued. What that brings (room, an end) may queue more."""
        while self._to_flush:
            streams, self._to_flush = self._to_flush, {}
            for stream in streams:
                stream.flush()

    def stop(self) -> None:
        self._stopping = True
        self.wake()

    def look_again(self) -> None:
        """Have the thread look at everything, since a call was interrupted anywhere."""
        self._disturbed = True
        self.wake()

    # --- without the lock

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def wake(self) -> None:
        """Have the thread look around. Any thread may call it, whatever it holds."""
        with contextlib.suppress(OSError):  # it is awake already, or has ended
            self._waker.send(b"x")

    # ---

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # a defect of ours: whoever waits must not wait for ever
            with self._lock.held:
                self._owner.failed(error)
            raise
        finally:
            with self._lock.held:
                self.ended = True
                self._owner.thread_ended()
            self._close_files()

    def _close_files(self) -> None:
        self._selector.close()
        for waker in self._wakers:
            waker.close()

    def _turn(self) -> bool:
        with self._lock.held:
            if self._stopping:
                return False
            self._sleeps_until = self._timers[0][0] if self._timers else None
            timeout = WAIT_S if self._sleeps_until is None else self._sleeps_until - self.time()
        happened = self._selector.select(min(max(timeout, 0.0), WAIT_S))
        with self._lock.held:
            if self._disturbed:
                self._disturbed = False
                self._renew_selector()
                self._owner.look_again()
                happened = self._selector.select(0)
            for key, events in happened:
                if key.data is None:
                    self._woken.recv(4096)
                    self._owner.woken()
                elif self._selector.get_map().get(key.fd) == key:  # it may have been closed meanwhile
                    key.data.happened(events)
            now = self.time()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            self.settle()
            self._lock.notify_all()
        return True

    def _renew_selector(self) -> None:
        """An interrupted call may have told it half of something."""
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        for file, (watched, events) in self._watched.items():
            self._selector.register(file, events, watched)
