"""Submissions during one commit form the next one, and the event loop never waits."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from mesh.errors import JournalFailed, Locked, StorageError, StoreFull
from mesh.journal import background, gathering
from mesh.journal.gathering import Submission, carry_out, next_commit
from mesh.journal.journal import Journal
from mesh.journal.records import (
    Answer,
    Damaged,
    Done,
    Entry,
    Subscribe,
    Unsubscribe,
    Verdict,
    Waiting,
)
from mesh.journal.thread import JournalThread
from tests.mesh.journal.journals import opened, sealed, store


class Gated:
    """A real journal whose commits wait until the test releases them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.gate = threading.Semaphore(0)
        self.began = threading.Semaphore(0)
        self.commits: list[int] = []
        self.full = False

    def commit(self, entries: Sequence[Entry], now_us: int) -> Sequence[Answer]:
        self.began.release()
        assert self.gate.acquire(timeout=60)
        self.commits.append(len(entries))
        if self.full and any(hasattr(entry, "block") for entry in entries):
            raise StoreFull("the disk is full")
        return self._journal.commit(entries, now_us)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class Told:
    """Collects results. `wait` returns when there are so many."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self._more = asyncio.Event()

    def __call__(self, result: Any) -> None:
        self.results.append(result)
        self._more.set()

    async def wait(self, count: int) -> list[Any]:
        while len(self.results) < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 60)
        return self.results


async def running(open_journal: Callable[[], Any]) -> JournalThread:
    journal = JournalThread(cast(Callable[[], Journal], open_journal), lambda: 1_700_000_000.0)
    await journal.open()
    return journal


async def test_submissions_during_a_commit_form_the_next_one(tmp_path: Path) -> None:
    gated: list[Gated] = []

    def open_journal() -> Gated:
        gated.append(Gated(opened(tmp_path)))
        return gated[0]

    journal = await running(open_journal)
    told = Told()
    journal.submit([Subscribe("mail", ("p",))], told)
    assert await asyncio.to_thread(gated[0].began.acquire, True, 60)
    for number in range(1, 51):
        journal.submit([store(number, 1)], told)
    read = Told()
    journal.read(1, 0, 1 << 20, 100, read)
    gated[0].gate.release()
    gated[0].gate.release()
    results = await told.wait(51)
    assert gated[0].commits == [1, 50]
    assert [result[0].verdict for result in results[1:]] == [Verdict.STORED] * 50
    # A question asked after them sees them.
    (rows,) = await read.wait(1)
    assert [row.block for row in rows if isinstance(row, Waiting)] == [sealed(n) for n in range(1, 51)]
    fetched = Told()
    journal.fetch(rows[3].row, fetched)
    journal.fetch(99, fetched)
    found, missing = await fetched.wait(2)
    assert found.block == sealed(4)
    assert isinstance(missing, Damaged)
    times = journal.times()
    assert times.commits == 2
    assert 0 < times.p50_s <= times.p99_s
    await journal.aclose()
    await journal.aclose()
    with pytest.raises(StorageError, match="this journal is closed"):
        journal.submit([], told)


async def test_closing_finishes_all_submissions(tmp_path: Path) -> None:
    journal = await running(lambda: opened(tmp_path))
    told = Told()
    journal.submit([Subscribe("mail", ("p",))], told)
    for number in range(1, 20):
        journal.submit([store(number, 1)], told)
    await journal.aclose()
    assert len(told.results) == 20
    again = opened(tmp_path)
    assert len(again.read(1, 0, 1 << 20)) == 19
    again.close()


async def test_a_journal_that_does_not_open_says_why_and_leaves_no_thread(tmp_path: Path) -> None:
    first = opened(tmp_path)
    journal = JournalThread(lambda: opened(tmp_path), lambda: 0.0)
    with pytest.raises(Locked):
        await journal.open()
    await journal.aclose()
    with pytest.raises(StorageError, match="this journal is closed"):
        journal.submit([], Told())
    first.close()


async def test_a_removed_subscription_is_emptied_while_nothing_else_is_done(tmp_path: Path) -> None:
    journal = await running(lambda: opened(tmp_path))
    told = Told()
    journal.submit([Subscribe("mail", ("p",))], told)
    journal.submit([store(number, 1) for number in range(1, 301)], told)
    journal.submit([Unsubscribe(1)], told)
    await told.wait(3)
    chores = Told()
    while not chores.results or chores.results[-1]:
        journal.ask(lambda one: one.chores, chores)
        await chores.wait(len(chores.results) + 1)
    left = Told()
    journal.ask(lambda one: one._db.execute("select count(*) from block").fetchall(), left)
    assert await left.wait(1) == [[(0,)]]
    await journal.aclose()


async def test_a_failing_question_reports_the_error_to_its_caller(tmp_path: Path) -> None:
    journal = await running(lambda: opened(tmp_path))
    told = Told()
    journal.ask(lambda one: 1 // 0, told)
    journal.ask(lambda one: 7, told)
    wrong, right = await told.wait(2)
    assert isinstance(wrong, ZeroDivisionError)
    assert right == 7
    await journal.aclose()


async def test_submissions_beyond_the_queue_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAITING_MAX", 100_000)
    gated: list[Gated] = []

    def open_journal() -> Gated:
        gated.append(Gated(opened(tmp_path)))
        return gated[0]

    journal = await running(open_journal)
    told = Told()
    journal.submit([store(1, 1, body=bytes(60_000))], told)
    with pytest.raises(StorageError, match="bytes of blocks wait for the journal; the disk does not keep up"):
        journal.submit([store(2, 1, body=bytes(60_000))], told)
    journal.submit([Done(1, 1)], told)  # consuming is never refused
    for _ in range(2):
        gated[0].gate.release()
    await told.wait(2)
    journal.submit([store(2, 1, body=bytes(60_000))], told)
    gated[0].gate.release()
    await told.wait(3)
    await journal.aclose()


class Broken(Gated):
    """A question between two commits raises an unexpected error."""

    @property
    def checkpoint_due(self) -> bool:
        raise RuntimeError("nobody thought of that")


async def test_all_callers_are_told_when_the_worker_ends_by_a_defect(tmp_path: Path) -> None:
    """They waited forever, and so did later callers."""
    gated: list[Broken] = []

    def open_journal() -> Gated:
        gated.append(Broken(opened(tmp_path)))
        return gated[0]

    journal = await running(open_journal)
    told = Told()
    journal.submit([store(1, 1)], told)
    assert await asyncio.to_thread(gated[0].began.acquire, timeout=60)
    journal.submit([store(2, 1)], told)
    journal.ask(lambda one: 7, told)
    gated[0].gate.release()
    done, *failed = await told.wait(3)
    assert len(done) == 1, "it was committed before that"
    for error in failed:
        assert isinstance(error, JournalFailed) and "RuntimeError: nobody thought of that" in str(error)
    with pytest.raises(StorageError, match="closed"):
        journal.submit([store(3, 1)], told)
    await journal.aclose()


class Failing:
    """A journal that refuses commits."""

    def __init__(self, error: Exception, stores_only: bool) -> None:
        self.error = error
        self.stores_only = stores_only
        self.commits: list[int] = []

    def commit(self, entries: Sequence[Entry], now_us: int) -> Sequence[Answer]:
        self.commits.append(len(entries))
        if not self.stores_only or any(hasattr(entry, "block") for entry in entries):
            raise self.error
        return [Answer(Verdict.DONE, row=index + 1) for index in range(len(entries))]


def submissions() -> list[Submission]:
    def told(result: object) -> None:
        raise AssertionError("told by the thread only")

    return [
        Submission([Done(1, 1), Done(1, 2)], told),
        Submission([store(1, 1)], told),
        Submission([Done(1, 3)], told),
    ]


def test_consuming_is_carried_out_on_a_full_disk() -> None:
    full = StoreFull("full")
    failing = Failing(full, stores_only=True)
    results = carry_out(cast(Journal, failing), submissions(), 0)
    assert results[1] is full
    assert [[answer.row for answer in cast(Sequence[Answer], results[at])] for at in (0, 2)] == [[1, 2], [3]]
    assert failing.commits == [4, 3]


def test_all_callers_are_told_when_nothing_can_be_carried_out() -> None:
    for error, tries in ((StoreFull("full"), [4, 3]), (JournalFailed("gone"), [4]), (ValueError("bug"), [4])):
        failing = Failing(error, stores_only=False)
        assert carry_out(cast(Journal, failing), submissions(), 0) == [error] * 3
        assert failing.commits == tries


def test_a_commit_is_bounded_and_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "COMMIT_BYTES_MAX", 100_000)
    monkeypatch.setattr(gathering, "ENTRIES_MAX", 3)

    def told(result: object) -> None: ...

    large = [Submission([store(number, 1, body=bytes(60_000))], told) for number in (1, 2)]
    small = [Submission([Done(1, 1)] * 2, told) for _ in range(3)]
    waiting = deque([*large, *small])
    taken = []
    while waiting:
        taken.append(next_commit(waiting))
    assert [len(commit) for commit in taken] == [1, 2, 1, 1]
    assert [it for commit in taken for it in commit] == [*large, *small]
