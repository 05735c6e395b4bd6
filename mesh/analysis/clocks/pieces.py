"""Offsets in pieces of ten minutes, since clocks drift: the piece of a moment, and offsets for pieces without
samples. Pure.

A boot has one rough offset for its whole life, from its best samples. This assigns each moment of its
monotonic clock to a piece of ten minutes of mesh time. Each piece has its own offset. A piece without samples
uses that of the nearest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mesh.analysis.clocks.offsets import Offset

PIECE: Final = 600_000_000
"""Ten minutes, in microseconds."""
PIECES_MOST: Final = 100_000
"""Two years. A longer life has only the pieces with samples, its first and its last."""


def piece_of(ns: int, rough: int) -> int:
    """The number of the piece in which a boot's monotonic clock shows ``ns``."""
    return (ns // 1000 + rough) // PIECE


def filled(first: int, last: int, rough: Offset, known: Mapping[int, Offset]) -> dict[int, Offset]:
    """An offset for each piece of a boot's life, including ``first`` and ``last``. ``known`` has the pieces
    with samples."""
    sampled = {piece: offset for piece, offset in known.items() if offset.error is not None}
    pieces: Iterable[int] = range(first, last + 1)
    if last - first >= PIECES_MOST:
        pieces = sorted({first, *sampled, last})
    if not sampled:
        return dict.fromkeys(pieces, rough)
    return {
        piece: sampled[min(sampled, key=lambda known_piece: (abs(known_piece - piece), known_piece))]
        for piece in pieces
    }
