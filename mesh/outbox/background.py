"""An outbox in the background of an event loop, so that a slow disk never blocks the loop.

The loop hands over changes and questions; a `Worker` elsewhere takes what has gathered. What became of a
commit goes to the loop in one call.

At most `WAITING_MAX` bytes of blocks wait, or one large body; more are refused with `StorageError`: the disk
stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import OutboxError, StorageError
from mesh.outbox.gathering import Change, Job, Question
from mesh.outbox.records import Damaged, Holding, Opening, Waiting
from mesh.outbox.worker import Piece, Told

if TYPE_CHECKING:
    from mesh.outbox.outbox import Outbox

WAITING_MAX: Final = 64 << 20


class BackgroundOutbox(ABC):
    """One outbox and one worker; an `OpenedOutbox` once `open` has returned. Public methods are called in the
    loop that called it.

    ``open_outbox`` is called where the worker runs. ``wall_time`` gives seconds since the epoch.
    """

    opening: Opening
    """What was found when it was opened."""
    holding: Holding
    """What it holds, as of the last change that was told."""

    def __init__(self, open_outbox: Callable[[], Outbox], wall_time: Callable[[], float]) -> None:
        self._open_outbox = open_outbox
        self._wall_time = wall_time
        self._waiting_bytes = 0
        self._open = False
        self._ended: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Let the worker open the outbox. Raises what `Outbox.open` raises.

        An outbox whose opening is cancelled is closed as soon as it is open.
        """
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[tuple[Opening, Holding]] = self._loop.create_future()
        self._ended = self._loop.create_future()
        self._begin()
        try:
            self.opening, self.holding = await self._opened
        except asyncio.CancelledError:
            self._put(None)
            raise
        self._open = True

    def check(self) -> None:
        """Raise `OutboxError` in a fork, `StorageError` when it is closed."""
        if self._is_fork:
            raise OutboxError(
                f"the outbox {self.opening.path} was opened by a process of which this is a fork; open one in"
                " each process, in a file of its own"
            )
        if not self._open:
            raise StorageError("this outbox is closed")

    def append(self, sealed: Sequence[bytes], told: Callable[[list[Waiting] | Exception], None]) -> None:
        """`Outbox.append`, with what else waits. Raises `StorageError` when too much waits, or when it is
        closed."""
        self.check()
        size = sum(map(len, sealed))
        if self._waiting_bytes and self._waiting_bytes + size > WAITING_MAX:
            raise StorageError(
                f"{self._waiting_bytes} bytes of blocks wait for the outbox; the disk does not keep up"
            )
        self._waiting_bytes += size
        self._put(Change(sealed, (), told, size))

    def free(
        self, ranges: Sequence[tuple[int, int]], told: Callable[[list[Waiting] | Exception], None]
    ) -> None:
        """`Outbox.free`, with what else waits."""
        self.check()
        self._put(Change((), ranges, told, 0))

    def read(
        self,
        after_row: int,
        bytes_max: int,
        without: Sequence[bytes],
        told: Callable[[list[Waiting | Damaged] | Exception], None],
    ) -> None:
        """`Outbox.read`."""
        self.ask(lambda outbox: outbox.read(after_row, bytes_max, without=without), told)

    def ask(self, question: Callable[[Outbox], Any], told: Callable[[Any], None]) -> None:
        """Whatever a short look into the outbox finds."""
        self.check()
        self._put(Question(question, told))

    async def aclose(self) -> None:
        """Finish what was handed over and close the outbox. May be called twice, and does nothing in a
        fork."""
        self._open = False
        if self._ended is not None and not self._is_fork:
            self._put(None)
            await asyncio.shield(self._ended)

    # --- in the loop

    def _tell(self, told: Told) -> None:
        self.holding = told.holding
        for job, _ in told.done:
            if isinstance(job, Change):
                self._waiting_bytes -= job.size
        for job, result in told.done:
            job.told(result)

    # --- where the worker runs

    @property
    def _is_fork(self) -> bool:
        """Whether this is another process than that of the worker."""
        return False

    @abstractmethod
    def _begin(self) -> None:
        """Let the worker open the outbox and work until it is asked to end. Called in the loop."""

    @abstractmethod
    def _put(self, job: Job | None) -> None:
        """Hand a job to the worker, behind those that wait; None asks it to end. Called in the loop."""

    def _done(self, piece: Piece, _took_s: float = 0.0) -> None:
        """The worker has done a piece."""
        if piece is not None:
            self._call(self._tell, piece)

    def _has_opened(self, outbox: Outbox | None, error: BaseException | None = None) -> None:
        """The worker has opened the outbox, or failed to, and then it has ended, too."""
        found = None if outbox is None else (outbox.opening, outbox.holding)
        self._call(_settle, self._opened, found, error)
        if error is not None:
            self._has_ended()

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
