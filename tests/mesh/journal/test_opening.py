"""A journal that cannot be used says why in one sentence, and nothing stored is overwritten."""

from __future__ import annotations

import errno
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from mesh.database.files import RealFiles
from mesh.database.wal import HEADER
from mesh.errors import (
    AnothersJournal,
    JournalDamaged,
    JournalError,
    JournalFailed,
    JournalForeign,
    JournalNewer,
    JournalReadOnly,
    Locked,
    MeshError,
    StoreFull,
)
from mesh.journal.records import Damaged, Unsubscribe
from mesh.journal.schema import VERSION
from tests.mesh.database.disks import faulty_disk
from tests.mesh.journal.journals import MESH, NOW_US, bodies, done, opened, pieces, store, subscribed

ROOT = Path(__file__).resolve().parents[3]
FRAME = 24 + 16384


def filled(folder: Path, commits: int = 5, *, killed: bool = False) -> int:
    """A journal with so many commits of one block each. Returns its subscription. ``killed``: its log is
    still there."""
    journal = opened(folder)
    mail = subscribed(journal)
    journal.checkpoint()
    for number in range(1, commits + 1):
        done(journal, store(number, mail))
    if killed:
        kept = {path: path.read_bytes() for path in folder.iterdir()}
        journal.close()
        for path, data in kept.items():
            path.write_bytes(data)
    else:
        journal.close()
    return mail


def refused(folder: Path, error: type[MeshError], **given: Any) -> str:
    """The sentence of an opening that fails."""
    with pytest.raises(error) as caught:
        opened(folder, **given)
    assert type(caught.value) is error
    sentence = str(caught.value)
    assert str(folder) in sentence and "\n" not in sentence
    return sentence


def in_use_by(pid: int) -> str:
    """The sentence about a journal that a process has open."""
    return f"is in use by process {pid}" if os.path.exists("/proc/locks") else "is in use by another process"


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int) -> None:
    change(path, at, bytes([path.read_bytes()[at] ^ 1]))


# --- its owner


def test_another_brokers_journal_is_left_alone(tmp_path: Path) -> None:
    mail = filled(tmp_path)
    before = (tmp_path / "journal.db").read_bytes()
    assert "belongs to broker b0, and this one is b1" in refused(tmp_path, AnothersJournal, broker="b1")
    assert f"belongs to mesh {MESH!r}" in refused(tmp_path, JournalForeign, mesh="other")
    assert (tmp_path / "journal.db").read_bytes() == before
    journal = opened(tmp_path)
    assert len(bodies(journal, mail)) == 5
    journal.close()


def test_a_newer_journal_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    db = apsw.Connection(str(tmp_path / "journal.db"))
    db.execute(f"pragma user_version = {VERSION + 1}; create table news(x)")
    db.close()
    sentence = refused(tmp_path, JournalNewer)
    assert f"its schema is {VERSION + 1}, this version knows {VERSION}" in sentence
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.db"]


def test_another_programs_files_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    db = sqlite3.connect(path)
    db.execute("create table mine(x)")
    db.commit()
    db.close()
    before = path.read_bytes()
    assert "is another program's database" in refused(tmp_path, JournalForeign)
    assert path.read_bytes() == before
    path.write_bytes(b"dear diary, " * 1000)
    assert "is no journal; move it away" in refused(tmp_path, JournalForeign)
    assert path.read_bytes() == b"dear diary, " * 1000


