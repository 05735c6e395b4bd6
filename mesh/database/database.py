"""An open database: when a transaction ends, it is on disk, completely or not at all.

A full disk refuses what needs room (`StoreFull`), without other effects. After any other disk error nobody
knows what the disk holds, since a failed sync may have dropped data that it should have written. So the
database refuses every transaction until it is opened again (`failure`). One that turns out damaged is set
aside at once, as at the opening.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final

import apsw

from mesh.database import room
from mesh.database.kind import DatabaseKind
from mesh.database.opening import FULL, LOG, Place, open_database, set_aside
from mesh.database.settings import one
from mesh.errors import StorageError, StoreFull

DAMAGE: Final = (apsw.CorruptError, apsw.ConstraintError)
"""Errors of SQLite that say that a file is damaged. What is written to a whole one breaks no constraint."""


class Database:
    """One open database. ``undone`` is called after a transaction was undone, so that its owner reads its
    in-memory state again. An error there ends the database."""

    def __init__(self, place: Place, kind: DatabaseKind, now_us: int) -> None:
        """Open the database. It is made if there is none. Raises `Locked`, `StoreFull` or the kind's
        errors."""
        self.db = open_database(place, kind, now_us)
        self.place = place
        self.failure: str | None = None
        """Why every transaction is refused. None if transactions are accepted."""
        self.aside: str | None = None
        """The path of the database after it was set aside."""
        self.undone: Callable[[], None] = lambda: None
        self._kind = kind
        self._opened_us = now_us
        self._folder = os.path.dirname(place.path) or "."
        self._log_pages = 0
        self._opened = self._found()
        self.db.set_wal_hook(self._committed)

    def transaction(self) -> Transaction:
        """Use it with ``with``: the work within is committed and synced at the end, or undone by an error.

        Raises `StoreFull` if the disk has no room: nothing is written, now or later. Raises the kind's
        ``failed`` if the disk failed: nothing is written now, but all of it may be found when the database is
        opened again, if only the last sync failed.
        """
        return Transaction(self)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read within, outside of transactions. An error of the disk ends the database: raises the kind's
        ``failed``."""
        try:
            yield
        except (apsw.Error, OSError) as error:
            raise self.fail(error) from error

    def reserve(self, wanted: int) -> None:
        """Raises `StoreFull` if so many more bytes would leave too little room to consume what is stored.

        Raises the kind's ``failed`` if the database was removed. SQLite would continue to write into a file
        that nobody finds again.
        """
        if self.failure is not None:
            return
        try:
            is_there = self._found() == self._opened
        except OSError as error:
            raise self.fail(error) from error
        if not is_there:
            raise self.fail(FileNotFoundError("it was removed, or another was put in its place"))
        files = self.place.files
        free = files.free_bytes(self._folder)
        if free >= room.RESERVE + room.LOG_SIZE + wanted:
            return  # as nearly always
        (pages,) = one(self.db, "pragma freelist_count") or (0,)
        log_size = files.size(self.place.path + LOG) or 0
        if room.refuses(wanted, free=free, reusable=pages * room.PAGE_SIZE, log_size=log_size):
            raise StoreFull(
                f"the disk of {self.place.path} has {free} bytes left, and {room.RESERVE} are"
                f" reserved for consuming what is stored; make room or {self._kind.relief}"
            )

    def room(self) -> tuple[int, int]:
        """Bytes of pages in use, and how many more bytes `reserve` allows. Raises `OSError`."""
        (pages,) = one(self.db, "pragma page_count") or (0,)
        (reusable,) = one(self.db, "pragma freelist_count") or (0,)
        free = self.place.files.free_bytes(self._folder)
        usable = free + reusable * room.PAGE_SIZE - room.RESERVE
        return (pages - reusable) * room.PAGE_SIZE, max(0, usable)

    @property
    def checkpoint_due(self) -> bool:
        """True if the log is large enough to be moved into the database."""
        return self._log_pages >= room.CHECKPOINT_PAGES

    def checkpoint(self) -> None:
        """Move the log into the database, so that it starts again. On a full disk it stays unchanged. Raises
        the kind's ``failed``."""
        self.check()
        try:
            pages, moved = self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, OSError) as error:
            if not self.is_full(error):
                raise self.fail(error) from error
        else:
            if pages == moved:
                self._log_pages = 0

    def close(self) -> None:
        """Move the log into the database and close the file. After a failure the log stays unchanged."""
        if self.failure is None:
            try:
                self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            except (apsw.Error, OSError):
                pass  # the log's content is synced, and found there at the next opening
        self.db.close()

    def give_up(self, error: BaseException) -> BaseException:
        """Close a database that its owner cannot use after all. Returns the error to raise: the kind's
        ``damaged`` if it was set aside."""
        failed = self.fail(error) if isinstance(error, (apsw.Error, OSError)) else error
        self.close()
        return failed if self.aside is None else self._kind.errors.damaged(str(failed), self.aside)

    # --- errors

    def check(self) -> None:
        """Raise the kind's ``failed`` if the disk has failed."""
        if self.failure is not None:
            raise self._kind.errors.failed(self.failure)

    def fail(self, error: BaseException) -> StorageError:
        """Refuse every transaction from now on. Returns the error to raise."""
        name, path, again = self._kind.name, self.place.path, self._kind.again
        if self.failure is None and isinstance(error, DAMAGE):
            why = f"SQLite says {error}"
            try:
                self.failure, self.aside = set_aside(self.place, self._kind, why, self._opened_us)
            except OSError as failed:
                self.failure = (
                    f"the {name} {path} is damaged: {why}; it could not be set aside"
                    f" ({failed.strerror or failed}), so move it away with its log before {again}"
                )
        elif self.failure is None:
            said = (error.strerror if isinstance(error, OSError) else None) or error
            self.failure = (
                f"the disk failed under the {name} {path} ({said}); it stores nothing until {again}"
            )
        return self._kind.errors.failed(self.failure)

    def is_full(self, error: BaseException) -> bool:
        """True if an error says that the disk has no room."""
        if isinstance(error, apsw.FullError):
            return True
        if isinstance(error, apsw.IOError):
            # A sync without room, like any failed one, may have dropped data that it should have written.
            # That data may also be found after a crash. No VFS may report FULL for it.
            synced = getattr(error, "extendedresult", 0) in (
                apsw.SQLITE_IOERR_FSYNC,
                apsw.SQLITE_IOERR_DIR_FSYNC,
            )
            return not synced and self.db.system_errno in FULL
        return isinstance(error, OSError) and error.errno in FULL

    def undo(self, error: BaseException) -> BaseException:
        """Undo the transaction. Returns the error to raise."""
        full = self.is_full(error)
        try:
            if self.db.in_transaction:
                self.db.execute("rollback")
            self.undone()
        except (apsw.Error, OSError) as failed:
            self.fail(failed)
        if full and self.failure is None:
            try:
                self.checkpoint()  # the log starts again, in room that it already has
            except StorageError as failed:
                return failed
            return StoreFull(f"the disk of {self.place.path} is full; make room or {self._kind.relief}")
        if isinstance(error, (apsw.Error, OSError)):
            return self.fail(error)
        return self._kind.errors.failed(self.failure) if self.failure is not None else error

    def _found(self) -> list[tuple[int, int] | None]:
        """The files at the paths of the database and its log now; None for a missing one."""
        return [self._identity(self.place.path + end) for end in ("", LOG)]

    def _identity(self, path: str) -> tuple[int, int] | None:
        try:
            return self.place.files.identity(path)
        except FileNotFoundError:
            return None

    def _committed(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._log_pages = pages
        return 0  # SQLITE_OK


class Transaction:
    """See `Database.transaction`."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.check()
        try:
            self._database.db.execute("begin immediate")
        except (apsw.Error, OSError) as error:
            raise self._database.undo(error) from error

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        database = self._database
        if error is None:
            try:
                database.db.execute("commit")
            except BaseException as failed:
                error = failed
            else:
                return
        told = database.undo(error)
        if told is not error:
            raise told from error
        raise error
