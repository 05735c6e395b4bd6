"""What this broker wants from the mesh, and which of its subscriptions wait until everybody knows. Pure.

Patterns are counted by role, since many subscriptions want the same. Changes are told once a turn
(`flush`): a thousand subscriptions in one read are one change of interest. A subscription is confirmed
when the version that was told with it, or after it, is reached; nothing is ever inherited from an earlier
barrier, since members come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mesh.dataplane.sessions import Session
from mesh.wire.session_frames import Kind, Role, encode

Tell = Callable[[list[tuple[str, int]]], int]


class LocalInterest:
    """This broker's own interest; ``tell`` takes all of it and returns the version that holds it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._counts: dict[str, list[int]] = {}
        self._new: list[tuple[Session, int]] = []
        self._waiting: list[tuple[int, Session, int]] = []
        self.changed = False
        """`flush` has something to tell."""

    @property
    def patterns(self) -> list[tuple[str, int]]:
        """(pattern, role) pairs: role answers where anybody here answers."""
        return [
            (pattern, Role.ANSWERS if counts[Role.ANSWERS] else Role.LISTEN)
            for pattern, counts in self._counts.items()
        ]

    def size_with(self, patterns: Iterable[str]) -> int:
        """How many different patterns there would be with these."""
        return len(self._counts) + sum(pattern not in self._counts for pattern in patterns)

    def add(self, patterns: Iterable[str], role: int) -> None:
        self._count(patterns, role, 1)

    def remove(self, patterns: Iterable[str], role: int) -> None:
        self._count(patterns, role, -1)

    def _count(self, patterns: Iterable[str], role: int, change: int) -> None:
        self.changed = True
        for pattern in patterns:
            counts = self._counts.setdefault(pattern, [0, 0])
            counts[role] += change
            if not any(counts):
                del self._counts[pattern]

    def confirm(self, session: Session, number: int) -> None:
        """Say SUBSCRIBED to a session once everybody knows what is wanted now."""
        self.changed = True
        self._new.append((session, number))

    def flush(self) -> None:
        """Tell what changed in this turn."""
        if not self.changed:
            return
        self.changed = False
        new, self._new = self._new, []
        version = self._tell(self.patterns)
        self._waiting += [(version, session, number) for session, number in new]

    def reached(self, version: int, unreached: Sequence[str]) -> None:
        """Everybody knows what is wanted up to ``version``, except those named."""
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            needed, session, number = entry
            if needed > version:
                self._waiting.append(entry)
            elif number in session.subscriptions:
                session.send(encode(Kind.SUBSCRIBED, number, list(unreached)))

    def forget(self, session: Session) -> None:
        """The session is over: nobody waits for its confirmations."""
        self._new = [entry for entry in self._new if entry[0] is not session]
        self._waiting = [entry for entry in self._waiting if entry[1] is not session]
