"""Wrong proofs by address: a host that fails again and again has to wait, longer each time. Pure.

Attempts are counted by the host they come from and by what was claimed. So a client that has the right key is
not kept out by another one behind the same address that has a wrong one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

FREE: Final = 3
"""Failures that cost no wait: somebody looks for the right file."""
FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
FORGET_S: Final = 600.0
KEPT_MAX: Final = 4096
"""Addresses and claims that are remembered; beyond them the oldest is forgotten."""


class Attempts:
    """See the module."""

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: dict[Hashable, tuple[int, float]] = {}
        """How often in a row, and when last."""

    def wait_s(self, who: Hashable, now: float) -> float:
        """How long an attempt has to wait; 0: it need not."""
        found = self._failed.get(who)
        if found is None:
            return 0.0
        count, at = found
        if count < FREE:
            return 0.0
        pause_s = min(LONGEST_S, FIRST_S * 2.0 ** min(count - FREE, 16))
        return max(0.0, at + pause_s - now)

    def failed(self, who: Hashable, now: float) -> None:
        """One more wrong proof."""
        count, at = self._failed.pop(who, (0, now))
        if now - at > FORGET_S:
            count = 0
        if len(self._failed) >= KEPT_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[who] = (count + 1, now)

    def succeeded(self, who: Hashable) -> None:
        self._failed.pop(who, None)
