"""The decisions on clocks as Spark functions: rows in, tuples out. They run where there is only Python."""

from __future__ import annotations

from typing import Any, Final

from mesh.analysis.clocks.offsets import Offset, Sample, Word, met, solve, stand
from mesh.analysis.clocks.pieces import filled
from mesh.analysis.clocks.stretches import SLOTS, Window, heard_stretches
from mesh.eventlog.windows import window_ns

OFFSETS: Final = "array<struct<boot:string,offset:bigint,error:bigint>>"
PIECES: Final = "map<bigint,struct<offset:bigint,error:bigint>>"
SPANS: Final = "array<struct<first:bigint,last:bigint,error:bigint>>"
SILENCE: Final = 2.2
"""Periods without a heartbeat that end a stretch."""
PERIODS: Final = 16
"""Periods of the listener in one window."""


def solved(boots: Any, found: Any, words: Any) -> list[tuple[str | int | None, ...]]:
    """Rough `OFFSETS` of a run's boots (``boot``, ``node``, ``wall``), from their best samples, of which
    there may be none, and from what others said of boots without one (see `met`)."""
    walls = {row.boot: row.wall for row in boots}
    nodes = {row.boot: row.node for row in boots}
    offsets = solve(walls, (Sample(*row) for row in found))
    offsets = met(stand(walls, nodes, offsets), (Word(*row) for row in words))
    return [(boot, *offset) for boot, offset in offsets.items()]


def solved_piece(boots: Any, found: Any) -> list[tuple[str | int | None, ...]]:
    """The same for ten minutes, for boots (``boot``, ``rough``) that have a sample in them."""
    offsets = solve({row.boot: row.rough for row in boots}, (Sample(*row) for row in found))
    return [(boot, *offset) for boot, offset in offsets.items() if offset.error is not None]


def filled_pieces(
    first: int, last: int, rough: int, error: int | None, known: Any
) -> dict[int, tuple[int | None, ...]]:
    """`PIECES` of one boot, from its first to its last."""
    sampled = {row.piece: Offset(row.offset, row.error) for row in known or ()}
    offsets = filled(first, last, Offset(rough, error), sampled)
    return {piece: tuple(offset) for piece, offset in offsets.items()}


def stretches_of(windows: Any) -> list[tuple[int, ...]]:
    """`SPANS` in which one broker heard heartbeats of another without a silence of 2.2 periods."""
    length = max(row.window_ns for row in windows)
    return [tuple(each) for each in heard_stretches(_windows(windows), round(length / PERIODS * SILENCE))]


def awake_of(windows: Any, others: Any, period_s: float) -> list[tuple[int, ...]]:
    """`SPANS` in which a broker wrote rows: heartbeats, and ``others`` at these nanoseconds. A silence that
    may be 2.2 periods long counts as one. ``period_s`` gives the length of a window if there is none."""
    length = max((row.window_ns for row in windows or ()), default=window_ns(period_s))
    moments = [Window(ns, length, ns, ns, 0) for ns in others or ()]
    gap = round(length / PERIODS * SILENCE) - length // SLOTS
    return [tuple(each) for each in heard_stretches([*_windows(windows or ()), *moments], gap)]


def _windows(rows: Any) -> list[Window]:
    return [Window(row.start_ns, row.window_ns, row.first_ns, row.last_ns, row.slots) for row in rows]
