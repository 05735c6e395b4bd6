"""Real files: the promises of a job, even if it fails or its caller leaves."""

from __future__ import annotations

import asyncio
import errno
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
from mesh.storage import JOBS_MAX, ThreadStorage, disk_advice, disk_reason, write_atomic


async def test_written_files_are_read_back_and_missing_files_are_none(tmp_path: Path) -> None:
    storage = ThreadStorage()
    folder = str(tmp_path / "a" / "b")
    assert await storage.list(folder) == []
    await storage.make_folder(folder)
    await storage.make_folder(folder)
    assert await storage.read(f"{folder}/x") is None
    await storage.write_atomic(f"{folder}/x", b"one")
    await storage.write_atomic(f"{folder}/x", b"two")
    await storage.append(f"{folder}/y", b"12")
    await storage.append(f"{folder}/y", b"34", sync=True)
    assert await storage.read(f"{folder}/x") == b"two"
    assert await storage.read(f"{folder}/y") == b"1234"
    assert [file.size for file in await storage.files(folder)] == [3, 4]
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
    """Simulates a full disk, only for a moment, since pytest may be writing to a file too."""
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
    """Otherwise a power loss removes the whole file."""
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


async def test_jobs_of_one_storage_run_in_order_even_if_their_caller_was_cancelled(
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


async def test_a_disk_that_hangs_fills_the_queue_and_then_jobs_are_refused(tmp_path: Path) -> None:
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


async def test_finished_jobs_make_room_after_any_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mesh.storage.JOBS_MAX", 3)
    storage = ThreadStorage()
    for _ in range(4):
        assert await storage.read(str(tmp_path / "missing")) is None
        with pytest.raises(IsADirectoryError):
            await storage.append(str(tmp_path), b"x")
        cancelled = asyncio.create_task(storage.append(str(tmp_path / "f"), b"x"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        await storage.list(str(tmp_path))
    jobs = [asyncio.create_task(storage.append(str(tmp_path / "f"), b"y")) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(StorageError, match="3 disk jobs are waiting"):
        await storage.read(str(tmp_path / "f"))
    await asyncio.gather(*jobs)
    assert await storage.read(str(tmp_path / "f")) == b"xxxxyyy"
    await storage.aclose()


@pytest.mark.parametrize(
    ("error", "advice", "reason"),
    [
        (FileExistsError(errno.EEXIST, "File exists"), "name another folder", "File exists"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), "name another folder", "Not a directory"),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), "name a file", "Is a directory"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "make it or name another", "No such file"),
        (PermissionError(errno.EACCES, "No"), "No; name a place that this user may write to", "No"),
        (
            OSError(errno.EROFS, "Read-only"),
            "Read-only; name a place that this user may write to",
            "Read-only",
        ),
        (
            OSError(errno.ENOSPC, "No space"),
            "No space; make room or name a place on another disk",
            "No space",
        ),
        (OSError(errno.EIO, "I/O error"), "I/O error", "I/O error"),
        (OSError("odd"), "odd", "odd"),
    ],
)
def test_errors_of_the_disk_are_explained_with_advice(error: OSError, advice: str, reason: str) -> None:
    assert disk_advice(error).endswith(advice) and disk_reason(error) == reason


def test_errors_of_other_kinds_are_explained_too() -> None:
    assert disk_reason(StorageError("this storage is closed")) == "this storage is closed"
    assert disk_reason(TimeoutError()) == "it did not answer"


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


async def test_closing_finishes_pending_jobs_refuses_new_ones_and_ends_the_thread(tmp_path: Path) -> None:
    others = set(threading.enumerate())
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
        if thread.name == "mesh-storage" and thread not in others:
            thread.join(120)
            assert not thread.is_alive()


async def test_a_storage_that_is_never_used_starts_no_thread() -> None:
    before = threading.active_count()
    storage = ThreadStorage()
    await storage.aclose()
    assert threading.active_count() == before


class Calls:
    """The calls to the operating system, in order: the file, and its size at that time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str, int]] = []
        fsync, replace, mkdir = os.fsync, os.replace, os.mkdir

        def noted_fsync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self.made.append(("fsync", path, os.fstat(descriptor).st_size if os.path.isfile(path) else 0))
            fsync(descriptor)

        def noted_replace(old: str, new: str) -> None:
            self.made.append(("replace", new, os.stat(old).st_size))
            replace(old, new)

        def noted_mkdir(path: str, *given: int) -> None:
            self.made.append(("mkdir", path, 0))
            mkdir(path, *given)

        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(os, "replace", noted_replace)
        monkeypatch.setattr(os, "mkdir", noted_mkdir)


async def test_a_file_is_replaced_after_its_content_is_on_disk_and_before_its_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another order a power loss leaves an empty file, or the old one after the call has returned."""
    storage, calls = ThreadStorage(), Calls(monkeypatch)
    path = str(tmp_path / "state")
    await storage.write_atomic(path, b"twelve bytes")
    assert calls.made == [
        ("fsync", f"{path}.tmp", 12),
        ("replace", path, 12),
        ("fsync", str(tmp_path), 0),
    ]
    await storage.aclose()


async def test_a_new_folder_is_on_disk_with_all_above_it_that_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power loss removes a file that was written atomically, with its folder."""
    storage, calls = ThreadStorage(), Calls(monkeypatch)
    await storage.make_folder(str(tmp_path / "a" / "b"))
    assert calls.made == [
        ("mkdir", str(tmp_path / "a"), 0),
        ("fsync", str(tmp_path), 0),
        ("mkdir", str(tmp_path / "a" / "b"), 0),
        ("fsync", str(tmp_path / "a"), 0),
    ]
    calls.made.clear()
    await storage.make_folder(str(tmp_path / "a" / "b"))
    assert calls.made == []
    with pytest.raises(FileExistsError):
        (tmp_path / "file").write_text("")
        await storage.make_folder(str(tmp_path / "file"))
    await storage.aclose()


async def test_a_failed_replacement_leaves_the_former_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = ThreadStorage()
    path = str(tmp_path / "state")
    await storage.write_atomic(path, b"old")

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        await storage.write_atomic(path, b"new")
    monkeypatch.undo()
    assert await storage.read(path) == b"old"
    await storage.aclose()


async def test_files_have_sizes_and_ages(tmp_path: Path) -> None:
    storage = ThreadStorage()
    assert await storage.files(str(tmp_path / "none")) == []
    (tmp_path / "folder").mkdir()
    (tmp_path / "b").write_bytes(b"12345")
    (tmp_path / "a").write_bytes(b"")
    os.utime(tmp_path / "b", (0, 0))
    first, second = await storage.files(str(tmp_path))
    assert (first.name, first.size, second.name, second.size) == ("a", 0, "b", 5)
    assert 0 <= first.age_s < 60 and second.age_s > 1e9
    await storage.aclose()


@pytest.mark.process
def test_a_forked_child_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    """It keeps every descriptor, so a restarted broker was told that the dead one still ran."""
    script = f"""
import asyncio, os, sys, time
from mesh.storage import ThreadStorage

async def main():
    storage = ThreadStorage()
    lock = await storage.lock({str(tmp_path / "lock")!r})
    began, begin = os.pipe()
    if (child := os.fork()) == 0:
        os.write(begin, b"1")
        time.sleep(60)
        os._exit(0)
    os.read(began, 1)
    print(child, flush=True)
    sys.stdin.read()
    os._exit(0)  # as a crash: without release

asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            with pytest.raises(Locked):
                asyncio.run(take(str(tmp_path / "lock")))  # the fork did not release it either
            parent.stdin.close()
            parent.wait(120)
            asyncio.run(take(str(tmp_path / "lock")))
        finally:
            os.kill(child, 9)


async def take(path: str) -> None:
    storage = ThreadStorage()
    try:
        (await storage.lock(path)).release()
    finally:
        await storage.aclose()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the half-written temporary file stayed and took the rest of the room."""
    (tmp_path / "file").write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(str(tmp_path / "file"), b"new")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]
