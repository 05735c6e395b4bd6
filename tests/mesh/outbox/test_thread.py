"""Changes that gather during one commit of an outbox become the next one, and the event loop waits for none
of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from mesh.errors import Locked, OutboxFailed, StorageError, StoreFull
from mesh.outbox import background, gathering
from mesh.outbox.gathering import Change, Question, carry_out
from mesh.outbox.outbox import Outbox
from mesh.outbox.records import OutboxBlock
from mesh.outbox.thread import OutboxThread
from tests.mesh.outbox.outboxes import NOW_US, appended, numbers, opened, sealed


class Gated:
    """A real outbox whose changes wait until the test releases them."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.gate = threading.Semaphore(0)
        self.began = threading.Semaphore(0)
        self.commits: list[int] = []

    def change(
        self, blocks: Sequence[bytes], ranges: Iterable[tuple[int, int]], now_us: int
    ) -> list[OutboxBlock]:
        self.began.release()
        assert self.gate.acquire(timeout=60)
        self.commits.append(len(blocks))
        return self._outbox.change(blocks, ranges, now_us)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outbox, name)


class Told:
    """Collects results; `wait` returns once there are so many."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self._more = asyncio.Event()

    def __call__(self, result: Any) -> None:
        self.results.append(result)
        self._more.set()

    async def wait(self, count: int = 1) -> list[Any]:
        while len(self.results) < count:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), 60)
        return self.results


def threaded(open_outbox: Callable[[], Any]) -> OutboxThread:
    return OutboxThread(cast(Callable[[], Outbox], open_outbox), lambda: NOW_US / 1e6)


async def gate(folder: Path) -> tuple[OutboxThread, Gated]:
    made: list[Gated] = []

    def open_gated() -> Gated:
        made.append(Gated(opened(folder)))
        return made[0]

    outbox = threaded(open_gated)
    await outbox.open()
    return outbox, made[0]


async def test_changes_during_a_commit_form_the_next_one(tmp_path: Path) -> None:
    outbox, gated = await gate(tmp_path)
    real = gated._outbox
    told, read, counted = Told(), Told(), Told()
    outbox.append([sealed(real, 1)], told)
    assert await asyncio.to_thread(gated.began.acquire, True, 60)
    for number in range(2, 52):
        outbox.append([sealed(real, number)], told)
    outbox.free([(1, 2)], told)
    outbox.read(0, 1 << 20, (), read)
    outbox.ask(lambda outbox: outbox.holding, counted)
    gated.gate.release(2)
    results = await told.wait(52)
    assert gated.commits == [1, 50]
    assert [row.row for rows in results for row in rows] == list(range(1, 52))
    # A question asked after them sees them. Rows appended with it are not freed yet.
    (rows,) = await read.wait()
    assert [row.first for row in rows] == list(range(2, 52))
    (held,) = await counted.wait()
    assert held.messages == outbox.holding.messages == 50
    assert (outbox.opening.boot, outbox.opening.opened_at) == (real.boot, 0)
    await outbox.aclose()
    await outbox.aclose()
    for refused in (lambda: outbox.append([], told), lambda: outbox.free([], told)):
        with pytest.raises(StorageError, match="this outbox is closed"):
            refused()
    reopened = opened(tmp_path)
    assert len(numbers(reopened)) == 50
    reopened.close()


async def test_errors_of_opening_reach_the_caller_of_open(tmp_path: Path) -> None:
    holder = opened(tmp_path)
    outbox = threaded(lambda: opened(tmp_path))
    with pytest.raises(Locked):
        await outbox.open()
    await outbox.aclose()
    holder.close()


async def test_more_than_may_wait_is_refused_but_a_large_body_alone_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAITING_MAX", 1000)
    outbox, gated = await gate(tmp_path)
    told = Told()
    outbox.append([sealed(gated._outbox, 1, body=bytes(5000))], told)
    with pytest.raises(StorageError, match=r"bytes of blocks wait for the outbox; the disk does not keep up"):
        outbox.append([sealed(gated._outbox, 2)], told)
    outbox.free([(9, 9)], told)
    gated.gate.release(2)
    await told.wait(2)
    outbox.append([sealed(gated._outbox, 2)], told)
    gated.gate.release()
    await told.wait(3)
    await outbox.aclose()


# --- one step


def done(outbox: Outbox, *jobs: Change | Question) -> list[Any]:
    return [result for piece in carry_out(outbox, jobs, NOW_US) for _, result in piece]


def change(*blocks: bytes, free: Sequence[tuple[int, int]] = ()) -> Change:
    return Change(blocks, free, lambda _: None, sum(map(len, blocks)))


def test_each_change_is_tried_alone_without_room_for_all_of_them(tmp_path: Path) -> None:
    outbox = opened(tmp_path, max_bytes=3000)
    appended(outbox, sealed(outbox, 1, body=bytes(1000)))
    results = done(
        outbox,
        change(sealed(outbox, 2)),
        change(sealed(outbox, 3, body=bytes(9000))),
        change(sealed(outbox, 4)),
        change(free=[(1, 1)]),
    )
    assert [type(result) for result in results] == [list, StoreFull, list, list]
    assert numbers(outbox) == [2, 4]
    outbox.close()


def test_a_wrong_change_spoils_no_other(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    results = done(outbox, change(sealed(outbox, 5)), change(sealed(outbox, 5)), change(sealed(outbox, 6)))
    assert [type(result) for result in results] == [list, ValueError, list]
    assert numbers(outbox) == [5, 6]
    outbox.close()


def test_all_callers_are_told_after_a_failure_of_the_disk(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox._database.fail(OSError("the disk is gone"))
    looked = Question(lambda outbox: outbox.read(0, 1), lambda _: None)
    results = done(outbox, change(sealed(outbox, 1)), change(free=[(1, 1)]), looked)
    assert [type(result) for result in results] == [OutboxFailed] * 3
    outbox.close()


def test_one_commit_holds_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "COMMIT_BYTES_MAX", 250)
    outbox = opened(tmp_path)
    changes = [change(sealed(outbox, number, body=bytes(50))) for number in range(1, 5)]
    pieces = list(carry_out(outbox, changes, NOW_US))
    assert [len(piece) for piece in pieces] == [2, 2]
    assert numbers(outbox) == [1, 2, 3, 4]
    outbox.close()


class Broken(Gated):
    """Each call between two commits raises, as a defect would."""

    @property
    def checkpoint_due(self) -> bool:
        raise RuntimeError("nobody thought of that")


async def test_all_callers_are_told_when_the_worker_ends_by_a_defect(tmp_path: Path) -> None:
    """They waited forever: only the journal told its callers."""
    made: list[Broken] = []

    def open_broken() -> Gated:
        made.append(Broken(opened(tmp_path)))
        return made[0]

    outbox = threaded(open_broken)
    await outbox.open()
    told = Told()
    outbox.append([sealed(made[0]._outbox, 1)], told)
    assert await asyncio.to_thread(made[0].began.acquire, timeout=60)
    outbox.append([sealed(made[0]._outbox, 2)], told)
    outbox.ask(lambda one: 7, told)
    made[0].gate.release()
    done, *failed = await told.wait(3)
    assert len(done) == 1, "it was committed before that"
    for error in failed:
        assert isinstance(error, OutboxFailed) and "RuntimeError: nobody thought of that" in str(error)
    with pytest.raises(StorageError, match="closed"):
        outbox.check()
    await outbox.aclose()
