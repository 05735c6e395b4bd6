"""The journal of a home: what its durable subscriptions keep, on disk when `commit` returns.

One thread at a time. Each commit is one transaction: after an error nothing of it is there, neither on disk
nor in memory, so a retry finds no trace of what failed.

A full disk refuses what needed room (`StoreFull`) and nothing else changes. After any other error of the disk
nobody knows what it holds, since a failed sync may have dropped what it should have written; so the journal
refuses every commit until it is opened again (`JournalFailed`).
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import apsw

from mesh.errors import JournalFailed, StoreFull
from mesh.journal import room
from mesh.journal.commit import Book, Commit, Named, parts_in
from mesh.journal.files import Files, RealFiles
from mesh.journal.opening import LOG, Place, open_database
from mesh.journal.records import Block, Damaged, Entry, Kept, Outcome, Store, Waiting, unpack_attempts
from mesh.journal.schema import every, one

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
ROWS_MAX: Final = 1024
"""Rows that are read at once, however small: commits wait meanwhile."""
KEYS: Final = 128
"""Rows that are looked up together."""


class Journal:
    """An open journal; `open` makes one."""

    def __init__(self, db: apsw.Connection, place: Place) -> None:
        self._db = db
        self._place = place
        self._folder = os.path.dirname(place.path) or "."
        self._failure: str | None = None
        self._log_pages = 0
        db.set_wal_hook(self._committed)
        self._book = _read_book(db)
        self.damaged_before: Sequence[str] = place.damaged_before()
        """Journals of this name that were set aside earlier and are still there."""

    @classmethod
    def open(
        cls,
        path: str,
        *,
        broker: str,
        mesh: str,
        now_us: int,
        files: Files | None = None,
        vfs: str | None = None,
    ) -> Journal:
        """The journal of this broker, made if there is none.

        ``files`` and ``vfs`` (the name of an apsw VFS) are how the disk is reached. Raises `Locked`,
        `StoreFull`, or a `JournalError`: `JournalForeign`, `JournalNewer`, `JournalReadOnly`,
        `JournalDamaged` when it had to be set aside.
        """
        place = Place(path, files or RealFiles(), vfs)
        journal = cls(open_database(place, broker=broker, mesh=mesh, now_us=now_us), place)
        try:
            while journal._drop_parts(now_us):
                pass
        except BaseException:
            journal.close()
            raise
        return journal

    # --- writing

    def commit(self, entries: Sequence[Entry], now_us: int) -> Outcome:
        """Carry out the entries in order, all or none; on disk when this returns.

        Raises `StoreFull` when the disk has no room: nothing of it is there, nor will be. Raises
        `JournalFailed` when the disk failed: nothing of it is there now, and all of it may be there when the
        journal is opened again, if only the last sync failed.
        """
        wanted = sum(len(entry.block) for entry in entries if type(entry) is Store)
        if wanted and self._failure is None:
            self._reserve(wanted)
        with _Transaction(self, now_us) as commit:
            answers = [commit.do(entry) for entry in entries]
            commit.finish()
        return Outcome(answers)

    @property
    def chores(self) -> bool:
        """Whether a commit, even an empty one, would do a part of what is left to be done."""
        return self._failure is None and bool(self._book.removed)

    @property
    def failure(self) -> str | None:
        """Why every commit is refused, None while none is."""
        return self._failure

    @property
    def checkpoint_due(self) -> bool:
        """Whether the log has reached the size at which it is moved into the database."""
        return self._log_pages >= room.CHECKPOINT_PAGES

    def checkpoint(self) -> None:
        """Move the log into the database, so that it begins again. Between commits, once they are
        acknowledged. On a full disk it stays as it is. Raises `JournalFailed`."""
        if self._failure is not None:
            raise JournalFailed(self._failure)
        try:
            pages, moved = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, OSError) as error:
            if not self._is_full(error):
                self._fail(error)
                raise JournalFailed(str(self._failure)) from error
        else:
            if pages == moved:
                self._log_pages = 0

    def close(self) -> None:
        """Move the log into the database and let go of the file. After a failure the log stays as it is."""
        if self._failure is None:
            try:
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            except (apsw.Error, OSError):
                pass  # what is in the log is synced, and found there at the next opening
        self._db.close()

    # --- reading

    def read(
        self, subscription: int, after_row: int, bytes_max: int, rows_max: int = ROWS_MAX
    ) -> list[Waiting | Damaged]:
        """What a subscription has not settled, behind a row: blocks of about so many bytes, at least one.

        A block that is not what was stored is named as `Damaged`; the others are served.
        """
        rows: list[Waiting | Damaged] = []
        for row, floor, bitmap, attempts in self._keys(subscription, after_row):
            found = self.fetch(row)
            if isinstance(found, Damaged):
                rows.append(found)
            else:
                block, tried = found.block, unpack_attempts(attempts)
                rows.append(
                    Waiting(row, found.arrived_us, found.count, block, found.parts, floor, bitmap, tried)
                )
                bytes_max -= len(block)
            if bytes_max <= 0 or len(rows) >= rows_max:
                break
        return rows

    def fetch(self, row: int) -> Block | Damaged:
        """What was stored as a row, or as a piece of a large body."""
        try:
            found = one(
                self._db, "select arrived_us, count, parts, crc, data from block where row = ?", (row,)
            )
        except apsw.CorruptError as error:
            return Damaged(row, f"SQLite says {error}")
        if found is None:
            return Damaged(row, "it is missing")
        arrived_us, count, parts, crc, data = found
        if zlib.crc32(data) != crc:
            return Damaged(row, f"its {len(data)} bytes do not have the CRC they were stored with")
        return Block(arrived_us, count, b"", parts_in(data)) if parts else Block(arrived_us, count, data, ())

    def subscriptions(self) -> list[Kept]:
        """All durable subscriptions, by id."""
        return [
            Kept(id, it.name, it.patterns, it.created_us, it.rows, it.messages, it.size)
            for id, it in sorted(self._book.named.items())
        ]

    def oldest_us(self, subscription: int) -> int | None:
        """When the first block arrived that waits in a subscription."""
        found = one(
            self._db,
            "select b.arrived_us from waiting w join block b on b.row = w.row where w.subscription = ?"
            " order by w.row limit 1",
            (subscription,),
        )
        return found[0] if found else None

    # --- within

    def _keys(self, subscription: int, after_row: int) -> Iterator[tuple[int, int, bytes, bytes]]:
        while True:
            keys = every(
                self._db,
                "select row, floor, bitmap, attempts from waiting where subscription = ? and row > ?"
                " order by row limit ?",
                (subscription, after_row, KEYS),
            )
            yield from keys
            if len(keys) < KEYS:
                return
            after_row = keys[-1][0]

    def _reserve(self, wanted: int) -> None:
        """Raise `StoreFull` when blocks of so many bytes would leave too little room for consuming."""
        files = self._place.files
        free = files.free_bytes(self._folder)
        if free >= room.RESERVE + room.LOG_SIZE + wanted:
            return  # as nearly always
        (pages,) = one(self._db, "pragma freelist_count") or (0,)
        log_size = files.size(self._place.path + LOG) or 0
        if room.refuses(wanted, free=free, reusable=pages * room.PAGE_SIZE, log_size=log_size):
            raise StoreFull(
                f"the disk of {self._place.path} has {free} bytes left, and {room.RESERVE} are kept for"
                " working off what is stored; make room or consume"
            )

    def _drop_parts(self, now_us: int) -> bool:
        """Take a step of the large bodies that an earlier run left unfinished; whether there may be more."""
        with _Transaction(self, now_us) as commit:
            return commit.drop_all_parts()

    def _committed(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._log_pages = pages
        return 0  # SQLITE_OK

    def _is_full(self, error: BaseException) -> bool:
        if isinstance(error, apsw.FullError):
            return True
        if isinstance(error, apsw.IOError):
            # A sync that finds no room may have dropped what it should have written, as any failed one, and
            # what it should have synced may be found after a crash. No VFS may say FULL for it.
            synced = getattr(error, "extendedresult", 0) in (
                apsw.SQLITE_IOERR_FSYNC,
                apsw.SQLITE_IOERR_DIR_FSYNC,
            )
            return not synced and self._db.system_errno in FULL
        return isinstance(error, OSError) and error.errno in FULL

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = (
                f"the disk failed under the journal {self._place.path} ({error}); it stores nothing until"
                " this broker is started again"
            )


class _Transaction:
    """A `Commit` within begin and commit; on any error all of it is undone."""

    def __init__(self, journal: Journal, now_us: int) -> None:
        self._journal = journal
        self._now_us = now_us

    def __enter__(self) -> Commit:
        journal = self._journal
        if journal._failure is not None:
            raise JournalFailed(journal._failure)
        try:
            journal._db.execute("begin immediate")
        except (apsw.Error, OSError) as error:
            raise self._undo(error) from error
        return Commit(journal._db, journal._book, self._now_us)

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        journal = self._journal
        if error is None:
            try:
                journal._db.execute("commit")
            except BaseException as failed:
                error = failed
            else:
                return
        told = self._undo(error)
        if told is not error:
            raise told from error
        raise error

    def _undo(self, error: BaseException) -> BaseException:
        """Undo the transaction; the error to raise."""
        journal = self._journal
        full = journal._is_full(error)
        try:
            if journal._db.in_transaction:
                journal._db.execute("rollback")
            journal._book = _read_book(journal._db)
        except (apsw.Error, OSError) as failed:
            journal._fail(failed)
        if full and journal._failure is None:
            try:
                journal.checkpoint()  # the log begins again, with room that it has already
            except JournalFailed as failed:
                return failed
            return StoreFull(f"the disk of {journal._place.path} is full; make room or consume")
        if isinstance(error, (apsw.Error, OSError)):
            journal._fail(error)
        return JournalFailed(journal._failure) if journal._failure is not None else error


def _read_book(db: apsw.Connection) -> Book:
    """What is known without looking, as the last commit left it."""
    book = Book()
    (ceiling,) = one(db, "select value from meta where key = 'ceiling'") or (1,)
    book.row = book.ceiling = ceiling
    for id, name, patterns, created_us, rows, messages, size in every(
        db, "select id, name, patterns, created_us, rows, messages, size from subscription order by id"
    ):
        if name is None:
            book.removed.append(id)
            continue
        book.ids[name] = id
        book.named[id] = Named(
            name, tuple(patterns.decode().split("\n")) if patterns else (), created_us, rows, messages, size
        )
    return book
