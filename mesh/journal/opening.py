"""Opening a journal: what lies there, whose it is, and whether it is whole.

In this order, so that nothing of another's is changed and damage is not written over:

1. Lock the file. SQLite holds the lock until the journal is closed.
2. Ask whose it is. What another program, another broker or a newer version wrote stays as it is.
3. Look through the log (`wal`) and for pages that are in neither file. What is damaged is set aside under
   another name, log and all, and the broker goes without a journal rather than with less than was stored.
4. Move the log into the database. So what an unfinished commit left in the log is over with, and all that was
   read from a cache whose sync once failed is written and synced anew.

A new journal is made under another name and renamed, so an empty file under its own is a damaged journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import apsw

from mesh.errors import (
    JournalDamaged,
    JournalError,
    JournalFailed,
    JournalForeign,
    JournalNewer,
    JournalReadOnly,
    Locked,
    StoreFull,
)
from mesh.journal import schema, wal
from mesh.journal.files import Files
from mesh.journal.room import PAGE_SIZE
from mesh.journal.schema import every, one

LOG: Final = "-wal"
DAMAGED: Final = ".damaged-"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a journal lies and by which ways it is reached."""

    path: str
    files: Files
    vfs: str | None

    def connect(self, path: str, flags: int) -> apsw.Connection:
        """A connection that leaves the log as it is when it is closed."""
        db = apsw.Connection(path, flags=flags, vfs=self.vfs)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return db

    def damaged_before(self) -> list[str]:
        """Journals of this name that were set aside, by path."""
        folder, name = os.path.split(self.path)
        found = self.files.names(folder or ".")
        journals = {entry.removesuffix(LOG): None for entry in found if entry.startswith(name + DAMAGED)}
        return [os.path.join(folder, entry) for entry in journals]


def open_database(place: Place, *, broker: str, mesh: str, now_us: int) -> apsw.Connection:
    """The journal of this broker, made if there is none. Raises `Locked`, `StoreFull` or `JournalError`."""
    with _sentences(place.path):
        size = place.files.size(place.path)
        log_size = place.files.size(place.path + LOG)
        if size is None and not log_size:
            _make(place, broker, mesh)
            size = place.files.size(place.path)
        if not size:
            raise _set_aside(place, "it is empty" if size == 0 else "only its log is there", now_us)
        db = place.connect(place.path, apsw.SQLITE_OPEN_READWRITE)
        try:
            _check(db, place, broker, mesh)
        except _Damage as damage:
            _leave(db, place, log_size)
            raise _set_aside(place, str(damage), now_us) from damage.__cause__
        except apsw.BusyError:
            db.close()
            raise
        except BaseException:
            _leave(db, place, log_size)
            raise
        return db


class _Damage(Exception):
    """What is wrong with the file."""


def _check(db: apsw.Connection, place: Place, broker: str, mesh: str) -> None:
    try:
        if db.readonly("main"):
            raise JournalReadOnly(
                f"the journal {place.path} cannot be written; give this user the right to, or name another"
                " state folder"
            )
        every(db, "pragma locking_mode = exclusive")
        _whose(db, place.path, broker, mesh)
        _whole(db, place)
        schema.set_up(db)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    except apsw.CorruptError as error:
        raise _Damage(f"SQLite says {error}") from error


