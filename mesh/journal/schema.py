"""The tables of a journal, and the checks that tell it from other databases.

Each block has a row. ``waiting`` has a row for each subscription that has not settled the block; settling a
part of the block writes only that row. ``shared`` counts the holders of a row with more than one, so that the
last to settle need not search for the others. ``came`` and ``publisher`` detect duplicates. ``part`` has the
received pieces of large bodies that are not complete yet. `mesh.journal.checksums` says what each ``crc``
covers.

Everything is looked up by key, so neither memory nor the cost of a commit grows with the number of waiting
messages. The counts of a subscription are kept in its row.

SQLite's integers have 64 bits with a sign. Ids of publishers have no sign and are mapped to them.
"""

from __future__ import annotations

from typing import Final

import apsw

from mesh.database.kind import Damage, DatabaseKind, Errors
from mesh.database.settings import every
from mesh.errors import (
    AnothersJournal,
    JournalDamaged,
    JournalError,
    JournalFailed,
    JournalForeign,
    JournalNewer,
    JournalReadOnly,
)
from mesh.journal import checksums
from mesh.journal.book import read_book

APPLICATION_ID: Final = 0x4D4E474A
VERSION: Final = 3

TABLES: Final = """
create table meta(key text primary key, value) without rowid;
create table subscription(
    id integer primary key autoincrement, name text unique, patterns blob not null,
    created_us integer not null, crc integer not null,
    rows integer not null, messages integer not null, size integer not null);
create table block(
    row integer primary key, arrived_us integer not null, count integer not null, size integer not null,
    wants blob not null, parts integer not null, crc integer not null, data blob not null);
create table waiting(
    subscription integer, row integer, floor integer not null, bitmap blob not null, attempts blob not null,
    crc integer not null, primary key(subscription, row)) without rowid;
create table shared(row integer primary key, holders integer not null);
create table came(
    publisher integer, boot integer, first integer, piece integer, last integer not null,
    crc integer not null, primary key(publisher, boot, first, piece)) without rowid;
create table publisher(
    publisher integer, boot integer, lowest integer not null, heard_us integer not null,
    crc integer not null, primary key(publisher, boot)) without rowid;
create table part(
    publisher integer, boot integer, first integer, piece integer, row integer not null,
    size integer not null, whole integer not null, crc integer not null,
    primary key(publisher, boot, first, piece)) without rowid;
"""


def create(db: apsw.Connection, broker: str, mesh: str) -> None:
    """Make the tables in an empty database, within a transaction."""
    db.execute(TABLES)
    owner = checksums.of_owner(broker, mesh)
    db.execute(
        "insert into meta values('broker', ?), ('mesh', ?), ('owner', ?), ('ceiling', 1), ('names', 0)",
        (broker, mesh, owner),
    )


def check(db: apsw.Connection, path: str, broker: str, mesh: str) -> None:
    """Refuse a journal of another broker, or one with damage in the tables that are read when it is opened
    (`apsw.CorruptError`)."""
    known = dict(every(db, "select key, value from meta"))
    owner = known.get("broker")
    if known.get("owner") != checksums.of_owner(owner, known.get("mesh")):
        raise Damage(f"it names broker {owner!r} of mesh {known.get('mesh')!r}, and was made for another")
    if owner != broker:
        raise AnothersJournal(
            f"the journal {path} belongs to broker {owner}, and this one is {broker}; if this broker lost its"
            " identity.json, give it that id again; else name another state folder, or, if that broker is"
            f" gone, move the journal away and run mesh queue forget {owner}"
        )
    if known.get("mesh") != mesh:
        raise JournalForeign(
            f"the journal {path} belongs to mesh {known.get('mesh')!r}, and this broker is of {mesh!r}; name"
            " another state folder"
        )
    read_book(db)
    every(db, "select max(row) from part")


def journal_of(broker: str, mesh: str) -> DatabaseKind:
    """The journal of this broker as a kind of database."""
    return DatabaseKind(
        name="journal",
        elsewhere="name another state folder",
        again="this broker is started again",
        relief="consume",
        held="what it stored waits there; start this broker again to continue without it",
        application_id=APPLICATION_ID,
        version=VERSION,
        errors=Errors(
            JournalError, JournalForeign, JournalNewer, JournalReadOnly, JournalDamaged, JournalFailed
        ),
        create=lambda db: create(db, broker, mesh),
        check=lambda db, path: check(db, path, broker, mesh),
    )
