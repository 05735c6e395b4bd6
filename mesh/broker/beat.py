"""The timer of a broker: calls steps when they are due, and measures how late the event loop is.

A step that raises has a defect. It is reported to the event loop's exception handler, which logs it with its
traceback (in the simulator it fails the run), and counted. The timer continues, since one bad session must
not stop the others from being served. But the failed step is left alone for `FAULT_PAUSE_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

LATENESS_PERIOD_S: Final = 0.1
"""Interval of lateness samples; also the shortest pause that is noticed."""
SHORTEST_S: Final = 0.005
FAULT_PAUSE_S: Final = 1.0
REPORTS_MAX: Final = 100
"""Faults reported in a run. Further ones are only counted, so that they cannot fill a disk."""

Step = Callable[[float], float]
"""Does the work that is due at a time on the loop's clock. Returns when to call it again at the latest."""


class Beat:
    """One timer for several steps, called in order. ``late`` gets each beat's lateness in seconds."""

    def __init__(self, owner: str, steps: Sequence[Step], *, late: Callable[[float], None]) -> None:
        self.faults = 0
        """Defects reported since the start."""
        self._owner = owner
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._steps = list(steps)
        self._paused_until = [0.0] * len(self._steps)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Beat at once, and then on its own."""
        self._due = self._loop.time()
        self._beat()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        now = self._loop.time()
        self._late(now - self._due)
        due = now + LATENESS_PERIOD_S
        for number, step in enumerate(self._steps):
            if now < self._paused_until[number]:
                continue
            try:
                due = min(due, step(now))
            except Exception as error:  # a defect in anything that a step calls; see the module
                self._paused_until[number] = now + FAULT_PAUSE_S
                self.report(error)
        if self._stopped:
            return
        self._due = max(due, now + SHORTEST_S)
        self._timer = self._loop.call_at(self._due, self._beat)

    def report(self, error: Exception) -> None:
        """Count a defect of a step, or of work between beats, and tell the event loop."""
        self.faults += 1
        if self.faults > REPORTS_MAX:
            return
        last = "; further ones are only counted" if self.faults == REPORTS_MAX else ""
        message = f"{self._owner}: fault {self.faults} in its timers, which continue{last}"
        self._loop.call_exception_handler({"message": message, "exception": error})
