"""Damage in single rows of an open journal: what is damaged is never copied as sound, and never vanishes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import mesh.journal.journal
from mesh.errors import JournalFailed
from mesh.journal.commit import Commit
from mesh.journal.content import Of
from mesh.journal.journal import ROWS_TOGETHER, Journal
from mesh.journal.records import (
    Attempts,
    Block,
    Bury,
    Damaged,
    Done,
    Entry,
    Requeue,
    Settle,
    Unsubscribe,
    Verdict,
)
from tests.mesh.database.disks import faulty_disk
from tests.mesh.journal.journals import (
    NOW_US,
    bodies,
    done,
    opened,
    pieces,
    store,
    subscribed,
    waiting,
)

BODY = bytes(range(256)) * 700
PAGE = 16384


def flip(journal: Journal, row: int, at: int = 1000) -> None:
    """Change one bit in the bytes of a row, as a disk does."""
    ((data,),) = journal._db.execute("select data from block where row = ?", (row,)).fetchall()
    changed = bytearray(data)
    changed[at] ^= 1
    journal._db.execute("update block set data = ? where row = ?", (bytes(changed), row))


def make_unreadable(folder: Path, content: bytes) -> None:
    """Damage the first page behind a leaf that holds this content, in a journal that is closed."""
    path = folder / "journal.db"
    data = bytearray(path.read_bytes())
    at = next(
        page
        for page in range(0, len(data), PAGE)
        if content in data[page : page + PAGE] and data[page] not in (0x0D, 0x05)
    )
    data[at : at + 4] = b"\xff" * 4  # the number of the next page
    path.write_bytes(data)


def rows_of(journal: Journal) -> dict[int, int | None]:
    """The rows of blocks, with their holders if there are several."""
    return dict(journal._db.execute("select row, holders from block left join shared using(row)").fetchall())


def counts(journal: Journal) -> dict[str, tuple[int, int, int]]:
    return {kept.name: (kept.rows, kept.messages, kept.size) for kept in journal.subscriptions()}


@pytest.mark.parametrize("at", [0, 1000])
def test_the_dead_letter_of_a_body_with_a_damaged_first_piece_is_that_body_as_it_is(
    tmp_path: Path, at: int
) -> None:
    """The piece was sealed again with its flipped bit and a CRC that fitted: a requeue then delivered it as
    sound. If the bit was in the head of the piece, the message vanished."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    row = done(journal, *pieces(5, mail, body=BODY))[-1].row
    first = waiting(journal, mail)[0].parts[0]
    before = rows_of(journal)
    flip(journal, first, at)
    (letter,) = done(journal, Bury(mail, row, 0, "a piece cannot be read", 1))
    assert (letter.verdict, letter.row) == (Verdict.DONE, row) and waiting(journal, mail) == []
    (dead,) = waiting(journal, letter.subscription)
    assert isinstance(journal.fetch(dead.parts[0]), Damaged) and rows_of(journal) == before
    assert counts(journal) == {"mail": (0, 0, 0), "$dlq.mail": (1, 1, len(BODY))}
    assert done(journal, Requeue(letter.subscription, row))[0].verdict is Verdict.UNKNOWN
    assert counts(journal)["$dlq.mail"] == (1, 1, len(BODY))
    done(journal, Done(letter.subscription, row))
    assert rows_of(journal) == {}
    journal.close()


