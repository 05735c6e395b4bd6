"""What a broker asks of its open journal, which works in the background of the event loop.

`mesh.journal.thread` has it in production. The methods return at once; ``told`` is called in a later turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mesh.journal.records import Answer, Damaged, Entry, Waiting

Result = Sequence[Answer] | Exception
"""The answers to entries that were submitted together, or why none of them was carried out."""


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """Commits since the journal was opened, and how long the last ones took."""

    commits: int
    p50_s: float
    p99_s: float


class JournalPort(Protocol):
    """An open journal. Each method raises `StorageError` once it is closed."""

    def submit(self, entries: Sequence[Entry], told: Callable[[Result], None], /) -> None:
        """Carry out entries in one commit. Raises `StorageError`, too, when too many blocks wait."""

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
        """What ``question`` finds in the `Journal`, or the exception it ends in."""


class OpenedJournal(JournalPort, Protocol):
    """A journal as its opener sees it, who also closes it."""

    def times(self) -> CommitTimes:
        """How long its commits take."""

    async def aclose(self) -> None:
        """Finish what was handed over and close the journal. May be called twice."""
