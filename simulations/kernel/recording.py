"""Records what a synchronous job does to a disk, so that it can take virtual time.

SQLite asks for one thing after the other and waits for each, while virtual time stands still. So a job runs
at once over an overlay: it sees the disk and, on top of it, its own changes; the disk is not changed. The
result is a list of operations, each with the time it takes. They are applied to the disk one after the other
at their instants, so a crash in between leaves the first ones. If the folder was lost meanwhile, no file gets
a name in it, as if it had been lost just after the job.

An operation's failure is decided when it is recorded, by the faults that the disk has then.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from simulations.kernel.files import SectorFile
from simulations.kernel.scheduler import nanoseconds
from simulations.kernel.sectors import SECTOR, ZEROS, Sectors, overwritten
from simulations.kernel.storage import SYNC_NS, Disk, absolute

READ_NS: Final = 3_000
WRITE_NS: Final = 10_000
"""Time for reads and writes, which use the kernel's cache."""


class What(StrEnum):
    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    DROP = "drop"
    """A sync that failed."""
    SYNC_NAMES = "sync names"
    NAMES_NOT_SYNCED = "names not synced"
    """A sync of names that failed. The next one includes them."""
    REMOVE = "remove"
    RENAME = "rename"
    READ = "read"
    """Reads after the last other operation; they only take time."""


WAITS: Final = (What.SYNC, What.DROP, What.SYNC_NAMES, What.NAMES_NOT_SYNCED)
"""Operations that wait for the medium."""


@dataclass(slots=True)  # not frozen: one for each write
class Operation:
    """``offset`` is the new size of a truncated file, ``path`` the old name of a renamed one."""

    what: What
    takes_ns: int
    path: str = ""
    file: SectorFile | None = None
    offset: int = 0
    data: bytes = b""
    sectors: Sectors = ()
    """The written data, as whole sectors."""
    new: str = ""

    def apply(self, disk: Disk, now_ns: int) -> None:
        file = self.file
        match self.what:
            case What.CREATE:
                assert file is not None
                if os.path.dirname(self.path) in disk.folders:
                    disk.name(self.path, file)
            case What.WRITE:
                assert file is not None
                file.put(self.sectors, self.offset + len(self.data), disk.rng)
            case What.TRUNCATE:
                assert file is not None
                file.truncate(self.offset)
            case What.SYNC:
                assert file is not None
                if not disk.lying:
                    file.sync()
            case What.DROP:
                assert file is not None
                file.drop()
            case What.SYNC_NAMES:
                disk.sync_names()
            case What.REMOVE:
                disk.remove(self.path)
            case What.RENAME:
                if self.path in disk.files:
                    disk.rename(self.path, self.new)
            case What.READ | What.NAMES_NOT_SYNCED:
                pass
        if file is not None:
            file.written_ns = now_ns

    def tear(self, disk: Disk, now_ns: int) -> None:
        """What a process leaves of it when killed in the middle: all, nothing, or the beginning of a
        write.
        """
        outcome = disk.rng.choice(("done", "not done", "torn"))
        if outcome == "done":
            self.apply(disk, now_ns)
        elif outcome == "torn" and self.file is not None and self.what is What.WRITE:
            self.file.write(self.offset, self.data[: disk.rng.randrange(len(self.data))], disk.rng)


