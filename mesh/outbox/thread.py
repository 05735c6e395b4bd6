"""An outbox on its own thread."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from mesh.outbox.background import BackgroundOutbox
from mesh.outbox.gathering import Job
from mesh.outbox.worker import Worker

if TYPE_CHECKING:
    from mesh.outbox.outbox import Outbox


class OutboxThread(BackgroundOutbox):
    """One outbox, one thread. What gathers while it does a step is the next one."""

    def __init__(self, open_outbox: Callable[[], Outbox], wall_time: Callable[[], float]) -> None:
        super().__init__(open_outbox, wall_time)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._pid = os.getpid()

    @property
    def _is_fork(self) -> bool:
        return os.getpid() != self._pid

    def _begin(self) -> None:
        # A daemon, so that a program which forgets to close its client can still end.
        threading.Thread(target=self._work, name="mesh-outbox", daemon=True).start()

    def _put(self, job: Job | None) -> None:
        self._jobs.put(job)

    # --- in the thread

    def _work(self) -> None:
        try:
            outbox = self._open_outbox()
        except BaseException as error:  # whatever it is belongs to who opens, not to the thread
            self._has_opened(None, error)
            return
        self._has_opened(outbox)
        worker = Worker(outbox, self._wall_time)
        try:
            last = False
            while not last:
                jobs = self._gathered()
                last = None in jobs
                for piece in worker.step([job for job in jobs if job is not None]):
                    self._done(piece)
        finally:
            worker.close()
            self._has_ended()

    def _gathered(self) -> list[Job | None]:
        jobs: list[Job | None] = [self._jobs.get()]
        with contextlib.suppress(queue.Empty):
            while True:
                jobs.append(self._jobs.get_nowait())
        return jobs