def test_messages_of_a_damaged_block_stay_among_the_dead_letters(tmp_path: Path) -> None:
    """A worker that had them in hand dropped them, and they vanished."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    row = done(journal, store(1, mail, count=3))[0].row
    size = waiting(journal, mail)[0].block
    flip(journal, row, -1)
    letters = done(journal, Bury(mail, row, 2, "bad", 1), Bury(mail, row, 0, "bad", 1))
    dead = letters[0].subscription
    assert [(letter.row, letter.subscription) for letter in letters] == [(row, dead)] * 2
    assert counts(journal) == {"mail": (1, 1, len(size)), "$dlq.mail": (1, 2, len(size))}
    assert [type(found) for found in journal.read(dead, 0, 1 << 20)] == [Damaged]
    assert journal._db.execute(
        "select floor, bitmap from waiting where subscription = ?", (dead,)
    ).fetchall() == [(0, b"\x02")]
    done(journal, Done(mail, row))
    assert counts(journal) == {"mail": (0, 0, 0), "$dlq.mail": (1, 2, len(size))}
    assert rows_of(journal) == {row: None}
    journal.close()
    journal = opened(tmp_path)
    assert counts(journal)["$dlq.mail"] == (1, 2, len(size))
    done(journal, Unsubscribe(dead))
    assert counts(journal) == {"mail": (0, 0, 0)} and not journal.chores
    assert rows_of(journal) == {row: None}, "its pages may be those of another"
    journal.close()


def test_a_block_that_cannot_be_read_is_buried_with_its_other_holders_untouched(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail, log = subscribed(journal), subscribed(journal, "log")
    row = done(journal, store(1, mail, log))[0].row
    flip(journal, row, -1)
    letter, _ = done(journal, Bury(mail, row, 0, "bad", 1), Done(mail, row))
    assert rows_of(journal) == {row: 2} and counts(journal)["log"][:2] == (1, 1)
    again, _ = done(journal, Bury(log, row, 0, "bad", 1), Done(log, row))
    assert {letter.subscription, again.subscription} == {it.id for it in journal.subscriptions()[2:]}
    assert rows_of(journal) == {row: 2}
    journal.close()


def test_a_dead_letter_is_not_buried_again(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    row = done(journal, store(1, mail))[0].row
    (letter,) = done(journal, Bury(mail, row, 0, "bad", 1))
    assert done(journal, Bury(letter.subscription, letter.row, 0, "bad", 1))[0].verdict is Verdict.UNKNOWN
    assert bodies(journal, letter.subscription) == [b"body 1"]
    journal.close()


def test_an_unreadable_page_under_the_first_piece_ends_nothing(tmp_path: Path) -> None:
    """It ended the journal at each start, as soon as a worker attached."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    row = done(journal, *pieces(5, mail, body=b"#" * 70_000))[-1].row
    done(journal, store(6, mail))
    journal.close()
    make_unreadable(tmp_path, b"#" * 1000)
    journal = opened(tmp_path)
    (body, _) = waiting(journal, mail)
    found = journal.fetch(body.parts[0])
    assert isinstance(found, Damaged) and "SQLite says" in found.reason
    (letter,) = done(journal, Bury(mail, row, 0, "a piece cannot be read", 1))
    assert letter.row == row and journal.failure is None
    assert done(journal, Requeue(letter.subscription, row))[0].verdict is Verdict.UNKNOWN
    assert done(journal, store(7, mail))[0].verdict is Verdict.STORED
    assert bodies(journal, mail) == [b"body 6", b"body 7"]
    journal.close()


def test_unreadable_rows_are_removed_with_their_subscription(tmp_path: Path) -> None:
    """The cleanup ended the journal, and again at each start: nothing could be stored any more."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *pieces(5, mail, body=b"#" * 70_000), store(6, mail))
    journal.close()
    make_unreadable(tmp_path, b"#" * 1000)
    journal = opened(tmp_path)
    done(journal, Unsubscribe(mail))
    assert journal.failure is None and not journal.chores
    assert journal._db.execute("select count(*) from waiting").fetchall() == [(0,)]
    mail = subscribed(journal)
    done(journal, store(7, mail))
    assert bodies(journal, mail) == [b"body 7"]
    journal.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("others", [0, 9])
def test_a_row_that_became_unreadable_may_still_be_settled(tmp_path: Path, others: int) -> None:
    """A consumer had it in hand, and settling it ended the journal."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    rows = [answer.row for answer in done(journal, *(store(number, mail) for number in range(1, 1 + others)))]
    rows.append(done(journal, store(99, mail, count=1, body=b"#" * 40_000))[0].row)
    last = done(journal, store(100, mail))[0].row
    journal.close()
    make_unreadable(tmp_path, b"#" * 1000)
    journal = opened(tmp_path)
    answers = done(journal, *(Done(mail, row) for row in rows))
    assert {answer.verdict for answer in answers} == {Verdict.DONE} and journal.failure is None
    assert bodies(journal, mail) == [b"body 100"] and counts(journal)["mail"][:2] == (1, 1)
    done(journal, Done(mail, last))
    journal.close()
    journal = opened(tmp_path)
    assert counts(journal) == {"mail": (0, 0, 0)}
    journal.close()


