"""Stretches of heartbeats from windows, and pieces of clocks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.analysis.clocks.offsets import Offset
from mesh.analysis.clocks.pieces import PIECE, filled, piece_of
from mesh.analysis.clocks.stretches import SLOTS, Heard, Window, _has_silence, heard_stretches

PERIOD = 1_000_000_000
LENGTH = 16 * PERIOD
SLOT = LENGTH // SLOTS
GAP = round(2.2 * PERIOD)


def windows_of(beats: list[int]) -> list[Window]:
    """Reduces heartbeats as the reading does."""
    found = {}
    for beat in sorted(beats):
        start = beat // LENGTH * LENGTH
        bit = 1 << (beat - start) // SLOT
        old = found.get(start, Window(start, LENGTH, beat, beat, 0))
        found[start] = Window(start, LENGTH, old.first, beat, old.slots | bit)
    return list(found.values())


@given(st.lists(st.integers(0, 90 * PERIOD), min_size=1, max_size=60))
@settings(max_examples=150, deadline=None)
def test_no_long_silence_is_missed_and_no_short_one_is_found(beats: list[int]) -> None:
    beats.sort()
    found = heard_stretches(windows_of(beats), GAP)

    ends = [(one.last, other.first) for one, other in pairwise(found)]
    for one, other in pairwise(beats):
        cut = [end for end in ends if one - SLOT <= end[0] and end[1] <= other + SLOT]
        if other - one >= GAP + SLOT:
            assert cut, (one, other)
        if other - one < GAP - SLOT:
            assert not any(end[0] >= one and end[1] <= other for end in cut), (one, other)
    assert (found[0].first, found[-1].last) == (beats[0], beats[-1])


@given(st.integers(0, 2**64 - 1), st.integers(2, 64))
@settings(max_examples=300, deadline=None)
def test_the_check_of_all_slots_at_once_agrees_with_looking_at_each(slots: int, least: int) -> None:
    taken = [number for number in range(SLOTS) if slots >> number & 1]

    expected = any(after - before >= least for before, after in pairwise(taken))

    assert _has_silence(slots, least) == expected


def test_a_silence_between_windows_is_exact() -> None:
    beats = [15 * PERIOD + 7, 20 * PERIOD + 9]

    assert heard_stretches(windows_of(beats), GAP) == [
        Heard(beats[0], beats[0], 0),
        Heard(beats[1], beats[1], 0),
    ]


def test_a_silence_inside_a_window_says_how_well_it_is_known() -> None:
    (before, after) = heard_stretches(windows_of([0, PERIOD, 6 * PERIOD, 7 * PERIOD]), GAP)

    assert abs(before.last - PERIOD) <= before.error == SLOT // 2
    assert abs(after.first - 6 * PERIOD) <= after.error == SLOT // 2


def test_a_row_within_a_silence_of_a_window_ends_it() -> None:
    silent = windows_of([0, 4 * PERIOD])
    row = Window(2 * PERIOD, LENGTH, 2 * PERIOD, 2 * PERIOD, 0)

    assert len(heard_stretches(silent, GAP)) == 2
    assert len(heard_stretches([*silent, row], GAP)) == 1


def test_the_highest_slot_counts_although_it_makes_the_number_negative() -> None:
    signed = -(1 << 63) | 1
    (one, other) = heard_stretches([Window(0, LENGTH, 0, LENGTH - 1, signed)], GAP)

    assert (one.first, other.last) == (0, LENGTH - 1)


def test_a_piece_without_samples_has_the_offset_of_the_nearest() -> None:
    known = {2: Offset(20, 1), 5: Offset(50, 2), 4: Offset(40, None)}

    found = filled(0, 6, Offset(7, None), known)

    assert [found[piece].offset for piece in range(7)] == [20, 20, 20, 20, 50, 50, 50]
    assert filled(1, 2, Offset(7, None), {}) == {1: Offset(7, None), 2: Offset(7, None)}


def test_a_moment_is_in_the_ten_minutes_of_mesh_time() -> None:
    assert piece_of(0, 0) == 0
    assert piece_of(1000 * (PIECE - 1), 0) == 0
    assert piece_of(1000 * (PIECE - 1), 1) == 1
    assert piece_of(0, 3 * PIECE) == 3
