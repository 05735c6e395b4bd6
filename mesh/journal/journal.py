"""The journal of a home: the content of its durable subscriptions, on disk when `commit` returns.

Only one thread may use it at a time. Each commit is one transaction. After an error nothing of it remains,
neither on disk nor in memory, so a retry finds no trace of the failure. `mesh.database.database` describes a
journal whose disk is full or fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import apsw

from mesh.database.database import Database
from mesh.database.files import Files, RealFiles
from mesh.database.kind import Damage
from mesh.database.opening import Place
from mesh.database.settings import every, numbers
from mesh.journal.book import read_book
from mesh.journal.commit import Commit
from mesh.journal.content import Of, Unreadable, content, unreadable_parts
from mesh.journal.progress import COLUMNS, DAMAGED, Progress, checked, progress
from mesh.journal.records import (
    Answer,
    Block,
    Damaged,
    Entry,
    Kept,
    Store,
    Verdict,
    Waiting,
    unpack_attempts,
)
from mesh.journal.schema import journal_of

ROWS_MAX: Final = 1024
"""Rows read at once, however small, since commits wait meanwhile."""
ROWS_TOGETHER: Final = 128
"""Waiting rows looked up together."""

Result = TypeVar("Result")


class Journal:
    """An open journal. `open` makes one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._db = database.db
        self._unreadable: set[tuple[Of, int]] = set()
        """Parts of rows that cannot be read, as far as commits met them."""
        database.undone = self._read_book
        self._read_book()
        self.damaged_before: Sequence[str] = database.place.damaged_before()
        """Journals of this name that were set aside earlier and still exist."""

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
        """Open the journal of this broker. It is made if there is none.

        ``files`` and ``vfs`` (the name of an apsw VFS) give access to the disk. Raises `Locked`, `StoreFull`,
        or a `JournalError`: `JournalForeign`, `JournalNewer`, `JournalReadOnly`, or `JournalDamaged` if it
        had to be set aside.
        """
        place = Place(path, files or RealFiles(), vfs)
        database = Database(place, journal_of(broker, mesh), now_us)
        try:
            journal = cls(database)
            while journal._drop_parts(now_us):
                pass
        except BaseException as error:
            told = database.give_up(error)
            if told is not error:
                raise told from error
            raise
        return journal

    # --- writing

    def commit(self, entries: Sequence[Entry], now_us: int) -> Sequence[Answer]:
        """Execute the entries in order, all or none. They are on disk when this returns their answers.

        Raises `StoreFull` if the disk has no room: nothing is written, now or later. Raises `JournalFailed`
        if the disk failed: nothing is written now, but all of it may be found when the journal is opened
        again, if only the last sync failed.
        """
        wanted = sum(len(entry.block) for entry in entries if type(entry) is Store)
        if wanted:
            self._database.reserve(wanted)

        def work(commit: Commit) -> list[Answer]:
            answers = commit.do_all(entries)
            commit.finish()
            return answers

        return self._transact(work, now_us, entries)

    @property
    def chores(self) -> bool:
        """True if a commit, even an empty one, would do a part of the pending cleanup."""
        return self.failure is None and bool(self._book.removed)

    @property
    def failure(self) -> str | None:
        """Why every commit is refused. None if commits are accepted."""
        return self._database.failure

    @property
    def checkpoint_due(self) -> bool:
        """True if the log is large enough to be moved into the database."""
        return self._database.checkpoint_due

    def checkpoint(self) -> None:
        """Move the log into the database, so that it starts again. Call this between commits, after their
        acknowledgements. On a full disk the log stays unchanged. Raises `JournalFailed`."""
        self._database.checkpoint()

    def close(self) -> None:
        """Move the log into the database and close the file. After a failure the log stays unchanged."""
        self._database.close()

    # --- reading

    def read(
        self, subscription: int, after_row: int, bytes_max: int, rows_max: int = ROWS_MAX
    ) -> list[Waiting | Damaged]:
        """The messages of a subscription that are not settled, behind a row: blocks of about so many bytes,
        at least one.

        A block that differs from what was stored is returned as `Damaged`; the others are returned normally.
        Raises `JournalFailed` if the waiting rows cannot be read.
        """
        rows: list[Waiting | Damaged] = []
        for row, known in self._waiting(subscription, after_row):
            found = self.fetch(row)
            if not known.sound:
                found = Damaged(row, "the record of its settled messages is damaged")
            if isinstance(found, Damaged):
                rows.append(found)
            else:
                block, tried = found.block, unpack_attempts(known.attempts)
                floor, bitmap = known.floor, known.bitmap
                rows.append(
                    Waiting(row, found.arrived_us, found.count, block, found.parts, floor, bitmap, tried)
                )
                bytes_max -= len(block)
            if bytes_max <= 0 or len(rows) >= rows_max:
                break
        return rows

    def fetch(self, row: int) -> Block | Damaged:
        """The stored content of a row, or of a piece of a large body. Raises `JournalFailed`."""
        try:
            with self._database.reading():
                return content(self._db, row)
        except Unreadable as error:
            return Damaged(row, f"SQLite says {error.__cause__}")

    def judge(self, entry: Store) -> Verdict:
        """The verdict on a block that `commit` would give; STORED if it is new. Used with a full disk,
        whose `StoreFull` does not distinguish a new block from a retry. Raises `JournalFailed`."""
        with self._database.reading():
            return Commit(self._db, self._book, 0).judge(entry)

    def room(self) -> tuple[int, int]:
        """Bytes that it takes, and bytes that may still be stored. Raises `OSError`."""
        return self._database.room()

    def subscriptions(self) -> list[Kept]:
        """All durable subscriptions, by id."""
        return [
            Kept(id, it.name, it.patterns, it.created_us, it.rows, it.messages, it.size)
            for id, it in sorted(self._book.named.items())
        ]

    def missing(self, subscription: int) -> int:
        """How many rows of a subscription are counted as waiting but cannot be found: a flipped bit in a key
        hides them. Looks at each row that waits. Raises `JournalFailed`, too, if they are out of order."""
        named = self._book.named.get(subscription)
        if named is None:
            return 0
        count = last = 0
        found = "select +subscription, row from waiting where subscription = ?"  # with +, as it is stored
        with self._database.reading():
            for of, row in self._db.execute(found, (subscription,)):
                if of != subscription or type(row) is not int or row <= last:
                    raise apsw.CorruptError("rows that wait are out of order")
                count, last = count + 1, row
        return named.rows - count

    def oldest_us(self, subscription: int) -> int | None:
        """Arrival of the oldest block that waits in a subscription. None, too, if that cannot be read. Raises
        `JournalFailed`."""
        with self._database.reading():
            try:
                found = numbers(
                    self._db,
                    "select b.arrived_us from waiting w join block b on b.row = w.row"
                    " where w.subscription = ? order by w.row limit 1",
                    (subscription,),
                )
            except apsw.CorruptError:
                return None  # its consumers will find out which block that is
        return found[0][0] if found else None

    # --- internals

    def _waiting(self, subscription: int, after_row: int) -> Iterator[tuple[int, Progress]]:
        """The rows that wait in a subscription, behind a row.

        A flipped bit in a key would make a reader skip rows or loop. So each row is looked at together with
        the next one, and the last one is looked up by itself. Rows that do not rise, rise to numbers that
        were never given, or end before the last one, end the journal.
        """
        while True:
            with self._database.reading():
                rows = self._some_waiting(subscription, after_row)
                before = after_row
                for row, _ in rows:
                    if type(row) is not int or not before < row < self._book.row:
                        raise apsw.CorruptError("rows that wait are out of order")
                    before = row
                if len(rows) <= ROWS_TOGETHER and before < self._last_waiting(subscription):
                    raise apsw.CorruptError("rows that wait are out of order")
            yield from rows[:ROWS_TOGETHER]
            if len(rows) <= ROWS_TOGETHER:
                return
            after_row = rows[ROWS_TOGETHER - 1][0]

    def _last_waiting(self, subscription: int) -> int:
        last = "select row from waiting where subscription = ? order by row desc limit 1"
        return sum(row for (row,) in numbers(self._db, last, (subscription,)))

    def _some_waiting(self, subscription: int, after_row: int) -> list[tuple[int, Progress]]:
        which = "from waiting where subscription = ? and row > ? order by row limit ?"
        asked = (subscription, after_row, ROWS_TOGETHER + 1)
        try:
            found = every(self._db, f"select row, {COLUMNS} {which}", asked)
            return [(row, checked(subscription, row, *record)) for row, *record in found]
        except apsw.CorruptError:  # one of them has a field that cannot be read, or its key
            rows = numbers(self._db, f"select row {which}", asked)
            return [(row, self._progress(subscription, row)) for (row,) in rows]

    def _progress(self, subscription: int, row: int) -> Progress:
        try:
            return progress(self._db, subscription, row) or DAMAGED
        except apsw.CorruptError:
            return DAMAGED

    def _drop_parts(self, now_us: int) -> bool:
        """Remove a part of the large bodies that an earlier run left unfinished. True if there may be
        more."""
        return self._transact(Commit.drop_all_parts, now_us)

    def _transact(
        self, work: Callable[[Commit], Result], now_us: int, entries: Sequence[Entry] = ()
    ) -> Result:
        """Do the work of one transaction. It begins again if it meets a row whose pages cannot be read, and
        leaves that row as it is: one bad page must not end the journal at each start. The first such row has
        those of all entries read, so that many bad rows do not make as many transactions."""
        while True:
            try:
                with self._database.transaction():
                    return work(Commit(self._db, self._book, now_us, self._unreadable))
            except Unreadable as met:
                rows = {row for entry in entries if type(row := getattr(entry, "row", None)) is int}
                entries = ()
                self._unreadable.add((met.part, met.row))
                with self._database.reading():
                    for row in rows:
                        self._unreadable |= unreadable_parts(self._db, row)

    def _read_book(self) -> None:
        """Read the state as of the last commit."""
        try:
            self._book = read_book(self._db)
        except Damage as damage:  # since the journal was opened
            raise apsw.CorruptError(str(damage)) from damage