def test_an_unfinished_body_with_an_unreadable_page_does_not_keep_the_journal_shut(tmp_path: Path) -> None:
    """Its pieces go at the opening, which failed: the home had nothing of what was stored."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *pieces(5, mail, body=b"#" * 70_000)[:1], store(6, mail))
    journal.close()
    make_unreadable(tmp_path, b"#" * 1000)
    for _ in range(2):
        journal = opened(tmp_path)
        assert bodies(journal, mail) == [b"body 6"]
        assert journal._db.execute("select count(*) from part").fetchall() == [(0,)]
        journal.close()


def test_a_damaged_list_of_pieces_removes_no_other_message(tmp_path: Path) -> None:
    """A flipped bit named the row of another message as a piece, and that row went with the body."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    other = done(journal, store(1, mail))[0].row
    row = done(journal, *pieces(5, mail, body=BODY))[-1].row
    pieces_there = waiting(journal, mail)[1].parts
    assert (pieces_there[1], other) == (3, 1)
    flip_to = bytearray(b"".join(part.to_bytes(8, "big") for part in pieces_there))
    flip_to[15] ^= 2
    journal._db.execute("update block set data = ? where row = ?", (bytes(flip_to), row))
    done(journal, Done(mail, row))
    assert bodies(journal, mail) == [b"body 1"]
    assert set(rows_of(journal)) == {other, *pieces_there}, "the pieces stay: nobody knows whose they are"
    journal.close()


@pytest.mark.parametrize("column, value", [("count", 1), ("parts", 2), ("crc", 0)])
def test_a_row_that_does_not_fit_its_block_is_damaged(tmp_path: Path, column: str, value: int) -> None:
    """With a smaller number of messages the others went with the block, uncounted."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    row = done(journal, store(1, mail, count=3))[0].row
    assert isinstance(journal.fetch(row), Block)
    journal._db.execute(f"update block set {column} = ?", (value,))
    assert isinstance(journal.fetch(row), Damaged)
    assert [type(found) for found in journal.read(mail, 0, 1 << 20)] == [Damaged]
    journal.close()


@pytest.mark.parametrize("column, value", [("count", 2), ("parts", 0), ("parts", 1)])
def test_a_row_that_does_not_fit_its_body_is_damaged(tmp_path: Path, column: str, value: int) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    row = done(journal, *pieces(5, mail, body=BODY))[-1].row
    journal._db.execute(f"update block set {column} = ? where row = ?", (value, row))
    assert isinstance(journal.fetch(row), Damaged)
    journal.close()


@pytest.mark.parametrize(
    "statement",
    [
        "update block set data = 5 where row = 1",
        "update block set crc = cast(x'ff' as text) where row = 1",
        "update waiting set bitmap = 'ab' where row = 1",
        "update waiting set bitmap = zeroblob(9) where row = 1",
        "update waiting set floor = 'x' where row = 1",
        "update waiting set floor = -3 where row = 1",
        "update waiting set attempts = x'010203' where row = 1",
        "update waiting set attempts = 1234 where row = 1",
        "update waiting set bitmap = 0 where row = 1",
        "update waiting set floor = cast(x'80' as text) where row = 1",
        "update waiting set crc = 'x' where row = 1",
        "update block set wants = 7 where row = 1",
        "update block set size = 'x' where row = 1",
    ],
)
def test_a_field_of_the_wrong_type_costs_only_its_row(tmp_path: Path, statement: str) -> None:
    """One flipped bit changes the type of a field. It ended the home whenever a worker attached, or the rows
    behind it were not delivered."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(1, mail, count=3), store(9, mail))
    journal._db.execute(statement)
    damaged, sound = journal.read(mail, 0, 1 << 20)
    assert isinstance(damaged, Damaged) and damaged.row == 1 and sound.row == 2
    assert journal.failure is None
    journal.close()


def test_many_unreadable_rows_of_one_commit_are_met_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction began again once for each of them: 600 held the journal for 11 s."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    rows = [done(journal, store(number, mail, body=b"#" * 40_000))[0].row for number in range(1, 13)]
    journal.close()
    path = tmp_path / "journal.db"
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), PAGE):
        if data[at : at + 4] != bytes(4) and data[at + 4 : at + 100] == b"#" * 96:
            data[at : at + 4] = b"\xff" * 4  # the number of the next page
    path.write_bytes(data)
    journal = opened(tmp_path)
    begun: list[int] = []
    was = mesh.journal.journal.unreadable_parts
    monkeypatch.setattr(
        mesh.journal.journal, "unreadable_parts", lambda db, row: begun.append(row) or was(db, row)
    )
    done(journal, *(Done(mail, row) for row in rows))
    assert sorted(begun) == rows, "each is read once"
    assert counts(journal) == {"mail": (0, 0, 0)} and set(rows_of(journal)) == set(rows)
    journal.close()


