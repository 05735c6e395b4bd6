"""All disk work of a broker, behind one seam.

A broker is given a `Storage`. `ThreadStorage` is the production one: its single worker thread does jobs in
order, so no two race, and a slow disk never blocks the event loop. The simulator has its own. Paths are
strings. Disk errors are passed on as `OSError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

from mesh.errors import Locked, StorageError

T = TypeVar("T")

JOBS_MAX: Final = 1024
"""Jobs that may wait for the worker. More are refused with `StorageError`, since the disk does not keep
up."""


def disk_advice(error: OSError) -> str:
    """Why the disk refused to write, and what to do about it."""
    reason = error.strerror or str(error)
    match error.errno:
        case errno.EEXIST | errno.ENOTDIR:
            return "there is a file where a folder is needed; name another folder"
        case errno.EISDIR:
            return "it is a folder; name a file"
        case errno.ENOENT:
            return "its folder does not exist; make it or name another"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"{reason}; name a place that this user may write to"
        case errno.ENOSPC | errno.EDQUOT:
            return f"{reason}; make room or name a place on another disk"
        case _:
            return reason


def is_full(error: OSError) -> bool:
    """True if the disk, or a user's quota on it, has no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_reason(error: Exception) -> str:
    """Why the disk refused, for a sentence that already names the file."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "it did not answer"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a folder. ``age_s``: seconds since it was last written to."""

    name: str
    size: int
    age_s: float


class StorageLock(Protocol):
    """An exclusive lock. ``release`` may be called twice."""

    def release(self) -> None: ...


class Storage(Protocol):
    """Files as a broker uses them.

    Jobs of one storage are done one after the other, in order. A job is done even if its caller is cancelled.
    """

    async def read(self, path: str) -> bytes | None:
        """The whole file, or None if it is not there."""

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace the file so that a crash leaves the old or the new content. It is on disk when this
        returns."""

    async def append(self, path: str, data: bytes, *, sync: bool = False) -> None:
        """Append to the file, or create it. If it fails, nothing was added.

        With ``sync`` the data is on disk when this returns.
        """

    async def rename(self, old: str, new: str) -> None:
        """Rename a file atomically. A power loss soon after may bring the old name back."""

    async def list(self, folder: str) -> list[str]:
        """Names in the folder, sorted; empty if there is no such folder."""

    async def make_folder(self, path: str) -> None:
        """Create the folder and its parents, on disk when this returns. No error if it exists."""

    async def files(self, folder: str) -> Sequence[StoredFile]:
        """The files in the folder by name, without its subfolders. Empty if there is no such folder."""

    async def remove(self, path: str) -> None:
        """Delete the file. No error if it does not exist."""

    async def lock(self, path: str) -> StorageLock:
        """Lock between processes and between brokers of one process. Raises `Locked`."""

    async def aclose(self) -> None:
        """Finish the pending jobs, then refuse more."""


class ThreadStorage:
    """Storage on real files with one worker thread, started by the first job and ended by `aclose`.

    The queue holds `JOBS_MAX` jobs. More are refused with a sentence.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    async def read(self, path: str) -> bytes | None:
        return await self._run(_read, path)

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self._run(write_atomic, path, data)

    async def append(self, path: str, data: bytes, *, sync: bool = False) -> None:
        await self._run(_append, path, data, sync)

    async def rename(self, old: str, new: str) -> None:
        await self._run(os.rename, old, new)

    async def list(self, folder: str) -> list[str]:
        return await self._run(_list, folder)

    async def make_folder(self, path: str) -> None:
        await self._run(_make_folder, path)

    async def files(self, folder: str) -> Sequence[StoredFile]:
        return await self._run(_files, folder)

    async def remove(self, path: str) -> None:
        await self._run(_remove, path)

    async def lock(self, path: str) -> StorageLock:
        return await self._run(_lock, path)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            # The result of the last job shows that all earlier ones are done. Joining the thread would block
            # the loop.
            loop = asyncio.get_running_loop()
            done: asyncio.Future[None] = loop.create_future()
            self._waiting += 1
            self._jobs.put(lambda: self._deliver(loop, done, None, None))
            self._jobs.put(None)
            await done

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise StorageError("this storage is closed")
        if self._waiting >= JOBS_MAX:
            raise StorageError(f"{JOBS_MAX} disk jobs are waiting; the disk does not keep up")
        if self._thread is None:
            # A daemon, so that a program that forgets to close its broker can still end.
            self._thread = threading.Thread(target=self._work, name="mesh-storage", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = function(*arguments)
            except BaseException as error:  # whatever it is belongs to the caller, not to the worker
                self._deliver(loop, future, None, error)
            else:
                self._deliver(loop, future, result, None)

        self._waiting += 1
        self._jobs.put(job)
        return await future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _deliver(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[T],
        result: Any,
        error: BaseException | None,
    ) -> None:
        """Called by the worker: settle the caller's future in the caller's loop."""

        def settle() -> None:
            self._waiting -= 1
            if future.done():  # the caller was cancelled
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        with contextlib.suppress(RuntimeError):  # the loop ended meanwhile; nobody waits any more
            loop.call_soon_threadsafe(settle)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write_atomic(path: str, data: bytes) -> None:
    """Replace a file so that others, and a crash, see the old or the new content. Raises `OSError`, and then
    leaves nothing of the new content."""
    temporary = path + ".tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # on a full disk it takes others' room
        raise
    _sync_folder(os.path.dirname(path) or ".")


def _append(path: str, data: bytes, sync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sync:
                os.fsync(descriptor)
                if not size:
                    _sync_folder(os.path.dirname(path) or ".")  # it may have no name there yet
        except OSError:
            # A full disk may have written a part. Remove it, so that the caller can simply try again.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def _list(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _make_folder(path: str) -> None:
    """Sync each new name in its parent folder. Otherwise a power loss removes the folder with its content."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above:
        _make_folder(above)
    try:
        os.mkdir(path)
    except FileExistsError:
        if os.path.isdir(path):  # another program made it meanwhile
            return
        raise
    _sync_folder(above or ".")


def _files(folder: str) -> list[StoredFile]:
    now = time.time()
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                if entry.is_file():
                    stat = entry.stat()
                    found.append(StoredFile(entry.name, stat.st_size, max(0.0, now - stat.st_mtime)))
    return sorted(found, key=lambda file: file.name)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _FileLock:
    """An flock on an open descriptor. The kernel drops it when the process dies, however it dies.

    A forked child inherits the descriptor and with it the lock. It closes its copy at once, so that the lock
    ends with the broker's own process.
    """

    held: ClassVar[set[_FileLock]] = set()

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self.held.add(self)

    def release(self) -> None:
        self.held.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _forget_locks() -> None:
    """In a forked child: the locks are its parent's."""
    for lock in list(_FileLock.held):
        lock.release()


os.register_at_fork(after_in_child=_forget_locks)


def _tell_holder(descriptor: int) -> None:
    """Write down which process has the lock. On a full disk this overwrites the old content, and may not
    fit."""
    told = f"{os.getpid()}\n".encode()
    try:
        os.pwrite(descriptor, told, 0)
        os.ftruncate(descriptor, len(told))
    except OSError as error:
        if not is_full(error):
            raise


def _lock(path: str) -> _FileLock:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _tell_holder(descriptor)
    except BlockingIOError:
        holder = os.read(descriptor, 32).strip()
        os.close(descriptor)
        raise Locked(path, int(holder) if holder.isdigit() else 0) from None
    except OSError:
        os.close(descriptor)
        raise
    # The file stays when the lock is released: unlinking it would let two brokers lock two files of one name.
    return _FileLock(descriptor)
