"""One stored block while consumers work on it.

A row is known from when it is read until all its records are settled. Each record is in exactly one of these
sets: ``settled``; ``fresh`` (no consumer had it); in flight, by consumer, in ``out``; or waiting to be
delivered again (`waiting.py`). A buried record is settled.

The bytes of a row are kept only while they are about to be delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from mesh.work.masks import span, unpacked

FORMER_MAX: Final = 8
"""Former sessions of a row's records that are remembered; the oldest is forgotten first."""
PIECE_SIZE: Final = 1 << 16
"""Bytes that a piece of a large body counts for in a consumer's window; no piece has more."""


class StoredRow(Protocol):
    """A row as the journal gives it. A large body is one row of one message; its pieces have rows, too."""

    @property
    def row(self) -> int:
        """Its number; rows are numbered in the order in which they came."""

    @property
    def count(self) -> int:
        """Number of its messages."""

    @property
    def block(self) -> bytes:
        """The sealed block; empty for a large body."""

    @property
    def parts(self) -> tuple[int, ...]:
        """Rows of the pieces of a large body, in order."""

    @property
    def floor(self) -> int:
        """All records below this one are settled."""

    @property
    def bitmap(self) -> bytes:
        """The settled records from ``floor`` on, as in `masks.packed`."""

    @property
    def attempts(self) -> Mapping[int, int]:
        """Attempts that records have behind them."""


class Row:
    """The records of one stored block, and where each of them is."""

    __slots__ = (
        "attempts",
        "attempts_unsaved",
        "block",
        "each",
        "fetched",
        "fetching",
        "former",
        "fresh",
        "handed_out",
        "number",
        "out",
        "parts",
        "settled",
        "size",
        "suspected",
        "whole",
    )

    def __init__(self, stored: StoredRow) -> None:
        self.number = stored.row
        self.block: bytes | None = stored.block
        self.size = len(stored.block)
        self.parts = stored.parts
        self.each = len(stored.parts) * PIECE_SIZE or self.size // (stored.count or 1)
        """Bytes that each of its messages counts for in a consumer's window: their mean."""
        self.whole = span(0, stored.count)
        self.settled = unpacked(stored.floor, stored.bitmap) & self.whole
        self.fresh = self.whole & ~self.settled
        self.out: dict[int, int] = {}
        self.former: dict[int, int] = {}
        self.suspected = 0
        self.attempts = {index: count for index, count in stored.attempts.items() if self.fresh >> index & 1}
        self.attempts_unsaved = False
        self.handed_out = False
        self.fetching = False
        self.fetched = 0
        """Bytes that were read again, or are being read, for records to be delivered again."""

    def let_go(self) -> None:
        """Drop the bytes; those of a large body are not here."""
        if not self.parts:
            self.block = None

    def remember(self, consumer: int, records: int) -> None:
        """Remember a session that held these records and no longer does: it may still settle them."""
        self.former[consumer] = self.former.pop(consumer, 0) | records
        if len(self.former) > FORMER_MAX:
            del self.former[next(iter(self.former))]

    def of_one_attempt(self, first: int, count: int) -> tuple[int, int]:
        """The attempt number of ``first``, and how many of ``count`` records from there on have the same."""
        attempts = self.attempts
        if not attempts:
            return 1, count
        behind = attempts.get(first, 0)
        for index in range(first + 1, first + count):
            if attempts.get(index, 0) != behind:
                return behind + 1, index - first
        return behind + 1, count
