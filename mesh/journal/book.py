"""The in-memory state of a journal: small, read at the opening, and again after a transaction was undone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import apsw

from mesh.database.kind import Damage
from mesh.database.settings import every, one
from mesh.journal import checksums
from mesh.journal.duplicates import FIRST, Clock, Known, Source

ROW_MAX: Final = 1 << 62
"""Row numbers are below this."""


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
    names: int = 0
    """All CRCs of subscriptions, combined by exclusive or: a row that cannot be found any more changes it."""
    clock_written: int = 0
    """Its ``active_us`` on disk. Writing each change would cost a page."""


def read_book(db: apsw.Connection) -> Book:
    """The state as of the last commit. Raises `Damage`, or `apsw.CorruptError`."""
    book = Book()
    meta = dict(every(db, "select key, value from meta"))
    ceiling = meta.get("ceiling")
    if type(ceiling) is not int or not 0 < ceiling < ROW_MAX:
        raise Damage(f"its next row number is {ceiling!r}")
    book.row = book.ceiling = max(ceiling, _newest(db) + 1)
    clock = Clock(meta.get("active_us"), meta.get("wall_us"))  # type: ignore[arg-type]  # checked next
    if all(type(time) is int for time in clock):
        book.clock, book.clock_written = clock, clock.active_us
    for id, name, patterns, crc, *figures in every(
        db,
        "select id, cast(name as blob), cast(patterns as blob), crc, created_us, rows, messages, size"
        " from subscription order by id",
    ):
        if any(type(figure) is not int for figure in (crc, *figures)):
            raise Damage(f"a figure of subscription {id} is no number")
        book.names ^= crc
        patterns = patterns or b""
        if crc != checksums.of_subscription(id, name or b"", patterns, figures[0]):
            raise Damage(f"the name or a pattern of subscription {id} is not what was stored")
        if name is None:
            book.removed.append(id)
            continue
        name, patterns = name.decode(), patterns.decode()
        book.ids[name] = id
        book.named[id] = Named(name, tuple(patterns.split("\n")) if patterns else (), *figures)
    if book.names != meta.get("names"):
        raise Damage("a subscription is missing, or the note of which there are is not what was stored")
    return book


def _newest(db: apsw.Connection) -> int:
    """The highest row. A flipped bit in the ceiling must not make new rows of numbers that are in use. One in
    a key can make any number of it."""
    try:
        found = one(db, "select max(row) from block where row < ?", (ROW_MAX,))
        return int((found or (0,))[0] or 0)
    except apsw.CorruptError:
        return 0  # which of its pages it is turns out when they are read
