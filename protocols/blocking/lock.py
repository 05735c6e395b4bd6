"""The lock of a blocking socket or client, and the wake-up of threads. Signals and forks leave it whole.

There is one way to hold it: ``with lock.held:``. This enters the C lock itself. A context manager in Python
could be interrupted (Ctrl-C) after it has taken the lock and before ``with`` knows.

There is one way to release it for a while: `without`. It takes the lock back before anything else happens,
whatever ends the call: the code around it releases the lock on its way out, and must have it. Taking it back
cannot be interrupted, and is soon done, since no thread waits with the lock. An interrupt meanwhile is raised
afterwards.

A signal handler may make calls while its thread holds the lock. So the owner may take the lock again, and
`without` releases it as often as it was taken. There is no second lock that such a handler could find taken.
A handler's ``close()`` in the middle of a call (`owned`) only asks another thread to close.

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
    """See the module. ``whose`` is what it belongs to, for the sentence in a forked child."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._own: Any = threading.RLock()
        self._waiters: deque[threading.Lock] = deque()
        self._pid = os.getpid()
        self.told = 0
        """Counts `notify_all`."""

    @property
    def foreign(self) -> bool:
        """True if this process is a fork of the one that made it."""
        return os.getpid() != self._pid

    @property
    def held(self) -> threading.RLock:
        """The lock, to be entered by ``with``. Raises `StateError` in a forked child."""
        if os.getpid() != self._pid:
            raise StateError(f"this {self._whose} is another process's; after a fork each makes its own")
        own: threading.RLock = self._own
        return own

    @property
    def owned(self) -> bool:
        """True if this thread holds it."""
        owned: bool = self._own._is_owned()
        return owned

    # --- with the lock

    def without(self, call: Callable[[], T]) -> T:
        """The result of ``call``, or what it raises. Meanwhile other threads may have the lock."""
        levels: list[Any] = []
        try:
            # A signal comes between calls. This is one: the lock is held, or what restores it is known.
            levels.extend(map(type(self._own)._release_save, (self._own,)))
            return call()
        finally:
            if levels:
                self._own._acquire_restore(levels[0])  # nothing interrupts that

    def wait(self, timeout: float, told: int) -> None:
        """Let go of the lock until the next `notify_all`, or for ``timeout`` seconds.

        ``told`` is what the caller read before it looked whether it must wait. A signal handler may have come
        since, and the news with it.
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
        """Wake who waits. Interrupted, it has lost nobody."""
        self.told += 1
        waiters = self._waiters
        while waiters:
            news = waiters[0]
            try:
                news.release()
            except RuntimeError:
                pass  # a signal handler was here between the lines
            try:
                waiters.remove(news)
            except ValueError:
                pass
