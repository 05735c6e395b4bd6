"""The keepalive of a blocking client: threads that wait ask whether a silent broker is still there. Pure.

A `BlockingClient` has no thread of its own. Nobody sends PING at fixed times, and HELLO promises no signs of
life: a program may compute for an hour. So a thread that waits sends PING once nothing was heard for an
interval, and again in each interval after that. If nothing answers the first PING for `LAPSES` - 1 intervals,
the broker counts as gone. That takes as long as in a `Client`.

Frames may lie unread in the kernel, since nobody waited or the program was stopped. So a thread that is told
that the broker is gone looks there first, and asks `again` if there are some.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf

from mesh.wire.session_frames import LAPSES


class Next(Enum):
    """The next step of a thread that waits."""

    WAIT = auto()
    ASK = auto()
    GIVE_UP = auto()


class Silence:
    """See the module. ``interval_s`` 0: never ask. Times are in seconds, of any clock that never goes
    back."""

    __slots__ = ("_asked_at", "_first_asked_at", "interval_s")

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._first_asked_at = -inf
        """When the first PING was said that may be unanswered."""
        self._asked_at = -inf

    def due(self, heard_at: float) -> float:
        """When to call `next`, if nothing is heard until then; ``heard_at`` is when something last was."""
        if not self.interval_s:
            return inf
        if heard_at >= self._first_asked_at:
            return heard_at + self.interval_s
        return min(self._asked_at + self.interval_s, self._gives_up_at)

    def next(self, now: float, heard_at: float) -> Next:
        """To be called before a wait, and when one has come to its end."""
        if now < self.due(heard_at):
            return Next.WAIT
        if heard_at >= self._first_asked_at:
            self._first_asked_at = now
        elif now >= self._gives_up_at:
            return Next.GIVE_UP
        self._asked_at = now
        return Next.ASK

    def again(self, now: float) -> None:
        """There is something unread, so what was asked has just been asked."""
        self._first_asked_at = self._asked_at = now

    @property
    def _gives_up_at(self) -> float:
        return self._first_asked_at + (LAPSES - 1) * self.interval_s
