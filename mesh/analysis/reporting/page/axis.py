"""The time axis that all plots over time share, so that simultaneous events are above each other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor
from typing import Final

from mesh.analysis.results.tables import Instant

WIDTH: Final = 1000.0
LEFT: Final = 150.0
RIGHT: Final = 18.0
STEPS_S: Final = (
    0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000,
)  # fmt: skip
TICKS_MAX: Final = 6
DAY_S: Final = 86_400.0
LEAST_WIDTH: Final = 2.5
"""Minimum width, so that a short outage in a log of hours is still visible."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Maps instants to the width between the margins."""

    start: Instant
    end: Instant

    @property
    def span_s(self) -> float:
        """Length in seconds, never zero."""
        return max(self.end - self.start, 1) / 1e6

    def x(self, at: Instant) -> float:
        """The position of an instant. Instants outside are at the edge."""
        share = (at - self.start) / 1e6 / self.span_s
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def stretch(self, start: Instant, end: Instant) -> tuple[float, float]:
        """Where a stretch begins, and the width of its drawing."""
        x = self.x(start)
        width = max(LEAST_WIDTH, self.x(end) - x)
        return min(x, WIDTH - RIGHT - width), width

    def ticks(self) -> list[tuple[float, str]]:
        """Positions of round times, and their labels."""
        span = self.span_s
        step = next((step for step in STEPS_S if span / step <= TICKS_MAX), span / TICKS_MAX)
        if step < 1:
            form = "%H:%M:%S.%f"
        elif step < 60:
            form = "%H:%M:%S"
        elif span < DAY_S * 1.5:
            form = "%H:%M"
        else:
            form = "%d %b" if step >= DAY_S else "%d %b %H:%M"
        first, last = ceil(self.start / 1e6 / step), floor(self.end / 1e6 / step)
        marks = []
        for number in range(first, last + 1):
            text = datetime.fromtimestamp(number * step, UTC).strftime(form)
            marks.append((self.x(round(number * step * 1e6)), text[:-5] if step < 1 else text))
        return marks
