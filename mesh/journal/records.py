"""What goes into a journal and comes out of it.

A commit is a list of entries, done in order, all or none; there is one answer for each entry.

A floor and a bitmap say which messages of a block are settled: the first ``floor`` of them, and message
``floor + i`` for each bit i that is set, counted from the lowest bit of the first byte.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# --- what goes in


@dataclass(frozen=True, slots=True)
class Store:
    """Keep a sealed block for the subscriptions ``wants``, once.

    ``first`` to ``last`` are the numbers of its messages; ``lowest`` is the publisher's lowest number that is
    not acknowledged: it will not send those below again.
    """

    publisher: int
    boot: int
    first: int
    last: int
    lowest: int
    block: bytes
    wants: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """These messages of a row are settled, and no others."""

    subscription: int
    row: int
    floor: int
    bitmap: bytes = b""


@dataclass(frozen=True, slots=True)
class Done:
    """All messages of a row are settled."""

    subscription: int
    row: int


@dataclass(frozen=True, slots=True)
class Attempts:
    """How many attempts the messages of a row have behind them, by index; those with none are left out."""

    subscription: int
    row: int
    attempts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Bury:
    """Settle one message of a row and keep it as a dead letter."""

    subscription: int
    row: int
    index: int
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Requeue:
    """Give a dead letter back to the subscription whose it was; ``subscription`` is that of dead letters."""

    subscription: int
    row: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Make a durable subscription, or find it."""

    name: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Remove a durable subscription with all that waits in it."""

    subscription: int


Entry = Store | Settle | Done | Attempts | Bury | Requeue | Subscribe | Unsubscribe


# --- what comes out


class Verdict(StrEnum):
    """What became of a block or of an entry."""

    STORED = "stored"
    PART = "part"
    """A piece of a large body is kept, and others are missing: not to be acknowledged yet."""
    DUPLICATE = "duplicate"
    """The same block is there, or was."""
    PAST = "past"
    """Its publisher waits for these numbers no more, as it said. Not kept, never to be acknowledged."""
    CONFLICT = "conflict"
    """Other messages came under these numbers. Never to be acknowledged."""
    UNWANTED = "unwanted"
    """None of the subscriptions that wanted it exists any more; nothing was kept."""
    DONE = "done"
    """An entry that is no block was carried out."""
    UNKNOWN = "unknown"
    """There is no such subscription, row or message, or no longer; nothing was done."""
    OTHER_PATTERNS = "other patterns"
    """A subscription of this name has other patterns."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``row`` of what was stored, or id of the ``subscription``; 0 where there is none."""

    verdict: Verdict
    row: int = 0
    subscription: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """What is stored as a row, with the number of its messages.

    A large body is one message: ``block`` is empty, and ``parts`` names the rows of its pieces in order.
    """

    arrived_us: int
    count: int
    block: bytes
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A row that a subscription has not settled; see `Block`."""

    row: int
    arrived_us: int
    count: int
    block: bytes
    parts: tuple[int, ...]
    floor: int
    bitmap: bytes
    attempts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Damaged:
    """A row whose block is not what was stored: its CRC is wrong, or it cannot be read."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A durable subscription and how much waits in it; ``size`` counts bytes of whole blocks."""

    id: int
    name: str
    patterns: tuple[str, ...]
    created_us: int
    rows: int
    messages: int
    size: int


def settled_in(count: int, floor: int, bitmap: bytes) -> int:
    """How many of ``count`` messages are settled."""
    return (settled_mask(floor, bitmap) & ((1 << count) - 1)).bit_count()


def settled_mask(floor: int, bitmap: bytes) -> int:
    """A bit for each settled message, from the lowest."""
    return (int.from_bytes(bitmap, "little") << floor) | ((1 << floor) - 1)


def floor_and_bitmap(mask: int) -> tuple[int, bytes]:
    """The inverse of `settled_mask`, as short as can be."""
    floor = ((mask + 1) & ~mask).bit_length() - 1
    rest = mask >> floor
    return floor, rest.to_bytes((rest.bit_length() + 7) // 8, "little")


_ATTEMPT: Final = struct.Struct(">HH")


def pack_attempts(attempts: Mapping[int, int]) -> bytes:
    """Four bytes for each message that was tried: its index, and how often."""
    return b"".join(_ATTEMPT.pack(index, min(count, 0xFFFF)) for index, count in sorted(attempts.items()))


def unpack_attempts(packed: bytes) -> dict[int, int]:
    """The inverse of `pack_attempts`."""
    return dict(_ATTEMPT.iter_unpack(packed)) if packed else {}
