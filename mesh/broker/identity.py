"""The identity of a broker across its runs.

An id is drawn once. The state folder keeps it, with the incarnation and the known peers. So a broker that
returns is the same member and finds the mesh by itself. A ``boot`` is drawn at every start and never kept.
Without a state folder the id lasts for one run.

The file is one JSON object, replaced atomically: the first change at once, later ones together, at most once
a second. If it is missing, a new id is drawn. If it cannot be understood, a new id is drawn too, and that is
logged: losing an id costs one dead member in the others' tables, while refusing to start costs a broker. A
file of a newer version is intact, however, so it is refused and left unchanged.

A broker whose id is on disk starts even if the disk is full, so that the messages of its durable
subscriptions can be consumed. Its incarnation is then not saved, like any change that a full disk refuses.
"""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mesh.cluster.membership import MemberRecord, State
from mesh.errors import MeshError, StorageError
from mesh.logs import log
from mesh.storage import Storage, StorageLock, disk_advice, disk_reason, is_full

ID_BITS: Final = 63
"""Ids are positive in a signed 64-bit column, such as Spark's LONG and SQLite's INTEGER."""
PEERS_MAX: Final = 256
"""Known peers kept. The mesh reports the others."""
SAVE_PAUSE_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 3.0
SCHEMA: Final = 1


def draw_id(rng: random.Random) -> int:
    """A random id, never 0."""
    return rng.getrandbits(ID_BITS) or 1


def format_id(id: int) -> str:
    """The id as 16 lower-case hex digits, as shown and logged."""
    return f"{id:016x}"


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """A member that had not left when this broker last saved."""

    id: int
    name: str
    url: str


def peers_worth_keeping(
    members: Iterable[MemberRecord], earlier: Iterable[KnownPeer], *, own_url: str
) -> list[KnownPeer]:
    """The peers to save, most useful first: living ones, dead ones, then those of ``earlier`` not met since.

    Dead ones stay, because a broker that is cut off believes healthy members dead. A peer loaded from disk
    stays until something newer is known about that member or its address: the mesh may be where it was.
    """
    members = list(members)
    met_ids = {record.id for record in members}
    met_urls = {own_url, *(record.peer_url for record in members)}
    worth = [record for record in members if record.state is not State.LEFT]
    worth.sort(key=lambda record: record.state is State.DEAD)
    met = [KnownPeer(record.id, record.name, record.peer_url) for record in worth]
    return met + [peer for peer in earlier if peer.id not in met_ids and peer.url not in met_urls]


@dataclass(frozen=True, slots=True)
class StateStatus:
    """The status of a file in the state folder."""

    errors: int
    """Failed attempts to save it."""
    failing: str | None
    """Why it cannot be saved now. None if it can."""

    def entry(self) -> dict[str, Any]:
        """The entry in a snapshot."""
        return {"errors": self.errors, "failing": self.failing}