def test_many_rows_of_an_unreadable_page_are_met_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them began the transaction anew, which did again what the others had done."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    rows = [done(journal, store(number, mail, body=b"#" * 500))[0].row for number in range(1, 200)]
    journal.close()
    path = tmp_path / "journal.db"
    data = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(data), PAGE) if b"#" * 500 in data[at : at + PAGE]]
    data[pages[2]] = 7  # no kind of page
    path.write_bytes(data)
    journal = opened(tmp_path)
    damaged = [row.row for row in journal.read(mail, 0, 1 << 20) if isinstance(row, Damaged)]
    assert len(damaged) > 20
    begun: list[Commit] = []
    was = Commit.do_all
    monkeypatch.setattr(Commit, "do_all", lambda self, entries: begun.append(self) or was(self, entries))
    done(journal, *(Done(mail, row) for row in damaged))
    assert len(begun) == 2 and journal.failure is None
    assert counts(journal)["mail"][0] == len(rows) - len(damaged) == len(waiting(journal, mail))
    journal.close()


def test_rows_that_cannot_be_found_are_missing(tmp_path: Path) -> None:
    """A flipped bit in a key hid rows that were still counted, without a word."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *(store(number, mail) for number in range(1, 6)))
    assert journal.missing(mail) == 0 == journal.missing(99)
    journal._db.execute("delete from waiting where row in (2, 3)")
    assert journal.missing(mail) == 2
    journal.close()


@pytest.mark.parametrize("value", [1, 2, 0])
def test_settling_the_first_messages_of_a_row_with_a_wrong_number_of_them_removes_none(
    tmp_path: Path, value: int
) -> None:
    """A consumer has five messages in hand and has done two, and a flipped bit says that there were no more:
    the others went with the row, and a restart did not deliver them."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    row = done(journal, store(1, mail, count=5))[0].row
    journal._db.execute("update block set count = ?", (value,))
    done(journal, Settle(mail, row, 2))
    assert [type(found) for found in journal.read(mail, 0, 1 << 20)] == [Damaged]
    done(journal, Done(mail, row))
    assert counts(journal)["mail"][0] == 0 and rows_of(journal) == {}
    journal.close()


def test_a_row_whose_holders_cannot_be_read_is_not_taken_from_the_others(tmp_path: Path) -> None:
    """A page of the table of holders was damaged: the first subscription that had done with a row removed it,
    although another waited for it."""
    journal = opened(tmp_path)
    mail, log = subscribed(journal), subscribed(journal, "log")
    row = done(journal, store(1, mail, log))[0].row
    journal.close()
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("select rootpage from sqlite_master where name = 'shared'").fetchone()
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE] = 7  # no kind of page
    path.write_bytes(data)
    journal = opened(tmp_path)
    with pytest.raises(JournalFailed, match="set aside"):
        done(journal, Done(mail, row))
    journal.close()
    data[(page - 1) * PAGE] = 0x0D
    path.write_bytes(data)
    journal = opened(tmp_path)
    assert bodies(journal, log) == [b"body 1"]
    journal.close()


@pytest.mark.parametrize("value", ["0", "-1", "3", "x'00'", "'x'"])
def test_a_wrong_number_of_holders_takes_no_row_from_the_last(tmp_path: Path, value: str) -> None:
    """With 0 holders a row looked like one that nobody shares, and the first that had done with it removed
    it."""
    journal = opened(tmp_path)
    mail, log = subscribed(journal), subscribed(journal, "log")
    row = done(journal, store(1, mail, log))[0].row
    journal._db.execute(f"update shared set holders = {value}")
    done(journal, Done(mail, row))
    assert bodies(journal, log) == [b"body 1"]
    journal.close()


@pytest.mark.parametrize("column", ["row", "subscription"])
def test_removing_a_subscription_with_a_flipped_key_removes_no_message_of_another(
    tmp_path: Path, column: str
) -> None:
    """A record that named the row of another subscription took that row with it."""
    journal = opened(tmp_path)
    mail, log = subscribed(journal), subscribed(journal, "log")
    theirs, ours = (done(journal, store(number, id))[0].row for number, id in ((1, mail), (2, log)))
    flipped = {"row": theirs, "subscription": mail}[column]
    journal._db.execute(f"update waiting set {column} = ? where row = ?", (flipped, ours))
    done(journal, Unsubscribe(log))
    while journal.chores:
        done(journal)
    found = journal.read(mail, 0, 1 << 20)
    assert found[0].row == theirs and not isinstance(found[0], Damaged)
    journal.close()


# --- what is settled

MARK = b"\x02\x5a\xa5\x5a\x81"
"""A bitmap that is nowhere else in the file."""


def partly_settled(folder: Path) -> int:
    """A journal with rows 1 to 3. Of row 2 a part is settled, with `MARK`. Returns the subscription."""
    journal = opened(folder)
    mail = subscribed(journal)
    done(journal, *(store(number, mail, count=60, body=b"m") for number in (1, 100, 200)))
    done(journal, Settle(mail, 2, 3, MARK), Attempts(mail, 2, {3: 4}))
    journal.close()
    return mail


