"""What a `WorkQueue` wants done: blocks delivered, rows read, and what the journal keeps.

`Bury`, `Attempts` and `Settle` of one call belong into one commit, in their order: a dead letter is copied
before the row that it came from may go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Deliver:
    """Some neighbouring records of a row for one consumer: ``blocks.cut(block, first, count)``.

    Of a large body ``block`` is empty, and ``parts`` names the rows of its pieces. ``attempt`` counts from 1.
    ``redelivered``: a consumer had them before, as far as this broker knows since its start. ``suspect``:
    one record, which was in flight when its consumer died.
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
    """Read a row again after its bytes were let go. The answer is ``fetched`` or ``unreadable``."""

    row: int


@dataclass(slots=True)
class Settle:
    """Which records of a row are settled: those below ``floor``, and by ``bitmap`` from there on.

    ``whole``: all of them, and the row is of no use to this subscription any more.
    """

    row: int
    floor: int
    bitmap: bytes
    whole: bool


@dataclass(slots=True)
class Attempts:
    """How many attempts the unsettled records of a row have behind them; those with none are left out."""

    row: int
    attempts: Mapping[int, int]


@dataclass(slots=True)
class Bury:
    """One record becomes a dead letter. It is settled by the `Settle` of the same call."""

    row: int
    index: int
    reason: str
    attempts: int


Order = Deliver | Load | Fetch | Settle | Attempts | Bury
