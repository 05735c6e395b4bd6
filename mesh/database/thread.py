"""A thread that works for an open database: jobs that arrive during a step form the next one."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

J = TypeVar("J")
J_in = TypeVar("J_in", contravariant=True)
P = TypeVar("P")
P_out = TypeVar("P_out", covariant=True)


class Worker(Protocol[J_in, P_out]):
    """Does the work of an open database."""

    @property
    def has_chores(self) -> bool:
        """True if there is work even without jobs."""

    def step(self, jobs: Sequence[J_in], /) -> Iterator[P_out]:
        """Do these jobs, piece by piece."""

    def close(self) -> None: ...


class WorkerThread(Generic[J, P]):
    """See the module.

    Args:
        open_worker: opens the database, in the thread.
        not_opened: called with the error if that failed; the thread has then ended.
        done: called with each piece and its duration.
        broke: called with the defect that ended the worker.
        ended: called when the database is closed.
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        *,
        open_worker: Callable[[], Worker[J, P]],
        not_opened: Callable[[BaseException], None],
        done: Callable[[P, float], None],
        broke: Callable[[Exception], None],
        ended: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._open_worker = open_worker
        self._not_opened = not_opened
        self._done = done
        self._broke = broke
        self._ended = ended
        self._jobs: queue.SimpleQueue[J | None] = queue.SimpleQueue()
        # A daemon, so that a program that forgets to close the owner of the database can still end.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, job: J | None) -> None:
        """Submit a job. None tells the thread to end behind those that wait."""
        self._jobs.put(job)

    # --- in the thread

    def _work(self) -> None:
        try:
            worker = self._open_worker()
        except BaseException as error:  # it belongs to the caller that opens, not to the thread
            self._not_opened(error)
            return
        try:
            last = False
            while not last:
                jobs = self._gathered(wait=not worker.has_chores)
                last = None in jobs
                began = self._clock()
                for piece in worker.step([job for job in jobs if job is not None]):
                    ended = self._clock()
                    self._done(piece, ended - began)
                    began = ended
        except Exception as defect:  # its callers are told, and so is the operator
            self._broke(defect)
        finally:
            try:
                worker.close()
            finally:
                self._ended()

    def _gathered(self, wait: bool) -> list[J | None]:
        jobs: list[J | None] = []
        with contextlib.suppress(queue.Empty):
            jobs.append(self._jobs.get(block=wait))
            while True:
                jobs.append(self._jobs.get_nowait())
        return jobs
