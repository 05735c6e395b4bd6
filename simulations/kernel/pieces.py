"""The work of production's thread in virtual time: piece by piece on a `DiskThread`.

Each piece of a worker's step is a job. So a commit is reported when its sync is over, jobs that gather
meanwhile form the next one, and a checkpoint takes its time after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from simulations.kernel.disk_thread import DiskThread
from simulations.kernel.sqlite_files import Recorded

T = TypeVar("T")


class Steps(Protocol):
    """A worker: `mesh.journal.worker` or `mesh.outbox.worker`."""

    @property
    def has_chores(self) -> bool: ...

    def step(self, jobs: Sequence[Any], /) -> Iterator[Any]: ...


class PieceByPiece:
    """See the module. ``done`` gets each piece and its duration; ``ended`` is called when all is closed."""

    def __init__(
        self,
        thread: DiskThread,
        clock: Callable[[], float],
        done: Callable[[Any, float], None],
        ended: Callable[[], None],
    ) -> None:
        self._thread = thread
        self._clock = clock
        self._done = done
        self._ended = ended
        self._jobs: list[Any] = []
        self._idle = False
        """True if the worker waits for a job."""
        self._worker: Steps
        self._close: Callable[[], None]

    def begin(
        self,
        open_it: Callable[[], T],
        opened: Callable[[Recorded[T]], tuple[Steps, Callable[[], None]] | None],
    ) -> None:
        """Open the database. ``opened`` gives its worker, and the object that closes it; None: it failed."""

        def over(recorded: Recorded[T]) -> None:
            found = opened(recorded)
            if found is not None:
                self._worker, self._close = found
                self._next_step()

        self._thread.do(open_it, over)

    def put(self, job: Any) -> None:
        """Hand over a job; None means: end."""
        self._jobs.append(job)
        if self._idle:
            self._next_step()

    # --- in the thread

    def _next_step(self) -> None:
        gathered, self._jobs = self._jobs, []
        self._idle = not gathered and not self._worker.has_chores
        if not self._idle:
            pieces = self._worker.step([job for job in gathered if job is not None])
            self._next_piece(pieces, last=None in gathered)

    def _next_piece(self, pieces: Iterator[Any], last: bool) -> None:
        over = partial(self._piece_is_done, pieces, last, self._clock())
        self._thread.do(partial(next, pieces), over)

    def _piece_is_done(self, pieces: Iterator[Any], last: bool, began_s: float, done: Recorded[Any]) -> None:
        if not isinstance(done.error, StopIteration):
            self._done(done.value(), self._clock() - began_s)
            self._next_piece(pieces, last)
        elif last:
            self._thread.do(self._close, lambda closed: self._ended())
        else:
            self._next_step()
