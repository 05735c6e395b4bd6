"""A storage in memory whose disk can fail, fill up or stand still on command."""

from __future__ import annotations

import asyncio
import errno

from mesh.errors import Locked


class FaultyLock:
    def __init__(self, storage: FaultyStorage, path: str) -> None:
        self._storage, self._path = storage, path

    def release(self) -> None:
        self._storage.locked.pop(self._path, None)


class FaultyStorage:
    """``fail`` makes every write raise ENOSPC; clear ``moving`` and jobs wait until it is set again."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
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
        return self.files.get(path)

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self._write()
        self.files[path] = data

    async def append(self, path: str, data: bytes, *, sync: bool = False) -> None:
        await self._write()
        self.files[path] = self.files.get(path, b"") + data

    async def rename(self, old: str, new: str) -> None:
        await self._write()
        self.files[new] = self.files.pop(old)

    async def list(self, folder: str) -> list[str]:
        return sorted(path.removeprefix(folder + "/") for path in self.files if path.startswith(folder + "/"))

    async def make_folder(self, path: str) -> None:
        await self._write()

    async def size(self, path: str) -> int | None:
        data = self.files.get(path)
        return None if data is None else len(data)

    async def remove(self, path: str) -> None:
        self.files.pop(path, None)

    async def lock(self, path: str) -> FaultyLock:
        if path in self.locked:
            raise Locked(path, 4711)
        self.locked[path] = True
        return FaultyLock(self, path)

    async def aclose(self) -> None:
        self.closed = True
