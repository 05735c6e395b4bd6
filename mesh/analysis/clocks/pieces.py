"""Offsets in pieces of ten minutes, since clocks drift: which piece a moment is in, and what fills the
gaps. Pure.

A boot has one rough offset for its whole life, from its best samples. By it a moment of its monotonic clock
falls into a piece of ten minutes of mesh time, and each piece has an offset of its own. A piece without
samples has that of the nearest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mesh.analysis.clocks.offsets import Offset

PIECE: Final = 600_000_000
"""Ten minutes, in microseconds."""


def piece_of(ns: int, rough: int) -> int:
    """The number of the piece in which a boot's monotonic clock shows ``ns``."""
    return (ns // 1000 + rough) // PIECE


def filled(first: int, last: int, rough: Offset, known: Mapping[int, Offset]) -> dict[int, Offset]:
    """An offset for each piece of a boot's life, ``first`` and ``last`` included; ``known`` have samples."""
    sampled = {piece: offset for piece, offset in known.items() if offset.error is not None}
    if not sampled:
        return {piece: rough for piece in range(first, last + 1)}
    return {
        piece: sampled[min(sampled, key=lambda known_piece: (abs(known_piece - piece), known_piece))]
        for piece in range(first, last + 1)
    }
