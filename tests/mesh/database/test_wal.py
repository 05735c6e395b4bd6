"""A log that a crash cut short opens; a log with damage before synced commits does not."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import apsw
import pytest

from mesh.database.wal import FRAME, HEADER, Scan, scan

PAGE = 512


def log_of(folder: Path, commits: int, rng: random.Random | None = None) -> bytes:
    """The log of a database after so many commits of a few frames each, as a kill leaves it."""
    rng = rng or random.Random(1)
    path = folder / f"log-{rng.random()}.db"
    db = apsw.Connection(str(path))
    for pragma in (f"page_size={PAGE}", "locking_mode=exclusive", "journal_mode=wal", "wal_autocheckpoint=0"):
        db.execute(f"pragma {pragma}")
    db.execute("create table block(row integer primary key, data blob)")
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    for _ in range(commits):
        db.execute("insert into block(data) values(?)", (rng.randbytes(700),))
    data = Path(f"{path}-wal").read_bytes()
    db.close()
    return data


def frames_of(data: bytes) -> int:
    return (len(data) - HEADER.size) // (FRAME.size + PAGE)


def ends(data: bytes) -> list[int]:
    """Numbers of the frames that end a commit."""
    step = FRAME.size + PAGE
    return [
        index
        for index in range(frames_of(data))
        if struct.unpack_from(">I", data, HEADER.size + index * step + 4)[0]
    ]


def flip(data: bytes, at: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def blank(data: bytes, frame: int) -> bytes:
    """The log without one frame, as if that write had never reached the disk."""
    step = FRAME.size + PAGE
    at = HEADER.size + frame * step
    return data[:at] + bytes(step) + data[at + step :]


def test_a_whole_log_has_all_its_commits(tmp_path: Path) -> None:
    data = log_of(tmp_path, 4)
    found = scan(data, PAGE)
    assert found.damaged_at is None
    assert found.frames == frames_of(data) == ends(data)[-1] + 1
    assert found.pages and max(found.pages) <= 100


@pytest.mark.parametrize("size", [0, 1, 31, 32, 40])
def test_a_log_without_a_frame_is_whole(tmp_path: Path, size: int) -> None:
    assert scan(log_of(tmp_path, 1)[:size], PAGE) == Scan(0, frozenset())


def test_every_flipped_bit_before_the_last_commit_is_found(tmp_path: Path) -> None:
    """One flipped bit made 61 of 100 synced commits vanish silently."""
    data = log_of(tmp_path, 3)
    step = FRAME.size + PAGE
    last = HEADER.size + (ends(data)[-2] + 1) * step
    rng = random.Random(3)
    missed = []
    for at in range(last):
        bit = rng.randrange(8)
        if scan(flip(data, at, bit), PAGE).damaged_at is None:
            missed.append((at, bit))
    assert not missed


def test_a_flipped_bit_in_the_last_commit_looks_like_a_torn_one(tmp_path: Path) -> None:
    data = log_of(tmp_path, 3)
    step = FRAME.size + PAGE
    first = HEADER.size + (ends(data)[-2] + 1) * step
    for at in range(first, len(data), 7):
        found = scan(flip(data, at), PAGE)
        assert found.damaged_at is None
        assert found.frames == ends(data)[-2] + 1


def test_a_log_cut_anywhere_opens_with_the_commits_before(tmp_path: Path) -> None:
    data = log_of(tmp_path, 4)
    step = FRAME.size + PAGE
    for size in range(0, len(data), 101):
        found = scan(data[:size], PAGE)
        assert found.damaged_at is None
        whole = [end for end in ends(data) if HEADER.size + (end + 1) * step <= size]
        assert found.frames == (whole[-1] + 1 if whole else 0)


def test_a_last_commit_with_any_missing_frames_is_torn(tmp_path: Path) -> None:
    data = log_of(tmp_path, 4)
    for frame in range(ends(data)[-2] + 1, frames_of(data)):
        assert scan(blank(data, frame), PAGE).damaged_at is None


def test_a_missing_frame_with_two_commits_behind_it_is_damage(tmp_path: Path) -> None:
    data = log_of(tmp_path, 4)
    found = scan(blank(data, 0), PAGE)
    assert found.damaged_at == HEADER.size
    assert found.lost == 4
    assert scan(blank(data, ends(data)[0]), PAGE).damaged_at is not None


def test_frames_of_an_older_generation_behind_the_end_are_no_damage(tmp_path: Path) -> None:
    """A restarted log is written over the old one, which extends further."""
    new, old = log_of(tmp_path, 2, random.Random(5)), log_of(tmp_path, 6, random.Random(6))
    mixed = new + old[len(new) :]
    found = scan(mixed, PAGE)
    assert found.damaged_at is None
    assert found.frames == frames_of(new)
    torn = blank(mixed, ends(new)[-1] - 1)
    assert scan(torn, PAGE).damaged_at is None


def test_remains_of_failed_commits_are_no_damage(tmp_path: Path) -> None:
    """The remains of two torn commits of one generation, both with their last frames, are two commits behind
    a bad frame but no loss."""
    data = log_of(tmp_path, 5)
    last, before = ends(data)[-1], ends(data)[-2]
    step = FRAME.size + PAGE
    tail = data[HEADER.size + (before + 1) * step :]
    # The last commit is torn. Behind it is the end of an earlier, longer one that continues nothing here.
    remains = blank(data, before + 1) + bytes(step) + tail[step:]
    assert last - before > 1
    assert scan(remains, PAGE).damaged_at is None


def test_copies_that_fill_a_sector_are_one_commit(tmp_path: Path) -> None:
    data = log_of(tmp_path, 2)
    step = FRAME.size + PAGE
    page, commit, salt0, salt1, sum0, sum1 = FRAME.unpack_from(data, len(data) - step)
    body = data[-PAGE:]
    from mesh.database.wal import _Log

    log = _Log(data, PAGE, big=False)
    one, two = log.sum(struct.pack(">2I", page, commit) + body, (sum0, sum1))
    padded = data + FRAME.pack(page, commit, salt0, salt1, one, two) + body
    assert scan(padded, PAGE).frames == frames_of(data) + 1
    torn = blank(padded, ends(data)[-2] + 1)
    assert scan(torn, PAGE).damaged_at is None


def test_pages_behind_a_bad_header_are_read_as_of_the_last_commit(tmp_path: Path) -> None:
    data = log_of(tmp_path, 3)
    step = FRAME.size + PAGE
    last = {}
    for index in range(frames_of(data)):
        at = HEADER.size + index * step
        last[struct.unpack_from(">I", data, at)[0]] = data[at + FRAME.size : at + step]
    assert scan(data, PAGE).ignored == {}
    assert scan(flip(data, 20), PAGE).ignored == last
    unfinished = scan(flip(data[:-step], 20), PAGE).ignored
    assert unfinished and unfinished != last


def test_a_header_that_is_gone_is_damage(tmp_path: Path) -> None:
    data = log_of(tmp_path, 3)
    found = scan(bytes(32) + data[32:], PAGE)
    assert found.damaged_at == 0
    assert found.lost == 3
