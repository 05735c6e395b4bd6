"""Sealed blocks that wait for their acknowledgement, and are resent unchanged until then. Pure.

A block of level stored names the publisher's lowest pending number, as the distance below its own. Homes
remember the numbers from there on, and brokers give up what lies below. Numbers of other levels do not count.
A block that its callers have given up no longer waits and is never resent.
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
        """True while it is not in flight and will be resent later."""
        self.over = False
        """True once it no longer waits."""


class Unacknowledged:
    """The waiting blocks of one client. Iterating gives them in the order of sealing."""

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
        """The blocks that lie wholly within the ranges. Nearly always one begins where a range begins."""
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
        """Remove a block that no longer waits."""
        if not sealed.over:
            sealed.over = True
            del self._by_first[sealed.first]

    def clear(self) -> None:
        for sealed in list(self):
            self.remove(sealed)

    def waits(self, first: int) -> bool:
        """True if the block that begins with that number waits, and a caller waits for it."""
        sealed = self._by_first.get(first)
        return sealed is not None and not sealed.ticket.done

    def lowest(self, otherwise: int) -> int:
        """The lowest pending number of level stored; ``otherwise`` if there is none."""
        stored = self._stored
        while stored and (stored[0].over or stored[0].ticket.done):
            stored.popleft()
        return stored[0].first if stored else otherwise

    def behind(self, first: int) -> int:
        """How far the lowest pending number lies below a stored block's first number."""
        return min(max(0, first - self.lowest(first)), BEHIND_MAX)
