"""A journal on a thread of a simulated process: it takes virtual time, and a crash cuts it anywhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from simulations.kernel.disk_thread import DiskThread
from simulations.kernel.files import SectorFile
from simulations.kernel.recording import Operation, What, apply_until, steps
from simulations.kernel.sectors import SECTOR
from simulations.kernel.sqlite_files import Recorded
from simulations.kernel.storage import Disk
from simulations.world import Process, World
from tests.mesh.journal.journals import done, store, subscribed
from tests.simulations.kernel.sqlite_disks import FOLDER, OnDisk, opening, state_of

T = TypeVar("T")

AT = [number * SECTOR for number in range(4)]

Main = Callable[[Process], Coroutine[Any, Any, None]]


def thread_of(process: Process) -> DiskThread:
    disk = process.world.disk(process.host.name)
    return DiskThread(disk, process.world.scheduler, process.storage, process.loop, process.stream("sqlite"))


async def run(thread: DiskThread, job: Callable[[], T]) -> T:
    """Do a job and wait for it."""
    over: asyncio.Future[Recorded[T]] = asyncio.get_running_loop().create_future()
    thread.do(job, over.set_result)
    return (await over).value()


async def storing(process: Process) -> None:
    """Commits blocks repeatedly and exposes how many commits have returned."""
    thread = thread_of(process)
    await process.storage.make_folder(FOLDER)
    journal = await run(thread, opening(thread.sqlite))
    await run(thread, lambda: subscribed(journal))
    number = 0
    while True:
        entry = store(number + 1, 1)
        await run(thread, lambda entry=entry: done(journal, entry))  # type: ignore[misc]
        number += 1
        process.exposed = number
        if number % 7 == 0:
            await run(thread, journal.checkpoint)


def one(main: Main, seed: int = 1) -> World:
    world = World(seed)
    world.add_node("alpha", main).start()
    return world


def test_a_commit_takes_the_time_of_its_sync() -> None:
    async def main(process: Process) -> None:
        thread = thread_of(process)
        loop = asyncio.get_running_loop()
        await process.storage.make_folder(FOLDER)
        journal = await run(thread, opening(thread.sqlite))
        await run(thread, lambda: subscribed(journal))
        process.exposed = []
        number = 0
        while True:
            number += 1
            began = loop.time()
            entry = store(number, 1)
            await run(thread, lambda entry=entry: done(journal, entry))  # type: ignore[misc]
            process.exposed.append(loop.time() - began)

    with one(main) as world:
        world.run_for(0.2)
        took = world.node("alpha").exposed
        assert len(took) > 30 and 0.0002 < min(took) < max(took) < 0.005
        world.inject("slow_disk", ["alpha"], value=0.5)
        world.run_for(0.6)
        took.clear()
        world.run_for(2)
        assert took and 0.5 < min(took) < max(took) < 0.505
        assert not world.failures


@pytest.mark.parametrize("kind", ["crash", "power_off"])
def test_a_crash_at_any_instant_keeps_each_commit_that_returned(kind: str) -> None:
    after = set()
    for seed in range(25):
        with one(storing, seed) as world:
            world.run_for(0.05 + seed * 0.0007)
            returned = world.node("alpha").exposed or 0
            world.inject(kind, ["alpha"])
            process = OnDisk(world.disk("alpha"), seed)
            _, found = process.do(state_of)
            assert returned <= len(found) <= returned + 1
            assert list(found) == [b"body %d" % number for number in range(1, len(found) + 1)]
            after.add(len(found) - returned)
            assert not world.failures
    assert after == {0, 1}  # a commit in progress is there completely or not at all


def test_the_next_life_of_a_process_finds_its_journal_and_continues() -> None:
    async def counting(process: Process) -> None:
        thread = thread_of(process)
        await process.storage.make_folder(FOLDER)
        journal = await run(thread, opening(thread.sqlite))
        await run(thread, lambda: subscribed(journal))
        number = len((await run(thread, lambda: state_of(journal)))[1])
        while True:
            number += 1
            entry = store(number, 1)
            await run(thread, lambda entry=entry: done(journal, entry))  # type: ignore[misc]
            process.exposed = number

    with one(counting) as world:
        before = 0
        for kind in ("crash", "power_off", "crash"):
            world.run_for(0.2)
            assert world.node("alpha").exposed > before
            before = world.node("alpha").exposed
            world.inject(kind, ["alpha"])
            world.inject("start", ["alpha"])
        world.run_for(0.2)
        assert world.node("alpha").exposed > before and not world.failures


def test_the_same_seed_leaves_the_same_bytes() -> None:
    def left(seed: int) -> dict[str, bytes]:
        with one(storing, seed) as world:
            world.run_for(0.1)
            world.inject("power_off", ["alpha"])
            return world.disk("alpha").under("/")

    assert left(3) == left(3)
    assert left(3) != left(4)


def test_a_stopped_process_begins_no_step_until_it_is_resumed() -> None:
    with one(storing) as world:
        world.run_for(0.1)
        world.inject("pause", ["alpha"])
        world.run_for(0.01)
        before = world.disk("alpha").under("/")
        world.run_for(1)
        assert world.disk("alpha").under("/") == before
        returned = world.node("alpha").exposed
        world.inject("resume", ["alpha"])
        world.run_for(0.1)
        assert world.node("alpha").exposed > returned and not world.failures


def test_the_next_job_begins_at_the_instant_when_one_is_over_and_no_earlier() -> None:
    async def main(process: Process) -> None:
        thread, loop = thread_of(process), asyncio.get_running_loop()
        process.exposed = []

        def over(recorded: Recorded[float]) -> None:
            process.exposed.append((recorded.result, type(recorded.error), loop.time()))
            if len(process.exposed) < 3:
                thread.do(lambda: loop.time() / (2 - len(process.exposed)), over)

        thread.do(loop.time, over)
        with pytest.raises(AssertionError, match="one job after the other"):
            thread.do(loop.time, over)
        await process.stopping.wait()

    with one(main) as world:
        world.run_for(1)
        (first, *_, over), second, third = world.node("alpha").exposed
        assert second[0] == over >= first
        assert third[1] is ZeroDivisionError and not world.failures


def test_a_killed_process_does_no_further_steps() -> None:
    for seed in range(10):
        with one(storing, seed) as world:
            world.run_for(0.03 + seed * 0.0003)
            world.inject("crash", ["alpha"])
            after = world.disk("alpha").under("/")
            world.run_for(1)
            assert world.disk("alpha").under("/") == after
            OnDisk(world.disk("alpha")).close()  # nobody has a lock on it


@pytest.mark.parametrize("passed", range(4))
def test_an_interrupted_step_leaves_the_operations_whose_time_had_passed(passed: int) -> None:
    disk = Disk(random.Random(passed))
    file = SectorFile()
    disk.name("/a", file)
    step = [Operation(What.WRITE, 10, "/a", file, at, b"x", [(at // SECTOR, b"x" * SECTOR)]) for at in AT]
    apply_until(step, disk, 10 * passed + 5, 0)
    assert passed * SECTOR <= len(file.content) <= (passed + 1) * SECTOR
    assert len(steps([*step, Operation(What.SYNC, 10), *step])) == 2
