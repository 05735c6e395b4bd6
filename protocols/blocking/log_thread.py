"""Writes the lines of one blocking socket to the logger ``protocols``, in a thread of its own.

A program's logging handler may send through a blocking socket, and a thread in a handler holds the handler's
own lock. So no thread logs while it holds the socket's lock. Threads that `close` waits for do not log at
all. Lines are queued, and a separate thread passes them to `logging`. The first line starts it. A filter or
handler that raises loses its line and no other.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Final

from protocols.blocking.lock import BlockingLock
from protocols.peer_warnings import log

LINES_MAX: Final = 100
"""Lines that may wait for a slow handler. Newer ones are dropped and counted."""

Line = tuple[int, str, tuple[object, ...]]


class LogThread:
    """See the module; ``lock`` is the socket's."""

    def __init__(self, name: str, lock: BlockingLock) -> None:
        self._name = name
        self._lock = lock
        self._lines: SimpleQueue[Line | None] = SimpleQueue()
        self._left_out = 0
        self._thread: threading.Thread | None = None

    # --- with the lock, or without

    def warning(self, message: str, /, *arguments: object) -> None:
        self._say((logging.WARNING, message, arguments))

    def info(self, message: str, /, *arguments: object) -> None:
        self._say((logging.INFO, message, arguments))

    def stop(self) -> None:
        """End the thread after it has logged the queued lines."""
        self._lines.put(None)

    def _say(self, line: Line) -> None:
        with self._lock.held:
            if self._lines.qsize() >= LINES_MAX:
                self._left_out += 1
                return
            if self._left_out:
                left_out, self._left_out = self._left_out, 0
                self._lines.put(
                    (logging.WARNING, "%d lines left out: a logging handler was slow", (left_out,))
                )
            self._lines.put(line)
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        thread = self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no thread left; the next line tries again
            self._thread = None

    # --- without the lock

    def join(self, timeout: float) -> None:
        """Give the thread up to that many seconds to log what is queued, unless this is the thread."""
        thread = self._thread
        if thread is not None and thread.is_alive() and threading.current_thread() is not thread:
            thread.join(timeout)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            level, message, arguments = line
            try:
                log.log(level, message, *arguments)
            except Exception:  # from a user's filter or handler
                _report()


def _report() -> None:
    """Report an error as `logging` reports those of its own handlers: not at all if the program says so."""
    if logging.raiseExceptions and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # stderr is closed
            traceback.print_exc()
