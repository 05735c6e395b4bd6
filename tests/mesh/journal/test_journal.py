"""The contents of a journal: kept, found again and removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw
import pytest

from mesh.database import settings
from mesh.database.room import RESERVE
from mesh.errors import JournalFailed, StoreFull
from mesh.journal.journal import Journal
from mesh.journal.records import (
    Attempts,
    Damaged,
    Done,
    Entry,
    Settle,
    Subscribe,
    Unsubscribe,
    Verdict,
)
from tests.mesh.database.disks import FaultyFiles, faulty_disk
from tests.mesh.journal.journals import NOW_US, bodies, done, opened, sealed, store, subscribed, waiting


def test_committed_rows_are_found_again_after_a_restart(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    (answer,) = done(journal, store(1, mail, count=3))
    assert answer.verdict is Verdict.STORED
    journal.close()
    journal = opened(tmp_path)
    (row,) = waiting(journal, mail)
    assert (row.row, row.arrived_us, row.count, row.floor, row.parts) == (answer.row, NOW_US, 3, 0, ())
    assert row.block == sealed(1, 3)
    (kept,) = journal.subscriptions()
    assert (kept.name, kept.patterns, kept.rows, kept.messages) == ("mail", ("jobs.#",), 1, 3)
    assert kept.size == len(row.block)
    assert journal.oldest_us(mail) == NOW_US
    journal.close()


def test_rows_come_in_the_order_of_storing_and_continue_after_a_row(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *(store(number, mail) for number in range(1, 301)))
    rows = waiting(journal, mail)
    assert [row.block for row in rows] == [sealed(number) for number in range(1, 301)]
    assert [row.row for row in waiting(journal, mail, after_row=rows[99].row)] == [r.row for r in rows[100:]]
    few = waiting(journal, mail, bytes_max=1)
    assert [row.row for row in few] == [rows[0].row]
    journal.close()


def test_a_row_number_is_never_used_twice(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    (first,) = done(journal, store(1, mail))
    done(journal, Done(mail, first.row))
    journal.close()
    journal = opened(tmp_path)
    (second,) = done(journal, store(2, mail))
    assert second.row > first.row
    journal.close()


def test_the_pragmas_are_those_that_durability_needs(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    db = journal._db
    for name, wanted in (
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("locking_mode", "exclusive"),
        ("auto_vacuum", 0),
        ("page_size", 16384),
        ("wal_autocheckpoint", 0),
    ):
        assert db.execute(f"pragma {name}").fetchall() == [(wanted,)], name
    journal.close()


def test_a_pragma_that_did_not_take_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PRAGMAS", (("journal_mode", "delete"), ("page_size", 1)))
    with pytest.raises(Exception, match=r"SQLite does not take page_size = 1 for the journal; it has 16384"):
        opened(tmp_path)


def test_a_commit_is_synced_when_it_returns(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        journal = opened(tmp_path, vfs=disk.name)
        mail = subscribed(journal)
        for number in range(1, 6):
            disk.operations.clear()
            done(journal, store(number, mail))
            assert disk.operations[-1][0] == "sync"
            assert disk.operations[-1][1].endswith("-wal")
        journal.close()


def test_a_commit_does_not_wait_for_a_checkpoint(tmp_path: Path) -> None:
    """Moving the log into the database took 65 to 140 ms, which should not delay any acknowledgement."""
    with faulty_disk() as disk:
        journal = opened(tmp_path, vfs=disk.name)
        mail = subscribed(journal)
        number = 0
        disk.operations.clear()
        while not journal.checkpoint_due:
            number += 1
            done(journal, store(number, mail, body=bytes(60_000)))
        assert not any(path.endswith("journal.db") for _, path in disk.operations)
        journal.checkpoint()
        assert not journal.checkpoint_due
        assert any(path.endswith("journal.db") for _, path in disk.operations)
        size = os.path.getsize(tmp_path / "journal.db-wal")
        done(journal, store(number + 1, mail))
        assert os.path.getsize(tmp_path / "journal.db-wal") == size  # it was restarted
        assert len(waiting(journal, mail)) == number + 1
        journal.close()


# --- settling


def test_the_last_to_settle_a_block_frees_it(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    subscriptions = [subscribed(journal, name) for name in ("a", "b", "c")]
    (answer,) = done(journal, store(1, *subscriptions))
    for subscription in subscriptions[:-1]:
        done(journal, Done(subscription, answer.row))
        assert bodies(journal, subscription) == []
        assert bodies(journal, subscriptions[-1]) == [b"body 1"]
    done(journal, Done(subscriptions[-1], answer.row))
    for table in ("block", "waiting", "shared"):
        assert journal._db.execute(f"select count(*) from {table}").fetchall() == [(0,)], table
    journal.close()


def test_a_row_is_settled_in_parts(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    (answer,) = done(journal, store(1, mail, count=20))
    done(journal, Settle(mail, answer.row, 2, b"\x02"))  # 0, 1 and 3
    journal.close()
    journal = opened(tmp_path)
    (row,) = waiting(journal, mail)
    assert (row.floor, row.bitmap) == (2, b"\x02")
    assert journal.subscriptions()[0].messages == 17
    assert done(journal, Settle(mail, answer.row, 20))[0].verdict is Verdict.DONE
    assert waiting(journal, mail) == []
    assert journal.subscriptions()[0].messages == 0
    journal.close()


def test_settling_unknown_messages_repeatedly_changes_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    (answer,) = done(journal, store(1, mail))
    done(journal, Done(mail, answer.row))
    for _ in range(3):
        for entry in (
            Done(mail, answer.row),
            Settle(mail, answer.row, 1),
            Attempts(mail, answer.row, {1: 2}),
            Done(mail, 99),
            Done(77, answer.row),
            Unsubscribe(77),
        ):
            assert done(journal, entry)[0].verdict is Verdict.UNKNOWN
    assert journal.subscriptions()[0].messages == 0
    journal.close()


def test_no_more_rows_are_read_than_requested(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    done(journal, *(store(number, mail) for number in range(1, 11)))
    assert len(journal.read(mail, 0, 1 << 20, 3)) == 3
    journal.close()


def test_attempts_are_kept(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    (answer,) = done(journal, store(1, mail))
    done(journal, Attempts(mail, answer.row, {3: 1, 0: 19}))
    journal.close()
    journal = opened(tmp_path)
    assert waiting(journal, mail)[0].attempts == {0: 19, 3: 1}
    journal.close()


# --- subscriptions


def test_a_name_belongs_to_its_patterns(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal, "mail", "b", "a")
    assert done(journal, Subscribe("mail", ("a", "b")))[0].subscription == mail
    assert done(journal, Subscribe("mail", ("a",)))[0].verdict is Verdict.OTHER_PATTERNS
    assert journal.subscriptions()[0].patterns == ("a", "b")
    journal.close()


def test_a_removed_subscription_is_emptied_in_steps_and_its_name_is_free_at_once(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail, log = subscribed(journal), subscribed(journal, "log")
    done(journal, *(store(number, mail, log) for number in range(1, 201)))
    done(journal, Unsubscribe(mail))
    again = subscribed(journal)
    assert again != mail
    assert journal.chores
    journal.close()
    journal = opened(tmp_path)
    steps = 0
    while journal.chores:
        before = journal._db.execute("select count(*) from waiting").fetchall()[0][0]
        done(journal)
        assert before - journal._db.execute("select count(*) from waiting").fetchall()[0][0] <= 64
        steps += 1
    assert steps >= 2
    assert [kept.name for kept in journal.subscriptions()] == ["log", "mail"]
    assert len(waiting(journal, log)) == 200
    assert waiting(journal, again) == []
    done(journal, *(Done(log, row.row) for row in waiting(journal, log)))
    assert journal._db.execute("select count(*) from block").fetchall() == [(0,)]
    journal.close()


def test_a_block_without_a_subscription_is_not_kept(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    answers = done(journal, Unsubscribe(mail), store(1, mail))
    assert [answer.verdict for answer in answers] == [Verdict.DONE, Verdict.UNWANTED]
    mail = subscribed(journal)
    assert done(journal, store(1, mail))[0].verdict is Verdict.STORED
    journal.close()


# --- errors


ENTRIES = 6


def several(mail: int, row: int) -> list[Entry]:
    """A commit of each kind of entry."""
    return [
        store(11, mail, count=2, lowest=11),
        Settle(mail, row, 1),
        Attempts(mail, row, {1: 2}),
        Subscribe("log", ("log.#",)),
        store(13, mail),
        Unsubscribe(mail + 1),
    ]


def state(journal: Journal) -> list[object]:
    """Everything in the tables and the in-memory state, without the ceiling of row numbers, which only
    rises."""
    tables = ["subscription", "block", "waiting", "shared", "came", "publisher", "part"]
    return [journal._db.execute(f"select * from {table}").fetchall() for table in tables] + [
        journal.subscriptions(),
        journal.chores,
    ]


class Planted(Exception):
    pass


class PlantedAt:
    """Raises an error at the n-th statement."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, cursor: object, statement: str, bindings: object) -> bool:
        self.left -= 1
        if not self.left:
            raise Planted
        return True


