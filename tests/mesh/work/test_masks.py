"""Sets of records as ints, against sets of their members."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.work.masks import first_run, indices, packed, span, unpacked

SETS = st.sets(st.integers(0, 300))


def mask_of(members: set[int]) -> int:
    return sum(1 << member for member in members)


@given(SETS)
def test_a_set_gives_back_its_members_in_order(members: set[int]) -> None:
    assert list(indices(mask_of(members))) == sorted(members)


@given(SETS)
def test_an_unpacked_set_equals_the_packed_one(members: set[int]) -> None:
    floor, bitmap = packed(mask_of(members))
    assert unpacked(floor, bitmap) == mask_of(members)
    assert set(range(floor)) <= members and floor not in members


@given(SETS.filter(bool))
def test_the_first_run_is_the_lowest_neighbours(members: set[int]) -> None:
    first, count = first_run(mask_of(members))
    assert first == min(members)
    assert set(range(first, first + count)) <= members and first + count not in members


@pytest.mark.parametrize(
    ("members", "floor", "bitmap"),
    [
        (set(), 0, b""),
        ({0, 1, 2}, 3, b""),
        ({1}, 0, b"\2"),
        ({0, 2, 9}, 1, b"\2\1"),
        (set(range(4096)), 4096, b""),
    ],
)
def test_the_form_on_disk_is_a_floor_and_a_little_endian_bitmap(
    members: set[int], floor: int, bitmap: bytes
) -> None:
    assert packed(mask_of(members)) == (floor, bitmap)


def test_a_span_is_neighbours() -> None:
    assert list(indices(span(3, 4))) == [3, 4, 5, 6] and span(7, 0) == 0
