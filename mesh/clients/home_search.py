"""Finds the home of a durable subscription: which broker a client asks next, and when. Pure.

The client asks its own broker first, the *entry*. The entry is the home or names the home's address, and the
client goes there. When the session with the home is lost, it asks the entry again, since the home may return
at another address. Only the first search can fail because the home is unknown or unreachable. Later the home
counts as away, and the client looks for it until it is back. If the broker at the home's address names that
same address, it is not the home: it has lost its id, or it took the address of a broker that is gone.

The pause before a step doubles with each step until the subscription has been attached for a while. So
brokers that name each other, or that end every session, are not asked without pause.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from mesh.clients.session_schedule import LONGEST_S, SHORTEST_S
from mesh.clients.work_feeds import WorkFeed
from mesh.errors import Disconnected, HeldElsewhere, MeshError
from protocols.dial_schedule import backoff_s


@dataclass(frozen=True, slots=True)
class Attached:
    """The subscription is attached."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the answer of the broker that was asked, or for the session with the entry."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the entry, after a pause."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class Follow:
    """Go to the home at this address, after a pause."""

    url: str
    pause_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The search is over."""

    error: MeshError


Step = Attached | Wait | Ask | Follow | Failed
ATTACHED: Final = Attached()
WAIT: Final = Wait()


class HomeSearch:
    """The search for one home: `next` gives the next step."""

    __slots__ = ("_attached_at", "_followed", "_rng", "_steps")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._attached_at: float | None = None
        self._followed = ""
        """The address of the home that the entry named last."""
        self._steps = 0

    @property
    def found(self) -> bool:
        """True if the subscription has been attached once."""
        return self._attached_at is not None

    def next(self, feed: WorkFeed, *, at_entry: bool, settled: bool, now: float) -> Step:
        """The next step for ``feed``, which is at the entry or at the home. ``settled``: it has a session
        there."""
        if feed.ready:
            self._attached_at = now
            return ATTACHED
        error = feed.error
        if isinstance(error, HeldElsewhere):
            url = error.url
            if url and (at_entry or url != self._followed):
                self._followed = url
                return Follow(url, self._pause_s())
            if self.found:
                return Ask(self._pause_s())
            if url:
                what_to_do = "if that home will not come back: mesh queue forget, with its name"
                error = HeldElsewhere(f"{error}, and another broker is now at {url}; {what_to_do}", "")
            return Failed(error)
        if error is not None:
            return Failed(error)
        if at_entry or settled:
            return WAIT
        if self._attached_at is not None and now - self._attached_at > LONGEST_S:
            self._steps = 0
        return Ask(0.0)

    def unreachable(self, name: str, reason: Exception) -> Step:
        """The next step if no session can be had at the home."""
        if self.found:
            return Ask(0.0)
        return Failed(Disconnected(f"the home of {name} cannot be reached: {reason}"))

    def _pause_s(self) -> float:
        """The next pause in seconds; 0 before the first step, unless a broker was just asked in vain."""
        self._steps += 1
        return backoff_s(self._steps - 2, SHORTEST_S, LONGEST_S, self._rng) if self._steps > 1 else 0.0
