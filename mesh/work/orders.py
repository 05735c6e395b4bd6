"""The orders of a `WorkQueue`: blocks to deliver, rows to read, and what the journal keeps.

`Bury`, `Attempts` and `Settle` of one call belong into one commit, in their order: a dead letter is copied
before its original row may go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Deliver:
    """Deliver neighbouring records of a row to one consumer: ``blocks.cut(block, first, count)``.

    For a large body ``block`` is empty, and ``parts`` names the rows of its pieces. ``attempt`` counts from
    1. ``redelivered``: a consumer had them before, as far as this broker knows since its start. ``suspect``:
    it is one record, which was in flight when its consumer died.
    """

    consumer: int
    row: int
    first: int
    count: int
    attempt: int
    redelivered: bool
    suspect: bool
    block: bytes
    parts: tuple[int, ...]


@dataclass(slots=True)
class Load:
    """Read rows behind ``after_row``: at least one, up to ``rows_max`` and ``bytes_max``.

    The answer is ``loaded``.
    """

    after_row: int
    rows_max: int
    bytes_max: int


@dataclass(slots=True)
class Fetch:
    """Read a row again after its bytes were dropped. The answer is ``fetched`` or ``unreadable``."""

    row: int


@dataclass(slots=True)
class Settle:
    """Note which records of a row are settled: those below ``floor``, and by ``bitmap`` from there on.

    ``whole``: all of them; this subscription no longer needs the row.
    """

    row: int
    floor: int
    bitmap: bytes
    whole: bool


@dataclass(slots=True)
class Attempts:
    """Note how many attempts the unsettled records of a row have behind them; those with none are left
    out."""

    row: int
    attempts: Mapping[int, int]


@dataclass(slots=True)
class Bury:
    """Make one record a dead letter. The `Settle` of the same call settles it."""

    row: int
    index: int
    reason: str
    attempts: int


Order = Deliver | Load | Fetch | Settle | Attempts | Bury
