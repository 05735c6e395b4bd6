"""Finds the home of a durable subscription: which broker a client asks next, and when. Pure.

The client's own broker, the *entry*, is asked first. It is the home, or it says where that is and the client
goes there. When the session with the home is lost the entry is asked again, since the home may come back at
another address. Only the first search can fail because the home is not known or cannot be reached: after that
it is away, and is looked for until it is back. A broker that is asked at the home's address and names that
very address is not the home: it has lost its id, or has the address of one that is gone.

The pause before a step doubles with each step since the subscription was attached for a while, so that
brokers that name each other, or end each session, are not asked without pause.
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
    """It is found."""


@dataclass(frozen=True, slots=True)
class Wait:
    """For the broker that was asked, or for the session with the entry."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The entry, after a pause."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class Follow:
    """To the home at this address, after a pause."""

    url: str
    pause_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """It is over."""

    error: MeshError


Step = Attached | Wait | Ask | Follow | Failed
ATTACHED: Final = Attached()
WAIT: Final = Wait()


class HomeSearch:
    """See the module."""

    __slots__ = ("_attached_at", "_followed", "_rng", "_steps")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._attached_at: float | None = None
        self._followed = ""
        """Where the home was to be found, as the entry said last."""
        self._steps = 0

    @property
    def found(self) -> bool:
        """Whether it was attached once."""
        return self._attached_at is not None

    def next(self, feed: WorkFeed, *, at_entry: bool, settled: bool, now: float) -> Step:
        """What to do for ``feed``, which is at the entry or at the home; ``settled``: with a session."""
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
                there = f"at {url}, where that was, is another broker"
                error = HeldElsewhere(f"{error}; {there}; if it will not come back: mesh queue forget", "")
            return Failed(error)
        if error is not None:
            return Failed(error)
        if at_entry or settled:
            return WAIT
        if self._attached_at is not None and now - self._attached_at > LONGEST_S:
            self._steps = 0
        return Ask(0.0)

    def unreachable(self, name: str, reason: Exception) -> Step:
        """What to do when there is no session to be had at the home."""
        if self.found:
            return Ask(0.0)
        return Failed(Disconnected(f"the home of {name} cannot be reached: {reason}"))

    def _pause_s(self) -> float:
        """None before the first step, but where somebody was just asked in vain."""
        self._steps += 1
        return backoff_s(self._steps - 2, SHORTEST_S, LONGEST_S, self._rng) if self._steps > 1 else 0.0
