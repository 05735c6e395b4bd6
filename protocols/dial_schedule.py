"""The pauses of a dialer between attempts, and its warnings. Pure: no clock, no waiting.

The pause doubles after each round that gives no pipe, or gives a pipe that ends soon. A pipe ends soon if it
lives for less than the pause before it, or for less than ten times the shortest pause. Examples are a pipe to
a Pair0 that has another partner, and one to a peer that receives a message above its limit. Some failures
last until one of the two ends is changed, such as a wrong protocol or an untrusted certificate. After these
the pause is the longest.

It warns of the first failure, of each failure of another kind, and of several pipes in a row that ended soon.
"""

from __future__ import annotations

import random
from typing import Final

from protocols.errors import HandshakeError, SPError, TlsConfigError

PASSING: Final = frozenset({"closed", "timeout", "websocket: refused", "tls: refused by peer", "tls: error"})
"""Reasons of a failed handshake that may disappear by the next attempt; all others last."""

LONGEST: Final = 40
"""A lasting failure, as a number of failures: the pause after it is the longest."""

SOON_OVER: Final = 3
"""The number of pipes in a row that must end soon before the dialer warns."""


def backoff_s(attempt: int, minimum_s: float, maximum_s: float, rng: random.Random) -> float:
    """Seconds to wait after ``attempt`` failures in a row (0 = the first): doubling, upper half at random.

    A ``maximum_s`` below ``minimum_s`` means no growth. The jitter keeps the peers of a restarted broker from
    reconnecting all at once.
    """
    ceiling = min(max(maximum_s, minimum_s), minimum_s * 2.0 ** min(attempt, LONGEST))
    return ceiling * (0.5 + 0.5 * rng.random())


def is_lasting(error: SPError) -> bool:
    """True if dialling fails for this reason until one of the two ends is changed."""
    if isinstance(error, HandshakeError):
        return error.reason not in PASSING
    return isinstance(error, TlsConfigError)


class DialSchedule:
    """The rounds of one dialer.

    Report each round once. The answer is the pause after it in seconds, and a sentence for a warning (empty:
    nothing new).
    """

    __slots__ = (
        "_complaint",
        "_failures",
        "_longest_s",
        "_pause_s",
        "_rng",
        "_shortest_s",
        "_soon_over",
        "_url",
    )

    def __init__(self, url: str, shortest_s: float, longest_s: float, rng: random.Random) -> None:
        self._url = url
        self._shortest_s = shortest_s
        self._longest_s = max(shortest_s, longest_s)
        self._rng = rng
        self._failures = 0
        self._soon_over = 0
        self._pause_s = 0.0
        self._complaint = ""
        """The last warning; empty once a pipe has lasted."""

    def failed(self, error: SPError) -> tuple[float, str]:
        """The round gave no pipe."""
        lasting = is_lasting(error)
        return self._next_pause(lasting), self._failure(str(error), lasting)

    def ended(self, lived_s: float, reason: str) -> tuple[float, str]:
        """The round gave a pipe, which lived so long and ended for this reason."""
        if lived_s >= max(self._pause_s, 10 * self._shortest_s):
            self._failures = self._soon_over = 0
            self._complaint = ""
            return self._next_pause(False), ""
        self._soon_over += 1
        return self._next_pause(False), self._short_life(lived_s, reason)

    def _next_pause(self, lasting: bool) -> float:
        failures = LONGEST if lasting else self._failures
        self._pause_s = backoff_s(failures, self._shortest_s, self._longest_s, self._rng)
        self._failures += 1
        return self._pause_s

    def _failure(self, sentence: str, lasting: bool) -> str:
        if sentence == self._complaint:
            return ""
        self._complaint = sentence
        next_one = (
            f"one of the two ends must be changed, the next attempts are {self._longest_s:g} s apart"
            if lasting
            else f"it is tried again, at least every {self._longest_s:g} s"
        )
        return f"dialling {self._url} failed: {sentence}; {next_one}"

    def _short_life(self, lived_s: float, reason: str) -> str:
        """A single pipe that ends soon is common; several in a row mean that this will continue."""
        if self._soon_over < SOON_OVER or self._complaint == reason:
            return ""
        self._complaint = reason
        return (
            f"the connection to {self._url} ended soon after it was made, {self._soon_over} times in a row, "
            f"now after {lived_s:.3g} s: {reason}; the pause before the next one grows to "
            f"{self._longest_s:g} s (the peer may have another partner, or a message above its "
            "recv_size_max is sent again and again)"
        )
