"""The journal of a simulated broker: the work of production's thread, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mesh.journal.background import BackgroundJournal
from mesh.journal.journal import Journal
from mesh.journal.worker import Job, Worker
from simulations.kernel.disk_thread import DiskThread
from simulations.kernel.pieces import PieceByPiece, Steps
from simulations.kernel.sqlite_files import Recorded


class VirtualJournal(BackgroundJournal):
    """The journal at a path of a simulated disk, in a separate simulated thread."""

    def __init__(
        self, path: str, *, broker: str, mesh: str, thread: DiskThread, wall_time: Callable[[], float]
    ) -> None:
        super().__init__(partial(_open, path, broker, mesh, thread, wall_time), wall_time)
        self._thread = thread

    def _begin(self) -> None:
        self._pieces = PieceByPiece(self._thread, self._loop.time, self._done, self._has_ended)
        self._pieces.begin(self._open_journal, self._journal_is_open)

    def _put(self, job: Job | None) -> None:
        self._pieces.put(job)

    def _journal_is_open(self, opened: Recorded[Journal]) -> tuple[Steps, Callable[[], None]] | None:
        if opened.error is not None:
            self._has_not_opened(opened.error)
            return None
        journal = opened.value()
        self._has_opened(None)
        worker = Worker(journal, self._wall_time)
        return worker, worker.close


def _open(path: str, broker: str, mesh: str, thread: DiskThread, wall_time: Callable[[], float]) -> Journal:
    return Journal.open(
        path,
        broker=broker,
        mesh=mesh,
        now_us=int(wall_time() * 1_000_000),
        files=thread.sqlite.files,
        vfs=thread.sqlite.name,
    )
