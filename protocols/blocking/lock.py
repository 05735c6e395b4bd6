"""The lock of a blocking socket or client, and the wake-up of threads. It is safe with signals and forks.

There is one way to hold it: ``with lock.held:``, which enters the C lock itself. Ctrl-C could interrupt a
context manager written in Python after it has taken the lock and before ``with`` knows.

There is one way to release it for a while: `without`. It takes the lock back before anything else happens,
whatever ends the call: the surrounding code releases the lock on its way out, so it must hold it. Nothing can
interrupt taking it back. That is quick, since no thread waits while it holds the lock. An interrupt that
arrives meanwhile is raised afterwards.

A signal handler may make calls while its thread holds the lock. So the owner may take the lock again, and
`without` releases it as often as it was taken. There is no second lock for such a handler to find taken. A
handler that calls ``close()`` in the middle of a call (`owned`) only asks another thread to close.

A forked child has a copy of the lock, but not of the threads that may have held it: there, `held` raises.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from protocols.errors import StateError

T = TypeVar("T")


class BlockingLock:
    """See the module. ``whose`` names the lock's owner in the error that a forked child gets."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._own: Any = threading.RLock()
        self._waiters: deque[threading.Lock] = deque()
        self._pid = os.getpid()
        self.told = 0
        """Counts `notify_all`."""

    @property
    def foreign(self) -> bool:
        """True in a fork of the process that made the lock."""
        return os.getpid() != self._pid

    @property
    def held(self) -> threading.RLock:
        """The lock, for use by ``with``. Raises `StateError` in a forked child."""
        if os.getpid() != self._pid:
            raise StateError(f"this {self._whose} is another process's; after a fork each makes its own")
        own: threading.RLock = self._own
        return own

    @property
    def owned(self) -> bool:
        """True if this thread holds the lock."""
        owned: bool = self._own._is_owned()
        return owned

    # --- with the lock

    def without(self, call: Callable[[], T]) -> T:
        """Run ``call`` without the lock; return its result, or raise its error. Other threads may take the
        lock meanwhile.
        """
        levels: list[Any] = []
        try:
            # Signals arrive between calls. This is one call: afterwards, the lock is held or its state is
            # saved.
            levels.extend(map(type(self._own)._release_save, (self._own,)))
            return call()
        finally:
            if levels:
                self._own._acquire_restore(levels[0])  # nothing can interrupt this

    def wait(self, timeout: float, told: int) -> None:
        """Release the lock until the next `notify_all`, or for ``timeout`` seconds.

        ``told`` is the value that the caller read before it checked whether it must wait. A signal handler
        may have brought news since then.
        """
        news = threading.Lock()
        news.acquire()
        try:
            self._waiters.append(news)
            if self.told == told:
                self.without(partial(news.acquire, timeout=timeout))
        finally:
            if news in self._waiters:
                self._waiters.remove(news)

    def notify_all(self) -> None:
        """Wake all waiting threads. An interrupt loses none of them."""
        self.told += 1
        waiters = self._waiters
        while waiters:
            news = waiters[0]
            try:
                news.release()
            except RuntimeError:
                pass  # a signal handler ran between these lines
            try:
                waiters.remove(news)
            except ValueError:
                pass