def flip_type(folder: Path, field: int, bit: int) -> None:
    """Flip a bit in the type of a field of the record that has `MARK`: from 0, its subscription, its row, the
    floor, the bitmap, the attempts, the CRC."""
    path = folder / "journal.db"
    data = bytearray(path.read_bytes())
    assert data.count(MARK) == 1
    head = data.index(MARK) - 2 - 6  # before the row and the floor, a byte each
    assert data[head - 1 : head + 4] == bytes([7, 9, 1, 1, 12 + 2 * len(MARK)])
    data[head + field] ^= 1 << bit
    path.write_bytes(data)


FLIPS = [(field, bit) for field in (2, 3, 4, 5) for bit in range(8)]


@pytest.mark.parametrize("field, bit", FLIPS)
def test_a_flipped_bit_in_a_type_costs_only_its_row(tmp_path: Path, field: int, bit: int) -> None:
    """Most of these ended the home at each attach: SQLite refuses to read the fields of such a record."""
    mail = partly_settled(tmp_path)
    flip_type(tmp_path, field, bit)
    for _ in range(2):
        journal = opened(tmp_path)
        first, damaged, last = journal.read(mail, 0, 1 << 20)
        assert isinstance(damaged, Damaged) and damaged.row == 2 and (first.row, last.row) == (1, 3)
        assert journal.missing(mail) == 0 and journal.failure is None
        journal.close()


@pytest.mark.parametrize("field", [-1, 0, 1])
def test_a_flipped_bit_in_the_type_of_a_key_is_told_or_sets_the_journal_aside(
    tmp_path: Path, field: int
) -> None:
    """A key that was no number any more left as a TypeError."""
    for bit in range(8):
        folder = tmp_path / str(bit)
        folder.mkdir()
        mail = partly_settled(folder)
        flip_type(folder, field, bit)
        journal = opened(folder)
        try:
            sound, damaged = drained(journal, mail, 1 << 20)
            told = len(damaged) + journal.missing(mail)
        except JournalFailed:
            assert not (folder / "journal.db").exists()
        else:
            assert sound <= {1, 3} and len(sound) + told == 3
        journal.close()


@pytest.mark.parametrize("field, bit", [(2, 3), (3, 0), (3, 1), (5, 0)])
@pytest.mark.parametrize(
    "entry",
    [
        Done(1, 2),
        Settle(1, 2, 7),
        Settle(1, 2, 60),
        Attempts(1, 2, {9: 1}),
        Bury(1, 2, 20, "bad", 1),
        Requeue(1, 2),
        Unsubscribe(1),
    ],
)
def test_a_row_whose_record_became_unreadable_ends_nothing(
    tmp_path: Path, field: int, bit: int, entry: Entry
) -> None:
    """A consumer had it in hand, and settling it ended the journal, or an operator removed its
    subscription."""
    mail = partly_settled(tmp_path)
    flip_type(tmp_path, field, bit)
    journal = opened(tmp_path)
    done(journal, entry, store(300, mail))
    done(journal, *(Done(mail, row) for row in (1, 2, 3)))
    assert journal.failure is None and not journal.chores
    there = {kept.name: journal.read(kept.id, 0, 1 << 20) for kept in journal.subscriptions()}
    if isinstance(entry, Unsubscribe):
        assert there == {}
    else:
        assert len(there.pop("mail")) == 1, "the new one"
        (letters,) = there.values() if isinstance(entry, Bury) else [[]]
        assert len(letters) == isinstance(entry, Bury)
    journal.close()
    opened(tmp_path).close()


@pytest.mark.parametrize(
    "statement",
    [
        "update waiting set floor = 4 where row = 2",
        "update waiting set floor = 35 where row = 2",
        "update waiting set bitmap = x'035aa55a81' where row = 2",
        "update waiting set bitmap = x'' where row = 2",
        "update waiting set attempts = x'00030005' where row = 2",
        "update waiting set row = 4 where row = 2",
        "update block set row = 4 where row = 2",
        "update block set arrived_us = 5 where row = 2",
    ],
)
def test_a_plausible_change_of_a_row_is_damage(tmp_path: Path, statement: str) -> None:
    """Messages that nobody had settled counted as settled, without a word."""
    mail = partly_settled(tmp_path)
    journal = opened(tmp_path)
    journal._db.execute(statement)
    found = journal.read(mail, 0, 1 << 20)
    assert sorted(row.row for row in found if not isinstance(row, Damaged)) == [1, 3] and len(found) == 3
    journal.close()


