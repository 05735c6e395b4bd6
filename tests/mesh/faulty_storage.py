"""A storage in memory whose disk can fail, fill up or hang on command."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

from mesh.errors import Locked
from mesh.storage import StoredFile


class FaultyLock:
    def __init__(self, storage: FaultyStorage, path: str) -> None:
        self._storage, self._path = storage, path

    def release(self) -> None:
        self._storage.locked.pop(self._path, None)


class FaultyStorage:
    """``fail`` makes every write raise ENOSPC. Clear ``moving`` and jobs wait until it is set again."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.ages: dict[str, float] = {}
        """Seconds by path; 0 for all others."""
        self.locked: dict[str, bool] = {}
        self.fail = False
        self.moving = asyncio.Event()
        self.moving.set()
        self.writes = 0
        self.closed = False

    async def _write(self) -> None:
        await self.moving.wait()
        if self.fail:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.writes += 1

    async def read(self, path: str) -> bytes | None:
        return self.contents.get(path)

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self._write()
        self.contents[path] = data

    async def append(self, path: str, data: bytes, *, sync: bool = False) -> None:
        await self._write()
        self.contents[path] = self.contents.get(path, b"") + data

    async def rename(self, old: str, new: str) -> None:
        await self._write()
        self.contents[new] = self.contents.pop(old)

    async def list(self, folder: str) -> list[str]:
        return sorted(
            path.removeprefix(folder + "/") for path in self.contents if path.startswith(folder + "/")
        )

    async def make_folder(self, path: str) -> None:
        await self._write()

    async def files(self, folder: str) -> Sequence[StoredFile]:
        return [
            StoredFile(name, len(self.contents[f"{folder}/{name}"]), self.ages.get(f"{folder}/{name}", 0.0))
            for name in await self.list(folder)
        ]

    async def remove(self, path: str) -> None:
        self.contents.pop(path, None)

    async def lock(self, path: str) -> FaultyLock:
        if path in self.locked:
            raise Locked(path, 4711)
        self.locked[path] = True
        return FaultyLock(self, path)

    async def aclose(self) -> None:
        self.closed = True
