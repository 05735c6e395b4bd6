"""The journal of a simulated broker: what a thread does in production, in virtual time.

Each piece of the worker's step (`mesh.journal.worker`) is a job of a `DiskThread`. So a commit is told when
its sync is over, what gathers meanwhile is the next one, and a checkpoint takes its time after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from mesh.journal.background import BackgroundJournal
from mesh.journal.journal import Journal
from mesh.journal.worker import Job, Piece, Worker
from simulations.kernel.disk_thread import DiskThread
from simulations.kernel.sqlite_files import Recorded


class VirtualJournal(BackgroundJournal):
    """The journal at a path of a simulated disk, on a thread of its own."""

    def __init__(
        self, path: str, *, broker: str, mesh: str, thread: DiskThread, wall_time: Callable[[], float]
    ) -> None:
        super().__init__(partial(_open, path, broker, mesh, thread, wall_time), wall_time)
        self._thread = thread
        self._jobs: list[Job | None] = []
        self._idle = False
        """The worker waits for a job."""

    def _begin(self) -> None:
        self._thread.do(self._open_journal, self._journal_is_open)

    def _put(self, job: Job | None) -> None:
        self._jobs.append(job)
        if self._idle:
            self._next_step()

    # --- in the thread

    def _journal_is_open(self, opened: Recorded[Journal]) -> None:
        self._has_opened(opened.error)
        if opened.error is None:
            self._worker = Worker(opened.value(), self._wall_time)
            self._next_step()

    def _next_step(self) -> None:
        gathered, self._jobs = self._jobs, []
        self._idle = not gathered and not self._worker.has_chores
        if not self._idle:
            pieces = self._worker.step([job for job in gathered if job is not None])
            self._next_piece(pieces, last=None in gathered)

    def _next_piece(self, pieces: Iterator[Piece], last: bool) -> None:
        over = partial(self._piece_is_done, pieces, last, self._loop.time())
        self._thread.do(partial(next, pieces), over)

    def _piece_is_done(
        self, pieces: Iterator[Piece], last: bool, began_s: float, done: Recorded[Piece]
    ) -> None:
        if not isinstance(done.error, StopIteration):
            self._done(done.value(), self._loop.time() - began_s)
            self._next_piece(pieces, last)
        elif last:
            self._thread.do(self._worker.journal.close, lambda closed: self._has_ended())
        else:
            self._next_step()


def _open(path: str, broker: str, mesh: str, thread: DiskThread, wall_time: Callable[[], float]) -> Journal:
    return Journal.open(
        path,
        broker=broker,
        mesh=mesh,
        now_us=int(wall_time() * 1_000_000),
        files=thread.sqlite.files,
        vfs=thread.sqlite.name,
    )
