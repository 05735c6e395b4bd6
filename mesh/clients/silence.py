"""The keepalive of a blocking client: waiting threads probe a silent broker. Pure.

A `BlockingClient` has no thread of its own. It sends no PING at fixed times, and its HELLO promises none,
since a program may compute for an hour. So a waiting thread sends PING after an interval of silence, and
again in each interval after that. If nothing answers the first PING for `LAPSES` - 1 intervals, the broker
counts as gone. That takes as long as in a `Client`.

Frames may lie unread in the kernel, since nobody waited or the program was stopped. So before a thread gives
up the broker it looks there, and calls `again` if it finds some.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf

from mesh.wire.session_frames import LAPSES


class Next(Enum):
    """The next step of a waiting thread."""

    WAIT = auto()
    ASK = auto()
    GIVE_UP = auto()


class Silence:
    """When to probe the broker, and when to give it up. ``interval_s`` 0: never. Times are in seconds, of any
    clock that never goes back."""

    __slots__ = ("_asked_at", "_first_asked_at", "interval_s")

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._first_asked_at = -inf
        """When the first PING was sent that may be unanswered."""
        self._asked_at = -inf

    def due(self, heard_at: float) -> float:
        """When to call `next` if nothing is heard until then. ``heard_at`` is when something was last
        heard."""
        if not self.interval_s:
            return inf
        if heard_at >= self._first_asked_at:
            return heard_at + self.interval_s
        return min(self._asked_at + self.interval_s, self._gives_up_at)

    def next(self, now: float, heard_at: float) -> Next:
        """The next step. Call it before a wait, and when a wait has ended."""
        if now < self.due(heard_at):
            return Next.WAIT
        if heard_at >= self._first_asked_at:
            self._first_asked_at = now
        elif now >= self._gives_up_at:
            return Next.GIVE_UP
        self._asked_at = now
        return Next.ASK

    def again(self, now: float) -> None:
        """Note unread frames: the probe counts as sent just now."""
        self._first_asked_at = self._asked_at = now

    @property
    def _gives_up_at(self) -> float:
        return self._first_asked_at + (LAPSES - 1) * self.interval_s