def test_a_journal_that_is_open_is_locked(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    assert in_use_by(os.getpid()) in refused(tmp_path, Locked)
    journal.close()
    opened(tmp_path).close()


CHILD = """
import sys
from contextlib import closing
from pathlib import Path
from tests.mesh.journal.journals import done, opened, store, subscribed
journal = opened(Path(sys.argv[1]))
mail = subscribed(journal)
number = 0
while True:
    number += 1
    done(journal, store(number, mail))
    print(number, flush=True)
"""


@pytest.mark.process
def test_commits_of_a_killed_process_are_there_and_it_held_the_lock(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        while int(child.stdout.readline()) < 5:
            pass
        assert in_use_by(child.pid) in refused(tmp_path, Locked)
    finally:
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate(timeout=60)
    told = [int(line) for line in rest.split()]
    last = told[-1] if told else 5
    copies = tmp_path / "copies"
    copies.mkdir()
    for name in ("journal.db", "journal.db-wal"):
        (copies / name).write_bytes((tmp_path / name).read_bytes())
    # The standard library's SQLite reads it, including the log.
    db = sqlite3.connect(copies / "journal.db")
    (rows,) = db.execute("select count(*) from block").fetchone()
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    db.close()
    assert rows >= last
    journal = opened(tmp_path)
    assert len(bodies(journal, 1)) == rows
    journal.close()
    assert not (tmp_path / "journal.db-wal").exists()
    db = sqlite3.connect(tmp_path / "journal.db")
    assert db.execute("select count(*) from block").fetchone() == (rows,)
    db.close()


# --- its place


def test_a_folder_in_place_of_the_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.db").mkdir()
    assert "is a folder, and the journal is a file" in refused(tmp_path, JournalForeign)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    refused(tmp_path / "none", JournalReadOnly)


def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    filled(tmp_path)
    with faulty_disk() as disk:
        disk.read_only = True
        assert "cannot be written" in refused(tmp_path, JournalReadOnly, vfs=disk.name)


def test_a_disk_without_room_for_a_new_journal_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        disk.left = 40_000
        assert "has no room for the journal" in refused(tmp_path, StoreFull, vfs=disk.name)
        assert not (tmp_path / "journal.db").exists()
        disk.left = None
        opened(tmp_path, vfs=disk.name).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.db"]


def test_a_journal_is_not_used_when_the_folder_cannot_be_synced(tmp_path: Path) -> None:
    """Each commit is in the log until it is moved, and would be lost with the log's name."""

    class Unsynced(RealFiles):
        def sync_names(self, folder: str) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO), folder)

    mail = filled(tmp_path)
    assert "cannot be opened: Input/output error" in refused(tmp_path, JournalError, files=Unsynced())
    journal = opened(tmp_path)
    assert len(bodies(journal, mail)) == 5
    journal.close()


def test_a_crash_at_any_operation_of_making_a_journal_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    for number in range(1, 200):
        folder = tmp_path / str(number)
        folder.mkdir()
        with faulty_disk() as disk:
            disk.fail_at, disk.fail_for = number, 1 << 30
            try:
                opened(folder, vfs=disk.name).close()
            except JournalError:
                disk.fail_at = 0
                journal = opened(folder, vfs=disk.name)
                assert done(journal, store(1, subscribed(journal)))
                journal.close()
            else:
                return
    raise AssertionError("never made")


# --- damage