def test_blocks_that_changed_places_are_damaged(tmp_path: Path) -> None:
    """Each was delivered in place of the other, and settled as the other."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(1, mail), store(2, mail))
    for old, new in ((1, 9), (2, 1), (9, 2)):
        journal._db.execute("update block set row = ? where row = ?", (new, old))
    assert [type(row) for row in journal.read(mail, 0, 1 << 20)] == [Damaged, Damaged]
    journal.close()


def test_a_damaged_record_is_not_written_again_as_sound(tmp_path: Path) -> None:
    """New attempts gave it a CRC that fitted, and messages that nobody had settled counted as settled."""
    mail = partly_settled(tmp_path)
    journal = opened(tmp_path)
    journal._db.execute("update waiting set floor = 35 where row = 2")
    done(journal, Attempts(mail, 2, {50: 2}))
    assert isinstance(journal.read(mail, 1, 1)[0], Damaged)
    done(journal, Bury(mail, 2, 10, "bad", 1))
    (row,) = waiting(journal, mail, 1, 1)
    assert (row.floor, row.bitmap, row.count) == (0, b"\x00\x04", 60), "nothing else is known to be settled"
    journal._db.execute("update waiting set floor = 35 where row = 2")
    done(journal, Settle(mail, 2, 4))
    assert waiting(journal, mail, 1, 1)[0].floor == 4, "a consumer says all that is settled"
    journal.close()


def drained(journal: Journal, subscription: int, at_once: int) -> tuple[set[int], set[int]]:
    """The rows that a reader finds, and those that are damaged."""
    sound: set[int] = set()
    damaged: set[int] = set()
    after = 0
    while rows := journal.read(subscription, after, at_once):
        for row in rows:
            (damaged if isinstance(row, Damaged) else sound).add(row.row)
        after = rows[-1].row
    return sound, damaged


@pytest.mark.parametrize(
    "statement",
    ["delete from block where row = 2", "update block set count = 1 << 50 where row = 2"],
)
def test_settling_a_part_of_a_damaged_block_does_not_remove_the_rest(tmp_path: Path, statement: str) -> None:
    """The block was taken for one without messages, all of which are settled."""
    mail = partly_settled(tmp_path)
    journal = opened(tmp_path)
    journal._db.execute(statement)
    done(journal, Settle(mail, 2, 5))
    assert isinstance(journal.read(mail, 1, 1)[0], Damaged) and counts(journal)["mail"][0] == 3
    done(journal, Done(mail, 2))
    assert [row.row for row in waiting(journal, mail)] == [1, 3] and counts(journal)["mail"][0] == 2
    journal.close()


@pytest.mark.parametrize("row", [130, ROWS_TOGETHER + 130, 2 * ROWS_TOGETHER + 129, 400])
@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_a_flipped_bit_in_a_key_hides_no_other_row(tmp_path: Path, row: int, at_once: int) -> None:
    """A reader that came to it went on behind the row that it named, past others that nobody saw again."""
    count = 400
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *(store(number, mail, body=b"m") for number in range(1, 1 + count)))
    journal.close()
    data = (tmp_path / "journal.db").read_bytes()
    key = bytes([7, 9, 2, 8, 12, 12, 4]) + row.to_bytes(2, "big")
    assert data.count(key) == 1
    at = data.index(key) + 7
    outcomes = set()
    for bit in range(15):
        folder = tmp_path / str(bit)
        folder.mkdir()
        named = row ^ 1 << bit
        (folder / "journal.db").write_bytes(data[:at] + named.to_bytes(2, "big") + data[at + 2 :])
        journal = opened(folder)
        try:
            sound, damaged = drained(journal, mail, at_once)
            hidden = journal.missing(mail)
        except JournalFailed:
            assert {path.name.removesuffix("-wal") for path in folder.iterdir()} == {
                f"journal.db.damaged-{NOW_US}"
            }
            outcomes.add("set aside")
        else:
            assert sound == set(range(1, 1 + count)) - {row} and damaged == {named} and hidden == 0
            outcomes.add("told")
        journal.close()
    assert "set aside" in outcomes


@pytest.mark.parametrize("place", [0, 5, 11, 12, 17, 23])
@pytest.mark.parametrize("at", [0, 1, 2, 6])
def test_a_flipped_bit_in_a_key_of_one_subscription_hides_no_row_of_another(
    tmp_path: Path, place: int, at: int
) -> None:
    """SQLite takes a key of an unknown type for the highest. A reader that met it first found nothing, and
    all rows were counted as there. ``at``: the size of the head, the types of the key, the row."""
    journal = opened(tmp_path)
    subscriptions = [subscribed(journal, name) for name in ("mail", "log")]
    done(journal, *(store(number, subscriptions[number % 2]) for number in range(20, 44)))
    journal.close()
    data = (tmp_path / "journal.db").read_bytes()
    keys = [(id, row) for id in subscriptions for row in range(1, 25) if row % 2 == id % 2]
    id, row = keys[place]
    types = [9 if number == 1 else 1 for number in (id, row)]  # 9 is the number 1 without a byte of its own
    record = bytes([7, *types, 8, 12, 12, 4, *(number for number in (id, row) if number > 1)])
    assert data.count(record) == 1
    begins = data.index(record)
    for bit in range(8):
        folder = tmp_path / str(bit)
        folder.mkdir()
        flipped = bytearray(data)
        flipped[begins + at] ^= 1 << bit
        (folder / "journal.db").write_bytes(flipped)
        for at_once in (1, 1 << 20):
            try:
                journal = opened(folder)
                for each in subscriptions:
                    sound, damaged = drained(journal, each, at_once)
                    ours = {key[1] for key in keys if key[0] == each}
                    assert sound <= ours
                    assert len(sound) + len(damaged) + max(0, journal.missing(each)) >= len(ours)
            except JournalFailed:
                assert not (folder / "journal.db").exists()
                break
            finally:
                journal.close()


@pytest.mark.parametrize("key", ["'x'", "x'02'", "2.5", "-2", "0"])
def test_a_key_that_is_no_row_sets_the_journal_aside(tmp_path: Path, key: str) -> None:
    mail = partly_settled(tmp_path)
    journal = opened(tmp_path)
    journal._db.execute(f"update waiting set row = {key} where row = 2")
    with pytest.raises(JournalFailed, match="out of order.* was set aside"):
        drained(journal, mail, 1 << 20)
        assert journal.missing(mail), "a lower key is not met by a reader"
    journal.close()


# --- other tables


@pytest.mark.parametrize(
    "statement",
    [
        "update came set last = 'x'",
        "update came set crc = cast(x'ff' as text)",
        "update publisher set lowest = x'00'",
    ],
)
def test_a_wrong_type_elsewhere_sets_the_journal_aside(tmp_path: Path, statement: str) -> None:
    """It was a TypeError in each commit, which ended the home, again at each start."""
    journal = opened(tmp_path)
    mail, log = subscribed(journal), subscribed(journal, "log")
    row = done(journal, store(5, mail, log, count=3, lowest=1))[0].row
    journal._db.execute(statement)
    journal.close()
    journal = opened(tmp_path)
    with pytest.raises(JournalFailed, match="was set aside"):
        done(journal, store(4, mail, count=3), Done(mail, row))
    journal.close()
    opened(tmp_path).close()


def test_a_row_against_a_constraint_sets_the_journal_aside(tmp_path: Path) -> None:
    """It was told as a disk that failed, at each start: a flipped bit makes a number of holders null."""
    journal = opened(tmp_path)
    mail, log = subscribed(journal), subscribed(journal, "log")
    row = done(journal, store(1, mail, log))[0].row
    journal.close()
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("select rootpage from sqlite_master where name = 'shared'").fetchone()
    data = bytearray(path.read_bytes())
    end = page * PAGE
    assert data[end - 6 : end] == bytes([4, row, 3, 0, 1, 2]), "the sizes of cell, key and head, the types, 2"
    data[end - 2] = 0  # null
    path.write_bytes(data)
    journal = opened(tmp_path)
    with pytest.raises(JournalFailed, match="is damaged: .* set aside"):
        done(journal, Done(mail, row))
    journal.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("column", ["row", "size", "whole", "piece"])
def test_a_damaged_record_of_a_piece_makes_no_body_of_other_messages(tmp_path: Path, column: str) -> None:
    """With another row the body was stored and acknowledged with a message of somebody else in it, and at the
    next start that message would have been removed with the pieces."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    *begun, last = pieces(5, mail, body=BODY)
    done(journal, store(1, mail), *begun)
    flipped = f"({column} | 3) - ({column} & 3)"
    journal._db.execute(f"update part set {column} = {flipped} where piece = 0")
    with pytest.raises(JournalFailed, match="the record of a piece .* set aside"):
        done(journal, last)
    journal.close()


