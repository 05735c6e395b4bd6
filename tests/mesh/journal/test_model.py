"""Any commits, in any order, with restarts and failures between them: a journal equals its model."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mesh.errors import JournalFailed, StoreFull
from mesh.journal.records import (
    Block,
    Bury,
    Done,
    Entry,
    Requeue,
    Settle,
    Store,
    Subscribe,
    Unsubscribe,
    Verdict,
    floor_and_bitmap,
    settled_mask,
)
from mesh.wire import blocks
from tests.mesh.database.disks import FaultyDisk
from tests.mesh.journal.journals import NOW_US, bodies, opened, store, waiting

SEEDS = st.integers(0, (1 << 32) - 1)
NAMES = ("a", "b", "c")
KINDS = (
    "new",
    "new",
    "again",
    "odd",
    "settle",
    "done",
    "bury",
    "bury",
    "requeue",
    "subscribe",
    "unsubscribe",
)
Message = tuple[int, int]  # publisher and number


class Model:
    """The expected content: for each subscription its rows, each with its messages and the settled ones."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.rows: dict[int, dict[int, list[Message]]] = {}
        self.settled: dict[tuple[int, int], int] = {}
        self.came: dict[int, dict[tuple[int, int], bytes]] = {}
        self.lowest: dict[int, int] = {}

    def copy(self) -> Model:
        other = Model()
        other.ids = dict(self.ids)
        other.rows = {id: {row: list(found) for row, found in rows.items()} for id, rows in self.rows.items()}
        other.settled = dict(self.settled)
        other.came = {publisher: dict(ranges) for publisher, ranges in self.came.items()}
        other.lowest = dict(self.lowest)
        return other

    def verdict(self, entry: Store) -> Verdict:
        mark = self.lowest.get(entry.publisher, 0)
        if entry.first < mark:
            return Verdict.PAST
        self.lowest[entry.publisher] = max(mark, min(entry.lowest, entry.first))
        ranges = self.came.setdefault(entry.publisher, {})
        if ranges.get((entry.first, entry.last)) == entry.block:
            return Verdict.DUPLICATE
        if any(first <= entry.last and entry.first <= last for first, last in ranges):
            return Verdict.CONFLICT
        if not any(id in self.rows for id in entry.wants):
            return Verdict.UNWANTED
        ranges[entry.first, entry.last] = entry.block
        return Verdict.STORED

    def name_of(self, subscription: int) -> str:
        return next((name for name, id in self.ids.items() if id == subscription), "")

    def left(self, subscription: int) -> list[Message]:
        return [
            message
            for row, found in sorted(self.rows[subscription].items())
            for index, message in enumerate(found)
            if not self.settled.get((subscription, row), 0) >> index & 1
        ]

    def tidy(self, subscription: int, row: int) -> None:
        every = (1 << len(self.rows[subscription][row])) - 1
        if self.settled.get((subscription, row), 0) & every == every:
            del self.rows[subscription][row]

    def apply(self, entry: Entry, answer: Any) -> Verdict:
        """Apply an entry. Returns the verdict that the journal should give. Takes over its row numbers."""
        match entry:
            case Store():
                verdict = self.verdict(entry)
                if verdict is Verdict.STORED:
                    found = [(entry.publisher, number) for number in range(entry.first, entry.last + 1)]
                    for id in entry.wants:
                        if id in self.rows:
                            self.rows[id][answer.row] = found
                return verdict
            case Subscribe(name):
                if name not in self.ids:
                    self.ids[name] = answer.subscription
                    self.rows[answer.subscription] = {}
                return Verdict.DONE
            case Unsubscribe(id):
                if id not in self.rows:
                    return Verdict.UNKNOWN
                del self.rows[id]
                self.ids = {name: other for name, other in self.ids.items() if other != id}
                return Verdict.DONE
            case Done(id, row):
                if row not in self.rows.get(id, {}):
                    return Verdict.UNKNOWN
                del self.rows[id][row]
                return Verdict.DONE
            case Settle(id, row, floor, bitmap):
                if row not in self.rows.get(id, {}):
                    return Verdict.UNKNOWN
                self.settled[id, row] = settled_mask(floor, bitmap)
                self.tidy(id, row)
                return Verdict.DONE
            case Bury(id, row, index):
                mask = self.settled.get((id, row), 0)
                if row not in self.rows.get(id, {}):
                    return Verdict.UNKNOWN
                if not 0 <= index < len(self.rows[id][row]) or mask >> index & 1:
                    return Verdict.UNKNOWN
                message = self.rows[id][row][index]
                name = self.name_of(id)
                if name.startswith("$dlq."):
                    return Verdict.UNKNOWN
                dead = f"$dlq.{name}"
                if dead not in self.ids:
                    self.ids[dead] = answer.subscription
                    self.rows[answer.subscription] = {}
                self.rows[self.ids[dead]][answer.row] = [message]
                self.settled[id, row] = mask | 1 << index
                self.tidy(id, row)
                return Verdict.DONE
            case Requeue(id, row):
                name = self.name_of(id)
                target = self.ids.get(name.removeprefix("$dlq.")) if name.startswith("$dlq.") else None
                if row not in self.rows.get(id, {}) or target is None:
                    return Verdict.UNKNOWN
                self.rows[target][answer.row] = self.rows[id].pop(row)
                return Verdict.DONE
        raise AssertionError(entry)


