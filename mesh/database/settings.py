"""The settings of SQLite for a database that never loses committed data."""

from __future__ import annotations

from typing import Any, Final

import apsw

from mesh.database.room import PAGE_SIZE

PRAGMAS: Final = (
    ("locking_mode", "exclusive"),
    ("journal_mode", "wal"),
    ("synchronous", 2),  # FULL: a commit is synced when it returns
    ("wal_autocheckpoint", 0),  # its owner decides when, so that no acknowledgement waits for it
    ("page_size", PAGE_SIZE),
    ("auto_vacuum", 0),  # vacuuming costs half the speed; freed pages are reused
    ("temp_store", 2),  # in memory: the database's folder has no other file of it
    ("fullfsync", 1),  # for systems where a plain fsync leaves data in the disk's cache; no effect elsewhere
    ("checkpoint_fullfsync", 1),
    ("cell_size_check", 1),
    ("cache_size", -8192),  # KiB
)


def every(db: apsw.Connection, statement: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of a statement, so that it keeps nothing open. Raises `apsw.CorruptError` for a text that is
    not UTF-8."""
    try:
        rows: list[tuple[Any, ...]] = db.execute(statement, arguments).fetchall()
    except UnicodeDecodeError as error:
        raise apsw.CorruptError("a text in it is not UTF-8") from error
    return rows


def numbers(db: apsw.Connection, statement: str, arguments: tuple[Any, ...] = ()) -> list[tuple[int, ...]]:
    """All rows of a statement whose columns are whole numbers. Raises `apsw.CorruptError` for another type:
    one flipped bit is enough to change it."""
    rows = every(db, statement, arguments)
    for row in rows:
        for value in row:
            if type(value) is not int:
                raise apsw.CorruptError(f"{value!r:.40} is there instead of a number")
    return rows


def one(db: apsw.Connection, statement: str, arguments: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
    """The row that a statement finds by key, or None."""
    found = every(db, statement, arguments)
    return found[0] if found else None


def set_up(db: apsw.Connection, name_of_it: str) -> str | None:
    """Set the pragmas of a connection and read each back. Returns a sentence about one that was not accepted,
    or None."""
    for name, wanted in PRAGMAS:
        every(db, f"pragma {name} = {wanted}")
    for name, wanted in PRAGMAS:
        found = one(db, f"pragma {name}")
        if found != (wanted,):
            got = found[0] if found else "unknown"
            return f"SQLite does not take {name} = {wanted} for the {name_of_it}; it has {got}"
    return None


def signed(number: int) -> int:
    """A 64-bit id as SQLite stores it: its integers have a sign."""
    return number - (1 << 64) if number >> 63 else number
