"""Repeated log lines: written once, counted while they continue, and reported with their count when they end.
Pure.

Lines are the same if logger, level and words are. After a line was written, its repeats are counted for at
least `HELD_S`. Once it has not come for `QUIET_S`, or was counted for `TOLD_S`, it is reported with its
count. At most `LINES_MAX` lines are remembered. Beyond them the oldest is reported and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

QUIET_S: Final = 10.0
HELD_S: Final = 30.0
TOLD_S: Final = 600.0
LINES_MAX: Final = 256


Key = tuple[str, int, str]
"""Logger, level and words."""


class Repeated(NamedTuple):
    """A line that came so many more times within ``for_s`` seconds."""

    key: Key
    times: int
    for_s: float


class _Line:
    __slots__ = ("count", "first", "last")

    def __init__(self, now: float) -> None:
        self.first = self.last = now
        self.count = 0


class Repeats:
    """Counts repeated lines. ``now`` is in seconds, of any clock."""

    def __init__(self) -> None:
        self._lines: dict[Key, _Line] = {}

    def passes(self, key: Key, now: float) -> bool:
        """Take a line. True: write it. False: it was counted."""
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = _Line(now)
            return True
        line.count += 1
        line.last = now
        return False

    def ended(self, now: float) -> list[Repeated]:
        """Lines to report now."""
        return list(self._ended(now))

    def _ended(self, now: float) -> Iterator[Repeated]:
        for key, line in list(self._lines.items()):
            age, quiet = now - line.first, now - line.last
            over = quiet >= (QUIET_S if line.count else HELD_S) or age >= TOLD_S or quiet < 0
            if over or len(self._lines) > LINES_MAX:
                del self._lines[key]
                if line.count:
                    yield Repeated(key, line.count, line.last - line.first)

    def rest(self) -> list[Repeated]:
        """All lines not yet reported, for the end."""
        lines, self._lines = self._lines, {}
        return [
            Repeated(key, line.count, line.last - line.first) for key, line in lines.items() if line.count
        ]
