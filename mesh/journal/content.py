"""The stored content of one row, checked against damage."""

from __future__ import annotations

import struct
import zlib
from enum import Enum

import apsw

from mesh.database.settings import numbers, one
from mesh.journal import checksums
from mesh.journal.records import Block, Damaged
from mesh.wire.blocks import COUNT_MAX


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


def figures(db: apsw.Connection, row: int) -> tuple[int, int, int, int]:
    """The number of messages in a row, their bytes, its pieces, and 1 if ``shared`` counts its holders. All
    are 0 for a missing row. They are not checked against the CRC. Raises `Unreadable`."""
    try:
        found = numbers(
            db,
            "select b.count, b.size, b.parts, s.row is not null from block b"
            " left join shared s using(row) where row = ?",
            (row,),
        )
    except apsw.CorruptError as error:
        raise Unreadable(row, Of.FIGURES) from error
    count, size, parts, shared = found[0] if found else (0, 0, 0, 0)
    if not 0 <= count <= COUNT_MAX:
        raise Unreadable(row, Of.FIGURES)
    return count, size, parts, shared


def unreadable_parts(db: apsw.Connection, row: int) -> set[tuple[Of, int]]:
    """What cannot be read of the content of a row."""
    found = set()
    for read in (content, figures):
        try:
            read(db, row)
        except Unreadable as error:
            found.add((error.part, row))
    return found
