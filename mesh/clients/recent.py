"""The last blocks that a broker acknowledged at level accepted, for a client that moves. Pure.

A broker acknowledges a block once it has routed it, and may be killed before other brokers have read it. So
its client repeats the last acknowledged blocks at the next broker, under the same numbers. Brokers and
subscribers recognise what they have had; only those that missed a block get it.

The newest blocks are kept, at most `BYTES_MAX` bytes and `BLOCKS_MAX` blocks. A client that stays with one
broker keeps none.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mesh.clients.unacknowledged import Sealed

BYTES_MAX: Final = 2 << 20
BLOCKS_MAX: Final = 1024


class Recent:
    """The last acknowledged blocks of one client."""

    __slots__ = ("_again", "_kept", "_size", "keeps")

    def __init__(self) -> None:
        self.keeps = False
        self._kept: deque[Sealed] = deque()
        self._size = 0
        self._again: set[int] = set()

    def add(self, sealed: Sealed) -> None:
        """Add a block that was acknowledged now."""
        self._kept.append(sealed)
        self._size += sum(map(len, sealed.blocks))
        while self._size > BYTES_MAX or len(self._kept) > BLOCKS_MAX:
            self._size -= sum(map(len, self._kept.popleft().blocks))

    def clear(self) -> None:
        """Forget all blocks: the broker has said goodbye, or nobody would recognise them."""
        self._kept.clear()
        self._size = 0

    def repeat(self) -> list[Sealed]:
        """The blocks to repeat at a new broker, in the order of their acknowledgements."""
        found = list(self._kept)
        self._again = {sealed.first for sealed in found}
        return found

    def repeats(self, first: int) -> bool:
        """True if the block with that first number is to be resent, though nobody waits for it."""
        return first in self._again
