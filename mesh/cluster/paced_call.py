"""One call for many wishes: at the end of the loop turn, and then not more often than a pause allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class PacedCall:
    """Calls ``act`` at the end of the loop turn in which it is asked to, but not more often than every
    ``pause_s``."""

    def __init__(self, act: Callable[[], None], pause_s: float) -> None:
        self._act = act
        self._pause_s = pause_s
        self._loop = asyncio.get_running_loop()
        self._last = -pause_s
        self._handle: asyncio.Handle | None = None

    def ask(self) -> None:
        if self._handle is None:
            due = self._last + self._pause_s
            late = due <= self._loop.time()
            self._handle = self._loop.call_soon(self._run) if late else self._loop.call_at(due, self._run)

    def ask_soon(self) -> None:
        """At the end of this loop turn, whatever the pause: it is the rest of what was begun."""
        self.cancel()
        self._handle = self._loop.call_soon(self._run)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        self._last = self._loop.time()
        self._act()
