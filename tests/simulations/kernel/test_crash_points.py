"""A crash at every operation on the disk: a journal opens, and each commit is there completely or not at
all.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mesh.database import settings
from mesh.errors import JournalError
from mesh.journal.journal import Journal
from mesh.journal.records import Bury, Done, Settle
from simulations.kernel.recording import Operation, What
from simulations.kernel.sqlite_files import Recorded, SqliteDisk
from tests.mesh.journal.journals import done, pieces, store, subscribed
from tests.simulations.kernel.sqlite_disks import (
    PATH,
    OnDisk,
    State,
    crashes,
    is_sound,
    new_disk,
    opening,
    rows_by_the_standard_library,
    rows_in,
    state_of,
    twin_of,
    written_to,
)

Job = tuple[str, Callable[[Journal], object]]


def jobs() -> Iterator[Job]:
    """A life of a journal."""
    yield "subscribe", subscribed
    for number in range(1, 6):
        yield f"commit {number}", lambda journal, number=number: done(journal, store(number, 1))
    yield "commit many", lambda journal: done(journal, *(store(number, 1) for number in range(6, 26)))
    yield "commit large", lambda journal: done(journal, *pieces(26, 1, body=bytes(400_000)))
    yield "checkpoint", Journal.checkpoint
    yield "settle", lambda journal: done(journal, *(Done(1, row) for row in range(1, 12)))
    yield "bury", lambda journal: done(journal, Bury(1, 13, 0, "poison", 20))
    yield "commit count", lambda journal: done(journal, store(30, 1, count=9))
    yield "settle part", lambda journal: done(journal, Settle(1, 12, 0))
    yield "checkpoint again", Journal.checkpoint
    yield "commit again", lambda journal: done(journal, store(40, 1))
    yield "close", Journal.close


@dataclass
class Found:
    """The findings at crash points."""

    points: int = 0
    wrong: list[str] = field(default_factory=list)
    struck: set[tuple[str, What]] = field(default_factory=set)
    """Jobs, and operations at which they were cut."""


def crash_everywhere(seed: int, *, every: int = 1, folder: Path | None = None) -> Found:
    """Crash at each ``every``-th operation of a journal's life, and at the end of each job.

    With ``folder``, the standard library's SQLite also opens the images, there.
    """
    found = Found()
    disk = new_disk(seed)
    state: State = ((), ())
    for life, plan in enumerate((list(jobs()), [("close", Journal.close)], [])):
        sqlite = SqliteDisk(disk, random.Random(f"{seed}:sqlite:{life}"))
        journal = _crash_within(
            f"{seed}:{life}:open", sqlite, opening(sqlite), state, every, folder, found
        ).value()
        for name, job in plan:
            _crash_within(
                f"{seed}:{life}:{name}", sqlite, partial(job, journal), state, every, folder, found
            ).value()
            if job is not Journal.close:
                state = sqlite.at_once(partial(state_of, journal))
        sqlite.kill()
    return found


def _crash_within(
    name: str,
    sqlite: SqliteDisk,
    job: Callable[[], Any],
    before: State,
    every: int,
    folder: Path | None,
    found: Found,
) -> Recorded[Any]:
    """Do a job, with crashes; each leaves the state before it or the one after it."""
    done = sqlite.record(job)
    left: list[tuple[Operation | None, State | str]] = []
    for crash in crashes(sqlite.disk, done.operations, name, every):
        found.points += 1
        what = crash.at.what if crash.at is not None else None
        if what is not None:
            found.struck.add((name.rpartition(":")[2], what))
        if folder is not None and PATH in crash.disk.files:
            image = written_to(folder / "image", crash.disk)
            rows = rows_by_the_standard_library(image)
            shutil.rmtree(folder / "image")
        else:
            rows = None
        try:
            process = OnDisk(crash.disk, name)
        except JournalError as error:
            left.append((crash.at, str(error)))
            continue
        if not process.do(is_sound):
            left.append((crash.at, "integrity_check"))
        elif rows is not None and rows != process.do(rows_in):
            left.append((crash.at, "the standard library finds other rows"))
        else:
            left.append((crash.at, process.do(state_of)))
        process.close()
    after = OnDisk(twin_of(sqlite.disk, name)[0], name).do(state_of)
    for at, state in left:
        if state != after and (at is None or state != before):
            found.wrong.append(f"{name} {at.what if at else 'over'}: {state!r:.200}")
    return done


def test_a_crash_at_some_operations_loses_no_commit_and_leaves_none_partly(tmp_path: Path) -> None:
    found = crash_everywhere(0, every=7, folder=tmp_path)
    assert found.wrong == []
    assert found.points > 50


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_a_crash_at_any_operation_loses_no_commit_and_leaves_none_partly(tmp_path: Path, seed: int) -> None:
    found = crash_everywhere(seed, folder=tmp_path)
    assert found.wrong == []
    assert found.points > 300
    struck = {what for _, what in found.struck}
    assert struck >= {
        What.CREATE,
        What.WRITE,
        What.TRUNCATE,
        What.SYNC,
        What.SYNC_NAMES,
        What.RENAME,
        What.REMOVE,
    }
    for job in ("open", "commit 3", "checkpoint", "settle", "close"):
        assert {(job, What.WRITE), (job, What.SYNC)} <= found.struck


def crash_while_opening_again(seed: int, *, every: int, then_every: int) -> tuple[int, list[str]]:
    """Crash at each ``every``-th operation of a journal's life, then at each ``then_every``-th of opening it.

    Returns how often it crashed twice, and where the content differed from that after one crash.
    """
    disk, points, wrong = new_disk(seed), 0, []
    sqlite = SqliteDisk(disk, random.Random(f"{seed}:sqlite"))
    journal = sqlite.at_once(opening(sqlite))
    for name, job in jobs():
        for crash in crashes(disk, sqlite.record(partial(job, journal)).operations, name, every):
            once = OnDisk(twin_of(crash.disk, name)[0], name).do(state_of)
            again = SqliteDisk(crash.disk, random.Random(name))
            operations = again.record(opening(again)).operations
            again.kill()
            for second in crashes(crash.disk, operations, f"{name} again", then_every):
                points += 1
                process = OnDisk(second.disk, name)
                if process.do(state_of) != once or not process.do(is_sound):
                    wrong.append(f"{name}, {crash.at and crash.at.what}, {second.at and second.at.what}")
    return points, wrong


def test_a_crash_while_a_journal_is_opened_after_a_crash_changes_nothing() -> None:
    points, wrong = crash_while_opening_again(0, every=40, then_every=9)
    assert wrong == []
    assert points > 30


@pytest.mark.long
def test_a_crash_while_a_journal_is_opened_after_any_crash_changes_nothing() -> None:
    points, wrong = crash_while_opening_again(1, every=5, then_every=1)
    assert wrong == []
    assert points > 500


@pytest.mark.parametrize("synchronous", [0, 1], ids=["off", "normal"])
def test_commits_that_are_not_synced_fail_these_tests(
    monkeypatch: pytest.MonkeyPatch, synchronous: int
) -> None:
    """A planted bug: the same test fails for a journal that breaks its promise."""
    pragmas = tuple(
        (name, synchronous if name == "synchronous" else value) for name, value in settings.PRAGMAS
    )
    monkeypatch.setattr(settings, "PRAGMAS", pragmas)
    found = crash_everywhere(0, every=7)
    assert len(found.wrong) > 5, found
