"""Duplicates are detected in two steps, within bounds, and forgotten publishers are counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.dataplane import deduplication
from mesh.dataplane.deduplication import RANGES_MAX, Publisher, Publishers
from mesh.dataplane.options import ExchangeOptions
from mesh.wire.capabilities import SESSION
from mesh.wire.session_opening import SECRET_SIZE, hello

from .neighbourhood import FakeMesh, FakePipe


def publisher() -> Publisher:
    return Publishers(100).get(1, 1)


def take(record: Publisher, sequence: int, count: int) -> bool:
    new = record.reserve(sequence, count)
    if new:
        record.commit(sequence)
    return new


def test_a_reserved_number_is_a_duplicate_until_it_is_released() -> None:
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
def test_the_ranges_agree_with_a_plain_set(steps: list[tuple[int, bool]]) -> None:
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


def test_publishers_are_distinguished_by_id_and_boot() -> None:
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
    mine = table.begin(1, 1)
    take(mine, 1, 1)
    for id in range(2, 2000):
        take(table.get(id, 1), 1, 1)
    assert table.get(1, 1) is mine and not take(mine, 1, 1)
    assert len(table) == 3 and table.forgotten == 1996
    table.end(mine)
    for id in range(2, 8):
        table.get(id, 2)
    assert table.get(1, 1) is not mine


def ranges_of(table: Publishers) -> int:
    return sum(record.ranges for record in table._table.values())


def test_ranges_of_all_publishers_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The publisher with the most ranges loses its oldest, and no publisher is forgotten for that."""
    monkeypatch.setattr(deduplication, "RANGES_MEAN", 2)
    table = Publishers(10)
    for id in range(1, 8):
        for number in range(5):
            take(table.get(id, 1), number * 10, 1)
    assert table.forgotten == 0 and len(table) == 7
    assert 15 <= ranges_of(table) <= 20
    assert all(not take(table.get(id, 1), 40, 1) for id in range(1, 8)), "the newest of each is known"


def test_the_cost_of_gaps_does_not_depend_on_the_number_of_known_publishers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When all had `RANGES_MEAN` ranges, every eighth block of a publisher with gaps searched all of them."""
    table = Publishers(256)
    for id in range(256):
        for number in range(deduplication.RANGES_MEAN):
            take(table.get(id, 1), 2 * number, 1)
    looks = Counted()
    monkeypatch.setattr(Publisher, "ranges", looks.counting(lambda record: len(record._starts)))
    one = table.get(1, 1)
    for number in range(deduplication.RANGES_MEAN, 1000):
        assert take(one, 2 * number, 1)
    assert looks.count < 10 * 1000
    monkeypatch.undo()
    assert ranges_of(table) == table._ranges <= 256 * deduplication.RANGES_MEAN
    assert table.forgotten == 0 and not take(one, 1998, 1)
    assert all(not take(table.get(id, 1), 0, 1) for id in range(2, 256)), "no other publisher paid"


def test_the_cost_of_a_new_publisher_does_not_depend_on_the_number_of_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each searched twice all publishers with sessions, which are never forgotten."""
    mesh = FakeMesh(1, ExchangeOptions(publishers_max=200))
    exchange = mesh.nodes[1].exchange
    pipe = FakePipe()

    def greet(number: int) -> None:
        opening = hello(SESSION, number.to_bytes(SECRET_SIZE, "big"), 7, "c", 0.0)
        prefix = number.to_bytes(4, "big") + b"\x80\0\0\1"
        exchange.client_frames(pipe, [prefix + opening], 0.0)

    for number in range(1, 201):
        greet(number)
    looks = Counted()
    slot = deduplication.Publisher.recent
    monkeypatch.setattr(Publisher, "recent", looks.counting(slot.__get__, slot.__set__))  # type: ignore[attr-defined]
    for number in range(201, 301):
        greet(number)
    statistics = exchange.statistics()
    assert looks.count < 10 * 100 and statistics.sessions == statistics.publishers == 300
    exchange.client_gone(pipe, 0.0)
    statistics = exchange.statistics()
    assert statistics.publishers == 200 and statistics.drops == {"publisher_forgotten": 100}


class Counted:
    """Uses of an attribute of all publishers."""

    def __init__(self) -> None:
        self.count = 0

    def counting(self, get: Any, put: Any = None) -> property:
        def read(record: Publisher) -> Any:
            self.count += 1
            return get(record)

        def write(record: Publisher, value: Any) -> None:
            self.count += 1
            put(record, value)

        return property(read, write)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40), st.booleans()), max_size=200))
