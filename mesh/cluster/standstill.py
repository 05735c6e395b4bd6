"""Decides what a broker that stood still must hear before it routes published messages again.

A process that was stopped, or whose host slept, continues as if no time had passed. Meanwhile others may have
believed it dead: they hung up, and confirmed subscriptions without it. The end of such a link waits in the
kernel, and so does what clients published; chance decides which is read first. So a broker that continues
sends PING on each link, and holds published messages until

* each of these links has answered, or it has ended and either the member's new link has answered or the
  member is not alive any more;
* the interest of all live members is held;
* the last new link is `SETTLED_S` old: if both sides dial, the first link is replaced a moment later.

If a link answers, the other side never gave it up, so no subscription was confirmed without this broker. A
new link brings interest and members before its answer. A link that is not heard within `HOLD_S` is not waited
for; receipts name the brokers without a link.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf
from typing import Final

from mesh.cluster.joining import HOLD_S

SETTLED_S: Final = 0.5
LOOK_S: Final = 0.1
"""Interval between checks whether interest has arrived."""


class Standstill:
    """Waits for links to answer. ``stamp`` goes into the PINGs, and tells their answers from earlier ones."""

    def __init__(self) -> None:
        self.stamp = 0
        self._unanswered: dict[int, None] = {}
        self._due = inf
        self._look = inf
        self._settled = -inf

    @property
    def waits(self) -> bool:
        """True if published messages have to wait."""
        return self._due < inf

    def begin(self, linked: Iterable[int], now: float) -> None:
        """This broker stood still, and continues. All links must be asked."""
        self.stamp += 1
        self._unanswered = dict.fromkeys(linked)
        self._due, self._look = now + HOLD_S, now + LOOK_S

    def linked(self, member: int, now: float) -> None:
        """A new link while it waits; it must be asked as well."""
        self._unanswered[member] = None
        self._settled = now + SETTLED_S

    def answered(self, member: int) -> None:
        """The link of a member has answered."""
        self._unanswered.pop(member, None)

    def next_deadline(self) -> float:
        """The time of the next call of `end`."""
        return min(self._look, self._due)

    def end(self, now: float, *, live: Collection[int], missing: bool) -> bool:
        """True, once, if the wait is over. ``live`` are the members alive or suspect. ``missing``: the
        interest of one of them is not held."""
        if not self.waits:
            return False
        waits = now < self._settled or missing or any(member in live for member in self._unanswered)
        if waits and now < self._due:
            self._look = now + LOOK_S
            return False
        self._due = self._look = inf
        self._unanswered.clear()
        return True
