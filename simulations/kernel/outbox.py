"""The outbox of a simulated client: the work of production's thread, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mesh.outbox.background import BackgroundOutbox
from mesh.outbox.gathering import Job
from mesh.outbox.outbox import Outbox
from mesh.outbox.worker import Worker
from simulations.kernel.disk_thread import DiskThread
from simulations.kernel.pieces import PieceByPiece, Steps
from simulations.kernel.sqlite_files import Recorded


class VirtualOutbox(BackgroundOutbox):
    """The outbox at a path of a simulated disk, in a separate simulated thread."""

    def __init__(
        self,
        path: str,
        *,
        max_bytes: int,
        token: Callable[[int], bytes],
        thread: DiskThread,
        wall_time: Callable[[], float],
    ) -> None:
        super().__init__(partial(_open, path, max_bytes, token, thread, wall_time), wall_time)
        self._thread = thread

    def _begin(self) -> None:
        self._pieces = PieceByPiece(self._thread, self._loop.time, self._done, self._has_ended)
        self._pieces.begin(self._open_outbox, self._outbox_is_open)

    def _put(self, job: Job | None) -> None:
        self._pieces.put(job)

    def _outbox_is_open(self, opened: Recorded[Outbox]) -> tuple[Steps, Callable[[], None]] | None:
        if opened.error is not None:
            self._has_not_opened(opened.error)
            return None
        outbox = opened.value()
        self._has_opened((outbox.opening, outbox.holding))
        worker = Worker(outbox, self._wall_time)
        return worker, worker.close


def _open(
    path: str,
    max_bytes: int,
    token: Callable[[int], bytes],
    thread: DiskThread,
    wall_time: Callable[[], float],
) -> Outbox:
    return Outbox.open(
        path,
        token=token,
        now_us=int(wall_time() * 1_000_000),
        max_bytes=max_bytes,
        files=thread.sqlite.files,
        vfs=thread.sqlite.name,
        pid=lambda: 0,  # nothing forks here
    )
