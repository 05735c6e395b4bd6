"""A disk in memory under SQLite that records its operations and can lose power at any point.

After a power loss, synced data is there. A write that was not synced is there completely, not at
all, or with any of its sectors.
"""

from __future__ import annotations

import random
import zlib
from itertools import count
from typing import Any

import apsw

SECTOR = 512
_NUMBERS = count()

Operation = tuple[Any, ...]
"""An operation and its path: ("write", path, offset, data), ("truncate", path, size), ("sync", path),
("remove", path), ("rename", path, new)."""


class MemoryDisk(apsw.VFS):
    """A VFS of this object's ``name``, and the `Files` of a database on it."""

    def __init__(self, content: dict[str, bytearray] | None = None) -> None:
        self.content = content or {}
        self.operations: list[Operation] = [
            step
            for path, data in self.content.items()
            for step in (("write", path, 0, bytes(data)), ("sync", path))
        ]
        self.name = f"memory-{next(_NUMBERS)}"
        super().__init__(self.name, base="")

    def after_power_loss(self, at: int, rng: random.Random) -> dict[str, bytearray]:
        """The content after a power loss behind the first ``at`` operations."""
        content: dict[str, bytearray] = {}
        unsynced: dict[str, list[Operation]] = {}
        for step in self.operations[:at]:
            what, path = step[:2]
            if what in ("write", "truncate"):
                unsynced.setdefault(path, []).append(step)
                continue
            if what in ("sync", "rename"):
                for held in unsynced.pop(path, []):
                    apply(content, held)
            unsynced.pop(path, None)
            apply(content, step)
        for held in [step for steps in unsynced.values() for step in steps]:
            share = rng.choice((0.0, 0.5, 1.0))
            if held[0] == "truncate":
                if share:
                    apply(content, held)
                continue
            _, path, offset, data = held
            end = offset + len(data)
            while offset < end:
                step_end = min(end, (offset // SECTOR + 1) * SECTOR)
                if rng.random() < share:
                    apply(
                        content,
                        ("write", path, offset, data[len(data) - (end - offset) :][: step_end - offset]),
                    )
                offset = step_end
        return content

    def do(self, *step: Any) -> None:
        self.operations.append(step)
        apply(self.content, step)

    # --- the files of a database

    def size(self, path: str) -> int | None:
        return len(self.content[path]) if path in self.content else None

    def read(self, path: str) -> bytes:
        return bytes(self.content.get(path, b""))

    def names(self, folder: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.content)

    def rename(self, old: str, new: str) -> None:
        self.do("rename", old, new)

    def sync_names(self, folder: str) -> None: ...  # names are never lost here

    def remove(self, path: str) -> None:
        if path in self.content:
            self.do("remove", path)

    def free_bytes(self, folder: str) -> int:
        return 1 << 40

    def locked_by(self, path: str) -> int:
        return 0

    def identity(self, path: str) -> tuple[int, int]:
        return 0, zlib.crc32(path.encode())

    # --- the disk of SQLite

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        path = name.filename() if hasattr(name, "filename") else str(name)
        if path not in self.content:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(path)
            self.do("write", path, 0, b"")
        flags[1] = flags[0]
        return _File(self, path)

    def xAccess(self, path: str, flags: int) -> bool:
        return path in self.content

    def xDelete(self, path: str, sync: bool) -> None:
        self.remove(path)

    def xFullPathname(self, name: str) -> str:
        return name


class _File:
    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self._disk.content[self._path][offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.do("write", self._path, offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        self._disk.do("truncate", self._path, size)

    def xSync(self, flags: int) -> None:
        self._disk.do("sync", self._path)

    def xFileSize(self) -> int:
        return len(self._disk.content[self._path])

    def xLock(self, level: int) -> None: ...

    def xUnlock(self, level: int) -> None: ...

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return 4096

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE

    def xClose(self) -> None: ...


def apply(content: dict[str, bytearray], step: Operation) -> None:
    """Apply an operation to files."""
    what, path, *rest = step
    match what:
        case "write":
            offset, data = rest
            file = content.setdefault(path, bytearray())
            file.extend(bytes(max(0, offset + len(data) - len(file))))
            file[offset : offset + len(data)] = data
        case "truncate":
            file = content.setdefault(path, bytearray())
            file.extend(bytes(max(0, rest[0] - len(file))))
            del file[rest[0] :]
        case "rename":
            content[rest[0]] = content.pop(path)
        case "remove":
            content.pop(path, None)