class Journals(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.disk = FaultyDisk()
        self.journal = opened(self.folder, vfs=self.disk.name)
        self.model = Model()
        self.now_us = NOW_US
        self.next = {1: 1, 2: 1}
        self.sent: list[Store] = []
        entries = [Subscribe("a", ("p",)), Subscribe("b", ("p",)), store(1, 1, 2, count=4, publisher=3)]
        for entry, answer in zip(entries, self.journal.commit(entries, NOW_US), strict=True):
            assert answer.verdict is self.model.apply(entry, answer)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.disk.fail_at = 0
            self.journal.close()
            self.disk.unregister()
            shutil.rmtree(self.folder)

    def entry(self, rng: random.Random) -> Entry:
        ids = list(self.model.rows)
        busy = [(id, row) for id in ids for row in self.model.rows[id]]
        dead = [(id, row) for id, row in busy if self.model.name_of(id).startswith("$dlq.")]
        id, row = rng.choice([*busy, (99, 12345)])
        count = len(self.model.rows.get(id, {}).get(row, [0]))
        match rng.choice(KINDS):
            case "new":
                publisher, number = rng.randint(1, 2), rng.randint(1, 5)
                self.next[publisher] += number
                return self.remembered(rng, publisher, self.next[publisher] - number, number, ids)
            case "odd":
                return self.remembered(
                    rng, rng.randint(1, 2), rng.randint(1, 20), rng.randint(1, 5), [*ids, 99]
                )
            case "again":
                return rng.choice([*self.sent, Done(id, row)])
            case "subscribe":
                return Subscribe(rng.choice(NAMES), ("p",))
            case "unsubscribe":
                return Unsubscribe(rng.choice([*ids, *[99] * 6]))
            case "settle":
                mask = self.model.settled.get((id, row), 0) | rng.randrange(1 << count)
                return Settle(id, row, *floor_and_bitmap(mask))
            case "bury":
                return Bury(id, row, rng.randint(0, count), "bad", 20)
            case "requeue":
                return Requeue(*rng.choice([*dead, (id, row)]))
        return Done(id, row)

    def remembered(self, rng: random.Random, publisher: int, first: int, count: int, ids: list[int]) -> Store:
        ids = [id for id in ids if not self.model.name_of(id).startswith("$dlq.")]
        wants = rng.sample(ids, rng.randint(0, min(3, len(ids))))
        lowest = max(0, first + rng.randint(-8, 2))
        entry = store(first, *wants, count=count, publisher=publisher, lowest=lowest)
        self.sent.append(entry)
        return entry

    def entries(self, seed: int) -> list[Entry]:
        """The entries of a seed: drawing each entry costs hypothesis more than the journal."""
        rng = random.Random(seed)
        return [self.entry(rng) for _ in range(rng.randint(1, 6))]

    @rule(seed=SEEDS)
    def commit(self, seed: int) -> None:
        entries = self.entries(seed)
        answers = self.journal.commit(entries, self.now_us)
        for entry, answer in zip(entries, answers, strict=True):
            assert answer.verdict is self.model.apply(entry, answer), entry

    @rule(seed=SEEDS, at=st.integers(1, 6))
    def commit_on_a_full_disk(self, seed: int, at: int) -> None:
        """Either all of it is there, or nothing."""
        entries = self.entries(seed)
        self.disk.operations.clear()
        self.disk.fail_at, self.disk.error = at, apsw.FullError
        try:
            answers = self.journal.commit(entries, self.now_us)
        except StoreFull:
            return
        finally:
            self.disk.fail_at = 0
        for entry, answer in zip(entries, answers, strict=True):
            assert answer.verdict is self.model.apply(entry, answer), entry

    @rule(seed=SEEDS, at=st.integers(1, 6))
    def commit_on_a_failing_disk(self, seed: int, at: int) -> None:
        """Nothing of it is there. After the journal was reopened, either all of it is there or nothing."""
        entries = self.entries(seed)
        self.disk.operations.clear()
        self.disk.fail_at, self.disk.error = at, apsw.IOError
        try:
            answers = self.journal.commit(entries, self.now_us)
        except JournalFailed:
            answers = []
        finally:
            self.disk.fail_at = 0
        if answers:
            for entry, answer in zip(entries, answers, strict=True):
                assert answer.verdict is self.model.apply(entry, answer), entry
            return
        self.agrees()
        before = self.whole_state()
        self.journal.close()
        self.journal = opened(self.folder, vfs=self.disk.name)
        if self.whole_state() != before:  # everything was written, and only the sync failed
            self.learn()

    @rule()
    def open_again(self) -> None:
        self.journal.close()
        self.journal = opened(self.folder, vfs=self.disk.name)

    @rule()
    def die_and_open_again(self) -> None:
        """Use the files as a killed process leaves them."""
        kept = {path: path.read_bytes() for path in self.folder.iterdir()}
        self.journal.close()
        for path, data in kept.items():
            path.write_bytes(data)
        self.journal = opened(self.folder, vfs=self.disk.name)

    @rule()
    def checkpoint(self) -> None:
        self.journal.checkpoint()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "journal"):
            return
        kept = {it.name: it for it in self.journal.subscriptions()}
        assert {name: it.id for name, it in kept.items()} == self.model.ids
        for name, id in self.model.ids.items():
            left = self.model.left(id)
            assert bodies(self.journal, id) == [b"body %d" % number for _, number in left]
            assert kept[name].messages == len(left)
            assert kept[name].rows == len(self.model.rows[id]) == len(waiting(self.journal, id))
            sizes = [len(row.block) for row in waiting(self.journal, id)]
            assert kept[name].size == sum(sizes)
        self.holds_nothing_else()

    def holds_nothing_else(self) -> None:
        """Each block has a subscription that waits for it, or is a piece of one, and `shared` counts them."""
        db = self.journal._db
        held: dict[int, int] = {}
        for (row,) in db.execute("select row from waiting").fetchall():
            held[row] = held.get(row, 0) + 1
        for (body,) in db.execute("select row from block where parts > 0").fetchall():
            found = self.journal.fetch(body)
            assert isinstance(found, Block)
            for row in found.parts:
                held[row] = held.get(row, 0) + 1
        assert dict(db.execute("select row, holders from shared").fetchall()) == {
            row: holders for row, holders in held.items() if holders > 1
        }
        assert {row for (row,) in db.execute("select row from block").fetchall()} == set(held)

    def whole_state(self) -> list[object]:
        tables = ("subscription", "block", "waiting", "shared", "came", "publisher")
        return [self.journal._db.execute(f"select * from {table}").fetchall() for table in tables]

    def learn(self) -> None:
        """Take over the journal's content where it may have one of two."""
        db = self.journal._db
        model = Model()
        model.ids = {it.name: it.id for it in self.journal.subscriptions()}
        for id in model.ids.values():
            model.rows[id] = {}
            for row in waiting(self.journal, id):
                block = blocks.open_block(row.block)
                numbers = range(block.sequence, block.sequence + len(block.bodies))
                model.rows[id][row.row] = [(block.publisher, number) for number in numbers]
                model.settled[id, row.row] = settled_mask(row.floor, row.bitmap)
        model.lowest = dict(db.execute("select publisher, lowest from publisher").fetchall())
        for publisher, first, last in db.execute("select publisher, first, last from came").fetchall():
            block = store(first, count=last - first + 1, publisher=publisher).block
            model.came.setdefault(publisher, {})[first, last] = block
        self.model = model


TestJournals = Journals.TestCase
TestJournals.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.long
class TestJournalsAtLength(TestJournals):
    settings = settings(TestJournals.settings, max_examples=150)
