"""CRC-32 of the rows of a journal, over their keys as well as their content.

SQLite has no checksums of its own. A flipped bit in a key moves a row, and one in the record of settled
messages makes others look settled. So a row that says what is owed to consumers or publishers has a CRC over
all that matters in it.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

_BLOCK: Final = struct.Struct(">qqqqq")
_WAITING: Final = struct.Struct(">qqqI")
_PART: Final = struct.Struct(">7q")
_PUBLISHER: Final = struct.Struct(">3q")
_HALF: Final = 1 << 31
"""Subtracted from each CRC: SQLite stores a number with a sign and 32 bits in four bytes, others in six."""


def of_block(
    row: int, arrived_us: int, count: int, size: int, parts: int, wants: bytes, data_crc: int
) -> int:
    """The CRC of a row of ``block``. ``data_crc`` is `zlib.crc32` of its data."""
    return zlib.crc32(_BLOCK.pack(row, arrived_us, count, size, parts) + wants, data_crc) - _HALF


def of_waiting(subscription: int, row: int, floor: int, bitmap: bytes, attempts: bytes) -> int:
    """The CRC of a row of ``waiting``."""
    return zlib.crc32(_WAITING.pack(subscription, row, floor, len(bitmap)) + bitmap + attempts) - _HALF


def of_part(publisher: int, boot: int, first: int, piece: int, row: int, size: int, whole: int) -> int:
    """The CRC of a row of ``part``."""
    return zlib.crc32(_PART.pack(publisher, boot, first, piece, row, size, whole)) - _HALF


def of_publisher(publisher: int, boot: int, lowest: int) -> int:
    """The CRC of a row of ``publisher``, without the time when it was heard: that only says how long its
    numbers are kept."""
    return zlib.crc32(_PUBLISHER.pack(publisher, boot, lowest)) - _HALF


def of_owner(broker: object, mesh: object) -> int:
    """The CRC of the id of the journal's broker and the name of its mesh."""
    return zlib.crc32(repr((broker, mesh)).encode()) - _HALF


def of_subscription(id: int, name: bytes, patterns: bytes, created_us: int) -> int:
    """The CRC of a row of ``subscription``, without the counts that change with each commit. The name of a
    removed one is empty."""
    return zlib.crc32(b"%d %d %d " % (id, created_us, len(name)) + name + patterns) - _HALF
