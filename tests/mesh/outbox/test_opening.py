"""An outbox that cannot be used says why in one sentence, and its content is never overwritten."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from mesh.database.files import RealFiles
from mesh.errors import (
    Locked,
    MeshError,
    OutboxDamaged,
    OutboxError,
    OutboxFailed,
    OutboxForeign,
    OutboxNewer,
    OutboxReadOnly,
    StorageError,
    StoreFull,
)
from tests.mesh.database.disks import faulty_disk
from tests.mesh.outbox.outboxes import NOW_US, appended, numbers, opened, sealed, waiting

FRAME = 24 + 16384


def filled(folder: Path, blocks: int = 5, *, killed: bool = False) -> None:
    """An outbox with so many commits of one block each. If it was killed, its log is still there."""
    outbox = opened(folder)
    outbox.checkpoint()
    for number in range(1, blocks + 1):
        appended(outbox, sealed(outbox, number))
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    outbox.close()
    if killed:
        for path, data in kept.items():
            path.write_bytes(data)


def refused(folder: Path, error: type[MeshError], **given: Any) -> str:
    """The error of an opening that fails."""
    with pytest.raises(error) as caught:
        opened(folder, **given)
    assert type(caught.value) is error
    sentence = str(caught.value)
    assert str(folder) in sentence and "\n" not in sentence
    return sentence


def test_an_outbox_that_is_open_is_locked_and_its_holder_named(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    holder = f"process {os.getpid()}" if os.path.exists("/proc/locks") else "another process"
    assert f"is in use by {holder}; name another file" in refused(tmp_path, Locked)
    appended(outbox, sealed(outbox, 1))
    assert f"is in use by {holder}" in refused(tmp_path, Locked)
    outbox.close()
    opened(tmp_path).close()


def test_a_newer_outbox_and_other_programs_files_are_left_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "outbox.db"
    db = apsw.Connection(str(path))
    db.execute("pragma user_version = 2; create table news(x)")
    db.close()
    before = path.read_bytes()
    assert "the outbox" in (sentence := refused(tmp_path, OutboxNewer))
    assert "its schema is 2, this version knows 1" in sentence
    assert path.read_bytes() == before
    path.unlink()
    mine = sqlite3.connect(path)
    mine.execute("create table mine(x)")
    mine.commit()
    mine.close()
    before = path.read_bytes()
    assert "is another program's database; move it away or name another file" in refused(
        tmp_path, OutboxForeign
    )
    assert path.read_bytes() == before
    path.write_bytes(b"dear diary, " * 1000)
    assert "is no outbox; move it away" in refused(tmp_path, OutboxForeign)
    path.unlink()
    path.mkdir()
    assert "is a folder, and the outbox is a file" in refused(tmp_path, OutboxForeign)
    refused(tmp_path / "none", OutboxReadOnly)


def test_a_journal_is_no_outbox(tmp_path: Path) -> None:
    from tests.mesh.journal import journals

    journals.opened(tmp_path).close()
    os.rename(tmp_path / "journal.db", tmp_path / "outbox.db")
    assert "is another program's database" in refused(tmp_path, OutboxForeign)


def test_an_outbox_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    filled(tmp_path)
    with faulty_disk() as disk:
        disk.read_only = True
        assert "cannot be written" in refused(tmp_path, OutboxReadOnly, vfs=disk.name)


class Refusing(RealFiles):
    """The files of a disk that allows no changes, and says why."""

    def __init__(self, error: int) -> None:
        self._error = error

    def remove(self, path: str) -> None:
        raise OSError(self._error, os.strerror(self._error), path)


@pytest.mark.parametrize(
    ("error", "type_", "advice"),
    [
        (errno.EROFS, OutboxReadOnly, "cannot be written (Read-only file system); name another file"),
        (errno.EPERM, OutboxReadOnly, "cannot be written (Operation not permitted); name another file"),
        (errno.ENOSPC, StoreFull, "the disk has no room for the outbox"),
        (errno.EIO, OutboxError, "cannot be opened: Input/output error; name another file"),
    ],
)
def test_a_disk_that_allows_no_outbox_is_reported_with_advice(
    tmp_path: Path, error: int, type_: type[StorageError], advice: str
) -> None:
    """For a disk mounted read-only, the error said only that the outbox cannot be opened."""
    assert advice in refused(tmp_path, type_, files=Refusing(error))


def test_a_disk_without_room_for_a_new_outbox_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        disk.left = 20_000
        assert "has no room for the outbox" in refused(tmp_path, StoreFull, vfs=disk.name)
        assert not (tmp_path / "outbox.db").exists()
        disk.left = None
        opened(tmp_path, vfs=disk.name).close()


# --- damage


def damaged(folder: Path) -> str:
    """The error of an opening that sets a damaged outbox aside."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    sentence = refused(folder, OutboxDamaged)
    aside = f"outbox.db.damaged-{NOW_US}"
    assert f"it was set aside as {folder / aside}, and what it held waits there" in sentence
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after == {name.replace("outbox.db", aside): data for name, data in before.items()}
    outbox = opened(folder)
    assert outbox.damaged_before == [str(folder / aside)]
    outbox.close()
    return sentence


