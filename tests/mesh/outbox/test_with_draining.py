"""An outbox on a disk that loses power, and a home that forgets numbers below the lowest one."""

from __future__ import annotations

import random

import pytest

from mesh.database import room
from mesh.outbox.draining import Draining
from mesh.outbox.outbox import Outbox
from mesh.wire import blocks
from tests.mesh.database.memory_disk import MemoryDisk
from tests.mesh.outbox.outboxes import NOW_US, sealed

TOPICS = (b"a", b"b", b"c")
Key = tuple[int, int]


class Home:
    """Stores each block once, and refuses numbers below the lowest one that it was told."""

    def __init__(self) -> None:
        self.stored: dict[bytes, list[Key]] = {topic: [] for topic in TOPICS}
        self.away: set[bytes] = set()
        self._marks: dict[int, int] = {}

    def take(self, block: bytes, below: int) -> bool:
        _, _, _, topic_size, _, _, first, _, boot = blocks.HEAD.unpack_from(block)
        topic = block[blocks.HEAD_SIZE : blocks.HEAD_SIZE + topic_size]
        assert first >= self._marks.get(boot, 0), "the home would refuse it forever"
        if topic in self.away:
            return False
        self._marks[boot] = max(self._marks.get(boot, 0), first - below)
        if (boot, first) not in self.stored[topic]:
            self.stored[topic].append((boot, first))
        return True


class Program:
    """One run of a program with an outbox."""

    def __init__(self, disk: MemoryDisk, rng: random.Random, home: Home) -> None:
        self.outbox = Outbox.open("/state/o", token=rng.randbytes, now_us=NOW_US, files=disk, vfs=disk.name)
        self.draining = Draining(self.outbox.opened_at, window_bytes=50_000, held_max=2)
        self.now = 0.0
        self._rng = rng
        self._home = home
        self._number = 0

    def append(self) -> list[tuple[bytes, Key]]:
        """Publish some messages."""
        made: list[bytes] = []
        kept: list[tuple[bytes, Key]] = []
        for _ in range(self._rng.randint(1, 4)):
            self._number += 1
            topic = self._rng.choice(TOPICS)
            made.append(sealed(self.outbox, self._number, topic=topic, body=bytes(self._rng.randrange(9000))))
            kept.append((topic, (self.outbox.boot, self._number)))
        self.draining.appended(self.outbox.append(made, NOW_US))
        return kept

    def turn(self, *, frees: bool = True) -> None:
        """Read, send and free everything; without ``frees`` the disk does not get to freeing."""
        draining = self.draining
        if draining.boot != draining.session_boot or draining.boot is None:
            draining.session_began(draining.boot or self.outbox.boot)
        if (wanted := draining.wants()) is not None:
            draining.found(self.outbox.read(wanted.after_row, wanted.bytes_max, without=wanted.without))
        for sent in draining.take(self.now, 100_000):
            first, count = blocks.HEAD.unpack_from(sent.block)[6], blocks.HEAD.unpack_from(sent.block)[4]
            numbers = [(first, first + count - 1)]
            if not self._home.take(sent.block, sent.below):
                draining.refused(numbers, "away", self.now)
            elif ranges := draining.acknowledged(numbers):
                if frees:
                    self.outbox.free(ranges)
                    draining.freed(ranges)
        if self.outbox.checkpoint_due:
            self.outbox.checkpoint()
        self.now += 0.4


@pytest.mark.parametrize("seed", range(8))
def test_all_appended_rows_are_stored_in_order_across_power_losses(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "CHECKPOINT_PAGES", 8)
    rng, home, disk = random.Random(seed), Home(), MemoryDisk()
    appended: dict[bytes, list[Key]] = {topic: [] for topic in TOPICS}
    for _ in range(6):
        program = Program(disk, rng, home)
        for _ in range(rng.randint(3, 25)):
            if rng.random() < 0.6:
                for topic, key in program.append():
                    appended[topic].append(key)
            if rng.random() < 0.2:
                home.away ^= {rng.choice(TOPICS)}
            program.turn(frees=rng.random() < 0.8)
        # Power fails now: changes that returned are synced, and others may be lost or not.
        after = MemoryDisk(disk.after_power_loss(len(disk.operations), rng))
        program.outbox.close()
        disk.unregister()
        disk = after
    home.away.clear()
    program = Program(disk, rng, home)
    for _ in range(500):
        program.turn()
        if program.draining.drained:
            break
    assert program.outbox.holding.blocks == 0
    assert home.stored == appended
    program.outbox.close()
    disk.unregister()
