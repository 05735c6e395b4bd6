"""An outbox keeps appended blocks, returns them in order, and frees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mesh.errors import OutboxFailed, StoreFull
from mesh.outbox.outbox import ROW_COST, Outbox
from mesh.outbox.records import Damaged, Holding
from mesh.wire import blocks
from tests.mesh.database.disks import FaultyFiles, faulty_disk
from tests.mesh.outbox.outboxes import NOW_US, appended, numbers, opened, sealed, waiting

ROOT = Path(__file__).resolve().parents[3]


def test_appended_rows_are_read_from_the_oldest_and_freed(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    made = [sealed(outbox, first, 10) for first in range(1, 100, 10)]
    rows = appended(outbox, *made)
    assert rows == list(range(1, 11))
    found = waiting(outbox)
    assert [row.block for row in found] == made
    assert [(row.row, row.boot, row.first, row.last, row.topic) for row in found[:2]] == [
        (1, outbox.boot, 1, 10, b"a"),
        (2, outbox.boot, 11, 20, b"a"),
    ]
    assert outbox.holding == Holding(10, 100, sum(map(len, made)) + 10 * ROW_COST)
    outbox.free([(1, 3), (5, 5), (70, 90)])
    assert [row.row for row in waiting(outbox)] == [4, 6, 7, 8, 9, 10]
    assert outbox.holding.messages == 60
    outbox.free([(1, 10)])
    assert outbox.holding == Holding(0, 0, 0)
    # Rows rise within one opening, so that a reader behind a row misses none.
    assert appended(outbox, sealed(outbox, 101)) == [11]
    outbox.close()


def test_reading_is_bounded_and_continues_after_a_row(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    appended(outbox, *(sealed(outbox, number, body=bytes(1000)) for number in range(1, 11)))
    assert [row.row for row in waiting(outbox, 0, 1)] == [1]
    assert [row.row for row in waiting(outbox, 1, 3000)] == [2, 3, 4]
    assert [row.row for row in waiting(outbox, 4, 1 << 20, rows_max=2)] == [5, 6]
    assert waiting(outbox, 10) == []
    outbox.close()


def test_topics_can_be_passed_over(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    appended(outbox, *(sealed(outbox, number, topic=b"abc"[number % 3 :][:1]) for number in range(1, 10)))
    assert [row.topic for row in waiting(outbox, without=[b"a", b"b"])] == [b"c"] * 3
    assert waiting(outbox, without=[b"a", b"b", b"c"]) == []
    assert len(waiting(outbox, without=[b"%d" % number for number in range(256)])) == 9
    outbox.close()


def test_a_large_body_is_many_rows_of_one_number_and_one_message(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    pieces = blocks.seal_pieces(
        b"big", bytes(200_000), publisher=outbox.publisher, boot=outbox.boot, sequence=7
    )
    appended(outbox, *pieces)
    assert [(row.first, row.last) for row in waiting(outbox)] == [(7, 7)] * 4
    assert outbox.holding.messages == 1
    assert outbox.holding.blocks == 4
    outbox.close()


def test_an_outbox_is_the_same_publisher_with_a_new_boot_after_a_restart(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    before = outbox.secret, outbox.publisher, outbox.boot
    block = sealed(outbox, 1, 5)
    appended(outbox, block)
    outbox.close()
    outbox = opened(tmp_path)
    assert (outbox.secret, outbox.publisher) == before[:2]
    assert outbox.boot != before[2]
    (row,) = waiting(outbox)
    assert (row.block, row.boot) == (block, before[2])
    assert outbox.opened_at == 1
    assert outbox.holding.messages == 5
    # Numbers begin anew with the boot.
    assert appended(outbox, sealed(outbox, 1)) == [2]
    outbox.close()


def test_blocks_of_others_and_numbers_given_already_are_refused(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    appended(outbox, sealed(outbox, 5, 3))
    for first in (5, 7):
        with pytest.raises(ValueError, match=f"begins with number {first}, and 7 was given already"):
            appended(outbox, sealed(outbox, first))
    with pytest.raises(ValueError, match="begins with number 8, and 9 was given already"):
        appended(outbox, sealed(outbox, 8, 2), sealed(outbox, 8))
    other = blocks.seal(b"a", [b""], publisher=outbox.publisher, boot=outbox.boot + 1, sequence=9)
    with pytest.raises(ValueError, match="is not of this outbox's"):
        appended(outbox, other)
    assert numbers(outbox) == [5]
    assert appended(outbox, sealed(outbox, 8)) == [2]
    outbox.close()


def test_blocks_that_pass_the_bound_are_refused_whole_and_fit_once_it_drained(tmp_path: Path) -> None:
    outbox = opened(tmp_path, max_bytes=10_000)
    appended(outbox, *(sealed(outbox, number, body=bytes(2000)) for number in range(1, 5)))
    size = outbox.holding.size
    more = [sealed(outbox, number, body=bytes(500)) for number in range(5, 9)]
    with pytest.raises(
        StoreFull, match=rf"holds {size} of 10000 bytes, and \d+ more do not fit; let it drain"
    ):
        appended(outbox, *more)
    assert numbers(outbox) == [1, 2, 3, 4]
    outbox.free([(1, 2)])
    appended(outbox, *more)
    assert numbers(outbox) == [3, 4, 5, 6, 7, 8]
    outbox.close()
    with pytest.raises(ValueError, match="max_bytes is 1 or more"):
        opened(tmp_path, max_bytes=0)


def test_freeing_and_appending_can_be_one_synced_commit(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        outbox = opened(tmp_path, vfs=disk.name)
        appended(outbox, sealed(outbox, 1), sealed(outbox, 2))
        disk.operations.clear()
        outbox.change([sealed(outbox, 3)], [(1, 1)], NOW_US)
        assert disk.syncs("-wal") == 1
        disk.operations.clear()
        outbox.free([(2, 2)])
        assert disk.syncs("-wal") == 1
        assert numbers(outbox) == [3]
        outbox.close()


def test_a_disk_with_less_than_its_reserve_takes_nothing_and_frees(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        outbox = opened(tmp_path, vfs=disk.name, files=FaultyFiles(disk))
        appended(outbox, *(sealed(outbox, number, body=bytes(10_000)) for number in range(1, 11)))
        disk.left = 9 << 20
        with pytest.raises(
            StoreFull, match="are reserved for consuming what is stored; make room or let it drain"
        ):
            appended(outbox, sealed(outbox, 11))
        outbox.free([(1, 9)])
        assert numbers(outbox) == [10]
        disk.left = None
        appended(outbox, sealed(outbox, 11))
        outbox.close()


def test_a_full_disk_refuses_and_an_error_of_the_disk_ends_it(tmp_path: Path) -> None:
    with faulty_disk() as disk:
        outbox = opened(tmp_path, vfs=disk.name)
        appended(outbox, sealed(outbox, 1))
        disk.left = 0
        with pytest.raises(StoreFull):
            appended(outbox, sealed(outbox, 2, body=bytes(100_000)))
        disk.left = None
        appended(outbox, sealed(outbox, 2))
        disk.fail_at = len(disk.operations) + 1
        with pytest.raises(OutboxFailed, match="it stores nothing until it is opened again"):
            appended(outbox, sealed(outbox, 3))
        for refused in (lambda: appended(outbox, sealed(outbox, 4)), lambda: outbox.free([(1, 1)])):
            with pytest.raises(OutboxFailed, match="the disk failed under the outbox"):
                refused()
        assert outbox.holding.messages == 2
        outbox.close()
    outbox = opened(tmp_path)
    assert numbers(outbox) == [1, 2]
    outbox.close()


def test_an_outbox_with_a_removed_file_refuses_appends(tmp_path: Path) -> None:
    """SQLite went on in a file that had no name any more: its messages were lost when the program ended."""
    outbox = opened(tmp_path)
    appended(outbox, sealed(outbox, 1))
    (tmp_path / "outbox.db").unlink()
    with pytest.raises(OutboxFailed, match="it was removed, or another was put in its place"):
        appended(outbox, sealed(outbox, 2))
    outbox.close()


def test_a_damaged_block_is_named_and_the_others_are_served(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    appended(outbox, *(sealed(outbox, number, body=b"needle-%d" % number) for number in range(1, 4)))
    outbox.close()
    path = tmp_path / "outbox.db"
    data = path.read_bytes()
    assert data.count(b"needle-2") == 1
    path.write_bytes(data.replace(b"needle-2", b"noodle-2"))
    outbox = opened(tmp_path)
    first, second, third = outbox.read(0, 1 << 20)
    assert isinstance(second, Damaged)
    assert (second.row, second.first) == (2, 2)
    assert "do not have the CRC they were appended with" in second.reason
    assert (first.row, third.row) == (1, 3)
    outbox.close()


def test_the_log_of_an_outbox_is_moved_when_it_has_grown(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    number = 0
    while not outbox.checkpoint_due:
        number += 1
        appended(outbox, sealed(outbox, number, body=bytes(60_000)))
    outbox.checkpoint()
    assert not outbox.checkpoint_due
    assert len(numbers(outbox)) == number
    outbox.close()
    assert [path.name for path in tmp_path.iterdir()] == ["outbox.db"]


def test_freed_pages_are_used_again(tmp_path: Path) -> None:
    """The file of an outbox that drains does not grow without end."""
    outbox = opened(tmp_path)
    sizes = []
    for number in range(1, 400):
        appended(outbox, sealed(outbox, number, body=bytes(20_000)))
        if number > 10:
            outbox.free([(number - 10, number - 10)])
        if outbox.checkpoint_due:
            outbox.checkpoint()
            sizes.append((tmp_path / "outbox.db").stat().st_size)
    assert len(sizes) > 3
    assert sizes[-1] <= sizes[0] * 2
    outbox.close()


FORKED = """
import os, sys
from pathlib import Path
from mesh.errors import OutboxError
from tests.mesh.outbox.outboxes import appended, numbers, opened, sealed
folder = Path(sys.argv[1])
outbox = opened(folder)
appended(outbox, sealed(outbox, 1))
block = sealed(outbox, 2)
child = os.fork()
if not child:
    code = 0
    for use in (lambda: appended(outbox, block), lambda: outbox.free([(1, 1)]), lambda: outbox.read(0, 1),
                outbox.checkpoint):
        try:
            use()
            code = 1
        except OutboxError as error:
            said = f"was opened by process {os.getppid()}, of which this is a fork"
            code = code or 2 * (said not in str(error))
    outbox.close()
    try:
        opened(folder)
        code = 3
    except OutboxError:
        code = 4
    except Exception as error:
        code = code or 5 * ("is in use by" not in str(error))
    os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
appended(outbox, sealed(outbox, 2))
assert numbers(outbox) == [1, 2]
outbox.close()
"""


@pytest.mark.process
def test_a_forked_process_cannot_use_its_parents_outbox(tmp_path: Path) -> None:
    """It would have sealed other messages under the same boot and numbers."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    outbox: Outbox = opened(tmp_path)
    assert numbers(outbox) == [1, 2]
    outbox.close()
