"""How fast a principal may publish: a token bucket that paces credit. Pure.

Publishers send by credit (`mesh.dataplane.credit`). An empty bucket keeps back a publisher's credit until it
has room again. So nothing is refused or lost: a publisher that is too fast waits, as it does for a slow
subscriber. The bucket holds the messages of one second, and may go below zero by a grant, which is at most a
window.
"""

from __future__ import annotations

from math import inf
from typing import Final, Protocol

SHORTEST_S: Final = 0.02
"""Grants of one bucket are not made more often."""


class Paced(Protocol):
    """A publisher that is owed credit."""

    def grant(self) -> None:
        """Give back all credit that is owed, or wait again."""


class Bucket:
    """Paces the credit of one principal's publishers. ``rate`` is in messages a second."""

    __slots__ = ("_at", "level", "rate", "waiting")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self.level = self.burst
        self.waiting: dict[Paced, None] = {}
        """Publishers whose credit is kept back."""
        self._at = now

    @property
    def burst(self) -> float:
        return max(1.0, self.rate)

    def refill(self, now: float) -> None:
        self.level = min(self.burst, self.level + max(0.0, now - self._at) * self.rate)
        self._at = now

    def take(self, messages: int) -> bool:
        """Spend so many messages if the bucket is not empty; False means wait."""
        if self.level <= 0:
            return False
        self.level -= messages
        return True

    def wait_s(self) -> float:
        """Seconds until the bucket is no longer empty."""
        return max(SHORTEST_S, (1.0 - self.level) / self.rate) if self.level <= 0 else 0.0

    def tick(self, now: float) -> float:
        """Grant what can be granted; returns when to call again, or `inf` if no publisher waits."""
        self.refill(now)
        while self.waiting and self.level > 0:
            paced = next(iter(self.waiting))
            del self.waiting[paced]
            paced.grant()
        return now + self.wait_s() if self.waiting else inf
