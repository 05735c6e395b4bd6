"""Virtual disks: the contract of Storage, and the effects of crashes and power losses."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mesh.errors import Locked, StorageError
from mesh.storage import Storage, ThreadStorage
from simulations.faults.disks import DISK_FULL
from simulations.kernel.storage import JOBS_MAX
from simulations.world import Process, World


async def contract(storage: Storage, root: str) -> None:
    """The contract of every storage."""
    assert await storage.read(f"{root}/a/none") is None
    assert await storage.files(f"{root}/none") == []
    assert await storage.list(f"{root}/a") == []
    await storage.remove(f"{root}/a/none")
    with pytest.raises(FileNotFoundError):
        await storage.append(f"{root}/a/log", b"x")
    with pytest.raises(FileNotFoundError):
        await storage.rename(f"{root}/none", f"{root}/other")
    await storage.make_folder(f"{root}/a/b")
    await storage.make_folder(f"{root}/a/b")
    await storage.append(f"{root}/a/log", b"one\n")
    await storage.append(f"{root}/a/log", b"two\n", sync=True)
    await storage.write_atomic(f"{root}/a/state", b"old")
    await storage.write_atomic(f"{root}/a/state", b"new")
    assert await storage.read(f"{root}/a/log") == b"one\ntwo\n"
    log, state = await storage.files(f"{root}/a")
    assert (log.name, log.size, state.name, state.size) == ("log", 8, "state", 3)
    assert 0 <= state.age_s <= log.age_s < 60
    assert await storage.read(f"{root}/a/state") == b"new"
    assert await storage.list(f"{root}/a") == ["b", "log", "state"]
    await storage.rename(f"{root}/a/log", f"{root}/a/log.1")
    assert await storage.list(f"{root}/a") == ["b", "log.1", "state"]
    await storage.remove(f"{root}/a/state")
    assert await storage.read(f"{root}/a/state") is None
    lock = await storage.lock(f"{root}/a/lock")
    with pytest.raises(Locked) as held:
        await storage.lock(f"{root}/a/lock")
    assert held.value.holder_pid > 0
    lock.release()
    lock.release()
    (await storage.lock(f"{root}/a/lock")).release()
    await storage.aclose()
    await storage.aclose()
    with pytest.raises(StorageError, match="closed"):
        await storage.read(f"{root}/a/log.1")


async def test_the_real_storage_keeps_the_contract(tmp_path: Any) -> None:
    await contract(ThreadStorage(), str(tmp_path))


def in_world(program: Callable[[Process], Coroutine[Any, Any, None]], seed: int = 1) -> World:
    with World(seed) as world:
        world.add_node("alpha", program).start()
        world.run_for(10)
    assert not world.failures
    return world


def test_the_virtual_storage_keeps_the_contract() -> None:
    in_world(lambda process: contract(process.storage, "/data"))


def test_jobs_are_done_in_order_one_after_the_other() -> None:
    async def main(process: Process) -> None:
        await process.storage.make_folder("/log")
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(process.storage.append("/log/a", b"%d," % number))
        assert await process.storage.read("/log/a") == b"".join(b"%d," % number for number in range(100))

    in_world(main)


def test_a_stopped_process_finishes_the_job_at_hand_and_begins_no_other_until_it_is_resumed() -> None:
    async def main(process: Process) -> None:
        await process.storage.make_folder("/log")
        await asyncio.gather(*(process.storage.append("/log/a", b"x") for _ in range(200)))
        process.exposed = "done"
        await process.stopping.wait()

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(0.002)
        world.inject("pause", ["alpha"])
        there = world.disk("alpha").files["/log/a"].content
        before = len(there)
        world.run_for(1)
        assert 0 < before <= len(there) <= before + 1 < 200
        world.inject("resume", ["alpha"])
        world.run_for(1)
        assert len(there) == 200 and node.exposed == "done"


def test_a_process_that_is_killed_while_it_is_stopped_does_no_more_jobs() -> None:
    with World(1) as world:
        node = world.add_node("alpha", writer)
        node.start()
        world.run_for(0.1)
        world.inject("pause", ["alpha"])
        world.run_for(1)
        before = world.disk("alpha").under("/log")
        world.inject("crash", ["alpha"])
        world.run_for(1)
        assert world.disk("alpha").under("/log") == before
        assert not world.disk("alpha").locks and not world.failures


def test_too_many_waiting_jobs_are_refused() -> None:
    async def main(process: Process) -> None:
        await process.storage.make_folder("/log")
        jobs = [asyncio.ensure_future(process.storage.append("/log/a", b"x")) for _ in range(JOBS_MAX + 1)]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert isinstance(results[-1], StorageError)
        assert [file.size for file in await process.storage.files("/log")] == [JOBS_MAX]

    in_world(main)


def writer(process: Process) -> Coroutine[Any, Any, None]:
    """Appends unsynced lines repeatedly, and sometimes a synced one and a state file."""

    async def main() -> None:
        await process.storage.make_folder("/log")
        await process.storage.lock("/log/lock")
        for number in range(1_000_000):
            await process.storage.append("/log/a", b"line %06d\n" % number)
            if number % 10 == 0:
                await process.storage.append("/log/b", b"line %06d\n" % number, sync=True)
                await process.storage.write_atomic("/log/state", b"%06d" % number)
            process.exposed = number

    return main()


def after(kind: str, seed: int) -> tuple[int, bytes, bytes, bytes]:
    with World(seed) as world:
        node = world.add_node("alpha", writer)
        node.start()
        world.run_for(0.2)
        done = node.exposed
        world.inject(kind, ["alpha"])
        disk = world.disk("alpha")
        assert not disk.locks
        found = tuple(bytes(disk.read(f"/log/{name}") or b"") for name in ("a", "b", "state"))
        world.inject("start", ["alpha"])
        world.run_for(0.1)
        assert not world.failures  # the lock of the dead process is free
        return (done, *found)


def test_a_killed_process_loses_only_the_job_at_hand() -> None:
    torn = 0
    for seed in range(16):
        done, log, synced, state = after("crash", seed)
        assert log.startswith(b"".join(b"line %06d\n" % number for number in range(done + 1)))
        assert len(log) <= (done + 2) * 12
        assert len(synced) >= 12 and int(state) <= done + 1
        torn += bool(len(log) % 12 or len(synced) % 12)
    assert torn


def test_a_power_loss_also_loses_unsynced_bytes_and_keeps_synced_and_atomic_ones() -> None:
    lost = 0
    for seed in range(12):
        done, log, synced, state = after("power_off", seed)
        whole = b"".join(b"line %06d\n" % number for number in range(done + 2))
        assert whole.startswith(log)
        assert synced.count(b"\n") >= done // 10
        assert int(state) >= (done - 10) // 10 * 10
        lost += len(log) < (done + 1) * 12
    assert lost > 6


def names_after_a_power_loss(seed: int, *, synced: bool) -> tuple[list[str], bytes]:
    """Names of a log that was made, rotated and begun again, with one file removed; and the content of its
    first file.
    """

    async def main(process: Process) -> None:
        storage = process.storage
        await storage.make_folder("/log")
        await storage.append("/log/old", b"old", sync=True)
        await storage.append("/log/a.part", b"first")
        await storage.rename("/log/a.part", "/log/a")
        await storage.append("/log/b.part", b"second")
        await storage.remove("/log/old")
        if synced:
            await storage.write_atomic("/log/state", b"state")
        await process.stopping.wait()

    with World(seed) as world:
        world.add_node("alpha", main).start()
        world.run_for(1)
        world.inject("power_off", ["alpha"])
        disk = world.disk("alpha")
        return disk.list("/log"), disk.read("/log/a") or disk.read("/log/a.part") or b""


def test_a_power_loss_reverts_unsynced_names_from_some_change_on() -> None:
    in_order = [
        ["old"],
        ["a.part", "old"],
        ["a", "old"],
        ["a", "b.part", "old"],
        ["a", "b.part"],
    ]
    found = [names_after_a_power_loss(seed, synced=False) for seed in range(24)]
    assert [names for names in in_order if names not in [each for each, _ in found]] == []
    assert all(names in in_order and b"first".startswith(content) for names, content in found)
    for seed in range(10):
        assert names_after_a_power_loss(seed, synced=True)[0] == ["a", "b.part", "state"]


def test_a_synced_append_that_makes_a_file_outlives_a_power_loss() -> None:
    async def main(process: Process) -> None:
        await process.storage.make_folder("/log")
        await process.storage.append("/log/a", b"whole", sync=True)
        await process.stopping.wait()

    for seed in range(20):
        with World(seed) as world:
            world.add_node("alpha", main).start()
            world.run_for(1)
            world.inject("power_off", ["alpha"])
            assert world.disk("alpha").read("/log/a") == b"whole"


def test_damaged_data_does_not_come_back_by_a_power_loss() -> None:
    for seed in range(10):
        with World(seed) as world:
            world.add_node("alpha", writer).start()
            world.run_for(0.2)
            world.inject("lost_files", ["alpha"], files="log")
            world.inject("power_off", ["alpha"])
            assert world.disk("alpha").list("/log") == []


def test_the_same_seed_tears_at_the_same_byte() -> None:
    assert after("power_off", 7) == after("power_off", 7)


def test_a_faulty_disk_fails_every_job_until_the_fault_ends() -> None:
    async def main(process: Process) -> None:
        await process.storage.make_folder("/log")
        while not process.stopping.is_set():
            try:
                await process.storage.append("/log/a", b"x", sync=True)
                process.exposed = "ok"
            except OSError as error:
                process.exposed = error.errno
            await asyncio.sleep(0.1)

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(1)
        assert node.exposed == "ok"
        world.inject("disk_fault", ["alpha"], value=DISK_FULL, for_s=2)
        world.run_for(1)
        assert node.exposed == errno.ENOSPC
        world.run_for(2)
        assert node.exposed == "ok"


def test_a_full_disk_can_be_read_and_cleaned_and_a_broken_one_cannot() -> None:
    async def main(process: Process) -> None:
        storage = process.storage
        await storage.make_folder("/log")
        await storage.append("/log/a", b"x")
        (await storage.lock("/log/held")).release()
        await asyncio.sleep(1)
        refused = []
        jobs: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "read": lambda: storage.read("/log/a"),
            "list": lambda: storage.list("/log"),
            "append": lambda: storage.append("/log/a", b"x"),
            "write_atomic": lambda: storage.write_atomic("/log/b", b"x"),
            "make_folder": lambda: storage.make_folder("/log/c"),
            "the same again": lambda: storage.make_folder("/log"),
            "lock": lambda: storage.lock("/log/lock"),
            "lock again": lambda: storage.lock("/log/held"),
            "rename": lambda: storage.rename("/log/a", "/log/z"),
            "remove": lambda: storage.remove("/log/z"),
        }
        for name, job in jobs.items():
            try:
                await job()
            except OSError as error:
                refused.append(f"{name}: {errno.errorcode[error.errno or 0]}")
        process.exposed = refused
        await process.stopping.wait()

    writes = ["append", "write_atomic", "make_folder", "lock"]
    every = ["read", "list", *writes[:3], "the same again", "lock", "lock again", "rename", "remove"]
    for code, refused in ((errno.ENOSPC, writes), (errno.EIO, every)):
        with World(1) as world:
            node = world.add_node("alpha", main)
            node.start()
            world.run_for(0.5)
            world.inject("disk_fault", ["alpha"], value=code)
            world.run_for(2)
            assert node.exposed == [f"{name}: {errno.errorcode[code]}" for name in refused]
            assert not world.failures
