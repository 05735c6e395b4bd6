"""The interface of an open journal that works in the background of the broker's event loop.

`mesh.journal.thread` implements it in production. The methods return at once; ``told`` is called in a later
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mesh.journal.records import Answer, Damaged, Entry, Waiting

Result = Sequence[Answer] | Exception
"""The answers to entries that were submitted together, or the reason why none was executed."""


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """The number of commits since the journal was opened, and the durations of the last ones."""

    commits: int
    p50_s: float
    p99_s: float


class JournalPort(Protocol):
    """An open journal. Each method raises `StorageError` once it is closed."""

    def submit(self, entries: Sequence[Entry], told: Callable[[Result], None], /) -> None:
        """Execute entries in one commit. Also raises `StorageError` if too many blocks wait."""

    def read(
        self,
        subscription: int,
        after_row: int,
        bytes_max: int,
        rows_max: int,
        told: Callable[[list[Waiting | Damaged] | Exception], None],
        /,
    ) -> None:
        """`Journal.read`."""

    def ask(self, question: Callable[[Any], Any], told: Callable[[Any], None], /) -> None:
        """``told`` gets the result of ``question`` on the `Journal`, or the exception that it raised."""


class OpenedJournal(JournalPort, Protocol):
    """A journal as its opener sees it, which also closes it."""

    def times(self) -> CommitTimes:
        """The durations of its commits."""

    async def aclose(self) -> None:
        """Finish submitted work and close the journal. May be called twice."""