def _whose(db: apsw.Connection, path: str, broker: str, mesh: str) -> None:
    """Refuse what is not this broker's journal. The first statement takes the lock."""
    found = one(db, "pragma application_id")
    if found != (schema.APPLICATION_ID,):
        raise JournalForeign(
            f"{path} is another program's database; move it away or name another state folder"
        )
    (version,) = one(db, "pragma user_version") or (0,)
    if version > schema.VERSION:
        raise JournalNewer(
            f"the journal {path} was written by a newer version (its schema is {version}, this version knows"
            f" {schema.VERSION}); run that version, or name another state folder"
        )
    if version != schema.VERSION:
        raise _Damage(f"its schema is {version}")
    try:
        known = dict(every(db, "select key, value from meta"))
    except apsw.SQLError as error:
        raise _Damage(f"SQLite says {error}") from error
    if known.get("broker") != broker:
        raise JournalForeign(
            f"the journal {path} belongs to broker {known.get('broker')}, and this one is {broker}; name"
            " another state folder"
        )
    if known.get("mesh") != mesh:
        raise JournalForeign(
            f"the journal {path} belongs to mesh {known.get('mesh')!r}, and this broker is of {mesh!r}; name"
            " another state folder"
        )


def _whole(db: apsw.Connection, place: Place) -> None:
    """Refuse a log with damage before synced commits, and a database that was cut."""
    log = wal.scan(place.files.read(place.path + LOG), PAGE_SIZE)
    if log.damaged_at is not None:
        raise _Damage(f"its log is damaged at byte {log.damaged_at}, with {log.lost} commits behind that")
    (pages,) = one(db, "pragma page_count") or (0,)
    (page_size,) = one(db, "pragma page_size") or (0,)
    if page_size != PAGE_SIZE:
        raise _Damage(f"its pages have {page_size} bytes, not {PAGE_SIZE}")
    there = (place.files.size(place.path) or 0) // PAGE_SIZE
    missing = sum(page not in log.pages for page in range(there + 1, pages + 1))
    if missing:
        raise _Damage(f"{missing} of its {pages} pages are missing")


def _leave(db: apsw.Connection, place: Place, log_size: int | None) -> None:
    """Close a locked database that is not to be used, without the empty log that looking at it made."""
    db.close()
    if log_size is None and place.files.size(place.path + LOG) == 0:
        place.files.remove(place.path + LOG)


def _make(place: Place, broker: str, mesh: str) -> None:
    """Write a new journal under another name and rename it, so that it is there wholly or not at all."""
    new = place.path + ".new"
    for left in ("", LOG, "-journal"):
        place.files.remove(new + left)
    db = place.connect(new, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        schema.create(db, broker, mesh)
        db.wal_checkpoint(
            mode=apsw.SQLITE_CHECKPOINT_TRUNCATE
        )  # closing would do it, and keep errors to itself
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    finally:
        db.close()
    place.files.rename(new, place.path)


def _set_aside(place: Place, why: str, now_us: int) -> JournalDamaged:
    """Rename a damaged journal with its log; the error to raise."""
    aside = f"{place.path}{DAMAGED}{now_us}"
    for end in (LOG, ""):
        if place.files.size(place.path + end) is not None:
            place.files.rename(place.path + end, aside + end)
    return JournalDamaged(
        f"the journal {place.path} is damaged: {why}; it was set aside as {aside}, and what it stored waits"
        " there",
        aside,
    )


@contextmanager
def _sentences(path: str) -> Iterator[None]:
    """Errors of the disk and of SQLite as one sentence each."""
    try:
        yield
    except apsw.BusyError as error:
        raise Locked(path, 0) from error
    except apsw.NotADBError as error:
        raise JournalForeign(f"{path} is no journal; move it away or name another state folder") from error
    except apsw.ReadOnlyError as error:
        raise JournalReadOnly(
            f"the journal {path} cannot be written ({error}); name another folder"
        ) from error
    except apsw.CantOpenError as error:
        raise JournalReadOnly(
            f"the journal {path} cannot be opened or written ({error}); give this user the right to, or name"
            " another state folder"
        ) from error
    except apsw.FullError as error:
        raise StoreFull(f"the disk has no room for the journal {path}; make room and start again") from error
    except apsw.Error as error:
        raise JournalFailed(f"the journal {path} cannot be opened: {error}") from error
    except IsADirectoryError as error:
        raise JournalForeign(f"{path} is a folder, and the journal is a file; move it away") from error
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be opened: {error.strerror or error}") from error
