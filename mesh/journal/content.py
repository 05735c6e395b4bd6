"""The stored content of one row, checked against damage."""

from __future__ import annotations

import struct
import zlib

import apsw

from mesh.database.settings import one
from mesh.journal.records import Block, Damaged
from mesh.wire import blocks


class Unreadable(Exception):
    """Pages of a row cannot be read. SQLite takes no more changes in that transaction."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def content(db: apsw.Connection, row: int) -> Block | Damaged:
    """The content of a block, of a large body or of a piece of one. `Damaged` if its CRC is wrong, or if its
    number of messages is not that of the block. Raises `Unreadable`."""
    try:
        found = one(
            db, "select arrived_us, count, parts, crc, cast(data as blob) from block where row = ?", (row,)
        )
    except apsw.CorruptError as error:
        raise Unreadable(row) from error
    except UnicodeDecodeError:
        return Damaged(row, "a field of it has the wrong type")
    if found is None:
        return Damaged(row, "it is missing")
    arrived_us, count, parts, crc, data = found
    if type(data) is not bytes or any(type(each) is not int for each in (arrived_us, count, parts, crc)):
        return Damaged(row, "a field of it has the wrong type")
    if zlib.crc32(data) != crc:
        return Damaged(row, f"its {len(data)} bytes do not have the CRC they were stored with")
    pieces = struct.unpack(f">{len(data) // 8}Q", data) if parts and not len(data) % 8 else ()
    if (len(pieces), count) != ((parts, 1) if parts else (0, _messages_of(data))):
        return Damaged(row, f"its {len(data)} bytes are not the {count} messages that were stored")
    return Block(arrived_us, count, b"" if parts else data, pieces)


def _messages_of(block: bytes) -> int:
    """Messages of a block, as its row counts them: a piece of a large body is none."""
    if len(block) < blocks.HEAD_SIZE:
        return -1
    flags, count = blocks.HEAD.unpack_from(block)[1:5:3]
    return 0 if flags & blocks.PIECE else int(count)
