"""One call for many requests: at the end of the loop turn, and then at most once per pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class PacedCall:
    """Calls ``act`` at the end of the loop turn that requests it, but at most once every ``pause_s``."""

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
        """Call at the end of this loop turn, whatever the pause, to finish what was begun."""
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
