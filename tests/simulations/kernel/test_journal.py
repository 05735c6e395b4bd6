"""The journal of a simulated broker: production's worker in virtual time."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import apsw
import pytest

from mesh.database import room
from mesh.errors import Locked, StorageError
from mesh.journal import background
from mesh.journal.records import Answer, Done, Subscribe, Unsubscribe, Verdict
from simulations.kernel.journal import VirtualJournal
from simulations.programs.environment import environment_of
from simulations.world import Process, World
from tests.mesh.journal.journals import BROKER, MESH, store
from tests.simulations.kernel.sqlite_disks import FOLDER, PATH

Main = Callable[[Process], Coroutine[Any, Any, None]]


async def opened(process: Process) -> VirtualJournal:
    await process.storage.make_folder(FOLDER)
    journal = await environment_of(process).open_journal(PATH, broker=BROKER, mesh=MESH)
    assert isinstance(journal, VirtualJournal)
    return journal


async def answers(journal: VirtualJournal, *entries: Any) -> Sequence[Answer]:
    """The answers to one submission. Raises the reason if there are none."""
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    journal.submit(entries, told.set_result)
    result = await told
    if isinstance(result, Exception):
        raise result
    return result


async def found(journal: VirtualJournal, question: Callable[[Any], Any]) -> Any:
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    journal.ask(question, told.set_result)
    return await told


def lived(main: Main, seconds: float = 5, seed: int = 1) -> Any:
    """The object that a program exposes."""
    with World(seed) as world:
        node = world.add_node("alpha", main)
        node.start()
        process = node.process
        world.run_for(seconds)
        assert process is not None and not world.failures
        return process.exposed


def test_jobs_that_gather_during_a_commit_form_the_next_one() -> None:
    async def main(process: Process) -> None:
        journal = await opened(process)
        await answers(journal, Subscribe("mail", ("jobs.#",)))
        process.world.inject("slow_disk", ["alpha"], value=0.5)
        loop = asyncio.get_running_loop()
        began, told = loop.time(), []
        for number in range(1, 51):
            journal.submit([store(number, 1)], lambda result: told.append((loop.time() - began, result)))
        journal.ask(lambda it: len(it.read(1, 0, 1 << 20)), lambda rows: told.append((0, rows)))
        assert not told
        await asyncio.sleep(2)
        process.exposed = told, journal.times()
        await journal.aclose()

    told, times = lived(main)
    assert [0.5 < after < 0.51 for after, _ in told[:1]] == [True]
    assert [1.0 < after < 1.02 for after, _ in told[1:50]] == [True] * 49
    assert [result[0].verdict for _, result in told[:50]] == [Verdict.STORED] * 50
    assert told[50][1] == 50, "a question sees what was handed over before it"
    assert times.commits == 3 and 0.5 < times.p50_s < 0.51 and times.p99_s >= times.p50_s


def test_closing_finishes_all_submissions() -> None:
    async def main(process: Process) -> None:
        journal = await opened(process)
        told: list[Any] = []
        journal.submit([Subscribe("mail", ("jobs.#",))], told.append)
        for number in range(1, 20):
            journal.submit([store(number, 1)], told.append)
        await journal.aclose()
        await journal.aclose()
        assert len(told) == 20
        with pytest.raises(StorageError, match="this journal is closed"):
            journal.submit([], told.append)
        journal = await opened(process)
        process.exposed = await found(journal, lambda it: len(it.read(1, 0, 1 << 20)))
        await journal.aclose()

    assert lived(main) == 19


def test_a_journal_that_does_not_open_says_why() -> None:
    async def main(process: Process) -> None:
        first = await opened(process)
        with pytest.raises(Locked):
            await opened(process)
        await first.aclose()
        process.exposed = "locked"

    assert lived(main) == "locked"


def test_a_journal_whose_opening_was_cancelled_is_closed_once_it_is_open() -> None:
    """A broker that was cancelled while it started left its journal locked until its process ended."""

    async def main(process: Process) -> None:
        await process.storage.make_folder(FOLDER)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(opened(process), 0.001)
        await asyncio.sleep(1)
        again = await opened(process)
        await again.aclose()
        process.exposed = "closed"

    assert lived(main) == "closed"


def test_a_removed_subscription_is_emptied_while_nothing_else_is_done() -> None:
    async def main(process: Process) -> None:
        journal = await opened(process)
        await answers(journal, Subscribe("mail", ("jobs.#",)))
        await answers(journal, *(store(number, 1) for number in range(1, 301)))
        await answers(journal, Unsubscribe(1))
        await asyncio.sleep(3)
        process.exposed = await found(
            journal, lambda it: it._db.execute("select count(*) from block").fetchall()
        )
        await journal.aclose()

    assert lived(main) == [(0,)]


def test_a_chore_that_fails_is_tried_again_with_the_next_job_and_no_sooner() -> None:
    async def main(process: Process) -> None:
        journal = await opened(process)
        await answers(journal, Subscribe("mail", ("jobs.#",)))
        await answers(journal, *(store(number, 1) for number in range(1, 301)))
        world = process.world
        full = partial(world.inject, "disk_fault", ["alpha"], value=errno.ENOSPC)
        journal.submit([Unsubscribe(1)], lambda _: full())
        await asyncio.sleep(1)
        events = world.scheduler.events
        await asyncio.sleep(5)
        assert world.scheduler.events - events < 30, "it rests"
        world.heal()
        await asyncio.sleep(1)
        assert await found(journal, lambda it: it.chores)
        await asyncio.sleep(3)
        process.exposed = await found(journal, lambda it: it.chores)
        await journal.aclose()

    assert lived(main, 20) is False


def test_a_commit_is_reported_before_the_log_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "CHECKPOINT_PAGES", 2)

    async def main(process: Process) -> None:
        journal = await opened(process)
        await answers(journal, Subscribe("mail", ("jobs.#",)))
        process.world.inject("slow_disk", ["alpha"], value=0.5)
        loop = asyncio.get_running_loop()
        process.exposed = []
        for number in (1, 2):
            began = loop.time()
            await answers(journal, store(number, 1))
            process.exposed.append(loop.time() - began)
        await journal.aclose()

    first, second = lived(main, 10)
    assert 1.0 < first < 1.1, "a log that begins again syncs its header, too"
    assert 2.0 < second < 2.1, "it waited until the log and the database were synced"


def test_submissions_beyond_the_queue_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "WAITING_MAX", 100_000)

    async def main(process: Process) -> None:
        journal = await opened(process)
        await answers(journal, Subscribe("mail", ("jobs.#",)))
        waiting = asyncio.create_task(answers(journal, store(1, 1, body=bytes(60_000))))
        await asyncio.sleep(0)
        with pytest.raises(StorageError, match="the disk does not keep up"):
            journal.submit([store(2, 1, body=bytes(60_000))], print)
        await answers(journal, Done(1, 1))
        await waiting
        await answers(journal, store(2, 1, body=bytes(60_000)))
        await journal.aclose()
        process.exposed = "taken"

    assert lived(main) == "taken"


def test_a_stopped_process_commits_nothing_until_it_is_resumed() -> None:
    async def main(process: Process) -> None:
        journal = await opened(process)
        await answers(journal, Subscribe("mail", ("jobs.#",)))
        process.exposed = number = 0
        while not process.stopping.is_set():
            number += 1
            await answers(journal, store(number, 1))
            process.exposed = number
        await journal.aclose()

    with World(1) as world:
        world.add_node("alpha", main).start()
        world.run_for(0.2)
        world.inject("pause", ["alpha"])
        world.run_for(0.01)
        before = world.disk("alpha").under("/"), world.node("alpha").exposed
        world.run_for(2)
        assert (world.disk("alpha").under("/"), world.node("alpha").exposed) == before
        world.inject("resume", ["alpha"])
        world.run_for(0.2)
        assert world.node("alpha").exposed > before[1] > 3
        world.inject("stop", ["alpha"])
        world.run_for(1)
        assert not world.node("alpha").alive and not world.failures


def test_a_journal_whose_folder_is_lost_while_it_opens_stays_usable_for_its_process_only() -> None:
    """As when the folder is lost a moment later: open files stay usable without names."""

    async def main(process: Process) -> None:
        with suppress(StorageError):
            journal = await opened(process)
            process.exposed = "open"
            await answers(journal, Subscribe("mail", ("jobs.#",)))
            await answers(journal, store(1, 1))
            process.exposed = "stored"
            await journal.aclose()

    seen = []
    for instant in range(1, 25):
        with World(instant) as world:
            world.add_node("alpha", main).start()
            world.run_for(0.002 * instant)
            seen.append(world.node("alpha").exposed)
            world.inject("lost_files", ["alpha"])
            world.run_for(1)
            assert not world.disk("alpha").paths_under("/state") and not world.failures
    assert seen[0] is None and {"open", "stored"} <= set(seen)


def test_worlds_leave_no_vfs_behind() -> None:
    async def main(process: Process) -> None:
        journal = await opened(process)
        await answers(journal, Subscribe("mail", ("jobs.#",)))
        process.exposed = "here"
        await process.stopping.wait()

    gc.collect()
    before = apsw.vfs_names()
    assert lived(main) == "here"
    gc.collect()
    assert apsw.vfs_names() == before
