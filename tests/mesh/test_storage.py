"""Real files: what a job promises, also when it fails or its caller goes away."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mesh.errors import Locked, StorageError
from mesh.storage import JOBS_MAX, ThreadStorage


async def test_what_is_written_is_read_back_and_missing_files_are_none(tmp_path: Path) -> None:
    storage = ThreadStorage()
    folder = str(tmp_path / "a" / "b")
    assert await storage.list(folder) == []
    await storage.make_folder(folder)
    await storage.make_folder(folder)
    assert await storage.read(f"{folder}/x") is None
    assert await storage.size(f"{folder}/x") is None
    await storage.write_atomic(f"{folder}/x", b"one")
    await storage.write_atomic(f"{folder}/x", b"two")
    await storage.append(f"{folder}/y", b"12")
    await storage.append(f"{folder}/y", b"34", sync=True)
    assert await storage.read(f"{folder}/x") == b"two"
    assert await storage.read(f"{folder}/y") == b"1234"
    assert await storage.size(f"{folder}/y") == 4
    await storage.rename(f"{folder}/y", f"{folder}/z")
    assert await storage.list(folder) == ["x", "z"]
    await storage.remove(f"{folder}/z")
    await storage.remove(f"{folder}/z")
    assert await storage.list(folder) == ["x"]
    await storage.aclose()


async def test_errors_of_the_disk_reach_the_caller_as_they_are(tmp_path: Path) -> None:
    storage = ThreadStorage()
    with pytest.raises(FileNotFoundError):
        await storage.append(str(tmp_path / "no" / "file"), b"x")
    with pytest.raises(IsADirectoryError):
        await storage.read(str(tmp_path))
    await storage.aclose()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Like a disk that is full; for a moment only, since pytest may be writing to a file, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_an_append_that_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    storage = ThreadStorage()
    path = str(tmp_path / "log")
    with files_of_at_most(100):
        await storage.append(path, b"a" * 60)
        with pytest.raises(OSError, match="File too large"):
            await storage.append(path, b"b" * 60)
        assert await storage.read(path) == b"a" * 60
        await storage.append(path, b"c" * 40)
    assert await storage.read(path) == b"a" * 60 + b"c" * 40
    await storage.aclose()


async def test_a_synced_append_that_makes_a_file_also_syncs_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power loss takes the file whole."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    storage = ThreadStorage()
    path = str(tmp_path / "log")
    await storage.append(path, b"one", sync=True)
    assert synced == [path, str(tmp_path)]
    await storage.append(path, b"two", sync=True)
    await storage.append(str(tmp_path / "other"), b"one")
    assert synced == [path, str(tmp_path), path]
    await storage.aclose()


async def test_jobs_of_one_storage_happen_in_order_also_those_whose_caller_was_cancelled(
    tmp_path: Path,
) -> None:
    storage = ThreadStorage()
    path = str(tmp_path / "log")
    tasks = [asyncio.create_task(storage.append(path, b"%d," % number)) for number in range(50)]
    await asyncio.sleep(0)
    tasks[10].cancel()
    await asyncio.wait(tasks)
    assert await storage.read(path) == b"".join(b"%d," % number for number in range(50))
    await storage.aclose()


async def test_a_disk_that_stands_still_fills_the_queue_and_then_refuses(tmp_path: Path) -> None:
    storage = ThreadStorage()
    path = str(tmp_path / "fifo")
    os.mkfifo(path)  # opening it for writing waits for a reader, like a dead network disk
    tasks = [asyncio.create_task(storage.append(path, b"x")) for _ in range(JOBS_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(StorageError, match=f"{JOBS_MAX} disk jobs are waiting"):
        await storage.append(path, b"x")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    await asyncio.wait(tasks)
    assert all(task.exception() is None for task in tasks)
    os.close(reader)
    await storage.aclose()


async def test_a_lock_excludes_this_process_too_and_names_the_holder(tmp_path: Path) -> None:
    storage, other = ThreadStorage(), ThreadStorage()
    path = str(tmp_path / "lock")
    lock = await storage.lock(path)
    with pytest.raises(Locked, match=f"in use by process {os.getpid()}") as caught:
        await other.lock(path)
    assert caught.value.holder_pid == os.getpid()
    lock.release()
    lock.release()
    (await other.lock(path)).release()
    await storage.aclose()
    await other.aclose()


async def test_the_lock_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    program = (
        "import asyncio, sys\n"
        "from mesh.storage import ThreadStorage\n"
        "async def main():\n"
        "    lock = await ThreadStorage().lock(sys.argv[1])\n"
        "    print('locked', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"locked\n"
    storage = ThreadStorage()
    with pytest.raises(Locked, match=f"process {process.pid}"):
        await storage.lock(path)
    process.kill()
    process.wait()
    process.stdout.close()
    (await storage.lock(path)).release()
    await storage.aclose()


async def test_closing_finishes_what_was_asked_for_refuses_more_and_ends_the_thread(tmp_path: Path) -> None:
    storage = ThreadStorage()
    path = str(tmp_path / "log")
    tasks = [asyncio.create_task(storage.append(path, b"x")) for _ in range(20)]
    await asyncio.sleep(0)
    await storage.aclose()
    await storage.aclose()
    assert Path(path).read_bytes() == b"x" * 20
    assert all(task.done() for task in tasks)
    with pytest.raises(StorageError, match="closed"):
        await storage.read(path)
    for thread in threading.enumerate():
        if thread.name == "mesh-storage":
            thread.join(5)
            assert not thread.is_alive()


async def test_a_storage_that_is_never_used_starts_no_thread() -> None:
    before = threading.active_count()
    storage = ThreadStorage()
    await storage.aclose()
    assert threading.active_count() == before
