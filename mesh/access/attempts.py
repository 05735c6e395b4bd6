"""Wrong proofs by address: who fails again and again hears of it later, and is checked less often. Pure.

Attempts are counted by the host they come from and by the identity that was claimed. So another client's
wrong key does not keep out a client behind the same address that has the right one. Even for the claimed
identity `CHECKED_MAX` proofs a second are checked, since its owner may be behind that address, too.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

FREE: Final = 3
"""Failures that cost no wait: somebody may be looking for the right file."""
CHECKED_MAX: Final = 10
"""Proofs of one identity from one host that are checked in a second, after the free failures."""
FIRST_S: Final = 0.5
LONGEST_S: Final = 2.0
"""An honest client with a wrong key still gets the reason: it waits for 5 s."""
FORGET_S: Final = 600.0
KEPT_MAX: Final = 4096
"""Most addresses and claims that are remembered; beyond them the oldest is forgotten."""


class _Failures:
    __slots__ = ("at", "checked", "count", "second")

    def __init__(self) -> None:
        self.count = 0
        """In a row."""
        self.at = 0.0
        """When the last one was."""
        self.second = 0.0
        """When the current second began, of whose proofs ``checked`` were checked."""
        self.checked = 0


class Attempts:
    """The failed attempts at one broker."""

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: dict[Hashable, _Failures] = {}

    def takes(self, who: Hashable, now: float) -> bool:
        """True if a proof is to be checked."""
        failures = self._failed.get(who)
        if failures is None or failures.count < FREE:
            return True
        if now - failures.second >= 1.0:
            failures.second, failures.checked = now, 0
        failures.checked += 1
        return failures.checked <= CHECKED_MAX

    def pause_s(self, who: Hashable) -> float:
        """How long the refusal of a failed attempt is held back, in seconds."""
        failures = self._failed.get(who)
        if failures is None or failures.count < FREE:
            return 0.0
        return min(LONGEST_S, FIRST_S * 2.0 ** min(failures.count - FREE, 16))

    def failed(self, who: Hashable, now: float) -> None:
        """Count a wrong proof."""
        failures = self._failed.pop(who, None)
        if failures is None or now - failures.at > FORGET_S:
            failures = _Failures()
        if len(self._failed) >= KEPT_MAX:
            del self._failed[next(iter(self._failed))]
        failures.count += 1
        failures.at = now
        self._failed[who] = failures

    def succeeded(self, who: Hashable) -> None:
        self._failed.pop(who, None)
