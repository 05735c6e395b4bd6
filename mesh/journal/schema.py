"""The tables of a journal, and how SQLite is set for it.

A row a block. ``waiting`` has a row for each subscription that has not settled the block, and is all that is
written when a part of it is settled. ``shared`` counts the holders of a row that has more than one, so that
the last to settle finds out without looking for the others. ``came`` and ``publisher`` tell duplicates;
``part`` is what came of large bodies that are not whole yet.

Everything is looked up by key: neither memory nor the cost of a commit grows with what waits. What is counted
of a subscription is kept in its row.

SQLite has integers of 64 bits with a sign; ids of publishers have none, and are folded into them.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from mesh.errors import JournalError
from mesh.journal.room import PAGE_SIZE

APPLICATION_ID: Final = 0x4D4E474A
"""Tells a journal from other programs' databases; ``file`` shows it."""
VERSION: Final = 1

TABLES: Final = """
create table meta(key text primary key, value) without rowid;
create table subscription(
    id integer primary key autoincrement, name text unique, patterns blob not null,
    created_us integer not null, rows integer not null, messages integer not null, size integer not null);
create table block(
    row integer primary key, arrived_us integer not null, count integer not null, size integer not null,
    wants blob not null, parts integer not null, crc integer not null, data blob not null);
create table waiting(
    subscription integer, row integer, floor integer not null, bitmap blob not null, attempts blob not null,
    primary key(subscription, row)) without rowid;
create table shared(row integer primary key, holders integer not null);
create table came(
    publisher integer, boot integer, first integer, piece integer, last integer not null,
    crc integer not null, primary key(publisher, boot, first, piece)) without rowid;
create table publisher(
    publisher integer, boot integer, lowest integer not null, heard_us integer not null,
    primary key(publisher, boot)) without rowid;
create table part(
    publisher integer, boot integer, first integer, piece integer, row integer not null,
    size integer not null, whole integer not null,
    primary key(publisher, boot, first, piece)) without rowid;
"""

PRAGMAS: Final = (
    ("locking_mode", "exclusive"),
    ("journal_mode", "wal"),
    ("synchronous", 2),  # FULL: a commit is synced when it returns
    ("wal_autocheckpoint", 0),  # the journal says when, so that nobody waits for it with an acknowledgement
    ("page_size", PAGE_SIZE),
    ("auto_vacuum", 0),  # vacuuming costs half the speed; freed pages are used again
    ("temp_store", 2),  # in memory: the state folder is the journal's only one
    ("fullfsync", 1),  # where a plain fsync leaves data in the disk's cache; elsewhere it says nothing
    ("checkpoint_fullfsync", 1),
    ("cell_size_check", 1),
    ("cache_size", -8192),  # KiB
)


def every(db: apsw.Connection, statement: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of a statement, so that it holds nothing open."""
    rows: list[tuple[Any, ...]] = db.execute(statement, arguments).fetchall()
    return rows


def one(db: apsw.Connection, statement: str, arguments: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
    """The row that a statement finds by key, or None."""
    found = every(db, statement, arguments)
    return found[0] if found else None


def set_up(db: apsw.Connection) -> None:
    """Set the pragmas of a connection and read each back. Raises `JournalError` if one did not take."""
    for name, wanted in PRAGMAS:
        every(db, f"pragma {name} = {wanted}")
    for name, wanted in PRAGMAS:
        found = one(db, f"pragma {name}")
        if found != (wanted,):
            got = found[0] if found else "unknown"
            raise JournalError(f"SQLite does not take {name} = {wanted} for the journal; it has {got}")


def create(db: apsw.Connection, broker: str, mesh: str) -> None:
    """Make an empty database a journal."""
    db.execute(f"pragma page_size = {PAGE_SIZE}")
    set_up(db)
    db.execute("begin immediate")
    db.execute(TABLES)
    db.execute("insert into meta values('broker', ?), ('mesh', ?), ('ceiling', 1)", (broker, mesh))
    db.execute(f"pragma application_id = {APPLICATION_ID}")
    db.execute(f"pragma user_version = {VERSION}")
    db.execute("commit")


def signed(number: int) -> int:
    """An id of 64 bits as SQLite keeps it."""
    return number - (1 << 64) if number >> 63 else number
