"""Sealed blocks that wait to be acknowledged, and are sent again as they are until then. Pure.

A block of level stored says how far below it the publisher's lowest number lies that still waits: homes
remember which numbers came from there on, and brokers give up what lies below. Numbers of other levels are no
matter of theirs. What its callers have given up is never sent again, and does not wait any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from mesh.clients.tickets import Ticket
from mesh.wire import blocks
from mesh.wire.durable_frames import BEHIND_MAX


class Sealed:
    """Neighbouring messages of one batch: one block, or the pieces of one large body."""

    __slots__ = ("again", "blocks", "count", "first", "last", "over", "put_off", "ticket")

    def __init__(self, blocks: list[bytes], count: int, first: int, last: int, ticket: Ticket) -> None:
        self.blocks = blocks
        self.count = count  # messages, as credit counts them, of each block
        self.first = first
        self.last = last
        self.ticket = ticket
        self.again = False
        """True if it was sent in an earlier session, whose broker may have taken it."""
        self.put_off = False
        """True while it is not under way, and is to be sent again later."""
        self.over = False
        """True once it waits no more."""


class Unacknowledged:
    """See the module. Iterating gives what waits, in the order of sealing."""

    def __init__(self) -> None:
        self._by_first: dict[int, Sealed] = {}
        self._stored: deque[Sealed] = deque()

    def __iter__(self) -> Iterator[Sealed]:
        return iter(self._by_first.values())

    def __len__(self) -> int:
        return len(self._by_first)

    def add(self, sealed: Sealed) -> None:
        self._by_first[sealed.first] = sealed
        if sealed.ticket.level == blocks.STORED:
            self._stored.append(sealed)

    def find(self, ranges: Sequence[Sequence[int]]) -> list[Sealed]:
        """What lies whole within the ranges; nearly always it begins where a range begins."""
        found: list[Sealed] = []
        waiting = self._by_first
        for first, last in ranges:
            at = first if first in waiting else self._first_within(first, last)
            while (sealed := waiting.get(at)) is not None and sealed.last <= last:
                found.append(sealed)
                at = sealed.last + 1
                if at <= last and at not in waiting:
                    at = self._first_within(at, last)
        return found

    def _first_within(self, first: int, last: int) -> int:
        return min((number for number in self._by_first if first <= number <= last), default=0)

    def remove(self, sealed: Sealed) -> None:
        """It waits no more."""
        if not sealed.over:
            sealed.over = True
            del self._by_first[sealed.first]

    def clear(self) -> None:
        for sealed in list(self):
            self.remove(sealed)

    def waits(self, first: int) -> bool:
        """Whether what begins with that number waits, and a caller for it."""
        sealed = self._by_first.get(first)
        return sealed is not None and not sealed.ticket.done

    def lowest(self, otherwise: int) -> int:
        """The lowest number of level stored that still waits, ``otherwise`` if none does."""
        stored = self._stored
        while stored and (stored[0].over or stored[0].ticket.done):
            stored.popleft()
        return stored[0].first if stored else otherwise

    def behind(self, first: int) -> int:
        """How far below a stored block's first number the lowest one lies that still waits."""
        return min(max(0, first - self.lowest(first)), BEHIND_MAX)