@pytest.mark.parametrize("column", ["publisher", "boot", "first", "piece"])
def test_a_body_whose_pieces_cannot_be_found_is_not_acknowledged(tmp_path: Path, column: str) -> None:
    """The pieces had come and no record said that some were missing, so a retry of one was a duplicate: the
    whole body was acknowledged."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    first, *others = pieces(5, mail, body=BODY)
    done(journal, first)
    journal._db.execute(f"update part set {column} = {column} + 256")
    assert done(journal, first)[0].verdict is Verdict.PART
    journal._db.execute("delete from part")
    assert journal.judge(first) is done(journal, first)[0].verdict is Verdict.PART
    assert {answer.verdict for answer in done(journal, *others, first)} == {Verdict.PART}
    journal.close()


def test_a_damaged_mark_of_a_publisher_makes_nothing_past(tmp_path: Path) -> None:
    """Its blocks were refused as past from then on, and an outbox frees what a home takes for past: messages
    that nobody had stored vanished."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(5, mail, lowest=5))
    journal._db.execute("update publisher set lowest = lowest | 1 << 30")
    journal.close()
    journal = opened(tmp_path)
    answers = done(journal, store(4, mail, lowest=4), store(5, mail, lowest=4), store(6, mail, lowest=5))
    assert [answer.verdict for answer in answers] == [Verdict.STORED, Verdict.DUPLICATE, Verdict.STORED]
    assert done(journal, store(3, mail))[0].verdict is Verdict.PAST, "it is told anew"
    journal.close()
    journal = opened(tmp_path)
    assert done(journal, store(4, mail))[0].verdict is Verdict.PAST
    journal.close()