def damaged(folder: Path) -> str:
    """The sentence of an opening that sets a damaged journal aside."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    sentence = refused(folder, JournalDamaged)
    aside = f"journal.db.damaged-{NOW_US}"
    assert f"it was set aside as {folder / aside}" in sentence
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    # Everything unchanged, so that its content may still be recovered.
    assert after == {name.replace("journal.db", aside): data for name, data in before.items()}
    journal = opened(folder)
    assert journal.damaged_before == [str(folder / aside)]
    journal.close()
    return sentence


def test_a_flipped_bit_in_the_log_with_commits_behind_it_is_damage(tmp_path: Path) -> None:
    """SQLite opened it silently, and 61 of 100 synced commits had vanished."""
    filled(tmp_path, killed=True)
    flip(tmp_path / "journal.db-wal", 32 + FRAME + 9000)
    assert "its log is damaged at byte 16440, with 5 commits behind that" in damaged(tmp_path)


def test_a_torn_last_commit_is_no_damage(tmp_path: Path) -> None:
    mail = filled(tmp_path, killed=True)
    log = tmp_path / "journal.db-wal"
    os.truncate(log, log.stat().st_size - 5000)
    journal = opened(tmp_path)
    assert bodies(journal, mail) == [b"body %d" % number for number in range(1, 5)]
    assert done(journal, store(5, mail))[0].row
    journal.close()
    journal = opened(tmp_path)
    assert len(bodies(journal, mail)) == 5
    journal.close()


def restarted(folder: Path) -> tuple[bytes, bytes, bytes]:
    """A journal after its log was moved into it: its file, that log, and the header of the next one."""
    filled(folder, killed=True)
    log = (folder / "journal.db-wal").read_bytes()
    with closing(opened(folder)):
        database = (folder / "journal.db").read_bytes()
        assert (folder / "journal.db-wal").read_bytes()[:32] == log[:32]
    magic, version, size, number, salt, *_ = HEADER.unpack_from(log)
    new = HEADER.pack(magic, version, size, number + 1, salt + 1, 0x1234ABCD, 0x5555AAAA, 0x66669999)
    return database, log, new


def put(folder: Path, database: bytes, log: bytes) -> None:
    (folder / "journal.db").write_bytes(database)
    (folder / "journal.db-wal").write_bytes(log)


def test_a_header_torn_while_the_log_began_again_is_no_damage(tmp_path: Path) -> None:
    """Whichever half of it is the new one, the database has everything that was in the log."""
    database, log, new = restarted(tmp_path)
    for cut in range(1, 32):
        for torn in (new[:cut] + log[cut:32], log[:cut] + new[cut:]):
            put(tmp_path, database, torn + log[32:])
            with closing(opened(tmp_path)) as journal:
                assert bodies(journal, 1) == [b"body %d" % number for number in range(1, 6)]


OPENS = "import sys; from tests.mesh.journal.test_opening import *; opened(Path(sys.argv[1]))"


@pytest.mark.process
def test_a_journal_stays_locked_when_its_pages_were_compared_with_the_log(tmp_path: Path) -> None:
    database, log, new = restarted(tmp_path)
    put(tmp_path, database, log[:23] + new[23:] + log[32:])
    with closing(opened(tmp_path)):
        other = [sys.executable, "-c", OPENS, str(tmp_path)]
        ended = subprocess.run(other, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == 1 and in_use_by(os.getpid()) in ended.stderr


@pytest.mark.parametrize("at", range(4, 32, 3))
def test_a_bad_header_of_a_log_that_the_database_does_not_hold_is_damage(tmp_path: Path, at: int) -> None:
    filled(tmp_path, killed=True)
    flip(tmp_path / "journal.db-wal", at)
    assert "its log is damaged at byte 0, with" in refused(tmp_path, JournalDamaged)


def test_remains_of_a_torn_commit_are_no_damage_at_the_next_crash(tmp_path: Path) -> None:
    """Its last frame was behind newer commits of the same generation, if the log was not restarted."""
    mail = filled(tmp_path, killed=True)
    log = tmp_path / "journal.db-wal"
    frames = (log.stat().st_size - 32) // FRAME
    change(log, 32 + (frames - 3) * FRAME, bytes(FRAME))
    journal = opened(tmp_path)
    there = len(bodies(journal, mail))
    assert there == 4
    done(journal, store(5, mail))
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    journal.close()
    for path, data in kept.items():
        path.write_bytes(data)
    journal = opened(tmp_path)
    assert len(bodies(journal, mail)) == 5
    journal.close()


@pytest.mark.parametrize("size", [0, 100, 16384, 16384 * 3, 16384 * 5 + 77])
def test_a_journal_that_was_cut_is_damage(tmp_path: Path, size: int) -> None:
    filled(tmp_path)
    os.truncate(tmp_path / "journal.db", size)
    damaged(tmp_path)


def test_a_journal_with_pages_only_in_the_log_is_not_damaged(tmp_path: Path) -> None:
    """A crash leaves a database without the pages that only the log has."""
    mail = filled(tmp_path, commits=200, killed=True)
    journal = opened(tmp_path)
    assert len(bodies(journal, mail)) == 200
    journal.close()


def damage(folder: Path, table: str) -> None:
    """Overwrite the first page of a table."""
    path = folder / "journal.db"
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("select rootpage from sqlite_master where name = ?", (table,)).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 16384)
        file.write(b"\xff" * 200)


def test_a_journal_that_turns_out_damaged_is_set_aside_at_once(tmp_path: Path) -> None:
    """A restart found the same damage, and so did each further one, until somebody moved the file away."""
    mail = filled(tmp_path)
    damage(tmp_path, "waiting")
    before = (tmp_path / "journal.db").read_bytes()
    journal = opened(tmp_path)
    aside = tmp_path / f"journal.db.damaged-{NOW_US}"
    for _ in range(2):
        with pytest.raises(JournalFailed, match=f"is damaged: SQLite says .* was set aside as {aside}, and"):
            journal.read(mail, 0, 1 << 20)
    with pytest.raises(JournalFailed, match="set aside"):
        journal.commit([store(100, mail)], NOW_US)
    journal.close()
    assert len(aside.read_bytes()) == len(before)
    journal = opened(tmp_path)
    assert journal.damaged_before == [str(aside)] and journal.subscriptions() == []
    journal.close()


def test_a_damaged_journal_that_cannot_be_renamed_is_named(tmp_path: Path) -> None:
    class Fixed(RealFiles):
        def rename(self, old: str, new: str) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), old)

    mail = filled(tmp_path)
    damage(tmp_path, "waiting")
    journal = opened(tmp_path, files=Fixed())
    with pytest.raises(
        JournalFailed, match="could not be set aside .Read-only file system., so move it away with its log"
    ):
        journal.read(mail, 0, 1 << 20)
    journal.close()


def test_a_log_with_commits_is_set_aside_with_its_journal(tmp_path: Path) -> None:
    """Commits since the last checkpoint lie in the log only."""
    filled(tmp_path)
    journal = opened(tmp_path)
    mail = journal.subscriptions()[0].id
    done(journal, store(6, mail))
    journal._db.execute("update waiting set row = 2 << 40 where row = 2")
    with pytest.raises(JournalFailed, match="rows that wait are out of order"):
        journal.read(mail, 0, 1 << 20)
    journal.close()
    aside = f"journal.db.damaged-{NOW_US}"
    assert sorted(path.name for path in tmp_path.iterdir()) == [aside, f"{aside}-wal"]
    for end in ("", "-wal"):
        (tmp_path / f"{aside}{end}").rename(tmp_path / f"journal.db{end}")
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        assert db.execute("select count(*) from block").fetchone() == (6,)


def test_a_crash_between_the_names_of_a_journal_and_its_log_leaves_no_journal_without_its_log(
    tmp_path: Path,
) -> None:
    """The log had gone first: the next start went on with the journal as of its last checkpoint."""

    class Crashing(RealFiles):
        renamed = 0

        def rename(self, old: str, new: str) -> None:
            if self.renamed:
                raise OSError(errno.EIO, os.strerror(errno.EIO), old)
            self.renamed += 1
            super().rename(old, new)

    filled(tmp_path)
    journal = opened(tmp_path, files=Crashing())
    mail = journal.subscriptions()[0].id
    done(journal, store(6, mail))
    journal._db.execute("update waiting set row = 2 << 40 where row = 2")
    with pytest.raises(JournalFailed, match="could not be set aside"):
        journal.read(mail, 0, 1 << 20)
    journal.close()
    assert "only its log is there" in refused(tmp_path, JournalDamaged, now_us=NOW_US + 1)
    found = {path.name.removeprefix("journal.db.damaged-") for path in tmp_path.iterdir()}
    assert found == {str(NOW_US), f"{NOW_US + 1}-wal"}


def test_a_damaged_page_of_blocks_costs_their_age_and_nothing_else(tmp_path: Path) -> None:
    """Asking for the age of the first block, as the status does, was enough to end the journal."""
    mail = filled(tmp_path)
    damage(tmp_path, "block")
    journal = opened(tmp_path)
    assert journal.oldest_us(mail) is None
    rows = journal.read(mail, 0, 1 << 20)
    assert rows and all(isinstance(row, Damaged) for row in rows) and journal.failure is None
    journal.close()


@pytest.mark.parametrize("table", ["meta", "subscription", "part", "came", "shared"])
def test_damage_in_a_table_that_opening_reads_is_found_at_opening(tmp_path: Path, table: str) -> None:
    """In ``subscription`` it was an SQLite error that kept the broker from starting. In the others it was one
    that returned at each start: an unfinished body is removed then."""
    filled(tmp_path)
    journal = opened(tmp_path)
    done(journal, *pieces(50, 1, body=bytes(200_000))[:2])
    journal.close()
    damage(tmp_path, table)
    with pytest.raises(JournalDamaged, match="set aside"):
        opened(tmp_path)
    opened(tmp_path).close()


def test_a_log_without_its_database_is_damage(tmp_path: Path) -> None:
    filled(tmp_path, killed=True)
    (tmp_path / "journal.db").unlink()
    assert "only its log is there" in damaged(tmp_path)


def test_a_journal_without_its_tables_is_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    db = apsw.Connection(str(tmp_path / "journal.db"))
    db.execute("drop table meta")
    db.close()
    assert f"meta is not the table of schema {VERSION}" in damaged(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (b"bitmap blob", b"bytmap blob", f"waiting is not the table of schema {VERSION}"),
        (b"bitmap blob", b"b\xe9tmap blob", f"waiting is not the table of schema {VERSION}"),
        (b"TABLE waiting(", b"TABLE wayting(", "malformed|waiting is not the table"),
        (b"MNGJ", b"MNGK", "its header has another program's number"),
    ],
)
def test_a_flipped_bit_in_the_schema_is_damage(tmp_path: Path, before: bytes, after: bytes, why: str) -> None:
    """Stored swarm, seed 1796000585: a column had another name, and nothing could be read any more."""
    filled(tmp_path)
    path = tmp_path / "journal.db"
    content = path.read_bytes()
    assert content.count(before) == 1
    path.write_bytes(content.replace(before, after))
    assert re.search(why, damaged(tmp_path))


def test_a_flipped_bit_in_the_number_of_its_schema_is_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "journal.db"
    change(path, 60, (33).to_bytes(4, "big"))
    assert f"its header says schema 33, and this version has {VERSION}" in damaged(tmp_path)


@pytest.mark.parametrize(
    "statement, why",
    [
        ("update meta set key = 'ceilinf' where key = 'ceiling'", "its next row number is None"),
        ("update meta set value = x'01' where key = 'ceiling'", "its next row number is b"),
        (
            "update meta set value = 1 << 62 where key = 'ceiling'",
            "its next row number is 46",
        ),
        ("update meta set value = cast(x'ff' as text) where key = 'mesh'", "a text in it is not UTF-8"),
        (
            "update meta set value = 'b1' where key = 'broker'",
            "it names broker 'b1' of mesh 'm'",
        ),
        (
            "update meta set key = 'mesi' where key = 'mesh'",
            "it names broker 'b0' of mesh None",
        ),
        ("update subscription set messages = 0.5", "a figure of subscription 1 is no number"),
        ("update subscription set name = cast(x'ff' as text)", "of subscription 1 is not what was stored"),
        ("update subscription set name = 'mbil'", "of subscription 1 is not what was stored"),
        ("update subscription set name = null", "of subscription 1 is not what was stored"),
        ("update subscription set patterns = 'jobs.+'", "of subscription 1 is not what was stored"),
    ],
)
def test_a_flipped_bit_in_what_the_journal_begins_with_is_damage(
    tmp_path: Path, statement: str, why: str
) -> None:
    """Most of it was an exception of another kind, and the journal was not set aside."""
    filled(tmp_path)
    with closing(apsw.Connection(str(tmp_path / "journal.db"))) as db:
        db.execute(statement)
    assert why in damaged(tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "delete from subscription where name = 'log'",
        "delete from subscription",
        "update meta set value = value + 1 where key = 'names'",
        "delete from meta where key = 'names'",
    ],
)
def test_a_subscription_that_cannot_be_found_is_damage(tmp_path: Path, statement: str) -> None:
    """A flipped bit in the number of rows of a page hid it, and all that waited in it was lost without a
    word."""
    journal = opened(tmp_path)
    for name in ("mail", "log", "old"):
        done(journal, store(1, subscribed(journal, name), publisher=len(name) + ord(name[0])))
    done(journal, Unsubscribe(3))
    while journal.chores:
        done(journal)
    journal.close()
    opened(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db, db:
        db.execute(statement)
    assert "a subscription is missing" in damaged(tmp_path)


def test_a_row_with_an_impossible_number_does_not_give_numbers_to_others(tmp_path: Path) -> None:
    """The next row had a number that no field holds, and every block was refused with an error of Python."""
    mail = filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db, db:
        db.execute("update block set row = 0x7fffffffffffffff where row = 2")
    journal = opened(tmp_path)
    (answer,) = done(journal, store(100, mail))
    assert answer.row < 1 << 40 and journal.failure is None
    journal.close()


def test_rows_in_use_are_not_used_again_after_a_flipped_bit_in_the_next_number(tmp_path: Path) -> None:
    """New messages met rows of their number: the home failed with the first one at each start."""
    mail = filled(tmp_path)
    with closing(apsw.Connection(str(tmp_path / "journal.db"))) as db:
        db.execute("update meta set value = 2 where key = 'ceiling'")
        db.execute("update meta set key = 'wall' where key = 'wall_us'")
    journal = opened(tmp_path)
    done(journal, store(100, mail))
    assert len(bodies(journal, mail)) == 6
    journal.close()


@pytest.mark.parametrize("at", [20, 47, 52, 53, 54, 55])
def test_a_flipped_bit_in_the_header_of_the_file_is_damage(tmp_path: Path, at: int) -> None:
    """It was an error that named SQLite's settings, or one that came again at each start, and the journal was
    not set aside. With byte 20 it was none, and SQLite looked for the content in other places."""
    filled(tmp_path)
    flip(tmp_path / "journal.db", at)
    damaged(tmp_path)


def test_another_programs_file_of_a_later_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table mine(x)")
    flip(path, 47)
    before = path.read_bytes()
    assert "cannot be opened: unsupported file format" in refused(tmp_path, JournalFailed)
    assert path.read_bytes() == before


def test_a_journal_with_an_added_index_is_used(tmp_path: Path) -> None:
    mail = filled(tmp_path)
    db = apsw.Connection(str(tmp_path / "journal.db"))
    db.execute("create index mine on came(last)")
    db.close()
    journal = opened(tmp_path)
    assert len(bodies(journal, mail)) == 5
    journal.close()


def test_a_damaged_page_of_a_table_that_is_read_at_opening_is_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "journal.db"
    for page in range(1, path.stat().st_size // 16384):
        change(path, page * 16384, b"\xff" * 8)
    assert "malformed" in damaged(tmp_path)
