"""A power loss at any point: appended blocks are there, and freed ones are gone.

The second matters as much: homes are told that freed blocks will not come again, and would refuse them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import apsw
import pytest

from mesh.database import room, settings
from mesh.errors import MeshError
from mesh.outbox.outbox import Outbox
from tests.mesh.database.memory_disk import MemoryDisk
from tests.mesh.outbox.outboxes import NOW_US, sealed, waiting

EVERY = 4
"""One in so many power losses is followed by more work and a second power loss."""

State = frozenset[tuple[int, int]]
"""Boots and numbers of waiting blocks."""


def opened_on(disk: MemoryDisk, rng: random.Random) -> Outbox:
    return Outbox.open("/state/o", token=rng.randbytes, now_us=NOW_US, files=disk, vfs=disk.name)


def state(outbox: Outbox) -> State:
    found = waiting(outbox)
    assert [row.row for row in found] == sorted(row.row for row in found)
    counts = outbox.holding
    assert (counts.blocks, counts.messages) == (len(found), len(found))
    return frozenset((row.boot, row.first) for row in found)


@dataclass
class Life:
    """One opening of an outbox: when each commit began, and what waited after it."""

    before: State = frozenset()
    commits: list[tuple[int, int, State]] = field(default_factory=list)

    def may_hold(self, at: int) -> set[State]:
        """The states that a power loss after so many operations may leave."""
        sure = self.before
        for began, ended, after in self.commits:
            if ended <= at:
                sure = after
            elif began < at:
                return {sure, after}
        return {sure}

    def work(self, disk: MemoryDisk, outbox: Outbox, commits: int, rng: random.Random) -> None:
        number = 1
        for _ in range(commits):
            made = []
            for _ in range(rng.randint(0, 3)):
                made.append(sealed(outbox, number, body=bytes(rng.randrange(20_000))))
                number += 1
            rows = [(row.row, row.row) for row in waiting(outbox) if rng.random() < 0.3]
            began = len(disk.operations)
            outbox.change(made, rows, NOW_US)
            self.commits.append((began, len(disk.operations), state(outbox)))
            if outbox.checkpoint_due:
                outbox.checkpoint()


def losses(seed: int) -> Iterator[bool]:
    """For each operation: True if a power loss after it lost, brought back or damaged something."""
    rng = random.Random(seed)
    disk, life = MemoryDisk(), Life()
    outbox = opened_on(disk, rng)
    secret = outbox.secret
    made = len(disk.operations)
    life.work(disk, outbox, 14, rng)
    outbox.close()
    disk.unregister()
    for at in range(made, len(disk.operations) + 1):
        second = MemoryDisk(disk.after_power_loss(at, rng))
        try:
            outbox = opened_on(second, rng)
            found = state(outbox)
            wrong = found not in life.may_hold(at) or outbox.secret != secret
            if at % EVERY == 0:
                wrong |= is_lost_again(second, outbox, found, rng)
            else:
                outbox.close()
        # state that was not synced may be anything
        except (MeshError, apsw.Error, AssertionError, TypeError):
            wrong = True
        second.unregister()
        yield wrong


def is_lost_again(disk: MemoryDisk, outbox: Outbox, found: State, rng: random.Random) -> bool:
    """True if more work and a second power loss lose something."""
    life = Life(found)
    begun = len(disk.operations)
    life.work(disk, outbox, 4, rng)
    at = rng.randint(begun, len(disk.operations))
    outbox.close()
    third = MemoryDisk(disk.after_power_loss(at, rng))
    outbox = opened_on(third, rng)
    whole = outbox._db.execute("pragma integrity_check").fetchall() == [("ok",)]
    lost = state(outbox) not in life.may_hold(at)
    outbox.close()
    third.unregister()
    return lost or not whole


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the log small, so that there are checkpoints during the work."""
    monkeypatch.setattr(room, "CHECKPOINT_PAGES", 8)


def test_a_power_loss_at_any_operation_loses_nothing_and_brings_nothing_back() -> None:
    assert not any(losses(seed=1))


def test_an_outbox_that_does_not_sync_fails_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows that the test above can fail."""
    pragmas = tuple((name, 0 if name == "synchronous" else value) for name, value in settings.PRAGMAS)
    monkeypatch.setattr(settings, "PRAGMAS", pragmas)
    assert any(losses(seed=1))


def test_a_crash_at_each_operation_of_making_an_outbox_leaves_none_or_a_whole_one() -> None:
    rng = random.Random(1)
    disk = MemoryDisk()
    outbox = opened_on(disk, rng)
    operations = len(disk.operations)
    outbox.close()
    disk.unregister()
    assert operations > 10
    for at in range(operations + 1):
        second = MemoryDisk(disk.after_power_loss(at, rng))
        outbox = opened_on(second, rng)
        outbox.append([sealed(outbox, 1)], NOW_US)
        assert state(outbox) == {(outbox.boot, 1)}
        outbox.close()
        second.unregister()
