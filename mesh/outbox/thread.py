"""An outbox on its own thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from mesh.database.thread import WorkerThread
from mesh.outbox.background import BackgroundOutbox
from mesh.outbox.gathering import Job
from mesh.outbox.worker import Piece, Worker

if TYPE_CHECKING:
    from mesh.outbox.outbox import Outbox


class OutboxThread(BackgroundOutbox):
    """One outbox, one thread."""

    def __init__(self, open_outbox: Callable[[], Outbox], wall_time: Callable[[], float]) -> None:
        super().__init__(open_outbox, wall_time)
        self._pid = os.getpid()

    @property
    def _is_fork(self) -> bool:
        return os.getpid() != self._pid

    def _begin(self) -> None:
        self._thread: WorkerThread[Job, Piece] = WorkerThread(
            "mesh-outbox",
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
        outbox = self._open_outbox()
        self._has_opened((outbox.opening, outbox.holding))
        return Worker(outbox, self._wall_time)
