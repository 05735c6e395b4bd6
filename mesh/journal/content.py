"""The stored content of one row, checked against damage."""

from __future__ import annotations

import struct
import zlib
from enum import Enum

import apsw

from mesh.database.settings import one
from mesh.journal import checksums
from mesh.journal.records import Block, Damaged


class Of(Enum):
    """The parts of a row that can be unreadable by themselves."""

    CONTENT = "content"
    FIGURES = "figures"
    """The numbers beside the content, in the first page of it."""
    PROGRESS = "progress"
    """Its record in ``waiting``."""


class Unreadable(Exception):
    """A part of a row cannot be read. SQLite takes no more changes in that transaction."""

    def __init__(self, row: int, part: Of = Of.CONTENT) -> None:
        super().__init__(row, part)
        self.row = row
        self.part = part


def content(db: apsw.Connection, row: int) -> Block | Damaged:
    """The content of a block, of a large body or of a piece of one. `Damaged` if its CRC is wrong. Raises
    `Unreadable`."""
    try:
        found = one(
            db,
            "select cast(data as blob), cast(wants as blob), arrived_us, count, size, parts, crc from block"
            " where row = ?",
            (row,),
        )
    except apsw.CorruptError as error:
        raise Unreadable(row) from error
    if found is None:
        return Damaged(row, "it is missing")
    data, wants, *figures = found
    if type(data) is not bytes or type(wants) is not bytes or any(type(each) is not int for each in figures):
        return Damaged(row, "a field of it has the wrong type")
    arrived_us, count, size, parts, crc = figures
    if crc != checksums.of_block(row, arrived_us, count, size, parts, wants, zlib.crc32(data)):
        return Damaged(row, f"its {len(data)} bytes do not have the CRC they were stored with")
    if parts:
        return Block(arrived_us, count, b"", struct.unpack(f">{parts}Q", data))
    return Block(arrived_us, count, data, ())
