"""One commit: entries in, answers out, within a transaction that the journal begins and ends.

The state in memory (`Book`) changes with it. If the transaction fails, the state is read again from disk.

A row has holders: the subscriptions that wait for it, or the large bodies of which it is a piece. A row is
removed when its last holder releases it. A large body is kept as a row with the numbers of its pieces, made
when the last piece has arrived. So it appears at the end of each queue, and settling or burying it moves no
bytes.

Each commit also does a bounded part of the cleanup: it forgets publishers, and empties subscriptions that
were removed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import Any, Final

import apsw

from mesh.database.settings import every, one, signed
from mesh.errors import BlockError
from mesh.journal import letters
from mesh.journal.book import Book, Named
from mesh.journal.content import Unreadable, content
from mesh.journal.duplicates import HEARD_US, LAST, Clock, Duplicates, Source
from mesh.journal.records import (
    Answer,
    Attempts,
    Block,
    Bury,
    Damaged,
    Done,
    Entry,
    Requeue,
    Settle,
    Store,
    Subscribe,
    Unsubscribe,
    Verdict,
    floor_and_bitmap,
    pack_attempts,
    settled_in,
    settled_mask,
)
from mesh.journal.statements import insert, places, portions
from mesh.wire import blocks
from mesh.wire.durable_frames import DEAD_PREFIX

CHORES: Final = 64
"""Rows of removed subscriptions or of unfinished bodies that one commit removes."""
ALIKE: Final = 4
"""Minimum number of finished rows for which looking at all of them together pays."""
ROWS_AHEAD: Final = 1 << 20
"""Rows whose numbers are reserved at once. Writing the last used number in each commit would cost a page."""

_DONE: Final = Answer(Verdict.DONE)
_UNKNOWN: Final = Answer(Verdict.UNKNOWN)
_PLAIN: Final = {verdict: Answer(verdict) for verdict in Verdict}


class _Bytes:
    """The facts read from a block: its CRC and, for a piece, its place in a body of ``whole`` bytes."""

    __slots__ = ("crc", "piece", "size", "whole")

    def __init__(self, entry: Store) -> None:
        self.piece = self.whole = self.size = 0
        if entry.block[1] & blocks.PIECE:
            opened = blocks.open_block(entry.block)
            self.piece, self.whole, self.size = opened.offset, opened.whole_size, len(opened.bodies[0])
        self.crc = zlib.crc32(entry.block)


class Commit:
    """The work of one transaction. It raises `Unreadable` for a row that it has to read or to remove and
    that is not in ``unreadable``: then it is undone and done again with it."""

    def __init__(
        self, db: apsw.Connection, book: Book, now_us: int, unreadable: Collection[int] = ()
    ) -> None:
        self._db = db
        self._unreadable = unreadable
        self._now_us = now_us
        self._clock = book.clock.at(now_us) if book.clock else Clock(now_us, now_us)
        self._duplicates = Duplicates(db, self._clock.active_us, book.publishers)
        self.book = book
        self._changed: dict[int, Named] = {}
        self._blocks: list[tuple[Any, ...]] = []
        self._waits: list[tuple[Any, ...]] = []
        """New rows of the tables ``block`` and ``waiting`` that still have to be written."""
        self._read: tuple[int, Block | Damaged] = (0, Damaged(0, ""))
        self._opened: tuple[bytes, blocks.Opened] | None = None
        """The last block read, with its row, and the last one opened: thousands of messages of one block may
        die in one commit."""

    def do_all(self, entries: Sequence[Entry]) -> list[Answer]:
        """Execute entries in order. Finished rows of one subscription are removed together."""
        answers: list[Answer] = []
        for subscription, alike in groupby(entries, _done_of):
            if subscription in self.book.named:
                self._write()
                for rows in portions([entry.row for entry in alike if isinstance(entry, Done)]):
                    if len(rows) >= ALIKE and not self._unreadable:
                        answers += self._done_together(subscription, rows)
                    else:
                        answers += [self._done(subscription, row) for row in rows]
            else:
                answers += map(self._do, alike)
        return answers

    def _do(self, entry: Entry) -> Answer:
        if isinstance(entry, Store):
            return self._store(entry)
        self._write()
        match entry:
            case Subscribe():
                return self._subscribe(entry.name, tuple(sorted(set(entry.patterns))))
            case _ if entry.subscription not in self.book.named:
                return _UNKNOWN
            case Done():
                return self._done(entry.subscription, entry.row)
            case Settle():
                return self._settle(entry.subscription, entry.row, settled_mask(entry.floor, entry.bitmap))
            case Attempts():
                return self._attempts(entry)
            case Bury():
                return self._bury(entry)
            case Requeue():
                return self._requeue(entry)
            case Unsubscribe():
                return self._unsubscribe(entry.subscription)

    def finish(self) -> None:
        """The work of a commit besides its entries."""
        self._write()
        self._keep_clock()
        for source, mark in self._duplicates.forget():
            self._drop_parts(source, mark)
        self.book.looked_at, silent = self._duplicates.silent(self.book.looked_at)
        if silent is not None and not self._drop_parts(silent, LAST):
            self._duplicates.forget_all(silent)
        if self.book.removed:
            self._empty(self.book.removed[0])
        for id, named in self._changed.items():
            self._db.execute(
                "update subscription set rows = ?, messages = ?, size = ? where id = ?",
                (named.rows, named.messages, named.size, id),
            )

    def _keep_clock(self) -> None:
        book, clock = self.book, self._clock
        book.clock = clock
        if clock.active_us - book.clock_written >= HEARD_US:
            book.clock_written = clock.active_us
            self._db.execute(
                "insert or replace into meta values('active_us', ?), ('wall_us', ?)", tuple(clock)
            )

    # --- blocks

    def judge(self, entry: Store) -> Verdict:
        """The verdict on a block: whether it came before, or STORED if it is new. Changes nothing."""
        return self._judge(entry, _Bytes(entry))

    def _judge(self, entry: Store, its: _Bytes) -> Verdict:
        source = (signed(entry.publisher), signed(entry.boot))
        verdict = self._duplicates.judge(source, entry.first, entry.last, its.piece, its.crc)
        if verdict is Verdict.DUPLICATE and its.whole and self._is_unfinished(source, entry.first):
            return Verdict.PART
        return verdict

    def _store(self, entry: Store) -> Answer:
        source = (signed(entry.publisher), signed(entry.boot))
        its = _Bytes(entry)
        piece, whole, size, crc = its.piece, its.whole, its.size, its.crc
        verdict = self._judge(entry, its)
        if verdict is Verdict.PAST:
            return _PLAIN[verdict]
        self._duplicates.heard(source, min(entry.lowest, entry.first))
        if verdict is not Verdict.STORED:
            return _PLAIN[verdict]
        wants = tuple(id for id in entry.wants if id in self.book.named)
        if not wants:
            return _PLAIN[Verdict.UNWANTED]
        self._duplicates.note(source, entry.first, entry.last, piece, crc)
        if whole:
            return self._store_piece(entry, source, piece, size, whole, crc, wants)
        row = self._insert(entry.last - entry.first + 1, len(entry.block), wants, 0, crc, entry.block)
        self._wait_for(row, wants, entry.last - entry.first + 1, len(entry.block))
        return Answer(Verdict.STORED, row)

    def _store_piece(
        self,
        entry: Store,
        source: Source,
        piece: int,
        size: int,
        whole: int,
        crc: int,
        wants: tuple[int, ...],
    ) -> Answer:
        """Keep a piece of a large body. The last missing piece completes the body."""
        row = self._insert(0, len(entry.block), (), 0, crc, entry.block)
        self._db.execute(
            "insert into part values(?, ?, ?, ?, ?, ?, ?)", (*source, entry.first, piece, row, size, whole)
        )
        come = every(
            self._db,
            "select row, piece, size, whole from part"
            " where publisher = ? and boot = ? and first = ?"
            " order by piece",
            (*source, entry.first),
        )
        end = 0
        for _, offset, length, of in come:
            if offset != end or of != whole:
                return _PLAIN[Verdict.PART]
            end += length
        if end != whole:
            return _PLAIN[Verdict.PART]
        self._db.execute(
            "delete from part where publisher = ? and boot = ? and first = ?", (*source, entry.first)
        )
        return Answer(Verdict.STORED, self._insert_body([part[0] for part in come], whole, wants))

    def _insert_body(self, parts: list[int], size: int, wants: tuple[int, ...]) -> int:
        """Keep a large body of these pieces for these subscriptions."""
        data = struct.pack(f">{len(parts)}Q", *parts)
        row = self._insert(1, size, wants, len(parts), zlib.crc32(data), data)
        self._wait_for(row, wants, 1, size)
        return row

    def _insert(
        self, count: int, size: int, wants: tuple[int, ...], parts: int, crc: int, data: bytes
    ) -> int:
        book = self.book
        row = book.row
        if row >= book.ceiling:
            book.ceiling = row + ROWS_AHEAD
            self._db.execute("update meta set value = ? where key = 'ceiling'", (book.ceiling,))
        book.row += 1
        wanted_by = struct.pack(f">{len(wants)}I", *wants)
        self._blocks.append((row, self._now_us, count, size, wanted_by, parts, crc, data))
        return row

    def _wait_for(self, row: int, wants: tuple[int, ...], count: int, size: int) -> None:
        self._waits += [(subscription, row, 0, b"", b"") for subscription in wants]
        if len(wants) > 1:
            self._db.execute("insert into shared values(?, ?)", (row, len(wants)))
        for subscription in wants:
            self._count(subscription, 1, count, size)

    def _count(self, subscription: int, rows: int, messages: int, size: int) -> None:
        named = self._changed[subscription] = self.book.named[subscription]
        named.rows += rows
        named.messages += messages
        named.size += size

    def _write(self) -> None:
        """Write new rows before anything else is read or written."""
        insert(self._db, "block", self._blocks)
        self._blocks.clear()
        insert(self._db, "waiting", self._waits)
        self._waits.clear()

    # --- removing rows

    def _done_together(self, subscription: int, rows: Sequence[int]) -> list[Answer]:
        """Remove finished rows. Nearly all are alike and take three statements together: such a row waits, is
        not a large body, has one holder, and only its floor says which messages are settled."""
        asked = (subscription, *rows)
        its = f"subscription = ? and row in ({places(len(rows))})"
        found = one(
            self._db,
            "select count(*), sum(b.count), sum(b.size), sum(w.floor)"
            " from waiting w join block b using(row) left join shared s using(row)"
            f" where {its} and b.parts = 0 and s.row is null and w.bitmap = x''",
            asked,
        )
        assert found is not None, "a sum has a row"
        count, messages, size, settled = found
        if count < len(rows):
            return [self._done(subscription, row) for row in rows]
        self._db.execute(f"delete from waiting where {its}", asked)
        try:
            self._db.execute(f"delete from block where row in ({places(len(rows))})", asked[1:])
        except apsw.CorruptError as error:
            raise Unreadable(0) from error  # one of them, which is found when they are removed one by one
        self._count(subscription, -count, settled - messages, -size)
        return [_DONE] * count

    def _done(self, subscription: int, row: int) -> Answer:
        found = every(
            self._db,
            "delete from waiting where subscription = ? and row = ? returning floor, bitmap",
            (subscription, row),
        )
        if not found:
            return _UNKNOWN
        count, size, parts, holders = one(
            self._db,
            "select b.count, b.size, b.parts, s.holders from block b left join shared s using(row)"
            " where row = ?",
            (row,),
        ) or (0, 0, 0, None)
        self._count(subscription, -1, settled_in(count, *found[0]) - count, -size)
        if parts or holders:
            self._let_go(row)
        else:
            self._remove(row)
        return _DONE

    def _let_go(self, row: int) -> None:
        """Remove one holder of a row. The last holder's row is removed, and so are the pieces that it
        holds."""
        left = every(
            self._db, "update shared set holders = holders - 1 where row = ? returning holders", (row,)
        )
        if left:
            if left[0][0] <= 1:
                self._db.execute("delete from shared where row = ?", (row,))
            return
        found = one(self._db, "select parts from block where row = ?", (row,))
        if found and found[0]:
            for part in self._parts_of(row):
                self._let_go(part)
        self._remove(row)

    def _remove(self, row: int) -> None:
        """Remove the content of a row. One whose pages cannot be read stays on disk, held by nobody."""
        if row in self._unreadable:
            return
        try:
            self._db.execute("delete from block where row = ?", (row,))
        except apsw.CorruptError as error:
            raise Unreadable(row) from error

    def _hold(self, row: int) -> None:
        """Add a holder to a row."""
        self._db.execute(
            "insert into shared values(?, 2) on conflict do update set holders = holders + 1", (row,)
        )

    def _parts_of(self, row: int) -> tuple[int, ...]:
        """The rows of a large body's pieces. None of a damaged one: they may be the rows of other messages,
        and its own stay on disk."""
        found = self._content(row)
        return () if isinstance(found, Damaged) else found.parts

    def _content(self, row: int) -> Block | Damaged:
        if row in self._unreadable:
            return Damaged(row, "its pages cannot be read")
        return content(self._db, row)

    def _settle(self, subscription: int, row: int, mask: int) -> Answer:
        found = one(
            self._db,
            "select w.floor, w.bitmap, b.count from waiting w left join block b on b.row = w.row"
            " where w.subscription = ? and w.row = ?",
            (subscription, row),
        )
        if found is None:
            return _UNKNOWN
        floor, bitmap, count = found
        every = (1 << (count or 0)) - 1
        if mask & every == every:
            return self._done(subscription, row)
        self._count(subscription, 0, settled_in(count, floor, bitmap) - (mask & every).bit_count(), 0)
        self._db.execute(
            "update waiting set floor = ?, bitmap = ? where subscription = ? and row = ?",
            (*floor_and_bitmap(mask & every), subscription, row),
        )
        return _DONE

    def _attempts(self, entry: Attempts) -> Answer:
        found = every(
            self._db,
            "update waiting set attempts = ? where subscription = ? and row = ? returning 1",
            (pack_attempts(entry.attempts), entry.subscription, entry.row),
        )
        return _DONE if found else _UNKNOWN

    # --- dead letters

    def _bury(self, entry: Bury) -> Answer:
        """The row of the dead letter and the subscription that keeps it."""
        found = one(
            self._db,
            "select w.floor, w.bitmap, b.count, b.size from waiting w"
            " join block b on b.row = w.row where w.subscription = ? and w.row = ?",
            (entry.subscription, entry.row),
        )
        named = self.book.named[entry.subscription]
        if found is None or named.name.startswith(DEAD_PREFIX):
            return _UNKNOWN
        floor, bitmap, count, size = found
        mask = settled_mask(floor, bitmap)
        if not 0 <= entry.index < count or mask >> entry.index & 1:
            return _UNKNOWN
        target = self._dead_letters_of(named.name)

        def letter(block: blocks.Opened) -> bytes:
            return letters.bury(
                block,
                entry.index,
                subscription=named.name,
                reason=entry.reason,
                attempts=entry.attempts,
                now_us=self._now_us,
            )

        try:
            row = self._copy(entry.row, size, target, letter)
        except BlockError:
            row = entry.row
            self._share(row, target, entry.index, count, size)
        self._settle(entry.subscription, entry.row, mask | 1 << entry.index)
        return Answer(Verdict.DONE, row, target)

    def _share(self, row: int, target: int, index: int, count: int, size: int) -> None:
        """Keep a damaged message, which cannot be copied, among the dead letters as it is: both subscriptions
        hold its row."""
        found = one(
            self._db, "select floor, bitmap from waiting where subscription = ? and row = ?", (target, row)
        )
        mask = settled_mask(*found) if found else (1 << count) - 1
        self._db.execute(
            "insert or replace into waiting values(?, ?, ?, ?, x'')",
            (target, row, *floor_and_bitmap(mask & ~(1 << index))),
        )
        if not found:
            self._hold(row)
        self._count(target, 0 if found else 1, 1, 0 if found else size)

    def _requeue(self, entry: Requeue) -> Answer:
        """The row of the message in its subscription, and that subscription."""
        found = one(
            self._db,
            "select b.size from waiting w join block b on b.row = w.row"
            " where w.subscription = ? and w.row = ? and b.count = 1",
            (entry.subscription, entry.row),
        )
        name = self.book.named[entry.subscription].name
        target = self.book.ids.get(name.removeprefix(DEAD_PREFIX), 0)
        if found is None or target in (0, entry.subscription):
            return _UNKNOWN
        try:
            row = self._copy(entry.row, found[0], target, letters.revive)
        except BlockError:
            return _UNKNOWN
        self._done(entry.subscription, entry.row)
        return Answer(Verdict.DONE, row, target)

    def _sound(self, row: int) -> Block:
        """The content of a row. Raises `BlockError` if it is damaged."""
        if self._read[0] != row:
            self._read = row, self._content(row)
        found = self._read[1]
        if isinstance(found, Damaged):
            raise BlockError(found.reason)
        return found

    def _open(self, block: bytes) -> blocks.Opened:
        """Open a block. Raises `BlockError`."""
        if self._opened is None or self._opened[0] is not block:
            self._opened = block, blocks.open_block(block)
        return self._opened[1]

    def _copy(self, row: int, size: int, target: int, change: Callable[[blocks.Opened], bytes]) -> int:
        """Add the result of ``change`` for a block, or for the first piece of a large body, to a
        subscription. Both rows hold the body's other pieces. Raises `BlockError` for what is damaged."""
        found = self._sound(row)
        if not found.parts:
            block = change(self._open(found.block))
            row = self._insert(1, len(block), (target,), 0, zlib.crc32(block), block)
            self._wait_for(row, (target,), 1, len(block))
            return row
        first, *others = found.parts
        block = change(self._open(self._sound(first).block))
        head = self._insert(0, len(block), (), 0, zlib.crc32(block), block)
        for part in others:
            self._hold(part)
        return self._insert_body([head, *others], size, (target,))

    def _dead_letters_of(self, name: str) -> int:
        return self.book.ids.get(DEAD_PREFIX + name) or self._subscribe(DEAD_PREFIX + name, ()).subscription

    # --- subscriptions

    def _subscribe(self, name: str, patterns: tuple[str, ...]) -> Answer:
        known = self.book.ids.get(name)
        if known is not None:
            same = self.book.named[known].patterns == patterns
            return Answer(Verdict.DONE if same else Verdict.OTHER_PATTERNS, subscription=known)
        self._db.execute(
            "insert into subscription(name, patterns, created_us, rows, messages, size)"
            " values(?, ?, ?, 0, 0, 0)",
            (name, "\n".join(patterns).encode(), self._now_us),
        )
        id = self._db.last_insert_rowid()
        self.book.ids[name] = id
        self.book.named[id] = Named(name, patterns, self._now_us)
        return Answer(Verdict.DONE, subscription=id)

    def _unsubscribe(self, subscription: int) -> Answer:
        """Free the name at once. Later commits remove the waiting messages in steps."""
        named = self.book.named.pop(subscription)
        self._changed.pop(subscription, None)
        del self.book.ids[named.name]
        self.book.removed.append(subscription)
        self._db.execute("update subscription set name = null where id = ?", (subscription,))
        return _DONE

    # --- cleanup

    def _empty(self, subscription: int) -> None:
        """Remove a part of the waiting messages of a removed subscription; with the last part, the
        subscription."""
        rows = every(
            self._db,
            "delete from waiting where (subscription, row) in (select subscription, row"
            " from waiting"
            " where subscription = ? order by row limit ?) returning row",
            (subscription, CHORES),
        )
        for (row,) in rows:
            # The pages of a damaged row may be those of another: it stays on disk.
            if not isinstance(self._content(row), Damaged):
                self._let_go(row)
        if len(rows) < CHORES:
            self._db.execute("delete from subscription where id = ?", (subscription,))
            self.book.removed.remove(subscription)

    def drop_all_parts(self) -> bool:
        """Remove a part of the pieces of unfinished bodies. True if there may be more."""
        found = every(self._db, "select publisher, boot, first, piece, row from part limit ?", (CHORES,))
        self._drop(found)
        return len(found) == CHORES

    def _drop_parts(self, source: Source, below: int) -> bool:
        """Remove a part of a publisher's unfinished bodies with lower numbers. True if there may be more."""
        found = every(
            self._db,
            "select publisher, boot, first, piece, row from part where publisher = ?"
            " and boot = ? and first < ?"
            " order by first limit ?",
            (*source, below, CHORES),
        )
        self._drop(found)
        return len(found) == CHORES

    def _drop(self, parts: list[tuple[int, int, int, int, int]]) -> None:
        """Remove pieces as if they had never come: a retry of them is new."""
        for *key, row in parts:
            self._db.execute(
                "delete from part where publisher = ? and boot = ? and first = ? and piece = ?", tuple(key)
            )
            self._db.execute(
                "delete from came where publisher = ? and boot = ? and first = ? and piece = ?", tuple(key)
            )
            self._let_go(row)

    def _is_unfinished(self, source: Source, first: int) -> bool:
        return (
            one(
                self._db,
                "select 1 from part where publisher = ? and boot = ? and first = ? limit 1",
                (*source, first),
            )
            is not None
        )


def _done_of(entry: Entry) -> int:
    """The subscription of a finished row, 0 for any other entry."""
    return entry.subscription if type(entry) is Done else 0
