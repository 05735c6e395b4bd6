"""The wall clock of a host, which may be wrong, and be set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EPOCH_S: Final = 1_767_225_600.0
"""When every run begins by the wall clock: the first second of 2026, UTC."""


@dataclass(slots=True)
class WallClock:
    """A host's wall clock: its offset, and how fast that grows."""

    offset_s: float = 0.0
    drift_ppm: float = 0.0
    since_s: float = 0.0

    def off_by(self, now_s: float) -> float:
        return self.offset_s + (now_s - self.since_s) * self.drift_ppm * 1e-6

    def set_drift(self, ppm: float, now_s: float) -> None:
        """The clock continues from its present reading."""
        self.offset_s, self.since_s, self.drift_ppm = self.off_by(now_s), now_s, ppm
