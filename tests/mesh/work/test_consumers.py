"""Turns: the consumer that holds about the fewest is next, each in turn, and only those with room."""

from __future__ import annotations

from mesh.wire.blocks import seal
from mesh.work.consumers import Consumer, Roster
from mesh.work.rows import Row
from tests.mesh.work.home import Kept


def a_row(count: int) -> Row:
    block = seal(b"t", [b"x"] * count, publisher=1, boot=1, sequence=1)
    return Row(Kept(1, block, count))


def test_turns_rotate_among_consumers_that_hold_as_much() -> None:
    roster, row = Roster(), a_row(9)
    consumers = [Consumer(number, 2, 1 << 20) for number in range(3)]
    for consumer in consumers:
        roster.place(consumer)
    turns = []
    for index in range(6):
        consumer = roster.next()
        assert consumer is not None
        turns.append(consumer.number)
        consumer.take(row, 1 << index)
        roster.place(consumer)
    assert turns == [0, 1, 2, 0, 1, 2]
    assert roster.next() is None and len(roster) == 0


def test_a_consumer_that_holds_twice_as_much_comes_later() -> None:
    roster, row = Roster(), a_row(64)
    busy, idle = Consumer(1, 100, 1 << 20), Consumer(2, 100, 1 << 20)
    busy.take(row, (1 << 32) - 1)
    roster.place(busy)
    roster.place(idle)
    for index in range(32, 63):
        assert roster.next() is idle
        idle.take(row, 1 << index)
        roster.place(idle)
    idle.take(row, 1 << 63)
    roster.place(idle)
    assert roster.next() is busy, "now both hold 32"


def test_a_consumer_is_in_the_roster_once_and_out_when_it_has_no_room_or_probes() -> None:
    roster, one = Roster(), Consumer(1, 1, 1 << 20)
    for _ in range(3):
        roster.place(one)
        assert len(roster) == 1
    one.probing = True
    roster.place(one)
    assert len(roster) == 0 and roster.next() is None
    roster.remove(one)
    one.probing, one.window = False, 0
    roster.place(one)
    assert roster.next() is None


def test_a_probe_ends_when_its_suspect_is_released_and_not_when_others_are() -> None:
    row, one = a_row(9), Consumer(1, 9, 1 << 20)
    one.take(row, 0b111)
    one.suspect, one.stuck = (1, 1), 2
    one.release(row, 0b001)
    assert one.suspect == (1, 1) and one.stuck == 1 and not one.ready_to_probe
    one.release(row, 0b010)
    assert one.suspect is None and one.ready_to_probe and one.in_flight == 1
    one.release(row, 0b100)
    assert not one.rows and not row.out and one.stuck == 0