def test_levels_hold_exactly_the_publishers_with_many_ranges(steps: list[tuple[int, int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deduplication, "RANGES_MEAN", 2)
        table = Publishers(4)
        begun: list[Publisher] = []
        for id, sequence, begins in steps:
            if begins:
                begun.append(table.begin(id, 1))
            elif begun and sequence > 30:
                table.end(begun.pop(0))
            take(table.get(id, 1), sequence, 1)
            known = list(table._table.values())
            crowded = {record: level for level, crowd in enumerate(table._crowded, 1) for record in crowd}
            assert crowded == {
                record: level for record in known if (level := ((record.ranges - 1) // 2).bit_length())
            }
            assert set(table._idle) == {record for record in known if not record.sessions}
            assert ranges_of(table) == table._ranges <= 2 * max(4, len(table))
            assert len(table) <= max(4, 1 + sum(record.sessions > 0 for record in known))


def test_an_active_publisher_is_not_forgotten_because_others_leave_gaps() -> None:
    """Below half of `publishers_max` the bound on ranges removed the publisher that had come first, however
    active."""
    table = Publishers(64)
    take(table.get(1, 1), 1, 1)
    for number in range(deduplication.RANGES_MEAN * 64 + 2000):
        take(table.get(2 + number % 2, 1), number * 10, 1)
        assert take(table.get(1, 1), number + 2, 1)
    assert table.forgotten == 0 and len(table) == 3
    assert not take(table.get(1, 1), 1, 1)
    assert ranges_of(table) <= deduplication.RANGES_MEAN * 64


def test_an_active_early_publisher_is_kept_before_one_that_has_stopped() -> None:
    """Uses counted only once the table was half full."""
    table = Publishers(8)
    for id in range(1, 5):
        take(table.get(id, 1), 1, 1)
    take(table.get(1, 1), 2, 1)
    for id in range(5, 12):
        take(table.get(id, 1), 1, 1)
    assert table.forgotten == 3
    assert not take(table.get(1, 1), 1, 1)


def test_a_forgotten_publisher_is_not_counted() -> None:
    table = Publishers(2)
    record = table.get(1, 1)
    take(record, 1, 1)
    for id in (2, 3, 4):
        take(table.get(id, 1), 1, 1)
    for number in range(2, 100):
        take(record, number * 2, 1)  # by a caller that kept the record
    assert table._ranges == ranges_of(table) == 2


WELL, GAPS, NEW = "well", "gaps", "new"
STEPS = st.lists(st.tuples(st.sampled_from([WELL, GAPS, GAPS, NEW]), st.integers(0, 1)), min_size=20)


@given(STEPS, st.booleans())
def test_an_active_publisher_stays_known_and_the_bounds_hold_whatever_others_do(
    steps: list[tuple[str, int]], strangers: bool
) -> None:
    """Two publish in order all the time; others leave gaps, and strangers come once. A retry of the two is
    always recognised, though it came over a link and has no session here."""
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


def test_the_absent_brokers_of_a_number_are_those_at_its_commit() -> None:
    record = Publishers(2).get(1, 1)
    for sequence, absent in ((1, ()), (11, ("a",)), (21, ("a",)), (31, ()), (41, ("b", "c"))):
        assert record.reserve(sequence, 10)
        record.commit(sequence, absent)
    named = {sequence: record.absent_for(sequence, 10) for sequence in (1, 11, 21, 31, 41)}
    assert named == {1: [], 11: ["a"], 21: ["a"], 31: [], 41: ["b", "c"]}


@given(st.lists(st.tuples(st.integers(1, 50), st.sets(st.sampled_from("abcd"))), min_size=10))
def test_absences_are_never_forgotten_when_ranges_are_merged(commits: list[tuple[int, set[str]]]) -> None:
    """Ranges of numbers are merged if there are too many, with the names of all."""
    record, missed = Publishers(2).get(1, 1), dict[int, set[str]]()
    for sequence, absent in commits:
        if record.reserve(sequence, 1):
            record.commit(sequence, tuple(sorted(absent)))
            missed[sequence] = absent
    assert len(record._absences) <= deduplication.ABSENCES_MAX
    for sequence, absent in missed.items():
        assert absent <= set(record.absent_for(sequence, 1))
