"""Bounds for clients' patterns with many stars, which make look-ups long. Pure.

Each of them makes a look-up follow at most as many nodes of the trie as it has tokens (`mesh.topics.stars`).
The patterns of ``export`` are the operator's own and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.sessions import Session
from mesh.topics import STARS_MAX


class StarredPatterns:
    """The starred patterns of all sessions. Each session counts its own."""

    def __init__(self, name: str, options: ExchangeOptions) -> None:
        self._name = name
        self._options = options
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        """Number of different ones."""
        return len(self._counts)

    def problem(self, session: Session, patterns: Sequence[str]) -> str:
        """Why a session may not subscribe to these too. Empty if it may."""
        kind, most = f"more than {STARS_MAX} '*'", self._options.session_starred_patterns_max
        if patterns and session.starred + len(patterns) > most:
            return (
                f"{session.starred} patterns with {kind} and {len(patterns)} more are above the {most} that a"
                " session may have; use fewer '*', or '#' for the tokens at the end"
            )
        new, most = (
            sum(pattern not in self._counts for pattern in patterns),
            self._options.starred_patterns_max,
        )
        if new and len(self._counts) + new > most:
            return (
                f"with {new} more patterns with {kind} broker {self._name} would have more than the"
                f" {most} that its clients may want together; use fewer '*', or '#' for the tokens at the end"
            )
        return ""

    def add(self, session: Session, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            session.starred += 1
            self._counts[pattern] = self._counts.get(pattern, 0) + 1

    def remove(self, session: Session, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            session.starred -= 1
            self._counts[pattern] -= 1
            if not self._counts[pattern]:
                del self._counts[pattern]
