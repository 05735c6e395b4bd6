"""Statements for many rows at once.

Each statement releases Python's lock, and a busy event loop returns it late. So a few statements write faster
than many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeVar

import apsw

TOGETHER: Final = 32
"""Maximum rows of one statement. All sizes are powers of two, so that few different statements are
prepared."""

Row = TypeVar("Row")


def portions(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows in their order, cut into powers of two."""
    at = 0
    while left := len(rows) - at:
        count = min(TOGETHER, 1 << left.bit_length() - 1)
        yield rows[at : at + count]
        at += count


def insert(db: apsw.Connection, table: str, rows: Sequence[Sequence[Any]], *, replace: bool = False) -> None:
    """Insert rows that have a value for each column. ``replace``: a row with the same key goes."""
    verb = "replace" if replace else "insert"
    for portion in portions(rows):
        db.execute(_into(verb, table, len(portion), len(portion[0])), list(chain.from_iterable(portion)))


@lru_cache(maxsize=64)  # a memo of a pure function
def _into(verb: str, table: str, rows: int, columns: int) -> str:
    return f"{verb} into {table} values" + ", ".join([f"({places(columns)})"] * rows)


@lru_cache(maxsize=64)  # a memo of a pure function
def places(count: int) -> str:
    """The placeholders for so many parameters of a statement."""
    return ", ".join("?" * count)