class Identity:
    """Id, boot, incarnation and known peers of one broker. `run` saves what `remember` changes.

    ``incarnation`` is one above what the last run saved, so that this run's news about itself wins.
    """

    def __init__(self, id: int, boot: int, incarnation: int, peers: Sequence[KnownPeer] = ()) -> None:
        self.id = id
        self.boot = boot
        self.incarnation = incarnation
        self.peers = tuple(peers)
        self.save_errors = 0
        self.stopping = False
        """The broker leaves: `aclose` makes the last attempt, and logs a failure."""
        self._storage: Storage | None = None
        self._path = ""
        self._lock: StorageLock | None = None
        self._changed = asyncio.Event()
        self._failing: str | None = None

    def status(self) -> StateStatus | None:
        """The status of the state file. None if there is none."""
        return None if self._storage is None else StateStatus(self.save_errors, self._failing)

    @classmethod
    async def load(
        cls, *, name: str, state_dir: str | None, storage: Storage, rng: random.Random
    ) -> Identity:
        """Read and lock ``<state_dir>/<name>/``. Raises `Locked` or `StorageError`."""
        fresh = cls(draw_id(rng), draw_id(rng), 1)
        if state_dir is None:
            return fresh
        folder = f"{state_dir}/{name}"
        try:
            try:
                return await cls._open(fresh, folder, storage)
            except FileNotFoundError:  # the folder was removed meanwhile, with its content
                return await cls._open(fresh, folder, storage)
        except OSError as error:
            raise StorageError(f"cannot keep state in {folder}: {disk_advice(error)}") from error

    @classmethod
    async def _open(cls, fresh: Identity, folder: str, storage: Storage) -> Identity:
        path = f"{folder}/identity.json"
        await storage.make_folder(folder)
        lock = await storage.lock(f"{folder}/lock")
        try:
            saved = await storage.read(path)
            identity = fresh if saved is None else _decode(saved, fresh, path)
            identity._storage, identity._path, identity._lock = storage, path, lock
            try:
                await storage.write_atomic(path, identity._encode())
            except OSError as error:
                if identity is fresh or not is_full(error):
                    raise
                identity._not_saved(error)
        except BaseException:
            lock.release()
            raise
        return identity

    def remember(self, incarnation: int, peers: Sequence[KnownPeer]) -> None:
        """Note what the next start should find. `run` writes it, the first news at once."""
        peers = tuple(peers[:PEERS_MAX])
        if (incarnation, peers) != (self.incarnation, self.peers):
            self.incarnation, self.peers = incarnation, peers
            self._changed.set()

    async def run(self) -> None:
        """Save changes until cancelled. A failing disk is counted, logged once and tried again."""
        while True:
            await self._changed.wait()
            await self._save()
            await asyncio.sleep(SAVE_PAUSE_S)

    async def aclose(self) -> None:
        """Save pending changes and unlock. Gives up on a disk that does not answer."""
        self.stopping = True
        if self._changed.is_set():
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._save()
                if self._failing is not None:
                    log.warning("%s lacks the latest changes (%s)", self._path, self._failing)
            except TimeoutError:
                log.warning("%s is not saved: the disk did not answer in %g s", self._path, CLOSE_TIMEOUT_S)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def _save(self) -> None:
        self._changed.clear()
        if self._storage is None:
            return
        try:
            await self._storage.write_atomic(self._path, self._encode())
            if self._failing is not None:
                log.warning("%s is saved again", self._path)
            self._failing = None
        except (OSError, MeshError) as error:
            self._not_saved(error)

    def _not_saved(self, error: Exception) -> None:
        self.save_errors += 1
        self._changed.set()
        failing, self._failing = self._failing, disk_reason(error)
        if failing is None and not self.stopping:
            log.warning("cannot save %s (%s); trying again every second", self._path, self._failing)

    def _encode(self) -> bytes:
        peers = [{"id": format_id(peer.id), "name": peer.name, "url": peer.url} for peer in self.peers]
        state = {
            "schema": SCHEMA,
            "id": format_id(self.id),
            "incarnation": self.incarnation,
            "peers": peers,
        }
        return json.dumps(state | {"crc": _crc(state)}, indent=1).encode() + b"\n"


def _crc(state: dict[str, Any]) -> int:
    """CRC-32 of the file's content without the CRC itself."""
    return zlib.crc32(json.dumps(state, sort_keys=True).encode())


def _decode(saved: bytes, fresh: Identity, path: str) -> Identity:
    """The identity that an earlier run saved, or ``fresh`` if the file cannot be understood.

    Raises `StorageError` for a file of a newer version.
    """
    try:
        state: Any = json.loads(saved)
        if not isinstance(state, dict):
            raise ValueError("it holds no JSON object")
        crc = state.pop("crc", None)
        # checked before the schema, since a flipped bit can make it look newer
        if crc is not None and crc != _crc(state):
            raise ValueError("its checksum is wrong")
        schema = state["schema"]
        if type(schema) is int and schema > SCHEMA:
            raise StorageError(
                f"{path} was written by a newer version (its schema is {schema}, this version knows"
                f" {SCHEMA}); run that version, or name another state folder"
            )
        if schema != SCHEMA:
            raise ValueError(f"schema {schema}")
        id, incarnation = int(state["id"], 16), state["incarnation"]
        if not 0 < id < 1 << ID_BITS:
            raise ValueError(f"id {state['id']}")
        if type(incarnation) is not int or not 0 <= incarnation < 1 << 62:
            raise ValueError(f"incarnation {incarnation!r}")
        peers = [KnownPeer(int(p["id"], 16), str(p["name"]), str(p["url"])) for p in state["peers"]]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        log.warning("%s cannot be understood (%s); this broker takes a new id", path, _why(error))
        return fresh
    return Identity(id, fresh.boot, incarnation + 1, peers[:PEERS_MAX])


def _why(error: Exception) -> str:
    """Why a saved identity cannot be understood, in terms of its file, not of Python."""
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text"
    return "a value in it has the wrong type" if isinstance(error, TypeError) else str(error)
