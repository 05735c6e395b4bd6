"""How much a broker does at once, and how long it waits, depending on how late its event loop is.

Forty brokers that start together on less than one core are all late. If each keeps dialling everybody at once
and gives up after the usual time, they spend the whole core on attempts that all fail: none of them forms a
link any more. So a late broker makes fewer dials at once, down to one, and every attempt, its own or another
broker's, gets more time. It is slow then, but it finishes. The time of an attempt depends on the present
lateness, not on that at its start: a broker that stood still is late once, and on time from then on.

The window of dials is halved whenever the broker's timer is late by more than `LATE_S`. It grows by one with
each new link and each timer that is on time. TCP shares a line by the same rule (additive increase,
multiplicative decrease; Chiu and Jain, 1989). ``patience`` is a factor for deadlines. It rises at once with
lateness and falls by a fifth with each later timer. An attempt takes time on both sides, and a broker knows
only its own lateness. So each attempt that a late broker gives up doubles the patience, and each link halves
that again.

A peer that does not answer is no reason to wait longer or to dial less while this broker is on time: that
peer may be gone, but others are not.

Pure.
"""

from __future__ import annotations

from typing import Final

LATE_S: Final = 0.1
"""A timer later than this is late."""
DIALS_MAX: Final = 32
"""Concurrent dials of a broker that is on time."""
DIALS_FIRST: Final = 8
PATIENCE_MAX: Final = 30.0


class Pace:
    """The number of dials and the patience of one broker."""

    def __init__(self) -> None:
        self._window = float(DIALS_FIRST)
        self._late_s = 0.0
        self._more = 1.0

    def ticked(self, late_s: float) -> None:
        """A timer of the broker was so late."""
        self._late_s = max(late_s, 0.8 * self._late_s)
        if late_s > LATE_S:
            self._window = max(1.0, self._window / 2)
        else:
            self._grow()
        if self._late_s <= LATE_S:
            self._more = 1.0

    def linked(self) -> None:
        """A link was made."""
        self._grow()
        self._more = max(1.0, self._more / 2)

    def gave_up(self) -> None:
        """An attempt took too long."""
        if self._late_s > LATE_S:
            self._more = min(PATIENCE_MAX, 2 * self._more)

    def _grow(self) -> None:
        self._window = min(float(DIALS_MAX), self._window + 1)

    @property
    def dials_max(self) -> int:
        """Number of dials that may be in progress now."""
        return int(self._window)

    @property
    def patience(self) -> float:
        """The factor for deadlines: 1 when on time."""
        late_s = self._late_s
        return 1.0 if late_s <= LATE_S else min(PATIENCE_MAX, self._more * late_s / LATE_S)