def test_a_damaged_record_of_a_block_does_not_end_the_journal_at_each_retry(tmp_path: Path) -> None:
    """The retry looked new, and its record was there already: the commit failed, and nothing was stored until
    a restart, after which the retry came again."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(5, mail))
    journal._db.execute("update came set last = 1")
    journal.close()
    journal = opened(tmp_path)
    again, other = done(journal, store(5, mail), store(6, mail))
    assert again.verdict is other.verdict is Verdict.STORED and journal.failure is None
    assert done(journal, store(5, mail))[0].verdict is Verdict.DUPLICATE
    assert bodies(journal, mail) == [b"body 5", b"body 5", b"body 6"]
    journal.close()


@pytest.mark.parametrize("value", [5 + (1 << 16), 5 + (1 << 40), 1])
def test_a_damaged_record_of_a_block_makes_no_conflict_of_all_that_follow(tmp_path: Path, value: int) -> None:
    """A record that ended far behind its block made each new block of its publisher a conflict."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(5, mail))
    journal._db.execute("update came set last = ?", (value,))
    journal.close()
    journal = opened(tmp_path)
    answers = done(journal, store(6, mail, count=3), store(9, mail), store(6, mail, count=3))
    assert [answer.verdict for answer in answers] == [Verdict.STORED, Verdict.STORED, Verdict.DUPLICATE]
    assert done(journal, store(7, mail))[0].verdict is Verdict.CONFLICT
    journal.close()


def test_a_disk_that_fails_while_damage_is_looked_at_ends_the_journal(tmp_path: Path) -> None:
    """It was an error of SQLite, and the journal went on as if its disk had not failed."""
    with faulty_disk() as disk:
        journal = opened(tmp_path, vfs=disk.name)
        mail = subscribed(journal)
        rows = [done(journal, store(number, mail, body=b"#" * 40_000))[0].row for number in (1, 2)]
        journal.close()
        make_unreadable(tmp_path, b"#" * 1000)
        journal = opened(tmp_path, vfs=disk.name)
        was = mesh.journal.journal.unreadable_parts

        def failing(db: apsw.Connection, row: int) -> set[tuple[Of, int]]:
            disk.unreadable = True
            db.execute("pragma shrink_memory")
            return was(db, row)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mesh.journal.journal, "unreadable_parts", failing)
            with pytest.raises(JournalFailed, match="the disk failed under the journal"):
                done(journal, *(Done(mail, row) for row in rows))
        assert journal.failure is not None
        disk.unreadable = False
        journal.close()
        opened(tmp_path).close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda journal: journal.read(1, 0, 1 << 20),
        lambda journal: journal.fetch(1),
        lambda journal: journal.judge(store(1, 1)),
        lambda journal: journal.missing(1),
        lambda journal: journal.oldest_us(1),
    ],
)
def test_a_disk_that_cannot_be_read_ends_the_journal(
    tmp_path: Path, ask: Callable[[Journal], object]
) -> None:
    with faulty_disk() as disk:
        journal = opened(tmp_path, vfs=disk.name)
        done(journal, store(1, subscribed(journal)))
        journal.close()
        journal = opened(tmp_path, vfs=disk.name)
        disk.unreadable = True
        journal._db.execute("pragma shrink_memory")
        with pytest.raises(JournalFailed, match="the disk failed under the journal"):
            ask(journal)
        assert journal.failure is not None
        disk.unreadable = False
        journal.close()
        assert (tmp_path / "journal.db").exists(), "a disk that fails is not damage"
