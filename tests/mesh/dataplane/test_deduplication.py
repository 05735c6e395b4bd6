"""What came already: in two steps, bounded, and forgotten with a count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.dataplane import deduplication
from mesh.dataplane.deduplication import RANGES_MAX, Publisher, Publishers


def publisher() -> Publisher:
    return Publishers(100).get(1, 1)


def take(record: Publisher, sequence: int, count: int) -> bool:
    new = record.reserve(sequence, count)
    if new:
        record.commit(sequence)
    return new


def test_what_is_reserved_is_a_duplicate_until_it_is_released() -> None:
    record = publisher()
    assert record.reserve(1, 5)
    assert not record.reserve(1, 5), "a retry that crosses it"
    record.release(1)
    assert record.reserve(1, 5), "it failed, so the retry is new"
    record.commit(1)
    assert not record.reserve(1, 5)


def test_several_reservations_are_committed_in_any_order() -> None:
    record = publisher()
    for sequence in (1, 6, 11):
        assert record.reserve(sequence, 5)
    for sequence in (11, 1):
        record.commit(sequence)
    assert record.ranges == 2
    record.release(6)
    assert record.reserve(6, 5)
    record.commit(6)
    assert record.ranges == 1
    assert not any(record.reserve(sequence, 5) for sequence in (1, 6, 11))


def test_blocks_out_of_order_are_known_and_gaps_are_not() -> None:
    record = publisher()
    assert take(record, 10, 5) and take(record, 1, 3)
    assert not take(record, 10, 5) and not take(record, 1, 3)
    assert take(record, 4, 6), "the gap between them"
    assert record.ranges == 1


def test_the_lowest_of_too_many_ranges_is_forgotten_as_if_it_had_not_come() -> None:
    record = publisher()
    for number in range(RANGES_MAX + 1):
        assert take(record, number * 10, 1)
    assert record.ranges == RANGES_MAX
    assert not take(record, 10, 1)
    assert take(record, 0, 1)


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=80))
def test_it_is_as_good_as_a_set(steps: list[tuple[int, bool]]) -> None:
    """Blocks have fixed bounds: block n holds messages 3n to 3n + 2."""
    record, known = publisher(), set()
    for block, fails in steps:
        new = record.reserve(block * 3, 3)
        assert new == (block not in known)
        if new and fails:
            record.release(block * 3)
        elif new:
            record.commit(block * 3)
            known.add(block)
    runs = sum(block - 1 not in known for block in known)
    assert record.ranges == runs


def test_publishers_are_told_apart_by_id_and_boot() -> None:
    table = Publishers(10)
    assert take(table.get(1, 1), 1, 1) and take(table.get(1, 2), 1, 1) and take(table.get(2, 1), 1, 1)
    assert not take(table.get(1, 1), 1, 1)


def test_the_publisher_that_published_least_recently_is_forgotten_and_counted() -> None:
    table = Publishers(3)
    for id in (1, 2, 3):
        take(table.get(id, 1), 1, 1)
    take(table.get(1, 1), 2, 1)
    take(table.get(4, 1), 1, 1)
    assert len(table) == 3 and table.forgotten == 1
    assert not take(table.get(1, 1), 1, 1), "used since"
    assert take(table.get(2, 1), 1, 1), "forgotten"


def test_a_publisher_with_a_session_is_never_forgotten() -> None:
    table = Publishers(3)
    mine = table.get(1, 1)
    mine.sessions = 1
    take(mine, 1, 1)
    for id in range(2, 2000):
        take(table.get(id, 1), 1, 1)
    assert table.get(1, 1) is mine and not take(mine, 1, 1)
    assert len(table) == 3 and table.forgotten == 1996
    mine.sessions = 0
    for id in range(2, 8):
        table.get(id, 2)
    assert table.get(1, 1) is not mine


def ranges_of(table: Publishers) -> int:
    return sum(record.ranges for record in table._table.values())


def test_ranges_of_all_publishers_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has most pays with its oldest, and nobody is forgotten for it."""
    monkeypatch.setattr(deduplication, "RANGES_MEAN", 2)
    table = Publishers(10)
    for id in range(1, 8):
        for number in range(5):
            take(table.get(id, 1), number * 10, 1)
    assert table.forgotten == 0 and len(table) == 7
    assert 15 <= ranges_of(table) <= 20
    assert all(not take(table.get(id, 1), 40, 1) for id in range(1, 8)), "the newest of each is known"


def test_an_active_publisher_is_not_forgotten_because_others_leave_gaps() -> None:
    """Below half of `publishers_max` the bound on ranges took the one that had come first, however active."""
    table = Publishers(64)
    take(table.get(1, 1), 1, 1)
    for number in range(deduplication.RANGES_MEAN * 64 + 2000):
        take(table.get(2 + number % 2, 1), number * 10, 1)
        assert take(table.get(1, 1), number + 2, 1)
    assert table.forgotten == 0 and len(table) == 3
    assert not take(table.get(1, 1), 1, 1)
    assert ranges_of(table) <= deduplication.RANGES_MEAN * 64


def test_one_that_published_early_and_goes_on_is_kept_before_one_that_has_stopped() -> None:
    """Uses counted only once the table was half full."""
    table = Publishers(8)
    for id in range(1, 5):
        take(table.get(id, 1), 1, 1)
    take(table.get(1, 1), 2, 1)
    for id in range(5, 12):
        take(table.get(id, 1), 1, 1)
    assert table.forgotten == 3
    assert not take(table.get(1, 1), 1, 1)


def test_a_publisher_that_was_forgotten_counts_for_nothing() -> None:
    table = Publishers(2)
    record = table.get(1, 1)
    take(record, 1, 1)
    for id in (2, 3, 4):
        take(table.get(id, 1), 1, 1)
    for number in range(2, 100):
        take(record, number * 2, 1)  # whoever held on to it
    assert table._ranges == ranges_of(table) == 2


WELL, GAPS, NEW = "well", "gaps", "new"
STEPS = st.lists(st.tuples(st.sampled_from([WELL, GAPS, GAPS, NEW]), st.integers(0, 1)), min_size=20)


@given(STEPS, st.booleans())
def test_whatever_others_do_an_active_publisher_is_known_and_the_bounds_hold(
    steps: list[tuple[str, int]], strangers: bool
) -> None:
    """Two publish in order all the time; others leave gaps, and strangers come once. A retry of either of the
    two is always known, though it came over a link and has no session here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deduplication, "RANGES_MEAN", 1)
        table, sent, newest = Publishers(8), [0, 0], 100
        for turn, (who, number) in enumerate(steps):
            if who == GAPS:
                take(table.get(10 + number, 1), turn * 10, 1)
            elif who == NEW and strangers:
                newest += 1
                take(table.get(newest, 1), 1, 1)
            for id in (0, 1):
                if who == WELL or turn % 3 == id:
                    sent[id] += 1
                    assert take(table.get(id, 1), sent[id], 1)
                    assert not take(table.get(id, 1), sent[id], 1)
                if sent[id]:
                    assert not take(table.get(id, 1), 1, 1), "its first, long ago"
            assert len(table) <= 8 and ranges_of(table) == table._ranges <= 8
