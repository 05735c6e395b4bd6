"""The records that an outbox returns.

``row`` is a block's place in it: rows rise in the order of appending. ``boot``, ``first`` and ``last`` are
the boot of its publisher and the numbers of its messages. The pieces of a large body share one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

MAX_BYTES: Final = 1 << 30
"""Default limit of an outbox in bytes."""


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
    """A row whose block differs from the appended one, and why; it stays in the file, and is never sent."""

    row: int
    boot: int
    first: int
    last: int
    reason: str


class Holding(NamedTuple):
    """The contents of an outbox. ``size``: bytes of its blocks, as its limit counts them."""

    blocks: int
    messages: int
    size: int


@dataclass(frozen=True, slots=True)
class Opening:
    """Facts found when an outbox was opened."""

    path: str
    secret: bytes
    publisher: int
    boot: int
    """The boot of blocks that are sealed from now on."""
    opened_at: int
    """The last row that lay there: it may have been sent before."""
    copied: bool
    """True if this file is not the one that was opened last under its name."""
    damaged_before: Sequence[str]
    """Outboxes of this name that were set aside earlier and are still there."""
    max_bytes: int
    oldest_us: int | None
    """When its oldest block was appended, in microseconds since the epoch; None if it was empty."""
