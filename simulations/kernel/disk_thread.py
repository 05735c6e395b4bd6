"""A thread of a simulated process that works on its disk by SQLite.

It does one job after the other. A job runs when it is begun, and its effects take place in the time after
that (`simulations.kernel.recording`), one step at a time: the writes up to a sync, and the sync.

* A stopped process begins no step; the kernel finishes the current one.
* A killed process leaves the operations whose time had passed. The current one is done, not done, or, if it
  writes, done in part: a seeded choice.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from simulations.kernel.recording import Operation, apply_until, steps
from simulations.kernel.scheduler import Scheduler
from simulations.kernel.sqlite_files import Recorded, SqliteDisk
from simulations.kernel.storage import Disk, Stoppable, VirtualStorage

T = TypeVar("T")


class DiskThread:
    """Its jobs use ``sqlite.name`` as VFS and ``sqlite.files``."""

    def __init__(
        self,
        disk: Disk,
        scheduler: Scheduler,
        storage: VirtualStorage,
        process: Stoppable,
        rng: random.Random,
    ) -> None:
        """It stops with its ``process`` and dies with the ``storage`` of that process."""
        self.sqlite = SqliteDisk(disk, rng)
        self._disk = disk
        self._scheduler = scheduler
        self._process = process
        self._busy = False
        self._steps: deque[list[Operation]] = deque()
        """The unfinished steps of the current job."""
        self._step_began_ns: int | None = None
        self._dead = False
        storage.at_death(self.kill)

    def do(self, job: Callable[[], T], over: Callable[[Recorded[T]], None]) -> None:
        """Do a job. ``over`` is called at the instant when it is done, and may begin the next one there."""
        assert not self._busy, "a thread does one job after the other"
        self._busy = True
        self._when_running(partial(self._begin, job, over))

    def kill(self) -> None:
        """The process is dead: decide the outcome of the current step, and forget the rest."""
        if self._dead:
            return
        self._dead = True
        now_ns = self._scheduler.now_ns
        if self._step_began_ns is not None:
            apply_until(self._steps[0], self._disk, now_ns - self._step_began_ns, now_ns)
        self._steps.clear()
        self.sqlite.kill()

    def _when_running(self, act: Callable[[], None]) -> None:
        if self._dead:
            return
        if self._process.paused:
            self._process.when_resumed(partial(self._when_running, act))
        else:
            act()

    def _begin(self, job: Callable[[], T], over: Callable[[Recorded[T]], None]) -> None:
        recorded = self.sqlite.record(job)
        self._steps.extend(steps(recorded.operations) or [[]])
        self._begin_step(partial(over, recorded))

    def _begin_step(self, over: Callable[[], None]) -> None:
        self._step_began_ns = self._scheduler.now_ns
        takes_ns = sum(operation.takes_ns for operation in self._steps[0])
        self._scheduler.after(takes_ns, self._end_step, over)

    def _end_step(self, over: Callable[[], None]) -> None:
        if self._dead:
            return
        self._step_began_ns = None
        for operation in self._steps.popleft():
            operation.apply(self._disk, self._scheduler.now_ns)
        if self._steps:
            self._when_running(partial(self._begin_step, over))
        else:
            self._busy = False
            over()
