"""A database in the background of an event loop, so that a slow disk never blocks the loop.

The loop hands over jobs; a worker elsewhere, a thread or a simulator's, takes those that have gathered, piece
by piece. What became of a piece goes to the loop in one call. If the worker ends by a defect, all who wait
are told so.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class Job(Protocol):
    """Something to be done, and who is told what it came to."""

    @property
    def told(self) -> Callable[[Any], None]: ...


J = TypeVar("J", bound=Job)
P = TypeVar("P")
"""What became of some of it."""
F = TypeVar("F")
"""What was found when the database was opened."""


class BackgroundDatabase(ABC, Generic[J, P, F]):
    """One database and one worker. Public methods are called in the loop that opened it."""

    def __init__(self) -> None:
        self._open = False
        self._ended: asyncio.Future[None] | None = None
        self._untold: dict[int, J] = {}
        """Those whose askers wait, by their identity."""

    async def _opened_in_background(self) -> F:
        """Let the worker open the database. Raises what that raises.

        A database whose opening is cancelled is closed as soon as it is open.
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
        """Finish what was handed over and close the database. May be called twice, and does nothing in a
        fork."""
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
        """The worker has done a piece: call `_tell_of` for the jobs that it ends."""

    @abstractmethod
    def _given_up(self, defect: Exception) -> Exception:
        """What those are told whose jobs will not be done."""

    def _give_up(self, defect: Exception) -> None:
        self._open = False
        untold, self._untold = self._untold, {}
        for job in untold.values():
            job.told(self._given_up(defect))

    # --- where the worker runs

    @property
    def _is_fork(self) -> bool:
        """Whether this is another process than that of the worker."""
        return False

    @abstractmethod
    def _begin(self) -> None:
        """Let the worker open the database and work until it is asked to end. Called in the loop."""

    @abstractmethod
    def _put(self, job: J | None) -> None:
        """Hand a job to the worker, behind those that wait; None asks it to end. Called in the loop."""

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
        """The worker cannot go on, and what it was handed is not done."""
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
