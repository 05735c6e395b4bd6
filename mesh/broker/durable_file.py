"""The file in which a broker keeps the durable subscriptions of every home across its runs.

It is a msgpack array: its schema, a CRC-32 of the schema and of the rest, and the frames that announce all
tables on a new link (`mesh.cluster.durable_table.table_frames`). Every schema has this form, so that a newer
file can be distinguished from a damaged one. The file is replaced atomically and at once, one write at a
time, since a client that makes a durable subscription waits for it. Changes during a write go into the next
one. A failed write is repeated every second. Until it succeeds, the other brokers are not told that this one
has the new tables, and report it as not reached.

A file that cannot be understood is set aside and logged; the other brokers know its content. A file of a
newer version is refused and left unchanged.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgpack
import msgspec

from mesh.broker.identity import StateStatus
from mesh.cluster.durable_table import HomeTable, TableParts, table_frames
from mesh.errors import LinkError, MeshError, StorageError
from mesh.logs import log
from mesh.storage import Storage, disk_advice, disk_reason
from mesh.wire.link_frames import HOMES_MAX, LinkKind, decode

FILE: Final = "durable.msgpack"
SCHEMA: Final = 1
SCHEMA_MAX: Final = 255
"""It is a byte."""
RETRY_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 3.0
_pack: Final = msgspec.msgpack.Encoder().encode


class Tables(Protocol):
    """The tables to keep, such as `mesh.cluster.durable_gossip.DurableGossip`."""

    @property
    def homes(self) -> Mapping[int, HomeTable]: ...

    def versions(self) -> dict[int, int]: ...

    def saved(self, versions: Mapping[int, int]) -> None:
        """These versions are on disk, or there is no disk."""


@dataclass(frozen=True, slots=True)
class _Packed:
    version: int
    frames: list[bytes]


class DurableFile:
    """The file of one broker. `load` it, read ``tables``, let it `run`, and call `changed` when there is
    something to write.

    Without a state folder nothing is kept, and changes count as written.
    """

    def __init__(self, storage: Storage | None = None, path: str = "") -> None:
        self.tables: dict[int, HomeTable] = {}
        """The tables that an earlier run kept, by home."""
        self._errors = 0
        self._failing: str | None = None
        self._storage = storage
        self._path = path
        self._packed: dict[int, _Packed] = {}
        self._unsaved: asyncio.Event = asyncio.Event()

    @classmethod
    async def load(cls, *, name: str, state_dir: str | None, storage: Storage, now_us: int) -> DurableFile:
        """Read ``<state_dir>/<name>/durable.msgpack``. The caller has locked the folder. Raises
        `StorageError`."""
        if state_dir is None:
            return cls()
        path = f"{state_dir}/{name}/{FILE}"
        file = cls(storage, path)
        try:
            content = await storage.read(path)
            if content is not None:
                try:
                    file.tables = _decode(content, path)
                except (ValueError, LinkError) as error:
                    await file._set_aside(error, now_us)
        except OSError as error:
            raise StorageError(f"cannot read {path}: {disk_advice(error)}") from error
        return file

    async def _set_aside(self, why: Exception, now_us: int) -> None:
        aside = f"{self._path}.damaged-{now_us}"
        assert self._storage is not None
        await self._storage.rename(self._path, aside)
        log.warning(
            "%s cannot be understood (%s); it was set aside as %s, and the other brokers are asked for the"
            " durable subscriptions in it",
            self._path,
            why,
            aside,
        )

    def status(self) -> StateStatus | None:
        """The status of the file. None if there is none."""
        return None if self._storage is None else StateStatus(self._errors, self._failing)

    def changed(self, tables: Tables) -> None:
        """There is something to write."""
        if self._storage is None:
            tables.saved(tables.versions())
        else:
            self._unsaved.set()

    async def run(self, tables: Tables) -> None:
        """Write changes until cancelled. A failing disk is counted, logged once and tried again."""
        while True:
            await self._unsaved.wait()
            await self._save(tables)
            if self._failing is not None:
                await asyncio.sleep(RETRY_S)

    async def aclose(self, tables: Tables) -> None:
        """Write pending changes. Gives up on a disk that does not answer."""
        if not self._unsaved.is_set():
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._save(tables)
            if self._failing is not None:
                log.warning("%s lacks the latest changes (%s)", self._path, self._failing)
        except TimeoutError:
            log.warning("%s is not saved: the disk did not answer in %g s", self._path, CLOSE_TIMEOUT_S)

    async def _save(self, tables: Tables) -> None:
        assert self._storage is not None, "without a disk there is nothing to write"
        self._unsaved.clear()
        versions = tables.versions()
        try:
            await self._storage.write_atomic(self._path, self._encode(tables))
        except (OSError, MeshError) as error:
            self._errors += 1
            self._unsaved.set()
            failing, self._failing = self._failing, disk_reason(error)
            if failing is None:
                log.warning("cannot save %s (%s); trying again every second", self._path, self._failing)
            return
        if self._failing is not None:
            log.warning("%s is saved again", self._path)
        self._failing = None
        tables.saved(versions)

    def _encode(self, tables: Tables) -> bytes:
        """Only changed tables are packed again."""
        packed = self._packed
        frames: list[bytes] = []
        for home, table in tables.homes.items():
            kept = packed.get(home)
            if kept is None or kept.version != table.version:
                kept = packed[home] = _Packed(table.version, list(table_frames(home, table)))
            frames += kept.frames
        for home in [each for each in packed if each not in tables.homes]:
            del packed[home]
        return _pack([SCHEMA, _crc(SCHEMA, frames), frames])


def _crc(schema: int, frames: Iterable[bytes]) -> int:
    crc = zlib.crc32(bytes([schema]))
    for frame in frames:
        crc = zlib.crc32(frame, crc)
    return crc


def _decode(content: bytes, path: str) -> dict[int, HomeTable]:
    """Raises `StorageError` for a file of a newer version, ValueError and `LinkError` for one that cannot be
    understood."""
    try:
        value: Any = msgpack.unpackb(content, strict_map_key=True)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ValueError("it is not msgpack") from error
    if type(value) is not list or not value or type(value[0]) is not int:
        raise ValueError("it does not begin with its schema")
    schema, crc, frames = [*value, None, None][:3]
    if type(frames) is not list or not all(type(frame) is bytes for frame in frames):
        raise ValueError("it holds no frames")
    if not 0 <= schema <= SCHEMA_MAX or crc != _crc(schema, frames):
        raise ValueError("its checksum is wrong")
    if schema > SCHEMA:
        raise StorageError(
            f"{path} was written by a newer version (its schema is {schema}, this version knows {SCHEMA});"
            " run that version, or name another state folder"
        )
    if schema != SCHEMA or len(value) != 3:
        raise ValueError(f"it is of schema {schema}")
    tables: dict[int, HomeTable] = {}
    parts = TableParts()
    for frame in frames:
        kind, *fields = decode(frame)
        if kind != LinkKind.DURABLE:
            raise ValueError(f"it has a frame of kind {kind}")
        table = parts.take(*fields)
        if table is not None:
            tables[fields[0]] = table
    if len(tables) > HOMES_MAX:
        raise ValueError(f"it has more than {HOMES_MAX} homes")
    return tables
