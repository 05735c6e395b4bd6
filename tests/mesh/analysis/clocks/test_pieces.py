"""Offsets for each ten minutes of a boot's life."""

from __future__ import annotations

from mesh.analysis.clocks.offsets import Offset
from mesh.analysis.clocks.pieces import PIECES_MOST, filled

ROUGH = Offset(5, None)


def test_a_piece_without_samples_has_the_offset_of_the_nearest() -> None:
    known = {3: Offset(30, 1), 6: Offset(60, 1), 5: Offset(99, None)}
    assert filled(2, 8, ROUGH, known) == {
        **dict.fromkeys((2, 3, 4), Offset(30, 1)),
        **dict.fromkeys((5, 6, 7, 8), Offset(60, 1)),
    }
    assert filled(0, 2, ROUGH, {}) == dict.fromkeys(range(3), ROUGH)


def test_a_row_with_a_time_of_decades_makes_no_piece_for_each_ten_minutes() -> None:
    """One number of a damaged row took all memory."""
    end = 100 * PIECES_MOST
    assert filled(0, end, ROUGH, {7: Offset(70, 1)}) == dict.fromkeys((0, 7, end), Offset(70, 1))
    assert len(filled(0, PIECES_MOST - 1, ROUGH, {})) == PIECES_MOST
