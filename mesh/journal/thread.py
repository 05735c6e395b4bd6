"""A journal on its own thread, apart from `mesh.storage`, whose jobs would wait for commits."""

from __future__ import annotations

from mesh.database.thread import WorkerThread
from mesh.journal.background import BackgroundJournal
from mesh.journal.worker import Job, Piece, Worker


class JournalThread(BackgroundJournal):
    """One journal, one thread."""

    def _begin(self) -> None:
        self._thread: WorkerThread[Job, Piece] = WorkerThread(
            "mesh-journal",
            self._loop.time,
            open_worker=self._worker,
            not_opened=self._has_not_opened,
            done=self._done,
            broke=self._has_broken,
            ended=self._has_ended,
        )

    def _put(self, job: Job | None) -> None:
        self._thread.put(job)

    def _worker(self) -> Worker:
        journal = self._open_journal()
        self._has_opened(None)
        return Worker(journal, self._wall_time)