def test_an_error_at_any_statement_reverts_the_whole_commit(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    subscribed(journal, "old", "old")
    (answer,) = done(journal, store(1, mail, count=3))
    before = state(journal)
    failed = 0
    for fail_at in range(1, 1000):
        journal._db.exec_trace = PlantedAt(fail_at)
        try:
            done(journal, *several(mail, answer.row))
        except Planted:
            failed += 1
        else:
            break
        finally:
            journal._db.exec_trace = None
        assert state(journal) == before
    assert failed > 20
    assert state(journal) != before
    assert bodies(journal, mail) == [b"body 2", b"body 3", b"body 11", b"body 12", b"body 13"]
    journal.close()


@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
def test_a_failed_write_or_sync_reverts_the_whole_commit(tmp_path: Path, error: type[apsw.Error]) -> None:
    """A commit failed and its retry was taken for a duplicate, and acknowledged: the message was lost."""
    failed = 0
    for fail_at in range(1, 40):
        with faulty_disk() as disk:
            folder = tmp_path / str(fail_at)
            folder.mkdir()
            journal = opened(folder, vfs=disk.name)
            mail = subscribed(journal)
            (answer,) = done(journal, store(1, mail, count=3))
            before = state(journal)
            disk.operations.clear()
            disk.fail_at, disk.error = fail_at, error
            entry = store(4, mail, body=bytes(50_000))
            wrong = StoreFull if error is apsw.FullError else JournalFailed
            try:
                done(journal, entry, Settle(mail, answer.row, 1))
            except wrong:
                failed += 1
            else:
                disk.fail_at = 0
                journal.close()
                break
            disk.fail_at = 0
            assert state(journal) == before
            if error is apsw.FullError:
                crashed = folder / "crashed"
                crashed.mkdir()
                for name in ("journal.db", "journal.db-wal"):
                    (crashed / name).write_bytes((folder / name).read_bytes())
                later = opened(crashed)
                assert len(waiting(later, mail)) == 1  # a crash does not bring it back either
                later.close()
                assert done(journal, entry)[0].verdict is Verdict.STORED
                assert done(journal, entry)[0].verdict is Verdict.DUPLICATE
                assert done(journal, Done(mail, answer.row))[0].verdict is Verdict.DONE
            else:
                for _ in range(2):
                    with pytest.raises(
                        JournalFailed, match="stores nothing until this broker is started again"
                    ):
                        done(journal, entry)
                assert journal.failure is not None
                assert len(waiting(journal, mail)) == 1
                journal.close()
                journal = opened(folder, vfs=disk.name)
                # Everything may have been written before the sync failed. A retry finds out.
                there = len(waiting(journal, mail)) == 2
                assert done(journal, entry)[0].verdict is (Verdict.DUPLICATE if there else Verdict.STORED)
                assert len(waiting(journal, mail)) == 2
            journal.close()
    assert failed >= 4


def test_a_failed_checkpoint_ends_storing_and_loses_nothing(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        journal = opened(tmp_path, vfs=disk.name)
        mail = subscribed(journal)
        done(journal, *(store(number, mail) for number in range(1, 50)))
        disk.operations.clear()
        disk.fail_at = 1
        with pytest.raises(JournalFailed):
            journal.checkpoint()
        disk.fail_at = 0
        with pytest.raises(JournalFailed):
            done(journal, store(99, mail))
        journal.close()
        journal = opened(tmp_path, vfs=disk.name)
        assert len(waiting(journal, mail)) == 49
        journal.close()


# --- a full disk


def test_a_full_disk_refuses_publishes_and_allows_consuming(tmp_path: Path) -> None:
    """Without a reserve, 0 of 373 rows could be consumed on a full disk."""
    with faulty_disk() as disk:
        files = FaultyFiles(disk)
        journal = opened(tmp_path, vfs=disk.name, files=files)
        mail = subscribed(journal)
        disk.left = 40 << 20
        number = 0
        with pytest.raises(
            StoreFull, match="are reserved for consuming what is stored; make room or consume"
        ):
            while True:
                number += 1
                done(journal, store(number, mail, body=bytes(60_000)))
                if journal.checkpoint_due:
                    journal.checkpoint()
        rows = waiting(journal, mail, bytes_max=1 << 30)
        assert len(rows) == number - 1 > 100
        for row in rows[: len(rows) // 2]:
            assert done(journal, Settle(mail, row.row, 0))[0].verdict is Verdict.DONE
            assert done(journal, Done(mail, row.row))[0].verdict is Verdict.DONE
            if journal.checkpoint_due:
                journal.checkpoint()
        assert done(journal, store(number, mail, body=bytes(60_000)))[0].verdict is Verdict.STORED
        journal.close()
        journal = opened(tmp_path, vfs=disk.name, files=files)
        assert len(waiting(journal, mail, bytes_max=1 << 30)) == len(rows) - len(rows) // 2 + 1
        journal.close()


def test_the_room_of_a_journal_excludes_the_reserve_for_consuming(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        journal = opened(tmp_path, vfs=disk.name, files=FaultyFiles(disk))
        mail = subscribed(journal)
        disk.left = RESERVE + (10 << 20)
        used, usable = journal.room()
        assert used < 1 << 20 and 9 << 20 < usable <= 10 << 20
        for number in range(1, 41):
            done(journal, store(number, mail, body=bytes(60_000)))
        more, less = journal.room()
        assert more - used > 40 * 60_000 and less < usable - 40 * 60_000
        done(journal, *[Done(mail, row.row) for row in waiting(journal, mail, bytes_max=1 << 30)])
        assert journal.room()[0] < used + (1 << 20), "pages that were freed are used again"
        disk.left = 5
        assert journal.room()[1] == 0
        journal.close()


# --- removed while it is open


@pytest.mark.parametrize("gone", ["journal.db", "journal.db-wal"])
def test_a_journal_with_a_removed_file_acknowledges_nothing(tmp_path: Path, gone: str) -> None:
    """SQLite continued in a file without a name: acknowledged messages were gone at the next start."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    assert done(journal, store(1, mail))[0].verdict is Verdict.STORED
    (tmp_path / gone).unlink()
    sentence = "the disk failed under the journal .* .it was removed, or another was put in its place"
    with pytest.raises(JournalFailed, match=sentence):
        done(journal, store(2, mail))
    assert journal.failure is not None
    journal.close()


def test_a_journal_with_a_removed_folder_says_so(tmp_path: Path) -> None:
    """It told each publisher ``[Errno 2] No such file or directory``, and logged no warning."""
    folder = tmp_path / "state"
    folder.mkdir()
    journal = opened(folder)
    mail = subscribed(journal)
    shutil.rmtree(folder)
    with pytest.raises(JournalFailed, match="it was removed"):
        done(journal, store(1, mail))
    journal.close()


def test_a_journal_with_a_replaced_file_acknowledges_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    shutil.copy(tmp_path / "journal.db", tmp_path / "backup")
    os.replace(tmp_path / "backup", tmp_path / "journal.db")
    with pytest.raises(JournalFailed, match="another was put in its place"):
        done(journal, store(1, mail))
    journal.close()


# --- damage in a block


def test_a_damaged_block_is_named_and_the_others_are_served(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    answers = done(
        journal, *(store(number, mail, body=bytes([64 + number]) * 30_000) for number in range(1, 6))
    )
    journal.close()
    path = tmp_path / "journal.db"
    data = bytearray(path.read_bytes())
    at = data.index(bytes([64 + 3]) * 1000)
    data[at + 500] ^= 1
    path.write_bytes(data)
    journal = opened(tmp_path)
    rows = journal.read(mail, 0, 1 << 20)
    assert [row.row for row in rows] == [answer.row for answer in answers]
    assert [row.row for row in rows if isinstance(row, Damaged)] == [answers[2].row]
    assert "do not have the CRC they were stored with" in str(rows[2])
    assert done(journal, Done(mail, answers[2].row))[0].verdict is Verdict.DONE
    assert len(waiting(journal, mail)) == 4
    journal.close()


# --- cost


def test_every_look_up_is_by_key(tmp_path: Path) -> None:
    """The cost of a commit does not grow with the number of waiting messages."""
    journal = opened(tmp_path)
    statements: dict[str, None] = {}

    def trace(cursor: object, statement: str, bindings: object) -> bool:
        statements[statement] = None
        return True

    journal._db.exec_trace = trace
    from tests.mesh.journal.test_bodies import everything

    everything(journal)
    journal._db.exec_trace = None
    looked = 0
    for statement in statements:
        if statement.split()[0] not in ("select", "update", "delete", "insert"):
            continue
        looked += 1
        plan = [
            row[3]
            for row in journal._db.execute(f"explain query plan {statement}", [0] * statement.count("?"))
        ]
        if statement.startswith("select publisher, boot, first, piece, row from part limit"):
            continue  # one step at a time, for data that an earlier run left
        plan = [step for step in plan if not step.endswith("-ROW VALUES CLAUSE")]  # the rows of an insert
        assert not any("SCAN" in step or "TEMP B-TREE" in step for step in plan), (statement, plan)
    assert looked > 25
    journal.close()


def test_the_work_of_a_commit_does_not_depend_on_the_backlog(tmp_path: Path) -> None:
    """Counted in statements, each of which looks up by key."""
    journal = opened(tmp_path)
    mail = subscribed(journal)
    counts = []

    def trace(cursor: object, statement: str, bindings: object) -> bool:
        counts[-1] += 1
        return True

    number = 0
    for waits in (200, 3000):
        while number < waits:
            number += 100
            done(journal, *(store(number + one, mail, lowest=number) for one in range(100)))
        number += 100
        counts.append(0)
        journal._db.exec_trace = trace
        (answer,) = done(journal, store(number, mail, lowest=number))
        done(journal, Settle(mail, answer.row, 0), Done(mail, answer.row))
        assert len(journal.read(mail, 0, 1 << 20, 10)) == 10
        journal.oldest_us(mail)
        journal._db.exec_trace = None
    assert counts[0] == counts[1]
    journal.close()
