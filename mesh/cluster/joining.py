"""Decides when a starting broker knows enough to route what is published at it.

A broker that was told about others (by join URLs, or by the peers of its last run) begins without anybody's
interest. It cannot say yet who wants a message, so it holds published messages until it has **joined**. It
has joined when it

* has a link to a broker, and
* has the table and the interest of every member that is alive in any of these tables, and
* knows the fate of each peer of its last run: some table names it, or it has a link.

Every broker sends its table right behind its interest on a new link. So every broker that one of them knows
is known here too, and no reachable broker is left out.

Some peers may never come, so there are time limits. `JOIN_S` after the first link the broker counts as
joined, and peers that nobody has named by then count as dead. Without any link, a broker that knows only
peers of its last run counts as joined after two periods; one with join URLs keeps trying. In either case
messages are held for `HOLD_S` at most. After that receipts and barriers name the missing brokers (`unheard`).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from mesh.wire.link_frames import RECORDS_MAX

JOIN_S: Final = 5.0
"""How long a broker waits, from its first link, for all tables and interest."""
HOLD_S: Final = 5.0
"""How long a broker holds published messages from its start before it accepts them and names missing
brokers."""


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
        """True if published messages have to wait."""
        return self._holds

    def next_deadline(self) -> float:
        """The time of the next call of `tick`."""
        return min(self._due, self._hold_due)

    def tick(self, now: float) -> bool:
        """Do the work that is due. True if the broker now counts as joined, whichever others are missing."""
        if now >= self._hold_due:
            self.release()
        if now < self._due:
            return False
        self._due = inf
        if self._linked_once:
            self._known.clear()
        return True

    def keep(self, join: Sequence[str], now: float) -> None:
        """Keep these join URLs, which are not this broker's own. Without any it founds a mesh."""
        if len(join) == len(self._join):
            return
        self._join = tuple(join)
        if not join and not self._linked_once:
            self._due = now + 2 * self._period_s

    def release(self) -> None:
        """Published messages no longer wait: the broker has joined, or time is up."""
        self._holds, self._hold_due = False, inf

    @property
    def unheard(self) -> tuple[str, ...]:
        """Members that this broker was told about but has not heard from: their names, and URLs until the
        first link."""
        join = () if self._linked_once else self._join
        return (*join, *self._known.values())

    def linked(self, member: int, now: float) -> None:
        """A link is up."""
        self._known.pop(member, None)
        if not self._linked_once:
            self._linked_once = True
            self._due = now + JOIN_S

    def table_heard(self, via: int, ids: Sequence[int]) -> bool:
        """A linked member sent a part of its table, which names these members, whatever their state. True if
        that is new."""
        news = False
        if self._known:
            for id in ids:
                news |= self._known.pop(id, None) is not None
        if via not in self._tables and len(ids) < RECORDS_MAX:  # otherwise another part follows
            self._tables[via] = None
            news = True
        return news

    def is_complete(self, live: Iterable[int]) -> bool:
        """True if everything except perhaps interest has been heard. ``live`` are the other members alive or
        suspect."""
        return self._linked_once and not self._known and all(id in self._tables for id in live)
