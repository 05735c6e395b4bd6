"""The entries of a journal and the records read from it.

A commit is a list of entries, executed in order, all or none. Each entry has one answer.

A floor and a bitmap tell which messages of a block are settled: the first ``floor`` of them, and message
``floor + i`` for each set bit i, counted from the lowest bit of the first byte.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# --- entries


@dataclass(frozen=True, slots=True)
class Store:
    """Keep a sealed block for the subscriptions ``wants``, once.

    ``first`` to ``last`` are the numbers of its messages. ``lowest`` is the publisher's lowest unacknowledged
    number: it will not send lower ones again.
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
    """Exactly these messages of a row are settled."""

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
    """The number of attempts for the messages of a row, by index. Messages without attempts are left out."""

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
    """Return a dead letter to its original subscription. ``subscription`` is the one that keeps dead
    letters."""

    subscription: int
    row: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Make a durable subscription, or find it."""

    name: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Remove a durable subscription with everything that waits in it."""

    subscription: int


Entry = Store | Settle | Done | Attempts | Bury | Requeue | Subscribe | Unsubscribe


# --- results


class Verdict(StrEnum):
    """The outcome for a block or an entry."""

    STORED = "stored"
    PART = "part"
    """A piece of a large body is kept, and others are missing: do not acknowledge yet."""
    DUPLICATE = "duplicate"
    """The same block is stored, or was."""
    PAST = "past"
    """Its publisher said that it no longer waits for these numbers. Not kept, and never acknowledged."""
    CONFLICT = "conflict"
    """Other messages came under these numbers. Never acknowledged."""
    UNWANTED = "unwanted"
    """None of the subscriptions that wanted it exists any more. Nothing was kept."""
    DONE = "done"
    """An entry other than a block was executed."""
    UNKNOWN = "unknown"
    """There is no such subscription, row or message (any more). Nothing was done."""
    OTHER_PATTERNS = "other patterns"
    """A subscription of this name has other patterns."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``row`` of the stored content, or id of the ``subscription``; 0 if there is none."""

    verdict: Verdict
    row: int = 0
    subscription: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """The stored content of a row, with the number of its messages.

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
    """A row whose block differs from what was stored: its CRC is wrong, or it cannot be read."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A durable subscription and its waiting messages. ``size`` counts bytes of whole blocks."""

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
    """An integer with a bit set for each settled message, from the lowest."""
    return (int.from_bytes(bitmap, "little") << floor) | ((1 << floor) - 1)


def floor_and_bitmap(mask: int) -> tuple[int, bytes]:
    """The inverse of `settled_mask`, in its shortest form."""
    floor = ((mask + 1) & ~mask).bit_length() - 1
    rest = mask >> floor
    return floor, rest.to_bytes((rest.bit_length() + 7) // 8, "little")


_ATTEMPT: Final = struct.Struct(">HH")


def pack_attempts(attempts: Mapping[int, int]) -> bytes:
    """Four bytes for each message with attempts: its index and their number."""
    return b"".join(_ATTEMPT.pack(index, min(count, 0xFFFF)) for index, count in sorted(attempts.items()))


def unpack_attempts(packed: bytes) -> dict[int, int]:
    """The inverse of `pack_attempts`."""
    return dict(_ATTEMPT.iter_unpack(packed)) if packed else {}
