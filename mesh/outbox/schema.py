"""The tables of an outbox, and its difference from other databases.

There is one row for each block. ``total`` holds the sums over all rows, so that nobody has to look through
them. The topic comes before the block in a row: rows of other topics are passed over without reading their
blocks.
"""

from __future__ import annotations

from typing import Final

import apsw

from mesh.database.kind import Damage, DatabaseKind, Errors
from mesh.database.settings import one
from mesh.errors import (
    OutboxDamaged,
    OutboxError,
    OutboxFailed,
    OutboxForeign,
    OutboxNewer,
    OutboxReadOnly,
)
from mesh.wire.session_opening import SECRET_MAX, SECRET_MIN

APPLICATION_ID: Final = 0x4D4E474F
VERSION: Final = 1

TABLES: Final = """
create table meta(key text primary key, value) without rowid;
create table total(
    id integer primary key, blocks integer not null, messages integer not null, size integer not null);
create table block(
    row integer primary key, boot integer not null, first integer not null, last integer not null,
    messages integer not null, size integer not null, topic blob not null, appended_us integer not null,
    crc integer not null, data blob not null);
insert into total values(1, 0, 0, 0);
"""


def create(db: apsw.Connection, secret: bytes) -> None:
    """Make the tables in an empty database, within a transaction."""
    db.execute(TABLES)
    db.execute("insert into meta values('secret', ?), ('identity', null)", (secret,))


def check(db: apsw.Connection, _path: str) -> None:
    """Refuse an outbox without the secret of its publisher."""
    (secret,) = one(db, "select value from meta where key = 'secret'") or (None,)
    if type(secret) is not bytes or not SECRET_MIN <= len(secret) <= SECRET_MAX:
        raise Damage("the secret of its publisher is missing")


def outbox_of(secret: bytes) -> DatabaseKind:
    """The kind of database that an outbox is; a new one belongs to the publisher with this secret."""
    return DatabaseKind(
        name="outbox",
        elsewhere="name another file",
        again="it is opened again",
        relief="let it drain",
        held="what it held waits there",
        application_id=APPLICATION_ID,
        version=VERSION,
        errors=Errors(OutboxError, OutboxForeign, OutboxNewer, OutboxReadOnly, OutboxDamaged, OutboxFailed),
        create=lambda db: create(db, secret),
        check=check,
    )
