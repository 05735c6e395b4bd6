"""What a journal does for those who wait, a piece at a time: apart from who runs it, a thread or a simulator.

A step takes all that has gathered: its submissions in as few commits as hold them, then its questions. So an
answer is never older than a commit that was handed over before it was asked. A log that has grown too
large is moved into the database between two pieces, after the last commit was told. A step with no work
does a chore.
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
    """A look into the journal, and who is told what it found, or the exception it ended in."""

    ask: Callable[[Journal], Any]
    told: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of submissions, each with its result."""

    submissions: Sequence[Submission]
    results: Sequence[Result]


@dataclass(frozen=True, slots=True)
class Answered:
    question: Question
    found: Any


Job = Submission | Question
Piece = Committed | Answered | None
"""What was done; None is nobody's business."""


class Worker:
    """The work of one open journal. ``wall_time`` gives seconds since the epoch."""

    def __init__(self, journal: Journal, wall_time: Callable[[], float]) -> None:
        self.journal = journal
        self._wall_time = wall_time
        self._resting = False
        """Whether a chore failed, so that none is tried until there is something else to do."""

    @property
    def has_chores(self) -> bool:
        """Whether there is something to do when nothing has gathered."""
        return self.journal.chores and not self._resting

    def step(self, jobs: Sequence[Job]) -> Iterator[Piece]:
        """Do what has gathered. Each piece is done when it is asked for, and is to be told at once."""
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
            with contextlib.suppress(JournalError):  # the next submission is told
                self.journal.checkpoint()
            yield

    def _answer(self, question: Question) -> Answered:
        try:
            found = question.ask(self.journal)
        except Exception as error:  # whatever it is belongs to who asks, not to the worker
            found = error
        return Answered(question, found)

    def _now_us(self) -> int:
        return int(self._wall_time() * 1_000_000)
