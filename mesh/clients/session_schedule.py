"""When a client dials its broker again, and what it tells its operators of that. Pure.

A client that has had a session never gives up dialling, because brokers come back. The pause doubles with
each attempt that brings no session and each session that is over as soon as the pause before it; a session
that lasts longer makes it short again. So a broker that ends every session at once is not dialled without
pause.

The first end or failure gets a warning, and each one for another reason: a wrong key, a refused version or a
broken rule lasts until somebody changes something. After such a warning another one tells of the first
session that outlives its pause. Sessions that end at once are not told.
"""

from __future__ import annotations

import random
from typing import Final

from protocols.dial_schedule import backoff_s

SHORTEST_S: Final = 0.05
LONGEST_S: Final = 2.0
"""The first pause between attempts and the longest one."""


class SessionSchedule:
    """The attempts and sessions of one client. ``url`` is where the next session is sought."""

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
        """When `back` is to be asked; None: there is nothing to tell."""
        self.url = url
        self._rng = rng
        self._pause_s = 0.0
        self._began: float | None = None
        self._away_since: float | None = None
        """When the last session that lasted ended, or the first attempt failed; None: a session lasts."""
        self._lost_at = url
        """Where the last session was."""
        self._told: dict[str, str] = {}
        """The reason that was told last, by address; empty since a session lasted."""

    def began(self, now: float) -> None:
        """There is a session."""
        self._began = now
        self.back_at = now + self._pause_s if self._told else None

    def back(self, now: float, *, subscribed: bool = False) -> str:
        """The warning that a session is back, if it lasts and the end of the one before was told; else empty.
        ``subscribed``: the client has subscriptions, and the warning says what they may lack."""
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
        return f"{sentence}; subscriptions lack what was published meanwhile" if subscribed else sentence

    def lasts(self, now: float) -> bool:
        """Whether there is a session that has outlived the pause before it."""
        return self._began is not None and now - self._began > self._pause_s

    def ended(self, now: float, why: str, *, telling: bool = True, others: int = 0) -> tuple[float, str]:
        """The session is over, or the attempt brought none: seconds to wait before the next attempt, and a
        sentence worth a warning (empty: nothing new, or not ``telling``). ``others``: addresses that are
        tried before this one is tried again; attempts at these are one attempt."""
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
            return pause_s, f"{sentence}; another one is dialled"
        return pause_s, f"{sentence}; it is dialled again, at least every {LONGEST_S:g} s"
