"""The work of a journal, in small pieces. A thread or a simulator runs it.

A step takes all collected jobs: its submissions in as few commits as possible, then its questions. So an
answer reflects every commit that was submitted before the question. A log that has grown too large is moved
into the database between two pieces, after the last commit was reported. A step without jobs does cleanup.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mesh.errors import JournalError, StorageError
from mesh.journal.gathering import Submission, carry_out, next_commit
from mesh.journal.port import Result

if TYPE_CHECKING:
    from mesh.journal.journal import Journal


@dataclass(frozen=True, slots=True)
class Question:
    """A query of the journal, and the callback for its result or the exception that it raised."""

    ask: Callable[[Journal], Any]
    told: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of submissions, each with its result."""

    submissions: Sequence[Submission]
    results: Sequence[Result]


@dataclass(frozen=True, slots=True)
class Answered:
    question: Question
    found: Any


Job = Submission | Question
Piece = Committed | Answered | None
"""The finished work. None if nobody waits for it."""


class Worker:
    """The work of one open journal. ``wall_time`` returns seconds since the epoch."""

    def __init__(self, journal: Journal, wall_time: Callable[[], float]) -> None:
        self.journal = journal
        self._wall_time = wall_time
        self._resting = False
        """True after cleanup failed. It is not tried again until there is other work."""

    @property
    def has_chores(self) -> bool:
        """True if there is work even without jobs."""
        return self.journal.chores and not self._resting

    def step(self, jobs: Sequence[Job]) -> Iterator[Piece]:
        """Do the collected jobs. Each piece is done when the iterator is advanced, and should be reported at
        once."""
        if jobs:
            self._resting = False
        elif self.has_chores:
            self._do_chore()
            yield None
            yield from self._move_log()
        waiting = deque(job for job in jobs if isinstance(job, Submission))
        while waiting:
            submissions = next_commit(waiting)
            yield Committed(submissions, carry_out(self.journal, submissions, self._now_us()))
            yield from self._move_log()
        for job in jobs:
            if isinstance(job, Question):
                yield self._answer(job)

    def close(self) -> None:
        self.journal.close()

    def _do_chore(self) -> None:
        try:
            self.journal.commit((), self._now_us())
        except StorageError:
            self._resting = True

    def _move_log(self) -> Iterator[None]:
        if self.journal.checkpoint_due:
            with contextlib.suppress(JournalError):  # the next submission reports it
                self.journal.checkpoint()
            yield

    def _answer(self, question: Question) -> Answered:
        try:
            found = question.ask(self.journal)
        except Exception as error:  # whatever it is belongs to the asker, not to the worker
            found = error
        return Answered(question, found)

    def _now_us(self) -> int:
        return int(self._wall_time() * 1_000_000)
