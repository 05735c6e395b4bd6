"""Describes one kind of database: its tables, its errors, and the words in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import apsw

from mesh.errors import StorageError


class Damage(Exception):
    """Why a file is damaged and therefore set aside."""


@dataclass(frozen=True, slots=True)
class Errors:
    """The error types for a database."""

    other: type[StorageError]
    """For its folder, or SQLite's settings."""
    foreign: type[StorageError]
    """The file belongs to another owner."""
    newer: type[StorageError]
    """A newer version wrote it."""
    read_only: type[StorageError]
    damaged: Callable[[str, str], StorageError]
    """Made from a sentence and the path where the file is now."""
    failed: type[StorageError]
    """The disk failed under it."""


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """One kind of database. The words complete its errors' sentences."""

    name: str
    """Its name, such as "journal"."""
    elsewhere: str
    """How to use another one, such as "name another state folder"."""
    again: str
    """When it is opened again, such as "this broker is started again"."""
    relief: str
    """How to make room in it, such as "consume"."""
    held: str
    """The fate of its content when it is set aside, such as "what it held waits there"."""
    application_id: int
    """Distinguishes its files from other programs' databases; ``file`` shows it."""
    version: int
    """Version of its tables."""
    errors: Errors
    create: Callable[[apsw.Connection], None]
    """Make the tables in an empty database, within a transaction."""
    check: Callable[[apsw.Connection, str], None]
    """Refuse the file at this path: with an error of this kind if it belongs to another owner, with `Damage`
    if it is damaged."""
