"""Wakes tasks in the same loop turn that delivers something for them.

A future wakes its task one loop turn after it is set, and before that the loop polls the kernel: about 5 us
at each end of a round trip. So a delivery wakes tasks in three steps:

1. The connection begins a delivery (`Wakes.open`) and hands its frames to the pipe.
2. Patterns, in the middle of their work, wake waiters: this is only noted.
3. The delivery ends, all machines being at rest. Each noted task runs until it waits again (`Wakes.run`).

A wake-up outside a delivery, or by a task that runs in step 3, goes through the loop as with any future: no
task runs inside another, and the work of a delivery is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any
from weakref import ref


class Wakeup(asyncio.Future[bool]):
    """What one task waits for: True once it is woken, False once its time is over.

    The base class would have the loop call the task; this class keeps the call for `Wakes`.
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
        """Run the task until it waits again; its result is set. Not for callers inside a task."""
        if self._resume is not None and self._context is not None:
            self._context.run(self._resume, self)

    def resume_soon(self) -> None:
        """Run the task in the next loop turn."""
        if self._resume is not None:
            self.get_loop().call_soon(self._resume, self, context=self._context)


class Wakes:
    """The wake-ups of one event loop."""

    __slots__ = ("_loop", "noted", "open")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        """A weak reference: this is kept under its loop, and must disappear with it."""
        self.open = False
        """True during a delivery: wake-ups are noted."""
        self.noted: list[Wakeup] = []

    def wake(self, wakeup: Wakeup) -> None:
        """End a task's waiting: with the current delivery if there is one, otherwise in the next loop
        turn.
        """
        wakeup.set_result(True)
        if self.open:
            self.noted.append(wakeup)
        else:
            wakeup.resume_soon()

    def run(self) -> None:
        """Run the noted tasks; the delivery has ended."""
        noted, self.noted = self.noted, []
        if asyncio.current_task(self._loop()) is not None:  # the delivery began inside a task
            for wakeup in noted:
                wakeup.resume_soon()
            return
        done = 0
        try:
            for wakeup in noted:
                done += 1
                wakeup.resume()
        finally:  # an interrupted task (Ctrl-C) raises out of here
            for wakeup in noted[done:]:
                wakeup.resume_soon()
