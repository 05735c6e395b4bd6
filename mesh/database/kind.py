"""What tells one kind of database from another: its tables, its errors, and the words in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import apsw

from mesh.errors import StorageError


class Damage(Exception):
    """What is wrong with a file, which is therefore set aside."""


@dataclass(frozen=True, slots=True)
class Errors:
    """The types of what can be wrong with a database."""

    other: type[StorageError]
    """Its folder, or SQLite's settings."""
    foreign: type[StorageError]
    """The file is another's."""
    newer: type[StorageError]
    """A newer version wrote it."""
    read_only: type[StorageError]
    damaged: Callable[[str, str], StorageError]
    """Made of a sentence and the path where it lies now."""
    failed: type[StorageError]
    """The disk failed under it."""


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """One kind of database. The words complete its errors' sentences."""

    name: str
    """What it is called: "journal"."""
    elsewhere: str
    """How to use another: "name another state folder"."""
    again: str
    """When it is opened again: "this broker is started again"."""
    relief: str
    """What makes room in it: "consume"."""
    held: str
    """What becomes of what it held when it is set aside: "what it held waits there"."""
    application_id: int
    """Tells its files from other programs' databases; ``file`` shows it."""
    version: int
    """Of its tables."""
    errors: Errors
    create: Callable[[apsw.Connection], None]
    """Make the tables in an empty database, within a transaction."""
    check: Callable[[apsw.Connection, str], None]
    """Refuse the file of this path that is another's by an error of this kind, a damaged one by `Damage`."""
