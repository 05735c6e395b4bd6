"""Damage in single rows of an open journal: what is damaged is never copied as sound, and never vanishes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.journal.journal import Journal
from mesh.journal.records import Block, Bury, Damaged, Done, Requeue, Settle, Unsubscribe, Verdict
from tests.mesh.journal.journals import bodies, done, opened, pieces, store, subscribed, waiting

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
    done(journal, Settle(mail, row, 3))
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
    (letter,) = done(journal, Bury(mail, row, 0, "bad", 1))
    assert rows_of(journal) == {row: 2} and counts(journal)["log"][:2] == (1, 1)
    (again,) = done(journal, Bury(log, row, 0, "bad", 1))
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
    was = Journal._is_unreadable
    monkeypatch.setattr(Journal, "_is_unreadable", lambda self, row: begun.append(row) or was(self, row))
    done(journal, *(Done(mail, row) for row in rows))
    assert sorted(begun) == rows, "each is read once"
    assert counts(journal) == {"mail": (0, 0, 0)} and set(rows_of(journal)) == set(rows)
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
