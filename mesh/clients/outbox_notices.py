"""What is logged of an outbox that does not drain. Pure.

It is told after `TOLD_AFTER_S`, and then each time that the reason is another one for as long. After that, it
is told when the outbox drains again.
"""

from __future__ import annotations

from typing import Final

TOLD_AFTER_S: Final = 1.0


class Standstill:
    """Of one outbox."""

    __slots__ = ("_path", "_since", "_told", "_why", "due")

    def __init__(self, path: str) -> None:
        self._path = path
        self._why = self._told = ""
        self._since = 0.0
        self.due: float | None = None
        """When to look, though nothing has happened."""

    def look(self, now: float, why: str, messages: int) -> str:
        """A sentence worth a warning, or nothing. ``why`` nothing drains now; empty while it does, or while
        nothing waits."""
        if why != self._why:
            self._why, self._since = why, now
        self.due = None
        if why == self._told:
            return ""
        if not why:
            self._told = ""
            return f"the outbox {self._path} drains again"
        if now - self._since < TOLD_AFTER_S:
            self.due = self._since + TOLD_AFTER_S
            return ""
        self._told = why
        return f"the outbox {self._path} does not drain: {why}; {messages} message(s) wait in it"
