"""Dead letters say why they died, in the same transaction, and come back unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.errors import BlockError
from mesh.journal import letters
from mesh.journal.records import Bury, Requeue, Verdict
from mesh.wire import blocks
from tests.mesh.journal.journals import NOW_US, bodies, done, opened, sealed, store, subscribed, waiting


def headers_of(block: bytes) -> dict[str, object]:
    opened_block = blocks.open_block(block)
    return dict(blocks.unpack_headers((opened_block.headers or [b""])[0]) or {})


def buried(block: bytes, index: int, reason: str = "bad") -> bytes:
    return letters.bury(
        blocks.open_block(block), index, subscription="mail", reason=reason, attempts=20, now_us=NOW_US
    )


def test_a_dead_letter_is_the_message_with_its_id_and_its_cause_of_death() -> None:
    letter = buried(sealed(10, 5, publisher=7, boot=8), 3)
    opened_block = blocks.open_block(letter)
    assert list(opened_block.bodies) == [b"body 13"]
    assert (opened_block.publisher, opened_block.boot, opened_block.sequence) == (7, 8, 13)
    assert opened_block.topic == b"jobs.a"
    assert headers_of(letter) == {
        "dead-in": "mail",
        "dead-reason": "bad",
        "dead-attempts": 20,
        "dead-at-us": NOW_US,
    }
    assert letters.revive(blocks.open_block(letter)) == sealed(13, 1, publisher=7, boot=8)


def test_the_publishers_own_headers_stay() -> None:
    packed = [blocks.pack_headers({"key": number}) for number in range(3)]
    block = blocks.seal(b"t", [b"a", b"b", b"c"], publisher=1, boot=1, sequence=1, headers=packed)
    letter = buried(block, 2)
    assert headers_of(letter)["key"] == 2
    assert headers_of(letters.revive(blocks.open_block(letter))) == {"key": 2}


def test_headers_without_room_for_the_reason_lose_that_first() -> None:
    for size, told in ((6000, True), (8100, True), (8170, False)):
        packed = blocks.pack_headers({"key": "x" * size})
        block = blocks.seal(b"t", [b"a"], publisher=1, boot=1, sequence=1, headers=[packed])
        letter = buried(block, 0, "r" * 2000)
        blocks.check(letter, 0)
        assert ("dead-in" in headers_of(letter)) is told
        assert ("dead-reason" in headers_of(letter)) is (size == 6000)
        assert headers_of(letters.revive(blocks.open_block(letter))) == {"key": "x" * size}


def test_a_message_that_is_not_in_the_block_is_refused() -> None:
    with pytest.raises(BlockError, match="a block of 2 records has no record 2"):
        buried(sealed(1, 2), 2)


def test_burying_settles_the_message_and_keeps_it_in_one_commit(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    (answer,) = done(journal, store(1, mail, count=3))
    (letter,) = done(journal, Bury(mail, answer.row, 1, "bad", 20))
    journal.close()
    journal = opened(tmp_path)
    assert [kept.name for kept in journal.subscriptions()] == ["mail", "$dlq.mail"]
    assert bodies(journal, mail) == [b"body 1", b"body 3"]
    assert bodies(journal, letter.subscription) == [b"body 2"]
    assert [kept.messages for kept in journal.subscriptions()] == [2, 1]
    # Nothing happens for a repetition, or for a message that does not exist.
    for index in (1, 3, -1):
        assert done(journal, Bury(mail, answer.row, index, "bad", 20))[0].verdict is Verdict.UNKNOWN
    done(journal, Bury(mail, answer.row, 0, "bad", 20), Bury(mail, answer.row, 2, "bad", 20))
    assert waiting(journal, mail) == []
    assert bodies(journal, letter.subscription) == [b"body 2", b"body 1", b"body 3"]
    journal.close()


def test_a_dead_letter_goes_back_to_where_it_died(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    (answer,) = done(journal, store(1, mail, count=3))
    (letter,) = done(journal, Bury(mail, answer.row, 1, "bad", 20))
    (back,) = done(journal, Requeue(letter.subscription, letter.row))
    assert (back.verdict, back.subscription) == (Verdict.DONE, mail)
    assert bodies(journal, letter.subscription) == []
    assert bodies(journal, mail) == [b"body 1", b"body 3", b"body 2"]
    assert waiting(journal, mail)[-1].block == sealed(2)
    assert done(journal, Requeue(letter.subscription, letter.row))[0].verdict is Verdict.UNKNOWN
    assert done(journal, Requeue(mail, answer.row))[0].verdict is Verdict.UNKNOWN
    assert len(bodies(journal, mail)) == 3
    journal.close()


def test_a_block_is_opened_once_for_all_its_messages_that_die_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker dropped thousands of messages of one block: each was cut out of the whole, and commits took
    seconds, during which nothing was stored."""
    opens: list[bytes] = []
    open_block = blocks.open_block

    def counted(data: bytes, *given: int) -> blocks.Opened:
        opens.append(data)
        return open_block(data, *given)

    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, store(1, mail, count=100), store(101, mail, count=2))
    first, second = (row.row for row in waiting(journal, mail))
    monkeypatch.setattr(blocks, "open_block", counted)
    done(
        journal,
        *(Bury(mail, first, index, "bad", 1) for index in range(100)),
        *(Bury(mail, second, index, "bad", 1) for index in range(2)),
    )
    assert len(opens) == 2
    monkeypatch.undo()
    dead = next(kept.id for kept in journal.subscriptions() if kept.name == "$dlq.mail")
    assert bodies(journal, dead) == [b"body %d" % number for number in range(1, 103)]
    journal.close()
