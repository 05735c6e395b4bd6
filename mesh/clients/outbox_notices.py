"""Warnings about an outbox that does not drain. Pure.

The first warning comes after `TOLD_AFTER_S`, and another one each time that a new reason has lasted as long.
After a warning, the log also tells when the outbox drains again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TOLD_AFTER_S: Final = 1.0
SLOW_S: Final = 5.0
"""The same for slow homes, if nothing is kept meanwhile."""
NOTHING: Final[frozenset[str]] = frozenset()


class Why(NamedTuple):
    """Why an outbox does not drain."""

    sentence: str
    causes: frozenset[str]
    """The reason without details that change while it lasts, such as the number of topics."""
    patience_s: float = TOLD_AFTER_S
    """Seconds that it must last before a warning."""

    @classmethod
    def of(cls, sentence: str) -> Why:
        return cls(sentence, frozenset([sentence]))


DRAINS: Final = Why("", NOTHING)


class Standstill:
    """The warnings about one outbox."""

    __slots__ = ("_cause", "_path", "_since", "_told", "due")

    def __init__(self, path: str) -> None:
        self._path = path
        self._cause: frozenset[str] = NOTHING
        self._told: frozenset[str] = NOTHING
        self._since = 0.0
        self.due: float | None = None
        """When to call `look` although nothing has happened."""

    def look(self, now: float, why: Why, messages: int) -> str:
        """Return a sentence worth a warning, or an empty one. ``why`` nothing drains now; `DRAINS` while it
        drains or nothing waits."""
        if why.causes != self._cause:
            self._cause, self._since = why.causes, now
        self.due = None
        if why.causes == self._told:
            return ""
        if not why.causes:
            self._told = NOTHING
            return f"the outbox {self._path} drains again"
        if now - self._since < why.patience_s:
            self.due = self._since + why.patience_s
            return ""
        self._told = why.causes
        return f"the outbox {self._path} does not drain: {why.sentence}; {messages} message(s) wait in it"
