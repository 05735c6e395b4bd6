"""A journal on its own thread, apart from `mesh.storage`, whose jobs would wait for commits."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from mesh.journal.background import BackgroundJournal
from mesh.journal.worker import Job, Worker

if TYPE_CHECKING:
    from mesh.journal.journal import Journal


class JournalThread(BackgroundJournal):
    """One journal, one thread. What gathers while it does a step is the next one."""

    def __init__(self, open_journal: Callable[[], Journal], wall_time: Callable[[], float]) -> None:
        super().__init__(open_journal, wall_time)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()

    def _begin(self) -> None:
        # A daemon, so that a program which forgets to close its broker can still end.
        threading.Thread(target=self._work, name="mesh-journal", daemon=True).start()

    def _put(self, job: Job | None) -> None:
        self._jobs.put(job)

    # --- in the thread

    def _work(self) -> None:
        try:
            journal = self._open_journal()
        except BaseException as error:  # whatever it is belongs to who opens, not to the thread
            self._has_opened(error)
            return
        self._has_opened()
        worker = Worker(journal, self._wall_time)
        try:
            last = False
            while not last:
                jobs = self._gathered(wait=not worker.has_chores)
                last = None in jobs
                began = self._loop.time()
                for piece in worker.step([job for job in jobs if job is not None]):
                    ended = self._loop.time()
                    self._done(piece, ended - began)
                    began = ended
        except Exception as error:  # a defect: whoever waits is told, and so is the operator
            self._has_failed(error)
        finally:
            try:
                journal.close()
            finally:
                self._has_ended()

    def _gathered(self, wait: bool) -> list[Job | None]:
        jobs: list[Job | None] = []
        with contextlib.suppress(queue.Empty):
            jobs.append(self._jobs.get(block=wait))
            while True:
                jobs.append(self._jobs.get_nowait())
        return jobs
