"""What goes on, and for how long still: stages of known weights, told one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from mesh.analysis.reporting.findings import duration

Say = Callable[[str], None]
"""Is told a stage, and what is left where that can be said."""

WEIGHTS: Final[Mapping[str, float]] = {
    "starting Spark": 5.0,
    "reading the logs": 22.0,
    "putting all clocks on one": 4.0,
    "telling what processes did": 3.0,
    "looking for silence between brokers": 5.0,
    "weighing what members said of each other": 8.0,
    "counting messages": 2.0,
    "writing the tables": 43.0,
    "writing the report": 8.0,
}
"""Shares of the time, in order, as measured with two million rows. Spark does most as tables are written."""
CERTAIN_SHARE: Final = 0.1
"""Of the whole; before it is done, nobody knows how long the rest takes."""


class Stages:
    """Tells each stage to ``say``, with an estimate once there is something to make it from."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._began = clock()
        self._names = list(WEIGHTS)
        self._done: set[str] = set()
        self._now: str | None = None

    def begin(self, stage: str) -> None:
        """The stage before this one has ended."""
        self.end()
        self._now = stage
        left = self.left_s()
        self._say(stage if left is None else f"{stage}, some {duration(left)} left")

    def end(self) -> None:
        """The last stage has ended."""
        if self._now is not None:
            # What comes before a stage is over, should it have been left out.
            place = self._names.index(self._now) if self._now in self._names else -1
            self._done.update(self._names[: place + 1])
        self._now = None

    def left_s(self) -> float | None:
        """How long the rest takes if it goes on like this; None: nobody knows yet."""
        total = sum(WEIGHTS.values())
        done = sum(WEIGHTS[name] for name in self._done)
        if done < CERTAIN_SHARE * total:
            return None
        return (self._clock() - self._began) * (total - done) / done
