"""The thread that reads, writes and keeps time for one blocking socket.

It holds the socket's lock except while it waits, so only one thread at a time touches patterns and pipes. A
calling thread holds the same lock during its call, and writes what that call queued at its end (`settle`).
This thread writes what the kernel does not take then.

Ctrl-C and signal handlers reach calling threads, never this one. This thread completes what an interrupted
call may have left undone (`look_again`): while it holds the lock, no call is in progress.
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
    """The core of a socket, as its thread sees it. Both methods are called with the lock."""

    def woken(self) -> None:
        """Somebody called `IoThread.wake`."""

    def look_again(self) -> None:
        """Somebody called `IoThread.look_again`."""

    def failed(self, error: BaseException) -> None:
        """A defect ends the thread."""

    def thread_ended(self) -> None:
        """The thread no longer needs the lock."""


class Watched(Protocol):
    """Something that gets events from the kernel."""

    def happened(self, events: int) -> None: ...


class IoThread:
    """See the module; ``lock`` is the socket's.

    Raises OSError if the system has no descriptor left, and RuntimeError if it has no thread left.
    """

    def __init__(self, name: str, lock: BlockingLock, owner: Owner) -> None:
        self.ended = False
        """True once it no longer needs the lock."""
        self._lock = lock
        self._owner = owner
        self._selector = selectors.DefaultSelector()
        self._wakers: tuple[socket.socket, ...] = ()
        self._watched: dict[Any, tuple[Watched | None, int]] = {}
        """The files that the selector watches. A new selector is built from these."""
        self._disturbed = False
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._sleeps_until: float | None = None
        self._to_flush: dict[Stream, None] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            # Keep the objects: by the time that somebody wakes it, a number may belong to another file.
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
        """Call ``watched`` when the file is readable or writable; 0 ends this."""
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
        ):  # an interrupted call left the selector half informed
            self.look_again()
        except OSError:
            self._watched.pop(file, None)
            raise

    def call_at(self, deadline: float, callback: Callable[[], None]) -> None:
        """Call the function with the lock once ``time()`` has reached ``deadline``."""
        self._timer_count += 1
        heapq.heappush(self._timers, (deadline, self._timer_count, callback))
        if self._sleeps_until is None or deadline < self._sleeps_until:
            self.wake()

    def flush_at_the_end(self, stream: Stream) -> None:
        self._to_flush[stream] = None

    def settle(self) -> None:
        """Write what was queued. The outcome (room, an end) may queue more."""
        while self._to_flush:
            streams, self._to_flush = self._to_flush, {}
            for stream in streams:
                stream.flush()

    def stop(self) -> None:
        self._stopping = True
        self.wake()

    def look_again(self) -> None:
        """Have the thread check everything again, since a call was interrupted somewhere."""
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
        """Have the thread check for work. Any thread may call it, whatever locks it holds."""
        with contextlib.suppress(OSError):  # it is awake already, or has ended
            self._waker.send(b"x")

    # ---

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # a defect of ours: waiting callers must not wait forever
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
                elif self._selector.get_map().get(key.fd) == key:  # it may have been closed in the meantime
                    key.data.happened(events)
            now = self.time()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            self.settle()
            self._lock.notify_all()
        return True

    def _renew_selector(self) -> None:
        """Replace the selector: an interrupted call may have left it half informed."""
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        for file, (watched, events) in self._watched.items():
            self._selector.register(file, events, watched)
