"""Decides when the health of a mesh is shown: after each batch, and by the clock, since a dead mesh writes
nothing.

Silence counts up to the newest row while rows wait to be read: how far the follower is behind must not look
like silence. Once everything is read, it counts up to the present, less the time that brokers take to write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mesh.analysis.following.growing import Steps
    from mesh.analysis.following.health import Batch, Health, Picture

BUSY_S: Final = 10.0
"""Seconds without a view after which it is shown again, although a batch is under way."""


class Screen:
    """Shows the health of a mesh. Batches come in a thread of Spark's, ticks in that of the follower."""

    def __init__(
        self,
        health: Health,
        show: Callable[[Picture], None],
        wall: Callable[[], float],
        every_s: float,
    ) -> None:
        self._health = health
        self._show = show
        self._wall = wall
        self._every_s = every_s
        self._lock = threading.Lock()
        self._steps: Steps | None = None
        self._taken = 0
        self._waiting_bytes = 0
        self._shown_s: float | None = None

    def begin(self, steps: Steps) -> None:
        """Batches are of these steps from now on, from the first."""
        with self._lock:
            self._steps, self._taken, self._waiting_bytes = steps, 0, 0

    def take(self, batch: Batch, waiting_bytes: int) -> None:
        """Take the batch of the next step, and show it."""
        with self._lock:
            self._taken += 1
            self._waiting_bytes = waiting_bytes
            self._health.take(batch, self._wall())
            self._draw(self._all_read())

    def tick(self) -> None:
        """Show the state as of now, if the last view is old."""
        with self._lock:
            since_s = None if self._shown_s is None else abs(self._wall() - self._shown_s)
            if since_s is not None and since_s < self._every_s:
                return
            all_read = self._all_read()
            if all_read or (since_s is not None and since_s >= BUSY_S):
                self._draw(all_read)

    def _all_read(self) -> bool:
        return self._steps is not None and not self._steps.more(self._taken)

    def _draw(self, all_read: bool) -> None:
        self._shown_s = self._wall()
        self._show(self._health.picture(self._shown_s, self._waiting_bytes, all_read=all_read))
