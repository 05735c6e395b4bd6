"""A power loss at any point: committed data is there, and other data is there completely or not at all."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import apsw
import pytest

from mesh.database import room, settings
from mesh.errors import MeshError
from mesh.journal.journal import Journal
from mesh.journal.records import Done, Entry
from mesh.wire import blocks
from tests.mesh.database.memory_disk import MemoryDisk
from tests.mesh.journal.journals import BROKER, MESH, NOW_US, done, store, subscribed, waiting

POINTS = 150
"""Power losses in one test; each is followed by more work and a second one."""


def opened_on(disk: MemoryDisk) -> Journal:
    return Journal.open("/state/j", broker=BROKER, mesh=MESH, now_us=NOW_US, files=disk, vfs=disk.name)


def numbers(journal: Journal) -> frozenset[int]:
    """The numbers of the waiting messages."""
    ids = [kept.id for kept in journal.subscriptions()]
    return frozenset(blocks.open_block(row.block).sequence for id in ids for row in waiting(journal, id))


@dataclass
class Life:
    """The history of one life of a journal: when each commit began, and what waited after it."""

    before: frozenset[int] = frozenset()
    commits: list[tuple[int, int, frozenset[int]]] = field(default_factory=list)

    def may_hold(self, at: int) -> set[frozenset[int]]:
        """The possible contents after a power loss behind so many operations."""
        sure = self.before
        for began, ended, after in self.commits:
            if ended <= at:
                sure = after
            elif began < at:
                return {sure, after}
        return {sure}

    def work(self, disk: MemoryDisk, journal: Journal, first: int, commits: int, rng: random.Random) -> None:
        kept = journal.subscriptions()
        mail = kept[0].id if kept else subscribed(journal)
        for _ in range(commits):
            rows = [row for row in waiting(journal, mail) if rng.random() < 0.3]
            entries: list[Entry] = [Done(mail, row.row) for row in rows]
            for _ in range(rng.randint(1, 3)):
                entries.append(store(first, mail, body=bytes(rng.randrange(20_000))))
                first += 1
            began = len(disk.operations)
            done(journal, *entries)
            self.commits.append((began, len(disk.operations), numbers(journal)))
            if journal.checkpoint_due:
                journal.checkpoint()


def losses(seed: int) -> int:
    """The number of `POINTS` power losses that lost or damaged something."""
    rng = random.Random(seed)
    disk, life = MemoryDisk(), Life()
    journal = opened_on(disk)
    life.work(disk, journal, 1, 14, rng)
    journal.close()
    disk.unregister()
    wrong = 0
    for _ in range(POINTS):
        at = rng.randint(0, len(disk.operations))
        second = MemoryDisk(disk.after_power_loss(at, rng))
        try:
            journal = opened_on(second)
            found = numbers(journal)
            wrong += found not in life.may_hold(at)
            again = Life(found)
            begun = len(second.operations)
            again.work(second, journal, 1000, 4, rng)
            at = rng.randint(begun, len(second.operations))
            third = MemoryDisk(second.after_power_loss(at, rng))
            journal.close()
            journal = opened_on(third)
            wrong += numbers(journal) not in again.may_hold(at)
            wrong += journal._db.execute("pragma integrity_check").fetchall() != [("ok",)]
            journal.close()
            third.unregister()
        except (MeshError, apsw.Error, AssertionError):
            wrong += 1
        second.unregister()
    return wrong


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the log small, so that there are checkpoints during the work."""
    monkeypatch.setattr(room, "CHECKPOINT_PAGES", 8)


def test_a_power_loss_at_any_operation_loses_nothing_that_was_committed() -> None:
    assert losses(seed=1) == 0


def test_a_journal_that_does_not_sync_fails_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    pragmas = tuple((name, 0 if name == "synchronous" else value) for name, value in settings.PRAGMAS)
    monkeypatch.setattr(settings, "PRAGMAS", pragmas)
    assert losses(seed=1) > 0
