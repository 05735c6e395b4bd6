"""Opens a database: finds what is there, whose it is, and whether it is intact.

The order ensures that nothing of another owner is changed and that damage is not overwritten:

1. Lock the file. SQLite holds the lock until the database is closed.
2. Check whose it is. A file of another program, another owner or a newer version stays unchanged.
3. Check the log (`wal`), and look for pages that are in neither file. A damaged database is set aside under
   another name with its log: its owner continues without it rather than with less than was committed.
4. Move the log into the database. This removes the rest of an unfinished commit from the log. It also writes
   and syncs again all data that was read from a cache whose sync once failed.

A new database is made under another name and renamed, so an empty file under its own name is damaged.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import apsw

from mesh.database import wal
from mesh.database.files import Files
from mesh.database.kind import Damage, DatabaseKind
from mesh.database.room import PAGE_SIZE
from mesh.database.settings import every, one, set_up
from mesh.errors import Locked, StoreFull

LOG: Final = "-wal"
DAMAGED: Final = ".damaged-"
APPLICATION_ID_AT: Final = 68
"""Where the header of an SQLite file has it."""
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
UNWRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Place:
    """The path of a database and the means to access it."""

    path: str
    files: Files
    vfs: str | None

    def connect(self, path: str, flags: int) -> apsw.Connection:
        """A connection that leaves the log unchanged when it is closed."""
        db = apsw.Connection(path, flags=flags, vfs=self.vfs)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return db

    def damaged_before(self) -> list[str]:
        """Paths of databases of this name that were set aside."""
        folder, name = os.path.split(self.path)
        found = self.files.names(folder or ".")
        databases = {entry.removesuffix(LOG): None for entry in found if entry.startswith(name + DAMAGED)}
        return [os.path.join(folder, entry) for entry in databases]


def open_database(place: Place, kind: DatabaseKind, now_us: int) -> apsw.Connection:
    """Open the database of this kind. It is made if there is none. Raises `Locked`, `StoreFull` or the kind's
    errors."""
    with _sentences(place, kind):
        size = place.files.size(place.path)
        log_size = place.files.size(place.path + LOG)
        if size is None and not log_size:
            _make(place, kind)
            size = place.files.size(place.path)
        if not size:
            why = "it is empty" if size == 0 else "only its log is there"
            raise kind.errors.damaged(*set_aside(place, kind, why, now_us))
        db = place.connect(place.path, apsw.SQLITE_OPEN_READWRITE)
        try:
            _check(db, place, kind)
            # SQLite also does this for a new log, but ignores a failure.
            place.files.sync_names(os.path.dirname(place.path) or ".")
        except Damage as damage:
            _leave(db, place, log_size)
            raise kind.errors.damaged(*set_aside(place, kind, str(damage), now_us)) from damage.__cause__
        except apsw.BusyError:
            db.close()
            raise
        except BaseException:
            _leave(db, place, log_size)
            raise
        return db


def _check(db: apsw.Connection, place: Place, kind: DatabaseKind) -> None:
    try:
        if db.readonly("main"):
            raise kind.errors.read_only(
                f"the {kind.name} {place.path} cannot be written; give this user the right to, or"
                f" {kind.elsewhere}"
            )
        every(db, "pragma locking_mode = exclusive")
        _whose(db, place.path, kind)
        _whole(db, place)
        _settle(db, kind)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    except apsw.CorruptError as error:
        raise Damage(f"SQLite says {error}") from error
    except apsw.SQLError as error:  # "unsupported file format": then nothing of it can be asked
        with _file_of(place) as file:
            if file.xRead(4, APPLICATION_ID_AT) != kind.application_id.to_bytes(4, "big"):
                raise
        raise Damage(f"SQLite says {error}") from error


def _whose(db: apsw.Connection, path: str, kind: DatabaseKind) -> None:
    """Refuse a file that is not of this kind, or that belongs to another owner. The first statement takes the
    lock."""
    found = one(db, "pragma application_id")
    tables, ours = _tables(db), _tables_of(kind)
    if found != (kind.application_id,):
        if tables == ours:
            raise Damage(
                f"its header has another program's number, and its tables are those of this {kind.name}"
            )
        raise kind.errors.foreign(f"{path} is another program's database; move it away or {kind.elsewhere}")
    (version,) = one(db, "pragma user_version") or (0,)
    if version > kind.version and tables != ours:
        raise kind.errors.newer(
            f"the {kind.name} {path} was written by a newer version (its schema is {version}, this version"
            f" knows {kind.version}); run that version, or {kind.elsewhere}"
        )
    if version != kind.version:
        raise Damage(f"its header says schema {version}, and this version has {kind.version}")
    if changed := ours - tables:
        raise Damage(f"{min(changed)[0].decode()} is not the table of schema {version}")
    kind.check(db, path)


def _tables(db: apsw.Connection) -> set[tuple[Any, ...]]:
    """The database's description of its tables, as bytes. A flipped bit there may rename a column, or make
    its name invalid text."""
    columns = ", ".join(f"cast({column} as blob)" for column in ("name", "type", "tbl_name", "sql"))
    return set(every(db, f"select {columns} from sqlite_schema"))


def _tables_of(kind: DatabaseKind) -> set[tuple[Any, ...]]:
    with contextlib.closing(apsw.Connection(":memory:", vfs=None)) as db:
        kind.create(db)
        return _tables(db)


def _whole(db: apsw.Connection, place: Place) -> None:
    """Refuse a log with damage before synced commits, and a database that was truncated."""
    log = wal.scan(place.files.read(place.path + LOG), PAGE_SIZE)
    if log.damaged_at is not None and not _is_in(place, log.ignored):
        raise Damage(f"its log is damaged at byte {log.damaged_at}, with {log.lost} commits behind that")
    (pages,) = one(db, "pragma page_count") or (0,)
    (page_size,) = one(db, "pragma page_size") or (0,)
    if page_size != PAGE_SIZE:
        raise Damage(f"its pages have {page_size} bytes, not {PAGE_SIZE}")
    if reserved := db.reserve_bytes():
        raise Damage(f"its header says that {reserved} bytes of each page are reserved, and none are")
    (vacuum,) = one(db, "pragma auto_vacuum") or (0,)
    if vacuum:
        raise Damage("its header says that it is vacuumed, which it never was")
    there = (place.files.size(place.path) or 0) // PAGE_SIZE
    missing = sum(page not in log.pages for page in range(there + 1, pages + 1))
    if missing:
        raise Damage(f"{missing} of its {pages} pages are missing")


def _is_in(place: Place, pages: Mapping[int, memoryview]) -> bool:
    """True if the database's file contains these pages; there is at least one."""
    if not pages:
        return False
    with _file_of(place) as file:
        return all(
            file.xRead(PAGE_SIZE, (number - 1) * PAGE_SIZE) == page for number, page in sorted(pages.items())
        )


