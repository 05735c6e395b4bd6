"""Sealed blocks on a client's disk: there when `append` returns, until they are freed.

**Owner.** Homes recognise a retry by its publisher, boot and numbers, and refuse other messages under the
same ones. So the publisher's secret lies in the file: after a restart it is the same publisher. Each opening
draws a new ``boot`` for the blocks that it seals; older blocks keep theirs. So two outboxes that were one, by
a copy or a backup, may send the same blocks, which homes store once. They never send different blocks under
the same numbers. A forked process must not use its parent's outbox.

**Bounds.** The blocks take at most ``max_bytes`` in all; each counts `ROW_COST` bytes more. Beyond that
`append` is refused with `StoreFull`, and nothing is lost. It is refused, too, while a disk has less than a
reserve (`mesh.database.room`). The file does not shrink; freed space is used again. It takes up to twice the
bytes of the blocks, as a page holds one or several whole blocks of up to 16 KB. The log beside it takes up to
8 MiB.

Use it from one thread at a time.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import apsw

from mesh.database.database import Database
from mesh.database.files import Files, RealFiles
from mesh.database.opening import Place
from mesh.database.settings import every, numbers, one
from mesh.errors import OutboxError, StoreFull
from mesh.outbox.records import MAX_BYTES, Damaged, Holding, Opening, OutboxBlock
from mesh.outbox.schema import outbox_of
from mesh.wire import blocks
from mesh.wire.session_opening import SECRET_SIZE, client_id, verified

ROW_COST: Final = 64
"""Bytes that each block counts for beside its own."""
ROWS_MAX: Final = 1024
"""Most rows that are read at once, however small."""
ROW_MAX: Final = 1 << 62
"""Row numbers are below this."""


class Outbox:
    """An open outbox; `open` makes one."""

    def __init__(
        self, database: Database, boot: int, max_bytes: int, pid: Callable[[], int] = os.getpid
    ) -> None:
        self._database = database
        self._db = database.db
        self._process = pid
        self._pid = pid()
        self.path = database.place.path
        self.max_bytes = max_bytes
        self.secret: bytes = every(self._db, "select value from meta where key = 'secret'")[0][0]
        """The secret from which ``publisher`` is derived."""
        self.publisher = verified(client_id(self.secret))
        self.boot = boot
        """The boot of blocks that are sealed from now on."""
        self.opened_at = self._row = numbers(self._db, "select coalesce(max(row), 0) from block")[0][0]
        """The last row that lay there when it was opened: it may have been sent before."""
        if not 0 <= self._row < ROW_MAX:
            raise apsw.CorruptError(f"{self._row} is the number of a row")
        self._last = 0
        oldest = one(self._db, "select appended_us from block order by row limit 1")
        self._oldest_us: int | None = oldest[0] if oldest and type(oldest[0]) is int else None
        self.copied = self._note_identity()
        """True if this file is not the one that was opened last under its name: the other one may send the
        same blocks."""
        self.damaged_before: Sequence[str] = database.place.damaged_before()
        """Outboxes of this name that were set aside earlier and are still there."""
        self._read_total()
        if not self._row and self.holding != (0, 0, 0):
            with database.transaction():
                self._count(-self._blocks, -self._messages, -self._size)
        database.undone = self._read_total

    @classmethod
    def open(
        cls,
        path: str,
        *,
        token: Callable[[int], bytes],
        now_us: int,
        max_bytes: int = MAX_BYTES,
        files: Files | None = None,
        vfs: str | None = None,
        pid: Callable[[], int] = os.getpid,
    ) -> Outbox:
        """Open the outbox at a path; create it if necessary.

        ``token`` gives that many unguessable bytes. ``files`` and ``vfs`` (the name of an apsw VFS) give
        access to the disk; ``pid`` is this process. Raises `Locked`, `StoreFull`, or an `OutboxError`:
        `OutboxForeign`, `OutboxNewer`, `OutboxReadOnly`, or `OutboxDamaged` if it had to be set aside.
        """
        if max_bytes < 1:
            raise ValueError(f"an outbox of {max_bytes} bytes holds nothing; max_bytes is 1 or more")
        database = Database(Place(path, files or RealFiles(), vfs), outbox_of(token(SECRET_SIZE)), now_us)
        boot = (int.from_bytes(token(8), "big") >> 2) + 1
        try:
            return cls(database, boot, max_bytes, pid)
        except BaseException as error:
            told = database.give_up(error)
            if told is not error:
                raise told from error
            raise

    def append(self, sealed: Sequence[bytes], now_us: int) -> list[OutboxBlock]:
        """Keep blocks of this publisher and boot, all or none; they are on disk when this returns.

        Their numbers rise from call to call. Raises `StoreFull` if they do not fit: none of them is there.
        Raises `OutboxFailed` if the disk failed. Then none of them is there now, but all of them may be
        there, under their boot, when the outbox is opened again. Raises ValueError for blocks that are not
        this publisher's next ones.
        """
        return self.change(sealed, (), now_us)

    def free(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Free ranges of rows, both ends included; synced when this returns. Missing rows do no harm.

        Only after that may homes be told that the publisher waits for nothing below (`mesh.outbox.draining`).
        """
        self.change((), ranges, 0)

    def change(
        self, sealed: Sequence[bytes], ranges: Iterable[tuple[int, int]], now_us: int
    ) -> list[OutboxBlock]:
        """`free` and then `append` in one commit, so that they are synced once."""
        self._check_process()
        rows, last = self._rows_of(sealed)
        wanted = sum(len(block) + ROW_COST for block in sealed)
        if wanted:
            self._make_sure_of_room(wanted)
        with self._database.transaction():
            for ends in ranges:
                self._delete(ends)
            if rows:
                self._insert(rows, now_us)
        self._row += len(rows)
        self._last = last
        return rows

    def read(
        self, after_row: int, bytes_max: int, *, without: Sequence[bytes] = (), rows_max: int = ROWS_MAX
    ) -> list[OutboxBlock | Damaged]:
        """The blocks behind a row, in the order of appending: about so many bytes, at least one block.

        ``without``: topics to pass over, some hundred at most. A block that differs from the appended one is
        named as `Damaged`; the others are returned. Raises `OutboxFailed`.
        """
        self._check_process()
        self._database.check()
        marks = ", ".join("?" * len(without))
        found: list[OutboxBlock | Damaged] = []
        with self._database.reading():
            rows = numbers(
                self._db,
                f"select row from block where row > ? and topic not in ({marks}) order by row limit ?",
                (after_row, *without, rows_max),
            )
            before = after_row
            for (row,) in rows:
                if not before < row <= self._row:  # a flipped bit in a key would make readers pass others
                    raise apsw.CorruptError("its rows are out of order")
                before = row
            for (row,) in rows:
                found.append(block := self._waiting(row))
                bytes_max -= ROW_COST + (0 if isinstance(block, Damaged) else len(block.block))
                if bytes_max <= 0:
                    break
        return found

    @property
    def holding(self) -> Holding:
        """Its contents."""
        return Holding(self._blocks, self._messages, self._size)

    @property
    def opening(self) -> Opening:
        """Facts found when it was opened."""
        return Opening(
            self.path,
            self.secret,
            self.publisher,
            self.boot,
            self.opened_at,
            self.copied,
            self.damaged_before,
            self.max_bytes,
            self._oldest_us,
        )

    @property
    def failure(self) -> str | None:
        """Why every change is refused; None while none is."""
        return self._database.failure

    @property
    def checkpoint_due(self) -> bool:
        """True if the log has reached the size at which it is moved into the database."""
        return self._database.checkpoint_due

    def checkpoint(self) -> None:
        """Move the log into the database, so that it begins again. On a full disk it stays as it is. Raises
        `OutboxFailed`."""
        self._check_process()
        self._database.checkpoint()

    def close(self) -> None:
        """Close the file. Does nothing in a forked process: the file is the parent's."""
        if self._process() == self._pid:
            self._database.close()

    # --- internals

    def _check_process(self) -> None:
        if self._process() != self._pid:
            raise OutboxError(
                f"the outbox {self.path} was opened by process {self._pid}, of which this is a fork; open one"
                " in each process, in a file of its own"
            )

    def _note_identity(self) -> bool:
        device, number = self._database.place.files.identity(self.path)
        identity = f"{device}:{number}"
        (before,) = one(self._db, "select value from meta where key = 'identity'") or (None,)
        if before == identity:
            return False
        with self._database.transaction():
            self._db.execute("insert or replace into meta values('identity', ?)", (identity,))
        return before is not None

    def _make_sure_of_room(self, wanted: int) -> None:
        if self._size + wanted > self.max_bytes:
            raise StoreFull(
                f"the outbox {self.path} holds {self._size} of {self.max_bytes} bytes, and {wanted} more do"
                " not fit; let it drain, or give it more (max_bytes)"
            )
        self._database.reserve(wanted)

    def _insert(self, rows: Sequence[OutboxBlock], now_us: int) -> None:
        values = [
            (
                it.row, it.boot, it.first, it.last, _messages_in(it.block), len(it.block) + ROW_COST,
                it.topic, now_us, zlib.crc32(it.block), it.block,
            )
            for it in rows
        ]  # fmt: skip
        self._db.executemany("insert into block values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        self._count(len(rows), sum(row[4] for row in values), sum(row[5] for row in values))

    def _delete(self, ends: tuple[int, int]) -> None:
        gone = every(
            self._db,
            "delete from block where row between ? and ? returning"
            " iif(typeof(messages) = 'integer', messages, 0), iif(typeof(size) = 'integer', size, 0)",
            ends,
        )
        if gone:
            self._count(-len(gone), -sum(row[0] for row in gone), -sum(row[1] for row in gone))

    def _rows_of(self, sealed: Sequence[bytes]) -> tuple[list[OutboxBlock], int]:
        """The rows that blocks will become, and the last of their numbers."""
        rows: list[OutboxBlock] = []
        last = self._last
        part = -1
        for row, block in enumerate(sealed, self._row + 1):
            _, flags, _, _, count, _, first, publisher, boot = blocks.HEAD.unpack_from(block)
            if (publisher, boot) != (self.publisher, self.boot):
                raise ValueError(
                    f"a block of publisher {publisher:016x}, boot {boot:016x} is not of this outbox's"
                    f" {self.publisher:016x}, {self.boot:016x}"
                )
            if first <= last and first != part:
                raise ValueError(f"a block begins with number {first}, and {last} was given already")
            last = first + count - 1
            part = first if flags & blocks.PIECE else -1
            rows.append(_as_row(row, block))
        return rows, last

    def _waiting(self, row: int) -> OutboxBlock | Damaged:
        """A row. A sound block is known by its own head: no CRC covers the numbers beside it."""
        try:
            found = one(self._db, "select cast(data as blob), crc from block where row = ?", (row,))
        except apsw.CorruptError as error:
            return self._damaged(row, f"SQLite says {error}")
        data, crc = found or (b"", None)
        data = data or b""
        if zlib.crc32(data) != crc or len(data) < blocks.HEAD_SIZE:
            return self._damaged(row, f"its {len(data)} bytes do not have the CRC they were appended with")
        return _as_row(row, data)

    def _damaged(self, row: int, why: str) -> Damaged:
        """A damaged row, by the numbers beside its block as far as they can be read."""
        try:
            its = numbers(self._db, "select boot, first, last from block where row = ?", (row,))
        except apsw.CorruptError:
            its = []
        boot, first, last = its[0] if its else (0, 0, 0)
        return Damaged(row, boot, first, last, why)

    def _count(self, blocks_: int, messages: int, size: int) -> None:
        self._blocks += blocks_
        self._messages += messages
        self._size += size
        self._db.execute(
            "update total set blocks = ?, messages = ?, size = ?", (self._blocks, self._messages, self._size)
        )

    def _read_total(self) -> None:
        """Read the totals, as the last commit left them."""
        found = numbers(self._db, "select blocks, messages, size from total")
        if not found:
            raise apsw.CorruptError("its totals are missing")
        self._blocks, self._messages, self._size = found[0]


def _as_row(row: int, block: bytes) -> OutboxBlock:
    """A block as a row, with the facts of its head."""
    _, _, _, topic_size, count, _, first, _, boot = blocks.HEAD.unpack_from(block)
    topic = bytes(block[blocks.HEAD_SIZE : blocks.HEAD_SIZE + topic_size])
    return OutboxBlock(row, boot, first, first + count - 1, topic, block)


def _messages_in(block: bytes) -> int:
    """Number of messages in a block; a large body counts with its first piece."""
    _, flags, _, topic_size, count, *_ = blocks.HEAD.unpack_from(block)
    if not flags & blocks.PIECE:
        return int(count)
    at = blocks.HEAD_SIZE + topic_size
    offset = block[at + blocks.PIECE_SIZE // 2 : at + blocks.PIECE_SIZE]
    return 0 if any(offset) else 1
