"""The logger ``protocols`` of one blocking socket, for threads that hold the socket's lock.

A program's logging handler may send by a blocking socket, and a thread in a handler holds the handler's own
lock. So no thread logs while it holds the socket's lock. Threads that `close` waits for do not log at all.
Lines are queued, and a thread of their own hands them to `logging`; it begins with the first line.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import Final

from protocols.peer_warnings import log

LINES_MAX: Final = 100
"""Lines that wait for a slow handler; newer ones are left out, and counted."""

Line = tuple[int, str, tuple[object, ...]]


class LogThread:
    """See the module."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: SimpleQueue[Line | None] = SimpleQueue()
        self._left_out = 0
        self._thread: threading.Thread | None = None

    # --- with the lock

    def warning(self, message: str, /, *arguments: object) -> None:
        self._say((logging.WARNING, message, arguments))

    def info(self, message: str, /, *arguments: object) -> None:
        self._say((logging.INFO, message, arguments))

    def stop(self) -> None:
        """End the thread when it has logged what there is."""
        self._lines.put(None)

    def _say(self, line: Line) -> None:
        if self._lines.qsize() >= LINES_MAX:
            self._left_out += 1
            return
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            self._lines.put((logging.WARNING, "%d lines left out: a logging handler was slow", (left_out,)))
        self._lines.put(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    # --- without the lock

    def join(self, timeout: float) -> None:
        """Give what is queued that long, unless this is the thread."""
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            level, message, arguments = line
            log.log(level, message, *arguments)
