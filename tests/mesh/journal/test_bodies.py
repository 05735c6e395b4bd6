"""A large body appears with the commit of its last piece, and is then one message."""

from __future__ import annotations

from pathlib import Path

from mesh.journal.journal import Journal
from mesh.journal.records import (
    Attempts,
    Block,
    Bury,
    Done,
    Requeue,
    Settle,
    Store,
    Subscribe,
    Unsubscribe,
    Verdict,
)
from mesh.wire import blocks
from tests.mesh.journal.journals import NOW_US, bodies, done, opened, pieces, store, subscribed, waiting

BODY = bytes(range(256)) * 700
DAY_US = 24 * 3600 * 1_000_000


def everything(journal: Journal) -> None:
    """Use every function of a journal."""
    mail, log = subscribed(journal), subscribed(journal, "log")
    (answer,) = done(journal, store(1, mail, log, count=9))
    done(journal, Settle(mail, answer.row, 1, b"\x04"), Attempts(mail, answer.row, {1: 2}))
    (letter,) = done(journal, Bury(mail, answer.row, 5, "bad", 20))
    done(journal, Requeue(letter.subscription, letter.row), Done(mail, answer.row), Done(log, answer.row))
    *parts, last = pieces(20, mail, log, body=BODY)
    done(journal, *parts)
    (body,) = done(journal, last)
    done(journal, parts[0], Bury(mail, body.row, 0, "large", 20))
    done(journal, store(100, mail, log, lowest=99), *pieces(40, mail, body=BODY)[:1])
    waiting(journal, mail)
    journal.oldest_us(mail)
    done(journal, Unsubscribe(log), Subscribe("log", ("a", "b")))
    for day in range(1, 17):
        done(journal, now_us=NOW_US + day * DAY_US)


def counted(journal: Journal, table: str) -> int:
    (found,) = journal._db.execute(f"select count(*) from {table}").fetchall()
    return int(found[0])


def test_a_body_is_visible_with_its_last_piece_as_one_message(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    *parts, last = pieces(5, mail, body=BODY)
    assert len(parts) >= 2
    for part in parts:
        assert done(journal, part)[0].verdict is Verdict.PART
        assert waiting(journal, mail) == []
    (other,) = done(journal, store(6, mail))
    (answer,) = done(journal, last)
    assert answer.verdict is Verdict.STORED
    # It comes at the end, however early its first piece came, so no reader has passed it.
    assert answer.row > other.row
    row = waiting(journal, mail)[-1]
    assert (row.row, len(row.parts)) == (answer.row, len(parts) + 1)
    assert (row.block, row.count) == (b"", 1)
    assert bodies(journal, mail) == [b"body 6", BODY]
    assert journal.subscriptions()[0].messages == 2
    journal.close()
    journal = opened(tmp_path)
    assert bodies(journal, mail) == [b"body 6", BODY]
    done(journal, Done(mail, answer.row), Done(mail, other.row))
    assert counted(journal, "block") == 0
    journal.close()


def test_pieces_in_any_order_and_more_than_once_make_the_body_once(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    parts = pieces(5, mail, body=BODY)
    assert done(journal, parts[-1])[0].verdict is Verdict.PART
    assert done(journal, parts[-1])[0].verdict is Verdict.PART
    verdicts = [done(journal, part)[0].verdict for part in parts[:-1]]
    assert verdicts == [Verdict.PART] * (len(parts) - 2) + [Verdict.STORED]
    for part in parts:
        assert done(journal, part)[0].verdict is Verdict.DUPLICATE
    assert bodies(journal, mail) == [BODY]
    journal.close()


def test_another_body_under_the_same_number_is_a_conflict(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *pieces(5, mail, body=BODY)[:1])
    assert done(journal, *pieces(5, mail, body=BODY[::-1])[:1])[0].verdict is Verdict.CONFLICT
    assert done(journal, store(5, mail))[0].verdict is Verdict.CONFLICT
    assert done(journal, store(4, mail, count=2))[0].verdict is Verdict.CONFLICT
    journal.close()


def test_pieces_of_unfinished_bodies_are_removed_at_the_start_and_may_come_again(tmp_path: Path) -> None:
    """The pieces' numbers are removed with them. Otherwise a retry would be a duplicate of something that
    does not exist."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    parts = pieces(5, mail, body=BODY)
    done(journal, *parts[:-1])
    journal.close()
    journal = opened(tmp_path)
    assert counted(journal, "block") == counted(journal, "part") == 0
    assert done(journal, parts[-1])[0].verdict is Verdict.PART
    assert done(journal, *parts[:-1])[-1].verdict is Verdict.STORED
    assert bodies(journal, mail) == [BODY]
    journal.close()


def test_an_unfinished_body_is_removed_when_its_publisher_gives_it_up(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *pieces(5, mail, body=BODY)[:-1])
    done(journal, store(6, mail, lowest=6))
    done(journal)
    assert counted(journal, "part") == 0
    assert counted(journal, "block") == 1
    journal.close()


def test_an_unfinished_body_is_removed_when_its_publisher_is_silent_for_seven_days(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *pieces(5, mail, body=BODY)[:-1])
    for day in range(1, 11):
        done(journal, now_us=NOW_US + day * DAY_US)
    assert [counted(journal, table) for table in ("part", "block", "came", "publisher")] == [0, 0, 0, 0]
    journal.close()


def test_a_large_body_among_several_subscriptions_dies_in_one_of_them(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail, log = subscribed(journal), subscribed(journal, "log")
    headers = blocks.pack_headers({"key": "k"})
    answers = done(journal, *pieces(5, mail, log, body=BODY, headers=headers))
    row = answers[-1].row
    (letter,) = done(journal, Bury(mail, row, 0, "too large", 20))
    assert bodies(journal, mail) == []
    assert bodies(journal, log) == [BODY]
    assert bodies(journal, letter.subscription) == [BODY]
    (dead,) = waiting(journal, letter.subscription)
    first = journal.fetch(dead.parts[0])
    assert isinstance(first, Block)
    told = blocks.unpack_headers((blocks.open_block(first.block).headers or [b""])[0])
    assert told is not None and (told["key"], told["dead-reason"]) == ("k", "too large")
    done(journal, Done(log, row))
    assert bodies(journal, letter.subscription) == [BODY]
    (back,) = done(journal, Requeue(letter.subscription, dead.row))
    assert bodies(journal, mail) == [BODY]
    done(journal, Done(mail, back.row))
    assert counted(journal, "block") == counted(journal, "shared") == 0
    journal.close()


def test_a_piece_without_a_whole_body_behind_it_is_never_acknowledged(tmp_path: Path) -> None:
    """Two pieces that overlap do not make a body."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    one, *_ = pieces(5, mail, body=BODY)
    short = pieces(5, mail, body=BODY[:70_000])
    assert done(journal, one)[0].verdict is Verdict.PART
    assert done(journal, short[1])[0].verdict is Verdict.PART
    assert waiting(journal, mail) == []
    assert isinstance(one, Store)
    journal.close()
