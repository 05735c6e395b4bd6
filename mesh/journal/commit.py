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

from mesh.database.settings import every, numbers, signed
from mesh.errors import BlockError
from mesh.journal import checksums, letters
from mesh.journal.book import Book, Named
from mesh.journal.content import Of, Unreadable, content, figures
from mesh.journal.duplicates import HEARD_US, LAST, Clock, Duplicates, Source
from mesh.journal.progress import COLUMNS, DAMAGED, Progress, checked, progress
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
    """The work of one transaction. It raises `Unreadable` for a part of a row that it has to read or to
    remove and that is not in ``unreadable``: then it is undone and done again with it."""

    def __init__(
        self, db: apsw.Connection, book: Book, now_us: int, unreadable: Collection[tuple[Of, int]] = ()
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
        if (
            verdict is Verdict.DUPLICATE
            and its.whole
            and not self._duplicates.is_whole(source, entry.first, its.whole)
        ):
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
        part = (*source, entry.first, piece, row, size, whole)
        self._db.execute("insert into part values(?, ?, ?, ?, ?, ?, ?, ?)", (*part, checksums.of_part(*part)))
        come = self._parts(
            "where publisher = ? and boot = ? and first = ? order by piece", *source, entry.first
        )
        end = 0
        for _, _, _, offset, _, length, of in come:
            if offset != end or of != whole:
                return _PLAIN[Verdict.PART]
            end += length
        if end != whole:
            return _PLAIN[Verdict.PART]
        self._db.execute(
            "delete from part where publisher = ? and boot = ? and first = ?", (*source, entry.first)
        )
        self._duplicates.note_whole(source, entry.first, whole)
        return Answer(Verdict.STORED, self._insert_body([part[4] for part in come], whole, wants))

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
        crc = checksums.of_block(row, self._now_us, count, size, parts, wanted_by, crc)
        self._blocks.append((row, self._now_us, count, size, wanted_by, parts, crc, data))
        return row

    def _wait_for(self, row: int, wants: tuple[int, ...], count: int, size: int) -> None:
        for subscription in wants:
            crc = checksums.of_waiting(subscription, row, 0, b"", b"")
            self._waits.append((subscription, row, 0, b"", b"", crc))
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
        try:
            ((count, messages, size, settled),) = numbers(
                self._db,
                "select count(*), coalesce(sum(b.count), 0), coalesce(sum(b.size), 0),"
                " coalesce(sum(w.floor), 0)"
                " from waiting w join block b using(row) left join shared s using(row)"
                f" where {its} and b.parts = 0 and s.row is null and w.bitmap = x''",
                asked,
            )
            if count < len(rows):
                return [self._done(subscription, row) for row in rows]
            self._db.execute(f"delete from waiting where {its}", asked)
            self._db.execute(f"delete from block where row in ({places(len(rows))})", asked[1:])
        except apsw.CorruptError as error:
            raise Unreadable(0) from error  # one of them, which is found when they are removed one by one
        self._count(subscription, -count, settled - messages, -size)
        return [_DONE] * count

    def _done(self, subscription: int, row: int) -> Answer:
        known = self._taken(subscription, row)
        if known is None:
            return _UNKNOWN
        count, size, parts, shared = self._figures(row)
        self._count(subscription, -1, known.settled_in(count) - count, -size)
        if parts or shared or (Of.FIGURES, row) in self._unreadable:
            self._let_go(row)
        else:
            self._remove(row)
        return _DONE

    def _progress(self, subscription: int, row: int) -> Progress | None:
        """What a subscription has settled of a row. None if the row does not wait there."""
        if (Of.PROGRESS, row) in self._unreadable:
            return self._unread(subscription, row)
        try:
            return progress(self._db, subscription, row)
        except apsw.CorruptError as error:
            raise Unreadable(row, Of.PROGRESS) from error

    def _taken(self, subscription: int, row: int) -> Progress | None:
        """Remove a row from a subscription. Returns what was settled of it, None if it did not wait there."""
        delete, key = "delete from waiting where subscription = ? and row = ?", (subscription, row)
        if (Of.PROGRESS, row) in self._unreadable:
            known = self._unread(subscription, row)
            self._db.execute(delete, key)
            return known
        try:
            found = every(self._db, f"{delete} returning {COLUMNS}", key)
        except apsw.CorruptError as error:
            raise Unreadable(row, Of.PROGRESS) from error
        return checked(subscription, row, *found[0]) if found else None

    def _unread(self, subscription: int, row: int) -> Progress | None:
        """The record of a row without a look at its columns."""
        key = (subscription, row)
        found = every(self._db, "select 1 from waiting where subscription = ? and row = ?", key)
        return DAMAGED if found else None

    def _figures(self, row: int) -> tuple[int, int, int, int]:
        """See `content.figures`. All are 0 for a row whose figures cannot be read."""
        return (0, 0, 0, 0) if (Of.FIGURES, row) in self._unreadable else figures(self._db, row)

    def _let_go(self, row: int) -> None:
        """Remove one holder of a row. The last holder's row is removed, and so are the pieces that it
        holds."""
        left = numbers(
            self._db, "update shared set holders = holders - 1 where row = ? returning holders", (row,)
        )
        if left:
            if left[0][0] <= 1:
                self._db.execute("delete from shared where row = ?", (row,))
            return
        if self._figures(row)[2]:
            for part in self._parts_of(row):
                self._let_go(part)
        self._remove(row)

    def _remove(self, row: int) -> None:
        """Remove the content of a row. One whose pages cannot be read stays on disk, held by nobody."""
        if (Of.CONTENT, row) in self._unreadable:
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
        if (Of.CONTENT, row) in self._unreadable:
            return Damaged(row, "its pages cannot be read")
        return content(self._db, row)

    def _settle(self, subscription: int, row: int, mask: int) -> Answer:
        known = self._progress(subscription, row)
        if known is None:
            return _UNKNOWN
        return self._settle_more(subscription, row, known, self._figures(row)[0], mask)

    def _settle_more(self, subscription: int, row: int, known: Progress, count: int, mask: int) -> Answer:
        whole = (1 << count) - 1
        if not whole:  # the row is damaged, and nobody knows how many messages it has
            self._note(subscription, row, mask, known.attempts)
            return _DONE
        # A damaged row may have more messages than it says: its consumers say when all are settled (`Done`).
        if mask & whole == whole and self._is_sound(row):
            return self._done(subscription, row)
        self._count(subscription, 0, known.settled_in(count) - (mask & whole).bit_count(), 0)
        self._note(subscription, row, mask & whole, known.attempts)
        return _DONE

    def _attempts(self, entry: Attempts) -> Answer:
        known = self._progress(entry.subscription, entry.row)
        if known is None:
            return _UNKNOWN
        if known.sound:  # otherwise it stays damaged until it is known what is settled
            self._note(entry.subscription, entry.row, known.mask, pack_attempts(entry.attempts))
        return _DONE

    def _note(self, subscription: int, row: int, mask: int, attempts: bytes) -> None:
        """Write what a subscription has settled of a row, and the attempts at the rest."""
        floor, bitmap = floor_and_bitmap(mask)
        crc = checksums.of_waiting(subscription, row, floor, bitmap, attempts)
        self._db.execute(
            "insert into waiting values(?, ?, ?, ?, ?, ?) on conflict do update set floor = excluded.floor,"
            " bitmap = excluded.bitmap, attempts = excluded.attempts, crc = excluded.crc",
            (subscription, row, floor, bitmap, attempts, crc),
        )

    # --- dead letters

    def _bury(self, entry: Bury) -> Answer:
        """The row of the dead letter and the subscription that keeps it."""
        known = self._progress(entry.subscription, entry.row)
        named = self.book.named[entry.subscription]
        if known is None or named.name.startswith(DEAD_PREFIX):
            return _UNKNOWN
        count, size, _, _ = self._figures(entry.row)
        mask = known.mask
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
        self._settle_more(entry.subscription, entry.row, known, count, mask | 1 << entry.index)
        return Answer(Verdict.DONE, row, target)

    def _share(self, row: int, target: int, index: int, count: int, size: int) -> None:
        """Keep a damaged message, which cannot be copied, among the dead letters as it is: both subscriptions
        hold its row."""
        known = self._progress(target, row)
        mask = known.mask if known else (1 << count) - 1
        self._note(target, row, mask & ~(1 << index), b"")
        if known is None:
            self._hold(row)
        self._count(target, 0 if known else 1, 1, 0 if known else size)

    def _requeue(self, entry: Requeue) -> Answer:
        """The row of the message in its subscription, and that subscription."""
        known = self._progress(entry.subscription, entry.row)
        count, size, _, _ = self._figures(entry.row)
        name = self.book.named[entry.subscription].name
        target = self.book.ids.get(name.removeprefix(DEAD_PREFIX), 0)
        if known is None or count != 1 or target in (0, entry.subscription):
            return _UNKNOWN
        try:
            row = self._copy(entry.row, size, target, letters.revive)
        except BlockError:
            return _UNKNOWN
        self._done(entry.subscription, entry.row)
        return Answer(Verdict.DONE, row, target)

    def _sound(self, row: int) -> Block:
        """The content of a row. Raises `BlockError` if it is damaged."""
        found = self._last_content(row)
        if isinstance(found, Damaged):
            raise BlockError(found.reason)
        return found

    def _is_sound(self, row: int) -> bool:
        return not isinstance(self._last_content(row), Damaged)

    def _last_content(self, row: int) -> Block | Damaged:
        if self._read[0] != row:
            self._read = row, self._content(row)
        return self._read[1]

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
        its = (name.encode(), "\n".join(patterns).encode(), self._now_us)
        self._db.execute(
            "insert into subscription(name, patterns, created_us, crc, rows, messages, size)"
            " values(?, ?, ?, 0, 0, 0, 0)",
            (name, *its[1:]),
        )
        id = self._db.last_insert_rowid()
        crc = checksums.of_subscription(id, *its)
        self._db.execute("update subscription set crc = ? where id = ?", (crc, id))
        self._note_names(crc)
        self.book.ids[name] = id
        self.book.named[id] = Named(name, patterns, self._now_us)
        return Answer(Verdict.DONE, subscription=id)

    def _unsubscribe(self, subscription: int) -> Answer:
        """Free the name at once. Later commits remove the waiting messages in steps."""
        named = self.book.named.pop(subscription)
        self._changed.pop(subscription, None)
        del self.book.ids[named.name]
        self.book.removed.append(subscription)
        its = ("\n".join(named.patterns).encode(), named.created_us)
        before = checksums.of_subscription(subscription, named.name.encode(), *its)
        crc = checksums.of_subscription(subscription, b"", *its)
        self._db.execute("update subscription set name = null, crc = ? where id = ?", (crc, subscription))
        self._note_names(before ^ crc)
        return _DONE

    def _note_names(self, changed: int) -> None:
        """Note on disk which subscriptions there are: ``changed`` is what differs in their CRCs."""
        self.book.names ^= changed
        self._db.execute("update meta set value = ? where key = 'names'", (self.book.names,))

    # --- cleanup

    def _empty(self, subscription: int) -> None:
        """Remove a part of the waiting messages of a removed subscription; with the last part, the
        subscription."""
        rows = numbers(
            self._db,
            "select row from waiting where subscription = ? order by row limit ?",
            (subscription, CHORES),
        )
        for (row,) in rows:
            known = self._taken(subscription, row)
            # A damaged record or row may name what others wait for: then the content stays on disk.
            if known is not None and known.sound and not isinstance(self._content(row), Damaged):
                self._let_go(row)
        if len(rows) < CHORES:
            gone = numbers(self._db, "delete from subscription where id = ? returning crc", (subscription,))
            self._note_names(gone[0][0] if gone else 0)
            self.book.removed.remove(subscription)

    def drop_all_parts(self) -> bool:
        """Remove a part of the pieces of unfinished bodies. True if there may be more."""
        found = self._parts("limit ?", CHORES)
        self._drop(found)
        return len(found) == CHORES

    def _drop_parts(self, source: Source, below: int) -> bool:
        """Remove a part of a publisher's unfinished bodies with lower numbers. True if there may be more."""
        found = self._parts(
            "where publisher = ? and boot = ? and first < ? order by first limit ?", *source, below, CHORES
        )
        self._drop(found)
        return len(found) == CHORES

    def _parts(self, where: str, *arguments: int) -> list[tuple[int, ...]]:
        """Pieces of unfinished bodies: publisher, boot, first, piece, row, size and whole size of each.
        Raises `apsw.CorruptError` for a damaged record: it may name the row of another message."""
        found = numbers(
            self._db,
            f"select publisher, boot, first, piece, row, size, whole, crc from part {where}",
            arguments,
        )
        for *part, crc in found:
            if crc != checksums.of_part(*part):
                raise apsw.CorruptError("the record of a piece of a large body is not what was stored")
        return [part[:-1] for part in found]

    def _drop(self, parts: list[tuple[int, ...]]) -> None:
        """Remove pieces as if they had never come: a retry of them is new."""
        for *key, row, _, _ in parts:
            self._db.execute(
                "delete from part where publisher = ? and boot = ? and first = ? and piece = ?", tuple(key)
            )
            self._db.execute(
                "delete from came where publisher = ? and boot = ? and first = ? and piece = ?", tuple(key)
            )
            self._let_go(row)


def _done_of(entry: Entry) -> int:
    """The subscription of a finished row, 0 for any other entry."""
    return entry.subscription if type(entry) is Done else 0
