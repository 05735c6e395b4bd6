"""A disk under SQLite that counts what it does, and fails, fills up or flips bits on command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import apsw

from mesh.database.files import RealFiles

_NUMBERS = count()


class FaultyDisk(apsw.VFS):
    """The machine's own disk by an apsw VFS of this object's ``name``.

    ``fail_at``: the number of the operation (writes, syncs and truncations, from 1) that fails with
    ``error``; ``fail_for`` operations do. ``left``: bytes that all files together may still grow by, None for
    no limit. ``read_only``: files open only for reading. ``unreadable``: every read fails.
    """

    def __init__(self) -> None:
        self.name = f"faulty-{next(_NUMBERS)}"
        self.operations: list[tuple[str, str]] = []
        self.fail_at = 0
        self.fail_for = 1
        self.error: type[apsw.Error] = apsw.IOError
        self.left: int | None = None
        self.read_only = False
        self.unreadable = False
        super().__init__(self.name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        if self.read_only and flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
            flags[0] |= apsw.SQLITE_OPEN_READONLY
        return _File(self, name, flags)

    def did(self, what: str, path: str) -> None:
        self.operations.append((what, path))
        number = len(self.operations)
        if self.error is apsw.FullError and what != "write":
            return  # a full disk still syncs and truncates
        if self.fail_at and self.fail_at <= number < self.fail_at + self.fail_for:
            raise self.error(f"the disk fails at operation {number}")

    def syncs(self, suffix: str) -> int:
        return sum(what == "sync" and path.endswith(suffix) for what, path in self.operations)


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._path = name.filename() if hasattr(name, "filename") else str(name)
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        if self._disk.unreadable:
            raise apsw.IOError("the disk gives nothing back")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.did("write", self._path)
        left = self._disk.left
        if left is not None:
            grown = max(0, offset + len(data) - self.xFileSize())
            if grown > left:
                raise apsw.FullError("the disk is full")
            self._disk.left = left - grown
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._disk.did("truncate", self._path)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._disk.did("sync", self._path)
        super().xSync(flags)


class FaultyFiles(RealFiles):
    """The machine's files, with as little room as ``disk`` has left."""

    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk

    def free_bytes(self, folder: str) -> int:
        return super().free_bytes(folder) if self._disk.left is None else self._disk.left


@contextmanager
def faulty_disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    try:
        yield disk
    finally:
        disk.unregister()