def test_a_flipped_bit_in_the_log_with_commits_behind_it_is_damage(tmp_path: Path) -> None:
    filled(tmp_path, killed=True)
    log = tmp_path / "outbox.db-wal"
    data = bytearray(log.read_bytes())
    data[32 + FRAME + 9000] ^= 1
    log.write_bytes(data)
    assert "its log is damaged at byte 16440, with 5 commits behind that" in damaged(tmp_path)


def test_a_torn_last_commit_is_no_damage(tmp_path: Path) -> None:
    filled(tmp_path, killed=True)
    log = tmp_path / "outbox.db-wal"
    os.truncate(log, log.stat().st_size - 5000)
    outbox = opened(tmp_path)
    assert numbers(outbox) == [1, 2, 3, 4]
    assert outbox.holding.messages == 4
    outbox.close()


@pytest.mark.parametrize("size", [0, 100, 16384, 16384 * 3])
def test_an_outbox_that_was_cut_is_damage(tmp_path: Path, size: int) -> None:
    filled(tmp_path)
    os.truncate(tmp_path / "outbox.db", size)
    damaged(tmp_path)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("drop table meta", "meta is not the table of schema 1"),
        ("delete from meta", "the secret of its publisher is missing"),
        ("update meta set value = x'00' where key = 'secret'", "the secret of its publisher is missing"),
    ],
)
def test_an_outbox_without_its_publisher_is_damage(tmp_path: Path, statement: str, said: str) -> None:
    filled(tmp_path)
    db = apsw.Connection(str(tmp_path / "outbox.db"))
    db.execute(statement)
    db.close()
    assert said in damaged(tmp_path)


# --- copies


def test_a_copy_keeps_the_old_blocks_as_they_are_and_seals_new_ones_under_another_boot(
    tmp_path: Path,
) -> None:
    """Two outboxes that were one never have different messages under the same publisher, boot and number."""
    outbox = opened(tmp_path)
    assert not outbox.copied
    appended(outbox, sealed(outbox, 1, 3))
    outbox.close()
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "outbox.db", other / "outbox.db")
    outbox, copy = opened(tmp_path), opened(other)
    assert (outbox.copied, copy.copied) == (False, True)
    assert outbox.publisher == copy.publisher
    appended(outbox, sealed(outbox, 1, body=b"here"))
    appended(copy, sealed(copy, 1, body=b"there"))
    here, there = waiting(outbox), waiting(copy)
    assert here[0].block == there[0].block
    assert len({here[0].boot, here[1].boot, there[1].boot}) == 3
    outbox.close()
    copy.close()
    copy = opened(other)
    assert not copy.copied
    copy.close()


def test_a_backup_that_is_put_back_seals_under_another_boot(tmp_path: Path) -> None:
    """Device and number of the file are the same: only the new boot of each opening keeps its numbers
    apart."""
    outbox = opened(tmp_path)
    appended(outbox, sealed(outbox, 1))
    outbox.close()
    path = tmp_path / "outbox.db"
    backup = path.read_bytes()
    outbox = opened(tmp_path)
    first = outbox.boot
    appended(outbox, sealed(outbox, 1, body=b"sent"))
    outbox.close()
    path.write_bytes(backup)
    outbox = opened(tmp_path)
    assert not outbox.copied
    assert outbox.boot != first
    outbox.close()


def test_an_outbox_that_was_renamed_is_no_copy(tmp_path: Path) -> None:
    filled(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    os.rename(tmp_path / "outbox.db", other / "outbox.db")
    outbox = opened(other)
    assert not outbox.copied
    outbox.close()


def test_an_outbox_whose_first_look_meets_damage_is_set_aside(tmp_path: Path) -> None:
    """It was an error of the disk, which came again at each opening until somebody moved the file away."""
    filled(tmp_path)
    path = tmp_path / "outbox.db"
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("select rootpage from sqlite_master where name = 'block'").fetchone()
    data = path.read_bytes()
    at = (page - 1) * 16384
    path.write_bytes(data[:at] + b"\xff" * 200 + data[at + 200 :])
    assert "SQLite says database disk image is malformed" in refused(tmp_path, OutboxDamaged)
    outbox = opened(tmp_path)
    assert outbox.damaged_before == [str(tmp_path / f"outbox.db.damaged-{NOW_US}")]
    outbox.close()


def test_an_outbox_that_turns_out_damaged_is_set_aside_at_once(tmp_path: Path) -> None:
    filled(tmp_path)
    outbox = opened(tmp_path)
    outbox._db.execute("update block set row = 1 << 40 where row = 2")
    with pytest.raises(OutboxFailed, match="is damaged: .* out of order; it was set aside as"):
        outbox.read(0, 1 << 20)
    outbox.close()
    opened(tmp_path).close()
