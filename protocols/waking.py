"""Waking tasks in the loop turn that has something for them.

A future wakes its task one loop turn after it is set, and before that the loop asks the kernel for news: some
5 us at each end of a round trip. So what a connection delivers wakes in three steps:

1. the connection begins a delivery (`Wakes.open`) and hands its frames to the pipe;
2. patterns, in the middle of their work, wake waiters: that is only noted;
3. the delivery ends, all machines being at rest: each noted task runs until it waits again (`Wakes.run`).

What is woken outside a delivery, or in one by a task that runs in step 3, goes through the loop as with any
future: no task runs inside another, and the work of a delivery is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any
from weakref import ref


class Wakeup(asyncio.Future[bool]):
    """What one task waits for: True once it is woken, False once its time is over.

    The base class would have the loop call the task; this keeps the call, for `Wakes`.
    """

    _resume: Callable[[Any], object] | None = None
    _context: Context | None = None

    def add_done_callback(
        self, resume: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        self._resume = resume
        self._context = context

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self.resume_soon()
        return cancelled

    def resume(self) -> None:
        """Run the task until it waits again; the result is there. Not for callers inside a task."""
        if self._resume is not None and self._context is not None:
            self._context.run(self._resume, self)

    def resume_soon(self) -> None:
        """Have the task run in the next loop turn."""
        if self._resume is not None:
            self.get_loop().call_soon(self._resume, self, context=self._context)


class Wakes:
    """The wake-ups of one event loop."""

    __slots__ = ("_loop", "noted", "open")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        """Weakly: this is kept under its loop, and must be gone with it."""
        self.open = False
        """True during a delivery: wake-ups are noted."""
        self.noted: list[Wakeup] = []

    def wake(self, wakeup: Wakeup) -> None:
        """End a task's waiting: with this delivery if there is one, else in the next loop turn."""
        wakeup.set_result(True)
        if self.open:
            self.noted.append(wakeup)
        else:
            wakeup.resume_soon()

    def run(self) -> None:
        """Run the tasks that were noted; the delivery has ended."""
        noted, self.noted = self.noted, []
        if asyncio.current_task(self._loop()) is not None:  # somebody delivers from inside a task
            for wakeup in noted:
                wakeup.resume_soon()
            return
        done = 0
        try:
            for wakeup in noted:
                done += 1
                wakeup.resume()
        finally:  # a task that is interrupted (Ctrl-C) raises out of here
            for wakeup in noted[done:]:
                wakeup.resume_soon()
