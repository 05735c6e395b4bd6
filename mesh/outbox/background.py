"""An outbox in the background of an event loop: changes and questions are handed over to its worker.

At most `WAITING_MAX` bytes of blocks wait, or one large body. More are refused with `StorageError`, since the
disk does not keep up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mesh.database.background import BackgroundDatabase
from mesh.errors import OutboxError, OutboxFailed, StorageError
from mesh.outbox.gathering import Change, Job, Question
from mesh.outbox.records import Damaged, Holding, Opening, OutboxBlock
from mesh.outbox.worker import Told

if TYPE_CHECKING:
    from mesh.outbox.outbox import Outbox

WAITING_MAX: Final = 64 << 20


class BackgroundOutbox(BackgroundDatabase[Job, Told, tuple[Opening, Holding]]):
    """One outbox and one worker; an `OpenedOutbox` once `open` has returned. Public methods call back in the
    loop that called them.

    ``open_outbox`` is called where the worker runs. ``wall_time`` gives seconds since the epoch.
    """

    opening: Opening
    """Facts found when it was opened."""
    holding: Holding
    """The contents after the last change whose outcome is known."""

    def __init__(self, open_outbox: Callable[[], Outbox], wall_time: Callable[[], float]) -> None:
        super().__init__()
        self._open_outbox = open_outbox
        self._wall_time = wall_time
        self._waiting_bytes = 0

    async def open(self) -> None:
        """Let the worker open the outbox. Raises what `Outbox.open` raises.

        If the opening is cancelled, the outbox is closed as soon as it is open.
        """
        self.opening, self.holding = await self._opened_in_background()

    def check(self) -> None:
        """Raise `OutboxError` in a fork, `StorageError` when it is closed."""
        if self._is_fork:
            raise OutboxError(
                f"the outbox {self.opening.path} was opened by a process of which this is a fork; open one in"
                " each process, in a file of its own"
            )
        if not self._open:
            raise StorageError("this outbox is closed")

    def append(self, sealed: Sequence[bytes], told: Callable[[list[OutboxBlock] | Exception], None]) -> None:
        """`Outbox.append`, together with other waiting changes. Raises `StorageError` if too much waits, or
        if it is closed."""
        self.check()
        size = sum(map(len, sealed))
        if self._waiting_bytes and self._waiting_bytes + size > WAITING_MAX:
            raise StorageError(
                f"{self._waiting_bytes} bytes of blocks wait for the outbox; the disk does not keep up"
            )
        self._waiting_bytes += size
        self._hand_over(Change(sealed, (), told, size))

    def free(
        self, ranges: Sequence[tuple[int, int]], told: Callable[[list[OutboxBlock] | Exception], None]
    ) -> None:
        """`Outbox.free`, together with other waiting changes."""
        self.check()
        self._hand_over(Change((), ranges, told, 0))

    def read(
        self,
        after_row: int,
        bytes_max: int,
        without: Sequence[bytes],
        told: Callable[[list[OutboxBlock | Damaged] | Exception], None],
    ) -> None:
        """`Outbox.read`."""
        self.ask(lambda outbox: outbox.read(after_row, bytes_max, without=without), told)

    def ask(self, question: Callable[[Outbox], Any], told: Callable[[Any], None]) -> None:
        """Take a short look into the outbox, and report what it found."""
        self.check()
        self._hand_over(Question(question, told))

    # --- in the loop

    def _tell(self, told: Told, took_s: float) -> None:
        self.holding = told.holding
        for job, _ in told.done:
            if isinstance(job, Change):
                self._waiting_bytes -= job.size
        for job, result in told.done:
            self._tell_of(job, result)

    def _given_up(self, defect: Exception) -> Exception:
        return OutboxFailed(f"the outbox was given up: {type(defect).__name__}: {defect}")
