"""Messages that wait to be delivered again: shelves in order, delays by time, both bounded by what waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.work.waiting import Delays, Shelf


def test_a_shelf_gives_rows_in_the_order_in_which_they_came() -> None:
    shelf = Shelf()
    for row in (5, 3, 9):
        shelf.add(row, 0b11)
    shelf.add(5, 0b100)
    assert list(shelf.rows(2)) == [5, 3] and shelf.count == 7
    assert shelf.records(5) == 0b111 and shelf.records(4) == 0
    assert shelf.discard(5, 0b1111) == 0b111 and 5 not in shelf
    shelf.add(5, 1)
    assert list(shelf.rows(9)) == [3, 9, 5]


def test_discarding_messages_that_are_not_on_a_shelf_has_no_effect() -> None:
    shelf = Shelf()
    shelf.add(1, 0b101)
    assert shelf.discard(1, 0b110) == 0b100 and shelf.discard(2, 1) == 0 == shelf.discard(1, 0b10)
    assert shelf.count == 1 and 1 in shelf


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.floats(0, 100)), unique_by=lambda e: e[:2])
)
def test_due_messages_come_once_in_the_order_of_time(entries: list[tuple[int, int, float]]) -> None:
    delays = Delays()
    for row, index, due in entries:
        delays.add(row, index, due)
    assert delays.next_due == min((due for _, _, due in entries), default=float("inf"))
    early = list(delays.due(50.0))
    assert early == [(r, i) for d, r, i in sorted((d, r, i) for r, i, d in entries) if d <= 50.0]
    assert delays.count == len(entries) - len(early)
    assert len(list(delays.due(100.0))) == len(entries) - len(early) and list(delays.due(1e9)) == []


def test_a_settled_message_is_never_due() -> None:
    delays = Delays()
    delays.add(1, 4, 1.0)
    delays.add(1, 5, 1.0)
    assert delays.discard(1, 0b110000000 | 1 << 4) == 1 << 4 == 0b10000
    assert list(delays.due(2.0)) == [(1, 5)]


def test_settled_messages_do_not_pile_up_until_their_due_time() -> None:
    delays = Delays()
    for row in range(10_000):
        delays.add(row, 0, 3600.0)
        delays.discard(row, 1)
        assert len(delays._heap) <= 66
    delays.add(1, 0, 5.0)
    assert delays.count == 1 and list(delays.due(6.0)) == [(1, 0)]
