"""The content of the clients' outboxes at the end of a run, read from copies of the virtual disks."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import Final

from mesh.errors import StorageError
from mesh.outbox.outbox import Outbox
from mesh.outbox.records import Damaged
from mesh.wire import blocks
from simulations.evidence.journals import copied
from simulations.kernel.sqlite_files import SqliteDisk
from simulations.kernel.storage import OUTBOX_SUFFIX, Disk
from simulations.world import World

BYTES_AT_ONCE: Final = 1 << 24


@dataclass(slots=True)
class OutboxLeft:
    """One outbox at the end."""

    host: str
    publisher: str
    why: str = ""
    """Why it cannot be read; empty if it can."""
    damaged: list[str] = field(default_factory=list)
    """The parts of it that cannot be read."""
    bodies: list[bytes] = field(default_factory=list)
    """Messages that were not freed, in their order."""


def outboxes_of(world: World) -> list[OutboxLeft]:
    """The outboxes of all hosts."""
    disks = [(host, world.disk(host)) for host in world.network.hosts]
    return [
        _left(host, disk, path)
        for host, disk in disks
        for path in disk.paths_under("/")
        if path.endswith(OUTBOX_SUFFIX)
    ]


def _left(host: str, disk: Disk, path: str) -> OutboxLeft:
    left = OutboxLeft(host, os.path.basename(path).removesuffix(OUTBOX_SUFFIX))
    sqlite = SqliteDisk(copied(disk, "/"), random.Random(0))
    try:
        sqlite.at_once(lambda: _read(sqlite, path, left))
    except StorageError as error:
        left.why = str(error)
    return left


def _read(sqlite: SqliteDisk, path: str, left: OutboxLeft) -> None:
    outbox = Outbox.open(path, token=bytes, now_us=0, files=sqlite.files, vfs=sqlite.name, pid=lambda: 0)
    pieces: dict[tuple[int, int], list[bytes]] = {}
    try:
        after = 0
        while rows := outbox.read(after, BYTES_AT_ONCE):
            after = rows[-1].row
            for row in rows:
                if isinstance(row, Damaged):
                    left.damaged.append(f"row {row.row}: {row.reason}")
                    continue
                block = blocks.open_block(row.block)
                if not block.whole_size:
                    left.bodies += [bytes(body) for body in block.bodies]
                    continue
                parts = pieces.setdefault((row.boot, row.first), [])
                parts.append(bytes(block.bodies[0]))
                if sum(map(len, parts)) == block.whole_size:
                    left.bodies.append(b"".join(parts))
    finally:
        outbox.close()
