"""A journal in the background of an event loop, so that a slow disk never blocks the loop.

The loop hands over submissions and questions; a `Worker` elsewhere takes what has gathered. What became of a
commit goes to the loop in one call.

At most `WAITING_MAX` bytes of blocks wait; more are refused with `StorageError`: the disk stands still. If
the worker ends by a defect, all who wait are told `JournalFailed`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import JournalFailed, StorageError
from mesh.journal.gathering import Submission
from mesh.journal.port import CommitTimes, Result
from mesh.journal.records import Block, Damaged, Entry, Waiting
from mesh.journal.worker import Answered, Committed, Job, Piece, Question

if TYPE_CHECKING:
    from mesh.journal.journal import Journal

WAITING_MAX: Final = 64 << 20
TIMES_MAX: Final = 1024
"""Commits whose times are remembered."""


class BackgroundJournal(ABC):
    """One journal and one worker. Public methods are called in the loop that called `open`.

    ``open_journal`` is called where the worker runs. ``wall_time`` gives seconds since the epoch.
    """

    def __init__(self, open_journal: Callable[[], Journal], wall_time: Callable[[], float]) -> None:
        self._open_journal = open_journal
        self._wall_time = wall_time
        self._waiting_bytes = 0
        self._untold: dict[int, Job] = {}
        """Those whose askers wait, by their identity."""
        self._times: deque[float] = deque(maxlen=TIMES_MAX)
        self._commits = 0
        self._open = False
        self._ended: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Let the worker open the journal. Raises what `Journal.open` raises.

        A journal whose opening is cancelled is closed as soon as it is open.
        """
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended = self._loop.create_future()
        self._begin()
        try:
            await self._opened
        except asyncio.CancelledError:
            self._put(None)
            raise
        self._open = True

    def submit(self, entries: Sequence[Entry], told: Callable[[Result], None]) -> None:
        """Carry out entries in one commit, with others that wait; ``told`` is called in a later turn.

        Raises `StorageError` when too much waits, or when the journal is not open.
        """
        self._check()
        submission = Submission(entries, told)
        if submission.stores and self._waiting_bytes + submission.size > WAITING_MAX:
            raise StorageError(
                f"{self._waiting_bytes} bytes of blocks wait for the journal; the disk does not keep up"
            )
        self._waiting_bytes += submission.size
        self._hand_over(submission)

    def read(
        self,
        subscription: int,
        after_row: int,
        bytes_max: int,
        rows_max: int,
        told: Callable[[list[Waiting | Damaged] | Exception], None],
    ) -> None:
        """`Journal.read`, told in a later turn."""
        self.ask(lambda journal: journal.read(subscription, after_row, bytes_max, rows_max), told)

    def fetch(self, row: int, told: Callable[[Block | Damaged | Exception], None]) -> None:
        """`Journal.fetch`, told in a later turn."""
        self.ask(lambda journal: journal.fetch(row), told)

    def ask(self, question: Callable[[Journal], Any], told: Callable[[Any], None]) -> None:
        """Whatever a short look into the journal finds, or the exception it ends in; told in a later turn."""
        self._check()
        self._hand_over(Question(question, told))

    def times(self) -> CommitTimes:
        """Of the last `TIMES_MAX` commits."""
        taken = sorted(self._times)
        if not taken:
            return CommitTimes(0, 0.0, 0.0)
        return CommitTimes(self._commits, taken[len(taken) // 2], taken[len(taken) * 99 // 100])

    async def aclose(self) -> None:
        """Finish what was handed over and close the journal. May be called twice."""
        self._open = False
        if self._ended is not None:
            self._put(None)
            await asyncio.shield(self._ended)

    # --- in the loop

    def _check(self) -> None:
        if not self._open:
            raise StorageError("this journal is closed")

    def _hand_over(self, job: Job) -> None:
        self._untold[id(job)] = job
        self._put(job)

    def _tell(self, piece: Committed | Answered, took_s: float) -> None:
        if isinstance(piece, Answered):
            del self._untold[id(piece.question)]
            piece.question.told(piece.found)
            return
        self._commits += 1
        self._times.append(took_s)
        self._waiting_bytes -= sum(it.size for it in piece.submissions)
        for submission, result in zip(piece.submissions, piece.results, strict=True):
            del self._untold[id(submission)]
            submission.told(result)

    def _fail(self, error: Exception) -> None:
        """Nobody works any more."""
        self._open = False
        untold, self._untold = self._untold, {}
        for job in untold.values():
            job.told(JournalFailed(f"the journal was given up: {type(error).__name__}: {error}"))

    # --- where the worker runs

    @abstractmethod
    def _begin(self) -> None:
        """Let the worker open the journal and work until it is asked to end. Called in the loop."""

    @abstractmethod
    def _put(self, job: Job | None) -> None:
        """Hand a job to the worker, behind those that wait; None asks it to end. Called in the loop."""

    def _done(self, piece: Piece, took_s: float) -> None:
        """The worker has done a piece."""
        if piece is not None:
            self._call(self._tell, piece, took_s)

    def _has_opened(self, error: BaseException | None = None) -> None:
        """The worker has opened the journal, or failed to, and then it has ended, too."""
        self._call(_settle, self._opened, error)
        if error is not None:
            self._has_ended()

    def _has_failed(self, error: Exception) -> None:
        """The worker cannot go on, and what it was handed is not done."""
        self._call(self._fail, error)

    def _has_ended(self) -> None:
        self._call(_settle, self._ended, None)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop ended meanwhile; nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(None)
