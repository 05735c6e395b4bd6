"""Progress of an analysis: stages of known weights, reported one after the other, with the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from mesh.analysis.reporting.findings import duration

Say = Callable[[str], None]
"""Called with a stage, and with the time left if that is known."""

WEIGHTS: Final[Mapping[str, float]] = {
    "starting Spark": 5.0,
    "reading the logs": 22.0,
    "aligning all clocks": 4.0,
    "finding the lives of processes": 3.0,
    "finding silence between brokers": 5.0,
    "judging reports of members about each other": 8.0,
    "counting messages": 2.0,
    "writing the tables": 43.0,
    "writing the report": 8.0,
}
"""Shares of the time, in order, as measured with two million rows. Spark does most of its work when tables
are written."""
CERTAIN_SHARE: Final = 0.1
"""Share of the whole. Before it is done, there is no estimate of the rest."""


class Stages:
    """Reports each stage to ``say``, with an estimate once one is possible."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._began = clock()
        self._names = list(WEIGHTS)
        self._done: set[str] = set()
        self._now: str | None = None

    def begin(self, stage: str) -> None:
        """The previous stage has ended."""
        self.end()
        self._now = stage
        left = self.left_s()
        self._say(stage if left is None else f"{stage}, some {duration(left)} left")

    def end(self) -> None:
        """The last stage has ended."""
        if self._now is not None:
            # Stages before this one are over, even if they were left out.
            place = self._names.index(self._now) if self._now in self._names else -1
            self._done.update(self._names[: place + 1])
        self._now = None

    def left_s(self) -> float | None:
        """Estimated seconds for the rest. None: not known yet."""
        total = sum(WEIGHTS.values())
        done = sum(WEIGHTS[name] for name in self._done)
        if done < CERTAIN_SHARE * total:
            return None
        return (self._clock() - self._began) * (total - done) / done
