"""A thread of a simulated process that works on its disk by SQLite.

Jobs are done one after the other. Each runs when its turn comes, and what it did takes place in the time
after that (`simulations.kernel.recording`), a step at a time: what was written up to a sync, and the sync.

* A stopped process begins no step; the one at hand is finished, since it is the kernel that does it.
* A killed process leaves the operations whose time had passed. The one at hand is done, not done, or, if it
  writes, done in part: a seeded choice.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from mesh.errors import StorageError
from simulations.kernel.recording import Operation, apply_until, steps
from simulations.kernel.scheduler import Scheduler
from simulations.kernel.sqlite_files import Recorded, SqliteDisk
from simulations.kernel.storage import JOBS_MAX, Disk, Stoppable, VirtualStorage

T = TypeVar("T")


class DiskThread:
    """Jobs of one process; they use ``sqlite.name`` as VFS and ``sqlite.files``."""

    def __init__(self, disk: Disk, scheduler: Scheduler, storage: VirtualStorage, rng: random.Random) -> None:
        """It dies with its process' ``storage``."""
        self.sqlite = SqliteDisk(disk, rng)
        self._disk = disk
        self._scheduler = scheduler
        self._jobs: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._at_hand: Recorded[Any] | None = None
        self._steps: deque[list[Operation]] = deque()
        self._step_began_ns: int | None = None
        self._dead = False
        storage.at_death(self.kill)

    def run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Do a job behind those that wait. Raises `StorageError` if too many do."""
        if len(self._jobs) >= JOBS_MAX:
            raise StorageError(f"{JOBS_MAX} jobs are waiting; the disk does not keep up")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append((job, done))
        if len(self._jobs) == 1:
            self._go_on()
        return done

    def kill(self) -> None:
        """The process is dead: decide what became of the step at hand, and forget the rest."""
        if self._dead:
            return
        self._dead = True
        now_ns = self._scheduler.now_ns
        if self._step_began_ns is not None:
            apply_until(self._steps[0], self._disk, now_ns - self._step_began_ns, now_ns)
        self._steps.clear()
        self._jobs.clear()
        self._at_hand = None
        self.sqlite.kill()

    def _go_on(self) -> None:
        """Begin the next step, of the job at hand or of the next one."""
        if self._dead:
            return
        job, done = self._jobs[0]
        loop = cast(Stoppable, done.get_loop())
        if loop.paused:
            loop.when_resumed(self._go_on)
            return
        if self._at_hand is None:
            self._at_hand = self.sqlite.record(job)
            self._steps.extend(steps(self._at_hand.operations))
        self._step_began_ns = self._scheduler.now_ns
        takes_ns = sum(operation.takes_ns for operation in self._steps[0]) if self._steps else 0
        self._scheduler.after(takes_ns, self._end)

    def _end(self) -> None:
        if self._dead:
            return
        self._step_began_ns = None
        if self._steps:
            for operation in self._steps.popleft():
                operation.apply(self._disk, self._scheduler.now_ns)
        if not self._steps:
            self._tell()
        if self._jobs:
            self._go_on()

    def _tell(self) -> None:
        _, done = self._jobs.popleft()
        over, self._at_hand = self._at_hand, None
        assert over is not None
        if done.done():  # the caller was cancelled
            return
        if over.error is not None:
            done.set_exception(over.error)
        else:
            done.set_result(over.result)
