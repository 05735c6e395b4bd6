"""A journal on its own thread, so that a slow disk never blocks the event loop.

Apart from `mesh.storage`, whose jobs would wait for commits. The loop hands over submissions and questions;
the thread makes one commit of all submissions that have gathered, then answers the questions, then moves the
log if it has grown too large. So an answer is never older than a commit that was handed over before it was
asked. What became of a commit goes to the loop in one call.

At most `WAITING_MAX` bytes of blocks wait; more are refused with `StorageError`: the disk stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import JournalError, StorageError
from mesh.journal.gathering import Submission, carry_out, next_commit
from mesh.journal.port import Result
from mesh.journal.records import Block, Damaged, Entry, Waiting

if TYPE_CHECKING:
    from mesh.journal.journal import Journal

WAITING_MAX: Final = 64 << 20
TIMES_MAX: Final = 1024
"""Commits whose times are remembered."""


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """Commits since the journal was opened, and how long the last `TIMES_MAX` of them took."""

    commits: int
    p50_s: float
    p99_s: float


@dataclass(slots=True)
class _Question:
    ask: Callable[[Journal], Any]
    told: Callable[[Any], None]


class JournalThread:
    """One journal, one thread. All methods are called in the loop that called `open`.

    ``open_journal`` is called in the thread. ``wall_time`` gives seconds since the epoch.
    """

    def __init__(self, open_journal: Callable[[], Journal], wall_time: Callable[[], float]) -> None:
        self._open_journal = open_journal
        self._wall_time = wall_time
        self._jobs: queue.SimpleQueue[Submission | _Question | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._times: deque[float] = deque(maxlen=TIMES_MAX)
        self._commits = 0
        self._open = False
        self._resting = False
        """Whether a chore failed, so that none is tried until there is something else to do."""
        self._ended: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Start the thread and open the journal in it. Raises what `Journal.open` raises."""
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = self._loop.create_future()
        self._ended = self._loop.create_future()
        # A daemon, so that a program which forgets to close its broker can still end.
        threading.Thread(target=self._work, args=(opened,), name="mesh-journal", daemon=True).start()
        await opened
        self._open = True

    def submit(self, entries: Sequence[Entry], told: Callable[[Result], None]) -> None:
        """Carry out entries in one commit, with others that wait; ``told`` is called in a later turn.

        Raises `StorageError` when too much waits, or when the thread is not open.
        """
        self._check()
        submission = Submission(entries, told)
        if submission.stores and self._waiting_bytes + submission.size > WAITING_MAX:
            raise StorageError(
                f"{self._waiting_bytes} bytes of blocks wait for the journal; the disk does not keep up"
            )
        self._waiting_bytes += submission.size
        self._jobs.put(submission)

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
        self._jobs.put(_Question(question, told))

    def times(self) -> CommitTimes:
        taken = sorted(self._times)
        if not taken:
            return CommitTimes(0, 0.0, 0.0)
        return CommitTimes(self._commits, taken[len(taken) // 2], taken[len(taken) * 99 // 100])

    async def aclose(self) -> None:
        """Finish what was handed over and close the journal. May be called twice."""
        self._open = False
        if self._ended is not None:
            self._jobs.put(None)
            await asyncio.shield(self._ended)

    # --- in the loop

    def _check(self) -> None:
        if not self._open:
            raise StorageError("this journal is closed")

    def _tell_results(
        self, submissions: Sequence[Submission], results: Sequence[Result], took_s: float
    ) -> None:
        self._commits += 1
        self._times.append(took_s)
        self._waiting_bytes -= sum(it.size for it in submissions)
        for submission, result in zip(submissions, results, strict=True):
            submission.told(result)

    # --- in the thread

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop ended meanwhile; nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _work(self, opened: asyncio.Future[None]) -> None:
        try:
            journal = self._open_journal()
        except BaseException as error:  # whatever it is belongs to who opens, not to the thread
            self._call(_settle, opened, error)
            self._call(_settle, self._ended, None)
            return
        self._call(_settle, opened, None)
        try:
            while self._step(journal):
                pass
        finally:
            journal.close()
            self._call(_settle, self._ended, None)

    def _step(self, journal: Journal) -> bool:
        """Do what has gathered, or a chore if nothing has; False when that was the last."""
        jobs = self._gathered(wait=self._resting or not journal.chores)
        waiting = deque(job for job in jobs if isinstance(job, Submission))
        self._resting = False
        if not jobs:
            try:
                journal.commit((), self._now_us())
            except StorageError:
                self._resting = True
        while waiting:
            submissions = next_commit(waiting)
            began = self._loop.time()
            results = carry_out(journal, submissions, self._now_us())
            self._call(self._tell_results, submissions, results, self._loop.time() - began)
            self._tidy(journal)
        for job in jobs:
            if isinstance(job, _Question):
                self._answer(journal, job)
        self._tidy(journal)
        return None not in jobs

    def _gathered(self, wait: bool) -> list[Submission | _Question | None]:
        jobs: list[Submission | _Question | None] = []
        with contextlib.suppress(queue.Empty):
            jobs.append(self._jobs.get(block=wait))
            while True:
                jobs.append(self._jobs.get_nowait())
        return jobs

    def _answer(self, journal: Journal, question: _Question) -> None:
        try:
            found = question.ask(journal)
        except Exception as error:  # whatever it is belongs to who asks, not to the thread
            found = error
        self._call(question.told, found)

    def _tidy(self, journal: Journal) -> None:
        if journal.checkpoint_due:
            with contextlib.suppress(JournalError):  # the next submission is told
                journal.checkpoint()

    def _now_us(self) -> int:
        return int(self._wall_time() * 1_000_000)


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(None)
