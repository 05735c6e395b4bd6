"""What a broker that stood still has to hear before it routes again what is published.

A process that was stopped, or whose host slept, goes on as if no time had passed. Others may have held it for
dead meanwhile: they hung up, and let subscriptions pass without it. The end of such a link waits in the
kernel, and so does what clients published; which is read first is chance. So a broker that goes on asks each
link (PING), and holds what is published until

* each link of then has answered, or is over and the member has a new link that has answered, or the member is
  alive no more;
* the interest of all live members is held;
* the last new link is `SETTLED_S` old: where both sides dial, the first link is replaced a moment later.

A link that answers was never given up at the other side, so that no subscription passed without this broker.
A new one brings interest and members before its answer. A link that cannot be heard within `HOLD_S` is not
waited for; receipts name the brokers without a link.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf
from typing import Final

from mesh.cluster.joining import HOLD_S

SETTLED_S: Final = 0.5
LOOK_S: Final = 0.1
"""How often it is looked whether interest has come."""


class Standstill:
    """See the module. ``stamp`` goes with what the links are asked, and tells the answers from earlier
    ones."""

    def __init__(self) -> None:
        self.stamp = 0
        self._unanswered: dict[int, None] = {}
        self._due = inf
        self._look = inf
        self._settled = -inf

    @property
    def waits(self) -> bool:
        """Whether what is published has to wait."""
        return self._due < inf

    def begin(self, linked: Iterable[int], now: float) -> None:
        """This broker stood still, and goes on. All links are to be asked."""
        self.stamp += 1
        self._unanswered = dict.fromkeys(linked)
        self._due, self._look = now + HOLD_S, now + LOOK_S

    def linked(self, member: int, now: float) -> None:
        """A new link while it waits, which is to be asked as well."""
        self._unanswered[member] = None
        self._settled = now + SETTLED_S

    def answered(self, member: int) -> None:
        """The link of a member has answered."""
        self._unanswered.pop(member, None)

    def next_deadline(self) -> float:
        """When to call `end`."""
        return min(self._look, self._due)

    def end(self, now: float, *, live: Collection[int], missing: bool) -> bool:
        """Whether it is over now; True once. ``live`` are the members alive or suspect; ``missing``: the
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
