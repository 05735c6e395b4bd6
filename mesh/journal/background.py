"""A journal in the background of an event loop: submissions and questions go to its worker.

At most `WAITING_MAX` bytes of blocks wait. More are refused with `StorageError`, since the disk does not keep
up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mesh.database.background import BackgroundDatabase
from mesh.errors import JournalFailed, StorageError
from mesh.journal.gathering import Submission
from mesh.journal.port import CommitTimes, Result
from mesh.journal.records import Block, Damaged, Entry, Waiting
from mesh.journal.worker import Answered, Committed, Job, Question

if TYPE_CHECKING:
    from mesh.journal.journal import Journal

WAITING_MAX: Final = 64 << 20
TIMES_MAX: Final = 1024
"""Commits whose times are remembered."""


class BackgroundJournal(BackgroundDatabase[Job, Committed | Answered, None]):
    """One journal and one worker. Call public methods in the loop that called `open`.

    ``open_journal`` is called where the worker runs. ``wall_time`` returns seconds since the epoch.
    """

    def __init__(self, open_journal: Callable[[], Journal], wall_time: Callable[[], float]) -> None:
        super().__init__()
        self._open_journal = open_journal
        self._wall_time = wall_time
        self._waiting_bytes = 0
        self._times: deque[float] = deque(maxlen=TIMES_MAX)
        self._commits = 0

    async def open(self) -> None:
        """Let the worker open the journal. Raises the errors of `Journal.open`.

        If opening is cancelled, the journal is closed as soon as it is open.
        """
        await self._opened_in_background()

    def submit(self, entries: Sequence[Entry], told: Callable[[Result], None]) -> None:
        """Execute entries in one commit, together with others that wait. ``told`` is called in a later turn.

        Raises `StorageError` if too much waits, or if the journal is not open.
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
        """`Journal.read`; ``told`` is called in a later turn."""
        self.ask(lambda journal: journal.read(subscription, after_row, bytes_max, rows_max), told)

    def fetch(self, row: int, told: Callable[[Block | Damaged | Exception], None]) -> None:
        """`Journal.fetch`; ``told`` is called in a later turn."""
        self.ask(lambda journal: journal.fetch(row), told)

    def ask(self, question: Callable[[Journal], Any], told: Callable[[Any], None]) -> None:
        """Run a short question against the journal. ``told`` gets its answer, or the exception that it
        raised, in a later turn."""
        self._check()
        self._hand_over(Question(question, told))

    def times(self) -> CommitTimes:
        """The number of commits, and the median and 99th percentile of the last `TIMES_MAX` durations."""
        taken = sorted(self._times)
        if not taken:
            return CommitTimes(0, 0.0, 0.0)
        return CommitTimes(self._commits, taken[len(taken) // 2], taken[len(taken) * 99 // 100])

    # --- in the loop

    def _check(self) -> None:
        if not self._open:
            raise StorageError("this journal is closed")

    def _tell(self, piece: Committed | Answered, took_s: float) -> None:
        if isinstance(piece, Answered):
            self._tell_of(piece.question, piece.found)
            return
        self._commits += 1
        self._times.append(took_s)
        self._waiting_bytes -= sum(it.size for it in piece.submissions)
        for submission, result in zip(piece.submissions, piece.results, strict=True):
            self._tell_of(submission, result)

    def _given_up(self, defect: Exception) -> Exception:
        return JournalFailed(f"the journal was given up: {type(defect).__name__}: {defect}")
