"""A database in the background of an event loop, so that a slow disk never blocks the loop.

The loop submits jobs. A worker elsewhere, a thread or a simulator's, takes all collected jobs and does them
piece by piece. The outcome of each piece goes to the loop in one call. If a defect ends the worker, all
waiting callers are told.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class Job(Protocol):
    """A job, with a callback for its outcome."""

    @property
    def told(self) -> Callable[[Any], None]: ...


J = TypeVar("J", bound=Job)
P = TypeVar("P")
"""The outcome of some jobs."""
F = TypeVar("F")
"""The state found when the database was opened."""


class BackgroundDatabase(ABC, Generic[J, P, F]):
    """One database and one worker. Call public methods in the loop that opened it."""

    def __init__(self) -> None:
        self._open = False
        self._ended: asyncio.Future[None] | None = None
        self._untold: dict[int, J] = {}
        """Jobs whose callers wait, by their identity."""

    async def _opened_in_background(self) -> F:
        """Let the worker open the database. Raises the errors of that.

        If opening is cancelled, the database is closed as soon as it is open.
        """
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[F] = self._loop.create_future()
        self._ended = self._loop.create_future()
        self._begin()
        try:
            found = await self._opened
        except asyncio.CancelledError:
            self._put(None)
            raise
        self._open = True
        return found

    async def aclose(self) -> None:
        """Finish submitted work and close the database. May be called twice, and does nothing in a fork."""
        self._open = False
        if self._ended is not None and not self._is_fork:
            self._put(None)
            await asyncio.shield(self._ended)

    # --- in the loop

    def _hand_over(self, job: J) -> None:
        self._untold[id(job)] = job
        self._put(job)

    def _tell_of(self, job: J, result: Any) -> None:
        del self._untold[id(job)]
        job.told(result)

    @abstractmethod
    def _tell(self, piece: P, took_s: float) -> None:
        """The worker has done a piece: call `_tell_of` for the jobs that it completes."""

    @abstractmethod
    def _given_up(self, defect: Exception) -> Exception:
        """The error for callers whose jobs will not be done."""

    def _give_up(self, defect: Exception) -> None:
        self._open = False
        untold, self._untold = self._untold, {}
        for job in untold.values():
            job.told(self._given_up(defect))

    # --- for the worker

    @property
    def _is_fork(self) -> bool:
        """True in another process than the worker's."""
        return False

    @abstractmethod
    def _begin(self) -> None:
        """Let the worker open the database and work until it is told to end. Called in the loop."""

    @abstractmethod
    def _put(self, job: J | None) -> None:
        """Submit a job behind those that wait. None tells the worker to end. Called in the loop."""

    def _done(self, piece: P | None, took_s: float) -> None:
        """The worker has done a piece, or something that nobody waits for."""
        if piece is not None:
            self._call(self._tell, piece, took_s)

    def _has_opened(self, found: F) -> None:
        """The worker has opened the database."""
        self._call(_settle, self._opened, found, None)

    def _has_not_opened(self, error: BaseException) -> None:
        """The worker could not open the database, and has ended."""
        self._call(_settle, self._opened, None, error)
        self._has_ended()

    def _has_broken(self, defect: Exception) -> None:
        """The worker cannot continue, and its jobs are not done."""
        self._call(self._give_up, defect)

    def _has_ended(self) -> None:
        self._call(_settle, self._ended, None, None)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop ended meanwhile; nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