class View:
    """A file as the job has left it, on top of the disk's content."""

    __slots__ = ("_changed", "_under", "file", "size")

    def __init__(self, file: SectorFile) -> None:
        self.file = file
        self.size = len(file.sectors)
        self._under = -(-self.size // SECTOR)
        """The number of the disk's sectors that are still visible."""
        self._changed: dict[int, bytes] = {}

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        first = offset // SECTOR
        joined = b"".join(map(self._sector, range(first, (end - 1) // SECTOR + 1)))
        return joined[offset - first * SECTOR : end - first * SECTOR]

    def write(self, offset: int, data: bytes) -> Sectors:
        """The sectors that this changes, with their new content."""
        sectors = overwritten(self._sector, offset, data)
        self._changed.update(sectors)
        end = offset + len(data)
        if end > self.size:
            self.size = end
        return sectors

    def truncate(self, size: int) -> None:
        whole, rest = divmod(size, SECTOR)
        count = whole + bool(rest)
        for number in [number for number in self._changed if number >= count]:
            del self._changed[number]
        self._under = min(self._under, count)
        if rest and size < self.size:
            self._changed[whole] = self._sector(whole)[:rest] + ZEROS[rest:]
        self.size = size

    def _sector(self, number: int) -> bytes:
        found = self._changed.get(number)
        if found is not None:
            return found
        return self.file.sectors.sector(number) if number < self._under else ZEROS


class Recorder:
    """The files of one process for synchronous jobs, one at a time: ``mesh.database.files.Files`` and
    SQLite's needs.

    Errors of the disk are `OSError`. After its process was killed it changes nothing more.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.recording = False
        self.dead = False
        self._operations: list[Operation] = []
        self._names: dict[str, SectorFile | None] = {}
        """For each name that the job has changed, its new file."""
        self._views: dict[SectorFile, View] = {}
        self._grown = 0
        self._read_ns = 0

    def begin(self) -> None:
        assert not self.recording, "jobs are done one after the other"
        self.recording = True

    def end(self) -> list[Operation]:
        """The operations of the job."""
        if self._read_ns:
            self._add(What.READ, 0)
        done, self._operations = self._operations, []
        self._names.clear()
        self._views.clear()
        self._grown = 0
        self.recording = False
        return done

    # --- mesh.database.files.Files

    def size(self, path: str) -> int | None:
        path = self._reached(path)
        if path in self.disk.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        file = self.find(path)
        return None if file is None else self.view(file).size

    def read(self, path: str) -> bytes:
        file = self.find(self._reached(path))
        return b"" if file is None else self.view(file).read(0, self.view(file).size)

    def names(self, folder: str) -> list[str]:
        folder = self._reached(folder)
        if folder not in self.disk.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        names = dict.fromkeys(self.disk.list(folder))
        for path, file in self._names.items():
            if os.path.dirname(path) == folder:
                names.pop(os.path.basename(path), None)
                if file is not None:
                    names[os.path.basename(path)] = None
        return sorted(names)

    def rename(self, old: str, new: str) -> None:
        old, new = self._reached(old), absolute(new)
        file = self.find(old)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self._names |= {old: None, new: file}
        self._add(What.RENAME, WRITE_NS, old, new=new)
        self.sync_names(os.path.dirname(new))

    def sync_names(self, folder: str) -> None:
        self._sync(What.SYNC_NAMES, What.NAMES_NOT_SYNCED)

    def remove(self, path: str) -> None:
        path = self._reached(path)
        if self.find(path) is not None:
            self._names[path] = None
            self._add(What.REMOVE, WRITE_NS, path)

    def free_bytes(self, folder: str) -> int:
        return max(0, self.disk.free_bytes() - self._grown)

    def locked_by(self, path: str) -> int:
        return 0

    def identity(self, path: str) -> tuple[int, int]:
        path = self._reached(path)
        if self.find(path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return 0, zlib.crc32(path.encode())  # files have no numbers here; a copy has its name

    # --- SQLite's further needs

    def find(self, path: str) -> SectorFile | None:
        """The file of an absolute path."""
        return self._names[path] if path in self._names else self.disk.in_place(path)

    def view(self, file: SectorFile) -> View:
        found = self._views.get(file)
        if found is None:
            found = self._views[file] = View(file)
        return found

    def create(self, path: str) -> SectorFile:
        self._ask(needs_room=True)
        folder = os.path.dirname(path)
        if folder not in self.disk.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        file = self._names[path] = SectorFile()
        self._add(What.CREATE, WRITE_NS, path, file)
        return file

    def read_at(self, file: SectorFile, offset: int, size: int) -> bytes:
        self._ask()
        return self.view(file).read(offset, size)

    def write_at(self, path: str, file: SectorFile, offset: int, data: bytes) -> None:
        view = self.view(file)
        grown = offset + len(data) - view.size
        self._ask(needs_room=grown > 0)
        if grown > 0 and self.disk.size_max is not None and grown > self.free_bytes(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if grown > 0:
            self._grown += grown
        self._add(What.WRITE, WRITE_NS, path, file, offset, data, view.write(offset, data))

    def truncate(self, path: str, file: SectorFile, size: int) -> None:
        self._ask()
        view = self.view(file)
        self._grown -= view.size - size
        view.truncate(size)
        self._add(What.TRUNCATE, WRITE_NS, path, file, size)

    def sync(self, path: str, file: SectorFile) -> None:
        self._sync(What.SYNC, What.DROP, path, file)

    def _sync(self, what: What, failed: What, path: str = "", file: SectorFile | None = None) -> None:
        if self.dead:
            return
        failure = self.disk.error(needs_room=False) or self.disk.sync_error()
        takes_ns = self.disk.rng.randint(*SYNC_NS) + nanoseconds(self.disk.slow_s)
        self._add(what if failure is None else failed, takes_ns, path, file)
        if failure is not None:
            raise failure

    def _reached(self, path: str) -> str:
        self._ask()
        return absolute(path)

    def _ask(self, *, needs_room: bool = False) -> None:
        """Raise the disk's error, if there is one."""
        failure = None if self.dead else self.disk.error(needs_room)
        if failure is not None:
            raise failure
        self._read_ns += READ_NS

    def _add(
        self,
        what: What,
        takes_ns: int,
        path: str = "",
        file: SectorFile | None = None,
        offset: int = 0,
        data: bytes = b"",
        sectors: Sectors = (),
        new: str = "",
    ) -> None:
        if self.dead:
            return
        assert self.recording, f"{what} {path} outside of a job"
        takes_ns += self._read_ns
        self._operations.append(Operation(what, takes_ns, path, file, offset, data, sectors, new))
        self._read_ns = 0


def steps(operations: Iterable[Operation]) -> list[list[Operation]]:
    """Operations, cut after each one that waits for the medium."""
    cut: list[list[Operation]] = [[]]
    for operation in operations:
        cut[-1].append(operation)
        if operation.what in WAITS:
            cut.append([])
    return [step for step in cut if step]


def apply_until(step: Iterable[Operation], disk: Disk, elapsed_ns: int, now_ns: int) -> None:
    """The effects of a step whose process was killed so long after its beginning."""
    for operation in step:
        elapsed_ns -= operation.takes_ns
        if elapsed_ns < 0:
            operation.tear(disk, now_ns)
            return
        operation.apply(disk, now_ns)
