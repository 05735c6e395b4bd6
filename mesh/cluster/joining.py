"""When a broker that starts knows enough to route what is published at it.

A broker that was told of others (by join URLs, or by the peers that it knew in its last run) begins without
anybody's interest. It cannot say yet who wants a message, so it holds what is published until it has
**joined**. It has when it

* has a link to a broker, and
* has the table and the interest of every member that is alive by any of these tables, and
* knows of each peer of its last run what became of it: some table names it, or it has a link.

Every broker sends its table right behind its interest on a new link. So every broker that one of them knows
is known here too, and none that can be reached is left out.

Some of them may never come, so there are time limits. `JOIN_S` after the first link the broker calls itself
joined, and peers that nobody has named by then count as dead. Without any link, a broker that knows only
peers of its last run calls itself joined after two periods; one with join URLs goes on joining. Either way
publishes are held for `HOLD_S` at most. Receipts and barriers name those who are missing then (`unheard`).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from mesh.wire.link_frames import RECORDS_MAX

JOIN_S: Final = 5.0
"""From the first link, how long a broker waits for everybody's table and interest."""
HOLD_S: Final = 5.0
"""From its start, how long a broker holds what is published before it accepts it and names who is missing."""


class Joining:
    """See the module.

    Args:
        join: URLs of brokers to join.
        known: ids and names of the peers of the last run.
        period_s: the heartbeat's period.
    """

    def __init__(self, join: Sequence[str], known: Iterable[tuple[int, str]], period_s: float) -> None:
        self._join = tuple(join)
        self._known = dict(known)
        self._period_s = period_s
        self._tables: dict[int, None] = {}
        self._linked_once = False
        self._due = inf
        self._hold_due = inf
        self._holds = bool(join or self._known)

    def begin(self, now: float) -> None:
        """The broker listens and dials from now on."""
        if self._holds:
            self._hold_due = now + HOLD_S
            if not self._join:
                self._due = now + 2 * self._period_s

    @property
    def holds(self) -> bool:
        """Whether what is published has to wait."""
        return self._holds

    def next_deadline(self) -> float:
        """When to call `tick`."""
        return min(self._due, self._hold_due)

    def tick(self, now: float) -> bool:
        """Do what is due; True if the broker is to be called joined, whichever others are missing."""
        if now >= self._hold_due:
            self.release()
        if now < self._due:
            return False
        self._due = inf
        if self._linked_once:
            self._known.clear()
        return True

    def keep(self, join: Sequence[str], now: float) -> None:
        """These are the join URLs that are not this broker's own. Without any it founds a mesh."""
        if len(join) == len(self._join):
            return
        self._join = tuple(join)
        if not join and not self._linked_once:
            self._due = now + 2 * self._period_s

    def release(self) -> None:
        """What is published waits no longer: the broker has joined, or time is up."""
        self._holds, self._hold_due = False, inf

    @property
    def unheard(self) -> tuple[str, ...]:
        """Members that this broker was told of and has heard nothing about: names, and URLs until the first
        link."""
        join = () if self._linked_once else self._join
        return (*join, *self._known.values())

    def linked(self, member: int, now: float) -> None:
        """A link is up."""
        self._known.pop(member, None)
        if not self._linked_once:
            self._linked_once = True
            self._due = now + JOIN_S

    def table_heard(self, via: int, ids: Sequence[int]) -> bool:
        """A part of the table of a linked member, which names these members, whatever their state. True if
        that is new."""
        news = False
        if self._known:
            for id in ids:
                news |= self._known.pop(id, None) is not None
        if via not in self._tables and len(ids) < RECORDS_MAX:  # else another part follows
            self._tables[via] = None
            news = True
        return news

    def is_complete(self, live: Iterable[int]) -> bool:
        """Whether all is heard but perhaps interest. ``live`` are the other members alive or suspect."""
        return self._linked_once and not self._known and all(id in self._tables for id in live)
