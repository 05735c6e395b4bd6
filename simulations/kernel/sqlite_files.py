"""SQLite on a disk of the simulator, by a VFS: production's journal runs on it unchanged.

A `SqliteDisk` is the VFS of one process. SQLite's actions within a job are recorded and take effect later
(`simulations.kernel.recording`); outside of jobs it does nothing. The same seed gives the same bytes: SQLite
draws its random numbers (salts of logs, for example) from the default VFS, which is this one within a job,
and restarts them with each job; its clock stands still.

Locks belong to open files, as in a kernel: they are taken at once, and released when their process dies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Generic, TypeVar

import apsw

from simulations.kernel.files import SectorFile
from simulations.kernel.recording import Operation, Recorder
from simulations.kernel.sectors import SECTOR
from simulations.kernel.storage import FULL, Disk, absolute

T = TypeVar("T")

JULIAN_DAY: Final = 2_461_000.0
"""The time on SQLite's clock; the journal gets its time elsewhere."""
SYNCS_NAMES: Final = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
"""Files whose names are synced with their first bytes, as SQLite does it on Unix."""

_DEFAULT: Final = apsw.vfs_names()[0]
_NUMBERS = count()  # for names only; nothing is derived from them


@dataclass(frozen=True, slots=True)
class Recorded(Generic[T]):
    """The outcome of a job, and its effects on the disk."""

    result: T | None
    error: Exception | None
    operations: list[Operation]

    def value(self) -> T:
        """The result. Raises the job's error, if any."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # a job without a result has None


class SqliteDisk(apsw.VFS):
    """The access of one process to a disk through SQLite; ``name`` is for ``apsw.Connection(vfs=...)``."""

    def __init__(self, disk: Disk, rng: random.Random) -> None:
        self.name = f"simulated-{next(_NUMBERS)}"
        self.disk = disk
        self.files = Recorder(disk)
        self._rng = rng
        self._error = (0, "")
        super().__init__(self.name, base="")

    def record(self, job: Callable[[], T]) -> Recorded[T]:
        """Run a job; its operations are not applied to the disk yet."""
        self.files.begin()
        apsw.set_default_vfs(self.name)
        apsw.randomness(0)
        result: T | None = None
        error: Exception | None = None
        try:
            result = job()
        except Exception as raised:  # the job's caller is told when it is over
            error = raised
        finally:
            apsw.set_default_vfs(_DEFAULT)
            apsw.randomness(0)
            operations = self.files.end()
        return Recorded(result, error, operations)

    def at_once(self, job: Callable[[], T]) -> T:
        """Run a job and apply its operations in no time."""
        done = self.record(job)
        for operation in done.operations:
            operation.apply(self.disk, 0)
        return done.value()

    def kill(self) -> None:
        """The process is dead: its open files write nothing more and hold no locks."""
        self.files.dead = True
        for file in self.disk.files.values():
            if isinstance(file, SectorFile):
                for handle in [it for it in file.locks if isinstance(it, _Handle) and it.owner is self]:
                    del file.locks[handle]

    # --- the VFS

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        if name is None:
            return _Handle(self, "", SectorFile(), 0)
        path = absolute(name.filename() if isinstance(name, apsw.URIFilename) else name)
        try:
            self.files.size(path)  # checks that it is a file
            file = self.files.find(path)
            created = file is None
            if file is None:
                if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                    raise FileNotFoundError(errno.ENOENT, "no such file", path)
                file = self.files.create(path)
        except OSError as error:
            raise self.failure(error, apsw.SQLITE_CANTOPEN) from error
        flags[1] = flags[0]
        return _Handle(self, path, file, flags[0] if created else 0)

    def xAccess(self, path: str, flags: int) -> bool:
        try:
            return self.files.size(path) is not None
        except OSError as error:
            raise self.failure(error, apsw.SQLITE_IOERR_ACCESS) from error

    def xDelete(self, path: str, sync: bool) -> None:
        try:
            if self.files.size(path) is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.files.remove(path)
        except FileNotFoundError as error:
            raise self.failure(error, apsw.SQLITE_IOERR_DELETE_NOENT) from error
        except OSError as error:
            raise self.failure(error, apsw.SQLITE_IOERR_DELETE) from error
        try:
            if sync:
                self.files.sync_names(os.path.dirname(path))
        except OSError as error:
            raise self.failure(error, apsw.SQLITE_IOERR_DIR_FSYNC) from error

    def xFullPathname(self, name: str) -> str:
        return absolute(name)

    def xRandomness(self, size: int) -> bytes:
        return self._rng.randbytes(size)

    def xSleep(self, microseconds: int) -> int:
        return microseconds  # a caller that waits for a lock gives up at once

    def xCurrentTime(self) -> float:
        return JULIAN_DAY

    def xCurrentTimeInt64(self) -> int:
        return int(JULIAN_DAY * 86_400_000)

    def xGetLastError(self) -> tuple[int, str]:
        return self._error

    def failure(self, error: OSError, code: int) -> Exception:
        """An error of the disk in the form in which SQLite raises it again, with its cause."""
        self._error = (error.errno or 0, error.strerror or "")
        raised = apsw.exception_for(code)
        raised.args = (error.strerror or str(error),)
        return raised


class _Handle:
    """An open file."""

    def __init__(self, owner: SqliteDisk, path: str, file: SectorFile, created: int) -> None:
        self.owner = owner
        self._path = path
        self._file = file
        self._files = owner.files
        self._name_is_new = bool(created & SYNCS_NAMES)
        self._goes = bool(created & apsw.SQLITE_OPEN_DELETEONCLOSE)

    def xRead(self, size: int, offset: int) -> bytes:
        try:
            return self._files.read_at(self._file, offset, size)
        except OSError as error:
            raise self.owner.failure(error, apsw.SQLITE_IOERR_READ) from error

    def xWrite(self, data: bytes, offset: int) -> None:
        try:
            self._files.write_at(self._path, self._file, offset, bytes(data))
        except OSError as error:
            code = apsw.SQLITE_FULL if error.errno in FULL else apsw.SQLITE_IOERR_WRITE
            raise self.owner.failure(error, code) from error

    def xTruncate(self, size: int) -> None:
        try:
            self._files.truncate(self._path, self._file, size)
        except OSError as error:
            raise self.owner.failure(error, apsw.SQLITE_IOERR_TRUNCATE) from error

    def xSync(self, flags: int) -> None:
        try:
            self._files.sync(self._path, self._file)
        except OSError as error:
            raise self.owner.failure(error, apsw.SQLITE_IOERR_FSYNC) from error
        if self._name_is_new:
            self._name_is_new = False
            with contextlib.suppress(OSError):  # like SQLite on Unix: it neither checks nor retries
                self._files.sync_names(os.path.dirname(self._path))

    def xFileSize(self) -> int:
        return self._files.view(self._file).size

    def xLock(self, level: int) -> None:
        locks = self._file.locks
        others = max((held for handle, held in locks.items() if handle is not self), default=0)
        if level == apsw.SQLITE_LOCK_SHARED:
            free = others < apsw.SQLITE_LOCK_PENDING
        elif level == apsw.SQLITE_LOCK_RESERVED:
            free = others < apsw.SQLITE_LOCK_RESERVED
        else:
            free = others < apsw.SQLITE_LOCK_SHARED
        if not free:
            raise apsw.BusyError(f"{self._path} is locked")
        if not self._files.dead:
            locks[self] = max(level, locks.get(self, 0))

    def xUnlock(self, level: int) -> None:
        if level == apsw.SQLITE_LOCK_NONE:
            self._file.locks.pop(self, None)
        elif self in self._file.locks:
            self._file.locks[self] = level

    def xCheckReservedLock(self) -> bool:
        return any(held >= apsw.SQLITE_LOCK_RESERVED for held in self._file.locks.values())

    def xFileControl(self, operation: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return SECTOR

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE  # like SQLite on Unix

    def xClose(self) -> None:
        self._file.locks.pop(self, None)
        if self._goes:
            self._files.remove(self._path)
