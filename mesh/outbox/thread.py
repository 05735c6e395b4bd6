"""An outbox on its own thread, so that a slow disk never blocks the event loop.

The loop hands over changes and questions; the thread takes what has gathered (`mesh.outbox.gathering`) and
moves the log in between if it has grown too large.

At most `WAITING_MAX` bytes of blocks wait, or one large body; more are refused with `StorageError`: the disk
stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mesh.errors import OutboxError, StorageError
from mesh.outbox.gathering import Change, Done, Job, Question, carry_out
from mesh.outbox.records import Damaged, Waiting

if TYPE_CHECKING:
    from mesh.outbox.outbox import Outbox

WAITING_MAX: Final = 64 << 20


class OutboxThread:
    """One outbox, one thread. All methods are called in the loop that called `open`.

    ``open_outbox`` is called in the thread. ``wall_time`` gives seconds since the epoch. ``told`` is always
    called in a later turn, with the answer or the exception.
    """

    def __init__(self, open_outbox: Callable[[], Outbox], wall_time: Callable[[], float]) -> None:
        self._open_outbox = open_outbox
        self._wall_time = wall_time
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._open = False
        self._ended: asyncio.Future[None] | None = None

    async def open(self) -> Outbox:
        """Start the thread and open the outbox in it. Raises what `Outbox.open` raises.

        Of what it returns, the loop may read what an opening finds: ``secret``, ``publisher``, ``boot``,
        ``opened_at``, ``copied``, ``damaged_before``.
        """
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[Outbox] = self._loop.create_future()
        self._ended = self._loop.create_future()
        # A daemon, so that a program which forgets to close its client can still end.
        threading.Thread(target=self._work, args=(opened,), name="mesh-outbox", daemon=True).start()
        outbox = await opened
        self._open = True
        return outbox

    def append(self, sealed: Sequence[bytes], told: Callable[[list[Waiting] | Exception], None]) -> None:
        """`Outbox.append`, with what else waits. Raises `StorageError` when too much waits, or when it is
        closed."""
        self._check()
        size = sum(map(len, sealed))
        if self._waiting_bytes and self._waiting_bytes + size > WAITING_MAX:
            raise StorageError(
                f"{self._waiting_bytes} bytes of blocks wait for the outbox; the disk does not keep up"
            )
        self._waiting_bytes += size
        self._jobs.put(Change(sealed, (), told, size))

    def free(
        self, ranges: Sequence[tuple[int, int]], told: Callable[[list[Waiting] | Exception], None]
    ) -> None:
        """`Outbox.free`, with what else waits."""
        self._check()
        self._jobs.put(Change((), ranges, told, 0))

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
        self._check()
        self._jobs.put(Question(question, told))

    async def aclose(self) -> None:
        """Finish what was handed over and close the outbox. May be called twice."""
        self._open = False
        if self._ended is not None:
            self._jobs.put(None)
            await asyncio.shield(self._ended)

    # --- in the loop

    def _check(self) -> None:
        if not self._open:
            raise StorageError("this outbox is closed")

    def _tell(self, done: Sequence[Done]) -> None:
        for job, _ in done:
            if isinstance(job, Change):
                self._waiting_bytes -= job.size
        for job, result in done:
            job.told(result)

    # --- in the thread

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop ended meanwhile; nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _work(self, opened: asyncio.Future[Outbox]) -> None:
        try:
            outbox = self._open_outbox()
        except BaseException as error:  # whatever it is belongs to who opens, not to the thread
            self._call(_settle, opened, None, error)
            self._call(_settle, self._ended, None, None)
            return
        self._call(_settle, opened, outbox, None)
        try:
            last = False
            while not last:
                jobs = self._gathered()
                last = None in jobs
                now_us = int(self._wall_time() * 1_000_000)
                for done in carry_out(outbox, [job for job in jobs if job is not None], now_us):
                    self._call(self._tell, done)
                    if outbox.checkpoint_due:
                        with contextlib.suppress(OutboxError):  # the next change is told
                            outbox.checkpoint()
        finally:
            outbox.close()
            self._call(_settle, self._ended, None, None)

    def _gathered(self) -> list[Job | None]:
        jobs: list[Job | None] = [self._jobs.get()]
        with contextlib.suppress(queue.Empty):
            while True:
                jobs.append(self._jobs.get_nowait())
        return jobs


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
