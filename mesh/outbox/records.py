"""What comes out of an outbox.

``row`` is a block's place in it: rows rise in the order of appending. ``boot``, ``first`` and ``last`` are
the boot of its publisher and the numbers of its messages. The pieces of a large body share one number.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """A block that is not freed."""

    row: int
    boot: int
    first: int
    last: int
    topic: bytes
    block: bytes


@dataclass(frozen=True, slots=True)
class Damaged:
    """A row whose block is not what was appended, and why; it stays, and is never sent."""

    row: int
    boot: int
    first: int
    last: int
    reason: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What an outbox holds. ``size``: bytes of its blocks, as its bound counts them."""

    blocks: int
    messages: int
    size: int
    oldest_us: int | None
    """When its oldest block was appended, in microseconds since the epoch."""
