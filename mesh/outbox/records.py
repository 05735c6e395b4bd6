"""What comes out of an outbox.

``row`` is a block's place in it: rows rise in the order of appending. ``boot``, ``first`` and ``last`` are
the boot of its publisher and the numbers of its messages. The pieces of a large body share one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

MAX_BYTES: Final = 1 << 30
"""Bytes of an outbox at most, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class OutboxBlock:
    """A block that is not freed."""

    row: int
    boot: int
    first: int
    last: int
    topic: bytes
    block: bytes


@dataclass(frozen=True, slots=True)
class Damaged:
    """A row whose block differs from the one that was appended, and why; it stays in the file, and is
    never sent."""

    row: int
    boot: int
    first: int
    last: int
    reason: str


class Holding(NamedTuple):
    """What an outbox holds. ``size``: bytes of its blocks, as its bound counts them."""

    blocks: int
    messages: int
    size: int


@dataclass(frozen=True, slots=True)
class Opening:
    """What was found when an outbox was opened."""

    path: str
    secret: bytes
    publisher: int
    boot: int
    """That of blocks that are sealed from now on."""
    opened_at: int
    """The last row that lay there: it may have been sent before."""
    copied: bool
    """Whether this file is not the one that was opened last under its name."""
    damaged_before: Sequence[str]
    """Outboxes of this name that were set aside earlier and are still there."""
    max_bytes: int
    oldest_us: int | None
    """When its oldest block was appended, in microseconds since the epoch; None: it was empty."""
