"""The in-memory state of a journal: small, read at the opening, and again after a transaction was undone."""

from __future__ import annotations

from dataclasses import dataclass, field

import apsw

from mesh.database.settings import every
from mesh.journal.duplicates import FIRST, Clock, Known, Source


@dataclass(slots=True)
class Named:
    """A subscription: its patterns and its waiting messages."""

    name: str
    patterns: tuple[str, ...]
    created_us: int
    rows: int = 0
    messages: int = 0
    size: int = 0


@dataclass(slots=True)
class Book:
    """The in-memory state of a journal: its subscriptions, and the next row number.

    No row number is used twice, even after a restart: numbers below ``ceiling`` are reserved on disk.
    """

    named: dict[int, Named] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)
    """Subscriptions to empty."""
    row: int = 1
    ceiling: int = 1
    looked_at: Source = FIRST
    """The publisher up to which the search for silent publishers has come."""
    publishers: dict[Source, Known] = field(default_factory=dict)
    """Cached facts about some publishers."""
    clock: Clock | None = None
    """As of the last commit. None in a new journal."""
    clock_written: int = 0
    """Its ``active_us`` on disk. Writing each change would cost a page."""


def read_book(db: apsw.Connection) -> Book:
    """The state as of the last commit."""
    book = Book()
    meta = dict(every(db, "select key, value from meta"))
    book.row = book.ceiling = meta.get("ceiling", 1)
    if "wall_us" in meta:
        book.clock = Clock(meta["active_us"], meta["wall_us"])
        book.clock_written = book.clock.active_us
    for id, name, patterns, created_us, rows, messages, size in every(
        db, "select id, name, patterns, created_us, rows, messages, size from subscription order by id"
    ):
        if name is None:
            book.removed.append(id)
            continue
        book.ids[name] = id
        book.named[id] = Named(
            name, tuple(patterns.decode().split("\n")) if patterns else (), created_us, rows, messages, size
        )
    return book
