"""Journals on simulated disks, and the state of a disk after a crash at any operation."""

from __future__ import annotations

import random
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import apsw

from mesh.journal.journal import Journal
from simulations.kernel.files import File, SectorFile
from simulations.kernel.recording import Operation
from simulations.kernel.sqlite_files import SqliteDisk
from simulations.kernel.storage import Disk
from tests.mesh.journal.journals import BROKER, MESH, NOW_US, bodies

T = TypeVar("T")

FOLDER = "/state/b0"
PATH = f"{FOLDER}/journal.db"

State = tuple[tuple[str, ...], tuple[bytes, ...]]
"""Names of the subscriptions, and what waits in the first."""


def new_disk(seed: int | str = 1) -> Disk:
    disk = Disk(random.Random(f"{seed}:disk"))
    disk.make_folder(FOLDER)
    return disk


def opening(sqlite: SqliteDisk, **given: Any) -> Callable[[], Journal]:
    """The job that opens a journal."""
    how: dict[str, Any] = {"broker": BROKER, "mesh": MESH, "now_us": NOW_US} | given
    return lambda: Journal.open(PATH, files=sqlite.files, vfs=sqlite.name, **how)


class OnDisk:
    """A process with a journal on a disk; its jobs take no time."""

    def __init__(self, disk: Disk, seed: int | str = 1, **given: Any) -> None:
        self.disk = disk
        self.sqlite = SqliteDisk(disk, random.Random(f"{seed}:sqlite"))
        self.journal = self.sqlite.at_once(opening(self.sqlite, **given))

    def do(self, job: Callable[[Journal], T]) -> T:
        return self.sqlite.at_once(lambda: job(self.journal))

    def close(self) -> None:
        self.do(Journal.close)

    def kill(self) -> None:
        self.sqlite.kill()


def state_of(journal: Journal) -> State:
    kept = journal.subscriptions()
    return tuple(it.name for it in kept), tuple(bodies(journal, kept[0].id)) if kept else ()


def is_sound(journal: Journal) -> bool:
    try:
        found: object = journal._db.execute("pragma integrity_check").fetchall()
    except apsw.CorruptError:
        return False
    return found == [("ok",)]


def rows_in(journal: Journal) -> int:
    return sum(kept.rows for kept in journal.subscriptions())


@dataclass(frozen=True)
class Crash:
    """A disk after a crash at an operation, or after the last one if that is None."""

    disk: Disk
    at: Operation | None


def crashes(disk: Disk, operations: list[Operation], name: str, every: int = 1) -> Iterator[Crash]:
    """Apply operations; crash before, within or after each ``every``-th of them, and after the last."""
    offset = zlib.crc32(name.encode())
    for number, operation in enumerate([*operations, None]):
        if (number + offset) % every == 0 or operation is None:
            twin, same = twin_of(disk, f"{name}:{number}")
            if operation is not None:
                file = operation.file
                if file is not None:
                    file = same.get(file) or file.copy()
                replace(operation, file=file).tear(twin, 0)
            twin.lose_power()
            yield Crash(twin, operation)
        if operation is not None:
            operation.apply(disk, 0)


def twin_of(disk: Disk, seed: str) -> tuple[Disk, dict[File, SectorFile]]:
    """A disk with the same content, and the mapping of its files."""
    twin = Disk(random.Random(seed))
    twin.folders = disk.folders.copy()
    twin.lying = disk.lying
    same: dict[File, SectorFile] = {}

    def copied(file: File) -> SectorFile:
        if file not in same:
            assert isinstance(file, SectorFile)
            same[file] = file.copy()
        return same[file]

    twin.files = {path: copied(file) for path, file in disk.files.items()}
    twin._renamed = [
        {path: None if file is None else copied(file) for path, file in before.items()}
        for before in disk._renamed
    ]
    return twin, same


def written_to(folder: Path, disk: Disk) -> Path:
    """Write the image of a disk as files of this machine; return the database."""
    folder.mkdir()
    for path, data in disk.under(FOLDER).items():
        (folder / path.rpartition("/")[2]).write_bytes(data)
    return folder / "journal.db"


def rows_by_the_standard_library(path: Path) -> int:
    """Blocks in a journal that the standard library's SQLite finds whole."""
    db = sqlite3.connect(path)
    try:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        (rows,) = db.execute("select count(*) from waiting").fetchone()
        return int(rows)
    finally:
        db.close()
