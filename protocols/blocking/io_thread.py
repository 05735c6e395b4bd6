"""The thread that reads, writes and keeps time for one blocking socket.

It works with the socket's lock held, but for waiting: so patterns and pipes are touched by one thread at a
time. A caller's thread holds the same lock during its call, and writes what that call queued at its end
(`settle`); what the kernel does not take then, this thread writes.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import selectors
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
        self._wakers: tuple[int, ...] = ()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._sleeps_until: float | None = None
        self._to_flush: dict[Stream, None] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._woken, self._waker = self._wakers = os.pipe()
            os.set_blocking(self._waker, False)
            os.set_blocking(self._woken, False)
            self._selector.register(self._woken, selectors.EVENT_READ, None)
            self._thread.start()
        except (OSError, RuntimeError):
            self._close_files()
            raise

    def time(self) -> float:
        return time.monotonic()

    # --- with the lock

    def watch(self, stream: Stream, events: int) -> None:
        self.watch_file(stream.sock, stream, events)

    def watch_file(self, file: Any, watched: Watched, events: int) -> None:
        """Tell ``watched`` when the file is readable or writable; 0: no more."""
        if self.ended:
            return
        known = file in self._selector.get_map()
        if not events:
            if known:  # it may be an interrupted call that is repeated
                self._selector.unregister(file)
        elif known:
            self._selector.modify(file, events, watched)
        else:
            self._selector.register(file, events, watched)

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
            try:
                for stream in streams:
                    stream.flush()
            except BaseException:  # Ctrl-C: the others have something to write still
                self._to_flush = {**streams, **self._to_flush}
                raise

    def stop(self) -> None:
        self._stopping = True
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
        if not self.ended:
            with contextlib.suppress(BlockingIOError):  # it is awake already
                os.write(self._waker, b"x")

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
            os.close(waker)

    def _turn(self) -> bool:
        with self._lock.held:
            if self._stopping:
                return False
            self._sleeps_until = self._timers[0][0] if self._timers else None
            timeout = WAIT_S if self._sleeps_until is None else self._sleeps_until - self.time()
        happened = self._selector.select(min(max(timeout, 0.0), WAIT_S))
        with self._lock.held:
            for key, events in happened:
                if key.data is None:
                    os.read(self._woken, 4096)
                    self._owner.woken()
                elif self._selector.get_map().get(key.fd) == key:  # it may have been closed meanwhile
                    key.data.happened(events)
            now = self.time()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            self.settle()
            self._lock.notify_all()
        return True
