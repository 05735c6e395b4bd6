"""Wrong proofs by address: a host that fails again and again has to wait, longer each time. Pure.

Attempts are counted by the host they come from and by the identity that was claimed. So another client's
wrong key does not keep out a client behind the same address that has the right one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

FREE: Final = 3
"""Failures that cost no wait: somebody may be looking for the right file."""
FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
FORGET_S: Final = 600.0
KEPT_MAX: Final = 4096
"""Most addresses and claims that are remembered; beyond them the oldest is forgotten."""


class Attempts:
    """The failed attempts at one broker."""

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: dict[Hashable, tuple[int, float]] = {}
        """The number of failures in a row, and the time of the last one."""

    def wait_s(self, who: Hashable, now: float) -> float:
        """How long an attempt has to wait, in seconds; 0 if it need not."""
        found = self._failed.get(who)
        if found is None:
            return 0.0
        count, at = found
        if count < FREE:
            return 0.0
        pause_s = min(LONGEST_S, FIRST_S * 2.0 ** min(count - FREE, 16))
        return max(0.0, at + pause_s - now)

    def failed(self, who: Hashable, now: float) -> None:
        """Count a wrong proof."""
        count, at = self._failed.pop(who, (0, now))
        if now - at > FORGET_S:
            count = 0
        if len(self._failed) >= KEPT_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[who] = (count + 1, now)

    def succeeded(self, who: Hashable) -> None:
        self._failed.pop(who, None)
