"""What brokers have acknowledged last at level accepted, for a client that moves. Pure.

A broker acknowledges a block when it has routed it, and may be killed before other brokers have read it. Its
client knows what the broker took last, and repeats that at the next broker, under the same numbers. Brokers
and subscribers know what they have had, so that only those get it who have not.

At most `BYTES_MAX` are kept, and `BLOCKS_MAX` blocks, the newest. A client that stays with one broker keeps
none.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mesh.clients.unacknowledged import Sealed

BYTES_MAX: Final = 2 << 20
BLOCKS_MAX: Final = 1024


class Recent:
    """See the module."""

    __slots__ = ("_again", "_kept", "_size", "keeps")

    def __init__(self) -> None:
        self.keeps = False
        self._kept: deque[Sealed] = deque()
        self._size = 0
        self._again: set[int] = set()

    def add(self, sealed: Sealed) -> None:
        """It was acknowledged now."""
        self._kept.append(sealed)
        self._size += sum(map(len, sealed.blocks))
        while self._size > BYTES_MAX or len(self._kept) > BLOCKS_MAX:
            self._size -= sum(map(len, self._kept.popleft().blocks))

    def clear(self) -> None:
        """It needs no repeating: the broker has said goodbye, or nobody would know it again."""
        self._kept.clear()
        self._size = 0

    def repeat(self) -> list[Sealed]:
        """At a new broker, in the order in which it was acknowledged."""
        found = list(self._kept)
        self._again = {sealed.first for sealed in found}
        return found

    def repeats(self, first: int) -> bool:
        """Whether the block with that first number is to be sent again, though nobody waits for it."""
        return first in self._again
