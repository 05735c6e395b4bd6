"""Production's journal on a simulated disk: its durability, and its reaction to each fault of the disk."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from contextlib import suppress

import apsw
import pytest

from mesh.database import room
from mesh.errors import JournalDamaged, JournalError, JournalFailed, JournalReadOnly, Locked, StoreFull
from mesh.journal.journal import Journal
from mesh.journal.records import Done, Subscribe, Verdict
from mesh.outbox.outbox import Outbox
from simulations.kernel.sqlite_files import SqliteDisk
from simulations.kernel.storage import Disk
from tests.mesh.journal.journals import bodies, done, store, subscribed, waiting
from tests.mesh.outbox import outboxes
from tests.simulations.kernel.sqlite_disks import FOLDER, PATH, OnDisk, new_disk, opening, state_of, twin_of


def commit(process: OnDisk, first: int, count: int = 1, **given: int | bytes) -> None:
    process.do(lambda journal: done(journal, store(first, 1, count=count, **given)))  # type: ignore[arg-type]


def with_commits(disk: Disk, count: int = 5, seed: int = 1) -> OnDisk:
    process = OnDisk(disk, seed)
    process.do(subscribed)
    for number in range(1, count + 1):
        commit(process, number)
    return process


def there(process: OnDisk) -> list[bytes]:
    return process.do(lambda journal: bodies(journal, 1))


def numbers(*parts: int) -> list[bytes]:
    return [b"body %d" % number for number in parts]


# --- durability


def test_committed_data_is_found_again() -> None:
    disk = new_disk()
    process = with_commits(disk)
    process.do(lambda journal: done(journal, Done(1, 2)))
    process.close()
    assert disk.list(FOLDER) == ["journal.db"]
    process = OnDisk(disk)
    assert there(process) == numbers(1, 3, 4, 5)
    assert process.do(lambda journal: done(journal, store(3, 1))[0].verdict) is Verdict.DUPLICATE


def test_committed_data_survives_its_process_and_a_power_loss() -> None:
    for seed in range(10):
        disk = new_disk(seed)
        process = with_commits(disk)
        process.kill()
        if seed % 2:
            disk.lose_power()
        assert there(OnDisk(disk)) == numbers(1, 2, 3, 4, 5)


def image(seed: int) -> dict[str, bytes]:
    disk = new_disk(seed)
    process = with_commits(disk, 20, seed)
    process.do(Journal.checkpoint)
    commit(process, 30)
    return disk.under("/")


def test_the_same_seed_gives_the_same_bytes() -> None:
    first = image(1)
    apsw.randomness(16)
    image(2)
    assert image(1) == first
    assert image(2) != first  # the salts of the log


def test_other_uses_of_sqlite_meanwhile_change_no_byte() -> None:
    alone = image(1)
    disk, other = new_disk(1), new_disk(5)
    process, beside = OnDisk(disk), OnDisk(other, 5)
    process.do(subscribed)
    beside.do(subscribed)
    for number in range(1, 21):
        commit(process, number)
        commit(beside, number, body=b"other")
        beside.do(Journal.checkpoint)
        apsw.Connection(":memory:").execute("select random(), randomblob(9)").fetchall()
    process.do(Journal.checkpoint)
    commit(process, 30)
    assert disk.under("/") == alone


def test_outside_of_a_job_sqlite_has_its_own_disk_and_random_numbers() -> None:
    before = apsw.vfs_names()[0]
    with_commits(new_disk())
    assert apsw.vfs_names()[0] == before
    drawn = [apsw.Connection(":memory:").execute("select random()").fetchall() for _ in range(2)]
    with_commits(new_disk())
    drawn.append(apsw.Connection(":memory:").execute("select random()").fetchall())
    assert len({row[0][0] for row in drawn}) == 3


# --- processes


def test_a_journal_that_is_open_is_locked_until_its_process_dies() -> None:
    disk = new_disk()
    process = with_commits(disk)
    with pytest.raises(Locked):
        OnDisk(disk)
    process.kill()
    other = OnDisk(disk)
    other.close()
    OnDisk(disk).close()


def test_open_files_of_a_dead_process_write_nothing() -> None:
    disk = new_disk()
    process = with_commits(disk)
    process.kill()
    before = disk.under("/")
    process.do(lambda journal: done(journal, store(9, 1)))  # nothing of it reaches the disk
    process.close()
    del process
    assert disk.under("/") == before
    assert there(OnDisk(disk)) == numbers(1, 2, 3, 4, 5)


def test_a_job_changes_nothing_before_its_operations_are_applied() -> None:
    disk = new_disk()
    process = with_commits(disk)
    before = disk.under("/")
    recorded = process.sqlite.record(lambda: done(process.journal, store(6, 1)))
    assert disk.under("/") == before
    for operation in recorded.operations:
        operation.apply(disk, 0)
    assert disk.under("/") != before and there(process) == numbers(1, 2, 3, 4, 5, 6)


def test_a_job_sees_its_own_changes_of_files() -> None:
    disk = new_disk()
    disk.write(f"{FOLDER}/old", b"old")
    sqlite = SqliteDisk(disk, random.Random(1))
    files = sqlite.files

    def job() -> None:
        assert files.size(f"{FOLDER}/none") is None and files.read(f"{FOLDER}/none") == b""
        file = files.create(f"{FOLDER}/made")
        files.write_at(f"{FOLDER}/made", file, 5000, b"x")
        files.rename(f"{FOLDER}/old", f"{FOLDER}/new")
        files.remove(f"{FOLDER}/none")
        assert files.names(FOLDER) == ["made", "new"]
        assert (files.size(f"{FOLDER}/made"), files.read(f"{FOLDER}/new")) == (5001, b"old")
        with pytest.raises(FileNotFoundError):
            files.rename(f"{FOLDER}/old", f"{FOLDER}/other")
        with pytest.raises(IsADirectoryError):
            files.size(FOLDER)
        with pytest.raises(FileNotFoundError):
            files.names("/none")

    done = sqlite.record(job)
    assert done.error is None
    assert disk.under(FOLDER) == {f"{FOLDER}/old": b"old"}
    for operation in done.operations:
        operation.apply(disk, 0)
    assert disk.under(FOLDER) == {f"{FOLDER}/made": bytes(5000) + b"x", f"{FOLDER}/new": b"old"}


def test_a_missing_folder_is_an_error_of_one_sentence() -> None:
    with pytest.raises(JournalReadOnly):
        OnDisk(Disk(random.Random(1)))


# --- faults of the disk


def test_a_full_disk_refuses_blocks_until_it_has_room() -> None:
    disk = new_disk()
    process = with_commits(disk)
    disk.fault = errno.ENOSPC
    with pytest.raises(StoreFull):
        commit(process, 6)
    assert process.do(lambda journal: waiting(journal, 1)[0].row)  # it can be read
    disk.fault = None
    commit(process, 7)
    assert there(process) == numbers(1, 2, 3, 4, 5, 7)


def test_a_journal_on_a_full_disk_can_be_consumed() -> None:
    disk = new_disk()
    process = with_commits(disk)
    disk.size_max = 40 << 20
    number = 5
    with pytest.raises(StoreFull, match="are reserved for consuming"):
        while True:
            commit(process, number + 1, body=bytes(200_000))
            number += 1
            if process.journal.checkpoint_due:
                process.do(Journal.checkpoint)
    assert disk.free_bytes() < room.RESERVE
    for row in process.do(lambda journal: [it.row for it in waiting(journal, 1, 0, 1 << 30)]):
        process.do(lambda journal, row=row: done(journal, Done(1, row)))
        if process.journal.checkpoint_due:
            process.do(Journal.checkpoint)
    commit(process, number + 1)
    assert there(process) == numbers(number + 1)


def test_a_disk_without_any_room_refuses_with_the_first_byte_too_many() -> None:
    disk = new_disk()
    process = with_commits(disk)
    disk.size_max = sum(len(data) for data in disk.under("/").values()) + 1000
    with pytest.raises(StoreFull):
        process.do(lambda journal: done(journal, Subscribe("other", ("x",))))
    assert process.do(lambda journal: len(journal.subscriptions())) == 1
    disk.size_max = None
    assert process.do(lambda journal: done(journal, Subscribe("other", ("x",))))[0].subscription


def test_a_broken_disk_ends_storing_until_the_journal_is_opened_again() -> None:
    disk = new_disk()
    process = with_commits(disk)
    disk.fault = errno.EIO
    with pytest.raises(JournalFailed):
        commit(process, 6)
    disk.fault = None
    with pytest.raises(JournalFailed):
        commit(process, 6)
    process.close()
    assert there(OnDisk(disk))[:5] == numbers(1, 2, 3, 4, 5)


def test_errors_of_the_disk_are_named() -> None:
    """Errors of simulated files had no text: the warning of a failed journal had empty parentheses."""
    for fault, why in ((errno.EIO, "Input/output error"), (errno.EROFS, "Read-only file system")):
        disk = new_disk()
        process = with_commits(disk)
        disk.fault = fault
        with pytest.raises(JournalFailed, match=rf"failed under the journal {PATH} \({why}\); it stores"):
            commit(process, 6)
    disk = new_disk()
    process = with_commits(disk)
    disk.failing_syncs = 1.0
    with pytest.raises(JournalFailed, match=rf"failed under the journal {PATH} \(Input/output error\)"):
        commit(process, 6)


def test_a_broken_disk_cannot_be_opened() -> None:
    disk = new_disk()
    with_commits(disk).close()
    disk.fault = errno.EIO
    with pytest.raises(JournalError):
        OnDisk(disk)
    disk.fault = None
    assert there(OnDisk(disk)) == numbers(1, 2, 3, 4, 5)


def test_a_failed_sync_drops_its_commit_and_none_before() -> None:
    """A journal that went on after it would promise data that the medium lacks."""
    for seed in range(8):
        disk = new_disk(seed)
        process = with_commits(disk)
        disk.failing_syncs = 1.0
        with pytest.raises(JournalFailed):
            commit(process, 6)
        disk.failing_syncs = 0.0
        with pytest.raises(JournalFailed):
            commit(process, 7)
        process.kill()
        disk.lose_power()
        assert there(OnDisk(disk)) == numbers(1, 2, 3, 4, 5)


def test_a_journal_reopened_after_a_failed_sync_shows_only_durable_commits() -> None:
    """The commit whose sync failed is still in the cache, and reading it there makes it no safer."""
    for seed in range(8):
        disk = new_disk(seed)
        process = with_commits(disk)
        disk.failing_syncs = 1.0
        with pytest.raises(JournalFailed):
            commit(process, 6)
        disk.failing_syncs = 0.0
        process.kill()
        process = OnDisk(disk)
        shown = there(process)
        commit(process, 7)
        process.kill()
        disk.lose_power()
        assert there(OnDisk(disk)) == [*shown, b"body 7"]


class OneSyncFails(Disk):
    """A disk of which one sync fails, by its number from 1 on."""

    def __init__(self, seed: int, fails: int) -> None:
        super().__init__(random.Random(seed))
        self.make_folder(FOLDER)
        self.left = fails

    def sync_error(self) -> OSError | None:
        self.left -= 1
        return None if self.left else OSError(errno.EIO, "input/output error")


def committed(disk: Disk, parts: Iterable[int]) -> list[int]:
    """The commits that return before one fails; then the process is killed."""
    returned: list[int] = []
    sqlite = SqliteDisk(disk, random.Random(1))
    with suppress(JournalError):
        journal = sqlite.at_once(opening(sqlite))
        sqlite.at_once(lambda: subscribed(journal))
        for number in parts:
            sqlite.at_once(lambda number=number: done(journal, store(number, 1)))  # type: ignore[misc]
            returned.append(number)
    sqlite.kill()
    return returned


@pytest.mark.parametrize("fails", range(1, 21))
def test_no_returned_commit_is_lost_whichever_sync_fails(fails: int) -> None:
    """SQLite does not check whether the name of a new log was synced, and lost the log with its name."""
    for seed in range(6):
        disk = OneSyncFails(seed, fails)
        returned: list[int] = []
        for first in (1, 11, 21):
            returned += committed(disk, range(first, first + 6))
            disk.lose_power()
            process = OnDisk(twin_of(disk, f"{seed}")[0])
            process.do(subscribed)
            left = there(process)
            assert [body for body in numbers(*returned) if body not in left] == []
        assert disk.left <= 0 and len(returned) > 6


def test_a_lying_disk_loses_commits_that_it_reported_as_synced() -> None:
    lost = 0
    for seed in range(12):
        disk = new_disk(seed)
        process = with_commits(disk)
        disk.lying = True
        for number in range(6, 16):
            commit(process, number)
        process.kill()
        disk.lose_power()
        try:
            found = there(OnDisk(disk))
        except JournalDamaged:
            lost += 1
            continue
        assert found[:5] == numbers(1, 2, 3, 4, 5)
        lost += len(found) < 15
    assert lost > 6


def test_a_flipped_bit_is_found_or_does_no_harm() -> None:
    """Only stored data is served."""
    found = {"damaged": 0, "whole": 0, "row": 0}
    for seed in range(30):
        disk = new_disk(seed)
        process = with_commits(disk, 8)
        process.kill()
        disk.flip(PATH + "-wal", random.Random(seed))
        try:
            process = OnDisk(disk)
        except JournalDamaged:
            found["damaged"] += 1
            continue
        names, left = process.do(state_of)
        assert names == ("mail",)
        found["whole"] += list(left) == numbers(*range(1, 9))
        found["row"] += list(left) == numbers(*range(1, 8))  # the last commit: as one that was torn
        process.close()
    assert found["damaged"] > 10
    assert sum(found.values()) == 30


def test_a_job_that_raises_leaves_the_next_one_alone() -> None:
    process = with_commits(new_disk())
    with pytest.raises(ZeroDivisionError):
        process.do(lambda journal: 1 // 0)
    commit(process, 6)
    assert there(process) == numbers(1, 2, 3, 4, 5, 6)


def test_a_process_that_opens_its_journal_twice_is_locked_out_of_the_second() -> None:
    process = with_commits(new_disk())
    with pytest.raises(Locked):
        process.sqlite.at_once(opening(process.sqlite))


def test_an_outbox_of_production_runs_on_it_unchanged() -> None:
    disk, rng = new_disk(), random.Random(1)

    def opened(sqlite: SqliteDisk) -> Outbox:
        path = f"{FOLDER}/outbox.db"
        return Outbox.open(path, token=rng.randbytes, now_us=1, files=sqlite.files, vfs=sqlite.name)

    sqlite = SqliteDisk(disk, rng)
    outbox = sqlite.at_once(lambda: opened(sqlite))
    for number in range(1, 6):
        block = outboxes.sealed(outbox, number)
        sqlite.at_once(lambda block=block: outbox.append([block], 1))  # type: ignore[misc]
    sqlite.at_once(lambda: outbox.free([(1, 2)]))
    other = SqliteDisk(disk, rng)
    with pytest.raises(Locked, match="name another file"):
        other.at_once(lambda: opened(other))
    secret = outbox.secret
    sqlite.kill()
    disk.lose_power()
    sqlite = SqliteDisk(disk, rng)
    outbox = sqlite.at_once(lambda: opened(sqlite))
    assert sqlite.at_once(lambda: outboxes.numbers(outbox)) == [3, 4, 5]
    assert (outbox.secret, outbox.copied) == (secret, False)
