"""Disks that survive their processes, and lose unsynced data when their host loses power.

A `Disk` belongs to a host. A `VirtualStorage` gives one process access to it and has the contract of
``mesh.storage.Storage``. Jobs of one storage are done one after the other, each after a time drawn from the
disk's random stream, and take effect when they end.

* A stopped process begins no job; the kernel finishes the current one.
* A killed process loses its waiting jobs. The current one is done, not done, or, if it appends, done in part:
  a seeded choice. Everything else stays, as in a kernel's cache. Its locks are free.
* A host that loses power also loses unsynced data (`simulations.kernel.files`). Names are lost from a seeded
  change on: files that were made, renamed or removed since then are restored. Names are synced by
  `write_atomic` and by a synced append that makes a file, all of a disk together, as file systems with a
  journal do it. Folders are permanent.
* `write_atomic` and `rename` happen completely or not at all, and `write_atomic` is durable once it has
  returned.
* ``Disk.fault`` makes jobs fail with that errno. A full disk (ENOSPC, EDQUOT, ``Disk.size_max``) can be read,
  and files on it be renamed and removed; existing folders and locks need no room.
* ``Disk.slow_s`` makes syncs take longer. ``Disk.failing_syncs`` is the share of syncs that fail.
* On a disk that is ``lying`` a sync is no sync: a power loss then also takes synced appends, and restores the
  file that was replaced.
* Files can be torn, have bits flipped, and be lost, as after a file system check.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

from mesh.errors import Locked, StorageError
from mesh.storage import StoredFile
from simulations.kernel.file_content import FileContent
from simulations.kernel.files import File, SectorFile
from simulations.kernel.scheduler import MILLISECOND, SECOND, Scheduler, nanoseconds

T = TypeVar("T")

JOBS_MAX: Final = 1024
JOB_NS: Final = (20_000, 200_000)
SYNC_NS: Final = (200_000, 4 * MILLISECOND)
STATE_FOLDER: Final = "/state"
OUTBOX_SUFFIX: Final = ".outbox"
"""The folder of clients' outboxes, beside that."""
"""Where programs keep state for their next life, each in a folder of its name."""
LOG_FOLDER: Final = "/log"
FREE: Final = 1 << 40
"""Bytes free on a disk without a limit."""
FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Disk:
    """The files of a host, by absolute path."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.files: dict[str, File] = {}
        self.folders: dict[str, None] = {"/": None}
        self.locks: dict[str, VirtualLock] = {}
        self.fault: int | None = None
        """An errno with which jobs fail."""
        self.fault_share = 1.0
        """The share of jobs that fail."""
        self.slow_s = 0.0
        """The extra time of a sync."""
        self.lying = False
        """True if it reports data in its cache as written to the medium."""
        self.failing_syncs = 0.0
        """The share of syncs that fail, and drop their data."""
        self.size_max: int | None = None
        """Bytes in all files; None means no limit."""
        self._renamed: list[dict[str, File | None]] = []
        """For each change of names since they were synced: their files before."""

    def lose_power(self) -> None:
        """Forget a seeded part of the unsynced data."""
        if self._renamed:
            for before in reversed(self._renamed[self.rng.randint(0, len(self._renamed)) :]):
                self._put(before)
            self._renamed.clear()
        for path in sorted(self.files):
            self.files[path].lose_power(self.rng)
        self.locks.clear()

    def error(self, needs_room: bool) -> OSError | None:
        """The error of the current job, if any."""
        if needs_room and self.size_max is not None and not self.free_bytes():
            return _failure(errno.ENOSPC)
        if self.fault is None or (self.fault in FULL and not needs_room):
            return None
        if self.fault_share < 1 and self.rng.random() >= self.fault_share:
            return None
        return _failure(self.fault)

    def sync_error(self) -> OSError | None:
        """The error of the current sync, if any."""
        if self.failing_syncs and self.rng.random() < self.failing_syncs:
            return _failure(errno.EIO)
        return None

    def free_bytes(self) -> int:
        if self.fault in FULL:
            return 0
        if self.size_max is None:
            return FREE
        return max(0, self.size_max - sum(len(file.content) for file in self.files.values()))

    def flush(self) -> None:
        """Write all cached data to the medium."""
        for file in self.files.values():
            file.sync()
        self._renamed.clear()

    # --- damage

    def paths_under(self, folder: str) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        return [path for path in sorted(self.files) if path.startswith(prefix)]

    def tear(self, path: str, size: int) -> None:
        """Cut so many bytes off the end of a file."""
        self.files[path].tear(size)

    def flip(self, path: str, rng: random.Random) -> None:
        """Flip one bit of a file that has any."""
        content = self.files[path].content
        if content:
            content.flip(rng.randrange(len(content) * 8))

    def lose(self, folder: str) -> None:
        """Remove the folder and everything below it."""
        self._renamed.clear()  # otherwise a power loss would restore some of it
        for path in self.paths_under(folder):
            del self.files[path]
        for path in list(self.folders):
            if path == folder or path.startswith(folder.rstrip("/") + "/"):
                del self.folders[path]

    def under(self, folder: str) -> dict[str, bytes]:
        """The files below a folder, by path."""
        return {path: bytes(self.files[path].content) for path in self.paths_under(folder)}

    # --- actions of storages, which take no time here

    def read(self, path: str) -> bytes | None:
        file = self.files.get(path)
        return None if file is None else bytes(file.content)

    def write(self, path: str, data: bytes) -> None:
        """Replace the file; then it and all names are on the medium, if the disk is honest."""
        self._need_folder(path)
        self._rename({path: File(FileContent(data), len(data))})
        self.sync_names()

    def append(self, path: str, data: bytes, sync: bool) -> None:
        self._need_folder(path)
        makes = path not in self.files
        if makes:
            self._rename({path: File(FileContent(), 0)})
        file = self.files[path]
        file.append(data)
        if sync and not self.lying:
            file.sync()
            if makes:
                self.sync_names()

    def rename(self, old: str, new: str) -> None:
        if old not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._need_folder(new)
        self._rename({old: None, new: self.files[old]})

    def in_place(self, path: str) -> SectorFile | None:
        """The file of that name, to be written in place from now on."""
        file = self.files.get(path)
        if file is None or isinstance(file, SectorFile):
            return file
        found = self.files[path] = SectorFile.of(file)
        for before in self._renamed:
            before.update({name: found for name, it in before.items() if it is file})
        return found

    def name(self, path: str, file: File) -> None:
        """Give a new file that name."""
        self._need_folder(path)
        self._rename({path: file})

    def sync_names(self) -> None:
        if not self.lying:
            self._renamed.clear()

    def _rename(self, names: dict[str, File | None]) -> None:
        """Make names refer to other files or nothing, until a power loss reverts that."""
        self._renamed.append({path: self.files.get(path) for path in names})
        self._put(names)

    def _put(self, names: dict[str, File | None]) -> None:
        for path, file in names.items():
            if file is not None:
                self.files[path] = file
            else:
                self.files.pop(path, None)

    def list(self, folder: str) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        paths = [*self.files, *self.folders]
        return sorted(
            {path.removeprefix(prefix).partition("/")[0] for path in paths if path.startswith(prefix)} - {""}
        )

    def make_folder(self, path: str) -> None:
        while path not in self.folders:
            if path in self.files:
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            self.folders[path] = None
            path = os.path.dirname(path) or "/"

    def remove(self, path: str) -> None:
        if path in self.files:
            self._rename({path: None})

    def lock(self, path: str, storage: VirtualStorage) -> VirtualLock:
        self._need_folder(path)
        holder = self.locks.get(path)
        if holder is not None:
            raise Locked(path, holder.pid)
        if path not in self.files:
            self._rename({path: File(FileContent(), 0)})
        self.files[path].content = FileContent(f"{storage.pid}\n".encode())
        lock = self.locks[path] = VirtualLock(self, path, storage)
        return lock

    def _need_folder(self, path: str) -> None:
        folder = os.path.dirname(path) or "/"
        if folder not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", folder)


class VirtualLock:
    """Held until it is released or its process dies."""

    def __init__(self, disk: Disk, path: str, storage: VirtualStorage) -> None:
        self._disk = disk
        self._path = path
        self.storage = storage
        self.pid = storage.pid

    def release(self) -> None:
        if self._disk.locks.get(self._path) is self:
            del self._disk.locks[self._path]


class Stoppable(Protocol):
    """The loop of a process, which may be paused."""

    @property
    def paused(self) -> bool: ...

    def when_resumed(self, job: Callable[[], None]) -> None:
        """Call it when the process runs again."""


@dataclass(slots=True)
class Job:
    """A job for the disk: its duration, its effect, and the effect of half of it."""

    takes_ns: int
    act: Callable[[], Any]
    torn: Callable[[], None] | None
    needs_room: bool
    done: asyncio.Future[Any]


class VirtualStorage:
    """The access of one process to its host's disk. Relative paths begin at the root."""

    def __init__(self, disk: Disk, scheduler: Scheduler, pid: int) -> None:
        self.pid = pid
        self._disk = disk
        self._scheduler = scheduler
        self._jobs: deque[Job] = deque()
        self._working = False
        """True if the first job has begun; otherwise it waits for its process to be resumed."""
        self._closed = False
        self._dead = False
        self._at_death: list[Callable[[], None]] = []

    # --- mesh.storage.Storage

    async def read(self, path: str) -> bytes | None:
        return await self._ask(lambda: self._disk.read(absolute(path)))

    async def write_atomic(self, path: str, data: bytes) -> None:
        def write() -> None:
            failure = self._disk.sync_error()
            if failure is not None:
                raise failure
            self._disk.write(absolute(path), data)
            self._written(absolute(path))

        await self._ask(write, needs_room=True, sync=True)

    async def append(self, path: str, data: bytes, *, sync: bool = False) -> None:
        def append() -> None:
            failure = self._disk.sync_error() if sync else None
            self._disk.append(absolute(path), data, sync and failure is None)
            self._written(absolute(path))
            if failure is not None:
                raise failure

        def torn() -> None:
            self._disk.append(absolute(path), data[: self._disk.rng.randrange(len(data) + 1)], False)
            self._written(absolute(path))

        await self._ask(append, torn, needs_room=True, sync=sync)

    async def rename(self, old: str, new: str) -> None:
        await self._ask(lambda: self._disk.rename(absolute(old), absolute(new)))

    async def list(self, folder: str) -> list[str]:
        return await self._ask(lambda: self._disk.list(absolute(folder)))

    async def make_folder(self, path: str) -> None:
        is_new = absolute(path) not in self._disk.folders
        await self._ask(lambda: self._disk.make_folder(absolute(path)), needs_room=is_new)

    async def files(self, folder: str) -> Sequence[StoredFile]:
        return await self._ask(lambda: _files(self._disk, absolute(folder), self._scheduler.now_ns))

    def _written(self, path: str) -> None:
        """Record when that file was written to."""
        self._disk.files[path].written_ns = self._scheduler.now_ns

    async def remove(self, path: str) -> None:
        await self._ask(lambda: self._disk.remove(absolute(path)))

    async def lock(self, path: str) -> VirtualLock:
        is_new = absolute(path) not in self._disk.files
        return await self._ask(lambda: self._disk.lock(absolute(path), self), needs_room=is_new)

    async def aclose(self) -> None:
        if not self._closed:
            done = self._ask(lambda: None)
            self._closed = True
            await done

    # ---

    def kill(self) -> None:
        """The process is dead: decide the outcome of the current job, forget the rest, free the locks."""
        if self._dead:
            return
        self._dead = True
        job = self._jobs[0] if self._working else None
        if job is not None and self._disk.error(job.needs_room) is None:
            outcome = self._disk.rng.choice(("done", "not done", "torn"))
            try:
                if outcome == "done":
                    job.act()
                elif outcome == "torn" and job.torn is not None:
                    job.torn()
            except (OSError, StorageError):
                pass  # it would have failed, and nobody is left to be told
        self._jobs.clear()
        for kill in self._at_death:
            kill()
        for lock in [lock for lock in self._disk.locks.values() if lock.storage is self]:
            lock.release()

    def at_death(self, kill: Callable[[], None]) -> None:
        """Also call this when the process is killed."""
        self._at_death.append(kill)

    def _ask(
        self,
        act: Callable[[], T],
        torn: Callable[[], None] | None = None,
        *,
        needs_room: bool = False,
        sync: bool = False,
    ) -> asyncio.Future[T]:
        if self._closed:
            raise StorageError("this storage is closed")
        if len(self._jobs) >= JOBS_MAX:
            raise StorageError(f"{JOBS_MAX} disk jobs are waiting; the disk does not keep up")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        takes_ns = self._disk.rng.randint(*(SYNC_NS if sync else JOB_NS))
        if sync:
            takes_ns += nanoseconds(self._disk.slow_s)
        self._jobs.append(Job(takes_ns, act, torn, needs_room, done))
        if len(self._jobs) == 1:
            self._begin()
        return done

    def _begin(self) -> None:
        if self._dead:
            return
        job = self._jobs[0]
        loop = cast(Stoppable, job.done.get_loop())
        if loop.paused:
            loop.when_resumed(self._begin)
        else:
            self._working = True
            self._scheduler.after(job.takes_ns, self._end)

    def _end(self) -> None:
        if self._dead:
            return
        self._working = False
        job = self._jobs.popleft()
        error: BaseException | None = None
        result: Any = None
        try:
            refusal = self._disk.error(job.needs_room)
            if refusal is not None:
                raise refusal
            result = job.act()
        except (OSError, StorageError) as failure:
            error = failure
        if self._jobs:
            self._begin()
        if job.done.done():  # the caller was cancelled
            return
        if error is not None:
            job.done.set_exception(error)
        else:
            job.done.set_result(result)


def _files(disk: Disk, folder: str, now_ns: int) -> list[StoredFile]:
    prefix = folder.rstrip("/") + "/"
    files = [(path.removeprefix(prefix), disk.files[path]) for path in disk.paths_under(folder)]
    return [
        StoredFile(name, len(file.content), (now_ns - file.written_ns) / SECOND)
        for name, file in files
        if "/" not in name
    ]


def _failure(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def absolute(path: str) -> str:
    return os.path.normpath("/" + path.lstrip("/"))  # POSIX keeps two slashes at the start
