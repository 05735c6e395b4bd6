"""The content of the homes' journals at the end of a run, read from copies of the virtual disks.

A journal that cannot be opened is named with the reason. One that was set aside as damaged is not read:
nobody has to process the messages in it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from mesh.broker.journal_opening import JOURNAL
from mesh.database.database import Database
from mesh.database.opening import Place
from mesh.errors import BlockError, StorageError
from mesh.journal.journal import Journal
from mesh.journal.records import Damaged, Waiting, settled_mask
from mesh.journal.schema import journal_of
from mesh.wire import blocks
from mesh.wire.durable_frames import DEAD_PREFIX
from simulations.kernel.files import SectorFile
from simulations.kernel.sqlite_files import SqliteDisk
from simulations.kernel.storage import STATE_FOLDER, Disk
from simulations.world import World

BYTES_AT_ONCE: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Left:
    """One message that waits, with the id by which workers know it."""

    id: str
    topic: str
    body: bytes
    row: int


@dataclass(slots=True)
class JournalLeft:
    """One journal at the end."""

    host: str
    why: str = ""
    """Why it cannot be read; empty if it can."""
    damaged: list[str] = field(default_factory=list)
    """The parts of it that cannot be read."""
    waiting: dict[str, list[Left]] = field(default_factory=dict)
    """Waiting messages by durable subscription, in the order of their rows."""
    dead: dict[str, list[Left]] = field(default_factory=dict)
    """Dead letters, by their durable subscription."""


def journals_of(world: World) -> list[JournalLeft]:
    """The journals of all hosts."""
    disks = [(host, world.disk(host)) for host in world.network.hosts]
    return [
        _left(host, disk, path)
        for host, disk in disks
        for path in disk.paths_under(STATE_FOLDER)
        if os.path.basename(path) == JOURNAL
    ]


def _left(host: str, disk: Disk, path: str) -> JournalLeft:
    left = JournalLeft(host)
    sqlite = SqliteDisk(copied(disk, os.path.dirname(path)), random.Random(0))
    try:
        sqlite.at_once(lambda: _read(sqlite, path, left))
    except StorageError as error:
        left.why = str(error)
    return left


def copied(disk: Disk, folder: str) -> Disk:
    """A disk with the files of a folder, which can be read without leaving traces."""
    twin = Disk(random.Random(0))
    twin.folders = disk.folders.copy()
    for path in disk.paths_under(folder):
        file = disk.files[path]
        twin.files[path] = file.copy() if isinstance(file, SectorFile) else SectorFile.of(file)
    return twin


def _read(sqlite: SqliteDisk, path: str, left: JournalLeft) -> None:
    kind = replace(journal_of("", ""), check=lambda db, path: None)  # accept any owner
    journal = Journal(Database(Place(path, sqlite.files, sqlite.name), kind, 0))
    try:
        for kept in journal.subscriptions():
            if kept.name.startswith(DEAD_PREFIX):
                here = left.dead.setdefault(kept.name.removeprefix(DEAD_PREFIX), [])
            else:
                here = left.waiting.setdefault(kept.name, [])
            for row in _rows(journal, kept.id):
                if isinstance(row, Damaged):
                    left.damaged.append(f"row {row.row} of {kept.name}: {row.reason}")
                    continue
                try:
                    here += _messages(journal, row)
                except BlockError as error:
                    left.damaged.append(f"row {row.row} of {kept.name}: {error}")
    finally:
        journal.close()


def _rows(journal: Journal, subscription: int) -> Iterator[Waiting | Damaged]:
    after = 0
    while rows := journal.read(subscription, after, BYTES_AT_ONCE):
        yield from rows
        after = rows[-1].row


def _messages(journal: Journal, row: Waiting) -> Iterator[Left]:
    """The messages of a row that are not settled. Raises `BlockError` if a piece of a large body is
    damaged.
    """
    if row.parts:
        pieces = [journal.fetch(part) for part in row.parts]
        opened = []
        for piece in pieces:
            if isinstance(piece, Damaged):
                raise BlockError(f"a piece is damaged: {piece.reason}")
            opened.append(blocks.open_block(piece.block))
        first = opened[0]
        yield Left(_id(first, 0), _topic(first), b"".join(bytes(each.bodies[0]) for each in opened), row.row)
        return
    block = blocks.open_block(row.block)
    settled = settled_mask(row.floor, row.bitmap)
    for index, body in enumerate(block.bodies):
        if not settled >> index & 1:
            yield Left(_id(block, index), _topic(block), bytes(body), row.row)


def _topic(block: blocks.Opened) -> str:
    return bytes(block.topic).decode()


def _id(block: blocks.Opened, index: int) -> str:
    return f"{block.publisher:016x}-{block.boot:x}-{block.sequence + index}"
