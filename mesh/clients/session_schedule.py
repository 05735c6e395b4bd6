"""When a client dials its broker again, and what it logs about it. Pure.

A client that has had a session never stops dialling, because brokers come back. The pause doubles with each
attempt without a session, and with each session that was no longer than the pause before it. A longer session
resets the pause. So a broker that ends every session at once is not dialled without pause.

The first end or failure gets a warning, and so does each new reason. Wrong keys, refused versions and broken
rules last until somebody changes something. After such a warning another one tells of the first session that
outlives its pause. Sessions that end at once are not logged.
"""

from __future__ import annotations

import random
from typing import Final

from protocols.dial_schedule import backoff_s

SHORTEST_S: Final = 0.05
LONGEST_S: Final = 2.0
"""The first and the longest pause between attempts."""


class SessionSchedule:
    """The attempts and sessions of one client. ``url`` is the address of the next attempt."""

    __slots__ = (
        "_away_since",
        "_began",
        "_lost_at",
        "_pause_s",
        "_rng",
        "_told",
        "back_at",
        "failures",
        "url",
    )

    def __init__(self, url: str, rng: random.Random) -> None:
        self.failures = 0
        """Attempts and short sessions since a session lasted."""
        self.back_at: float | None = None
        """When to call `back`; None if there is nothing to report."""
        self.url = url
        self._rng = rng
        self._pause_s = 0.0
        self._began: float | None = None
        self._away_since: float | None = None
        """When the last lasting session ended, or the first attempt failed; None while a session lasts."""
        self._lost_at = url
        """The address of the last session."""
        self._told: dict[str, str] = {}
        """The last reason that was logged, by address; empty since a session lasted."""

    def began(self, now: float) -> None:
        """Note that a session began."""
        self._began = now
        self.back_at = now + self._pause_s if self._told else None

    def back(self, now: float, *, subscribed: bool = False) -> str:
        """Return a warning that a session is back, if it lasts and the end of the one before was logged;
        otherwise an empty string. ``subscribed``: the warning also says what the client's subscriptions may
        lack."""
        if self.back_at is None or now < self.back_at:
            return ""
        self.back_at = None
        self._told.clear()
        assert self._began is not None and self._away_since is not None, "one began, and one had ended"
        away_s, self._away_since = self._began - self._away_since, None
        sentence = f"the session with the broker at {self.url} is back after {away_s:.1f} s"
        if self.url != self._lost_at:
            sentence = f"there is a session with the broker at {self.url} after {away_s:.1f} s without one"
            self._lost_at = self.url
        return f"{sentence}; subscriptions lack messages published meanwhile" if subscribed else sentence

    def lasts(self, now: float) -> bool:
        """True if there is a session that has outlived the pause before it."""
        return self._began is not None and now - self._began > self._pause_s

    def ended(self, now: float, why: str, *, telling: bool = True, others: int = 0) -> tuple[float, str]:
        """Note that the session is over, or that the attempt failed. Returns the seconds until the next
        attempt, and a sentence worth a warning (empty: nothing new, or not ``telling``). ``others``: how many
        other addresses are tried before this one is tried again; together they count as one attempt."""
        began, self._began = self._began, None
        self.back_at = None
        if began is not None and now - began > self._pause_s:  # as `lasts`
            self.failures = 0
            self._told.clear()
            self._away_since = None
        if self._away_since is None:
            self._away_since = now
        if others:
            pause_s = backoff_s(0, SHORTEST_S, SHORTEST_S, self._rng)
            self._pause_s = max(self._pause_s, pause_s)
        else:
            pause_s = self._pause_s = backoff_s(self.failures, SHORTEST_S, LONGEST_S, self._rng)
            self.failures += 1
        if why == self._told.get(self.url) or not telling:
            return pause_s, ""
        self._told[self.url] = why
        sentence = f"no session with the broker at {self.url}: {why}"
        if others:
            return pause_s, f"{sentence}; the client dials another one"
        return pause_s, f"{sentence}; the client dials it again, at least every {LONGEST_S:g} s"