@contextlib.contextmanager
def _file_of(place: Place) -> Iterator[apsw.VFSFile]:
    """The database's file by SQLite's own access: closing our own descriptor would drop its lock."""
    flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
    file = apsw.VFSFile(place.vfs or "", os.path.abspath(place.path), [flags, 0])
    try:
        yield file
    finally:
        file.xClose()


def _settle(db: apsw.Connection, kind: DatabaseKind) -> None:
    wrong = set_up(db, kind.name)
    if wrong is not None:
        raise kind.errors.other(wrong)


def _leave(db: apsw.Connection, place: Place, log_size: int | None) -> None:
    """Close a locked database that will not be used, without the empty log that reading it made."""
    db.close()
    if log_size is None and place.files.size(place.path + LOG) == 0:
        place.files.remove(place.path + LOG)


def _make(place: Place, kind: DatabaseKind) -> None:
    """Write a new database under another name and rename it, so that it appears completely or not at all."""
    new = place.path + ".new"
    for left in ("", LOG, "-journal"):
        place.files.remove(new + left)
    db = place.connect(new, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        db.execute(f"pragma page_size = {PAGE_SIZE}")
        _settle(db, kind)
        db.execute("begin immediate")
        kind.create(db)
        db.execute(f"pragma application_id = {kind.application_id}")
        db.execute(f"pragma user_version = {kind.version}")
        db.execute("commit")
        # closing would do it, but hide errors
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    finally:
        db.close()
    place.files.rename(new, place.path)


def set_aside(place: Place, kind: DatabaseKind, why: str, now_us: int) -> tuple[str, str]:
    """Rename a damaged database with its log. Returns a sentence that says so, and its path now. Raises
    `OSError`.

    The log goes last: after a crash in between, a log without its database is refused. A database without its
    log would be used, as of its last checkpoint.
    """
    aside = f"{place.path}{DAMAGED}{now_us}"
    for end in ("", LOG):
        if place.files.size(place.path + end) is not None:
            place.files.rename(place.path + end, aside + end)
    sentence = f"the {kind.name} {place.path} is damaged: {why}; it was set aside as {aside}, and {kind.held}"
    return sentence, aside


@contextlib.contextmanager
def _sentences(place: Place, kind: DatabaseKind) -> Iterator[None]:
    """Turn errors of the disk and of SQLite into one sentence each."""
    path, errors = place.path, kind.errors
    try:
        yield
    except apsw.BusyError as error:
        raise Locked(path, place.files.locked_by(path), kind.elsewhere) from error
    except apsw.NotADBError as error:
        raise errors.foreign(f"{path} is no {kind.name}; move it away or {kind.elsewhere}") from error
    except apsw.ReadOnlyError as error:
        raise errors.read_only(
            f"the {kind.name} {path} cannot be written ({error}); {kind.elsewhere}"
        ) from error
    except apsw.CantOpenError as error:
        folder = os.path.dirname(path) or "."
        if _has_no_room(place.files, folder):  # for the log, which SQLite creates
            raise _full(place, kind) from error
        if not _is_folder(place.files, folder):
            raise errors.read_only(
                f"the {kind.name} {path} cannot be made: there is no folder {folder}; make it, or"
                f" {kind.elsewhere}"
            ) from error
        raise errors.read_only(
            f"the {kind.name} {path} cannot be opened or written ({error}); give this user the right to, or"
            f" {kind.elsewhere}"
        ) from error
    except apsw.FullError as error:
        raise _full(place, kind) from error
    except apsw.Error as error:
        raise errors.failed(f"the {kind.name} {path} cannot be opened: {error}") from error
    except IsADirectoryError as error:
        raise errors.foreign(f"{path} is a folder, and the {kind.name} is a file; move it away") from error
    except OSError as error:
        why = error.strerror or error
        if error.errno in FULL:
            raise _full(place, kind) from error
        if error.errno in UNWRITABLE:
            raise errors.read_only(
                f"the {kind.name} {path} cannot be written ({why}); {kind.elsewhere}"
            ) from error
        raise errors.other(f"the {kind.name} {path} cannot be opened: {why}; {kind.elsewhere}") from error
    except UnicodeEncodeError as error:
        raise errors.other(
            f"the {kind.name} {path} cannot be opened: SQLite takes paths in UTF-8 only; {kind.elsewhere}"
        ) from error


def _full(place: Place, kind: DatabaseKind) -> StoreFull:
    return StoreFull(f"the disk has no room for the {kind.name} {place.path}; make room and start again")


def _has_no_room(files: Files, folder: str) -> bool:
    try:
        return files.free_bytes(folder) < PAGE_SIZE
    except OSError:
        return False


def _is_folder(files: Files, path: str) -> bool:
    try:
        files.size(path)
    except IsADirectoryError:
        return True
    except OSError:
        pass
    return False
