"""Blocks that wait to be acknowledged."""

from __future__ import annotations

from mesh.clients.tickets import Ticket
from mesh.clients.unacknowledged import Sealed, Unacknowledged
from mesh.errors import Unknown
from mesh.wire.blocks import ACCEPTED, STORED
from mesh.wire.durable_frames import BEHIND_MAX


def sealed(first: int, count: int = 1, level: int = STORED) -> Sealed:
    return Sealed([b"block"], count, first, first + count - 1, Ticket(level))


def test_blocks_wholly_within_the_ranges_are_found_and_stay() -> None:
    waiting = Unacknowledged()
    for first in (1, 11, 21, 31):
        waiting.add(sealed(first, 10))
    assert [each.first for each in waiting.find([(1, 20)])] == [1, 11]
    assert [each.first for each in waiting.find([(5, 35)])] == [11, 21]
    assert [each.first for each in waiting.find([(1, 9), (2, 10), (41, 50)])] == []
    assert len(waiting) == 4


def test_the_distance_is_to_the_lowest_stored_block_that_waits() -> None:
    waiting = Unacknowledged()
    held = [sealed(1, level=ACCEPTED), sealed(2), sealed(3), sealed(4)]
    assert waiting.behind(7) == 0
    for each in held:
        waiting.add(each)
    assert waiting.behind(4) == 2 and waiting.behind(2) == 0
    waiting.remove(held[2])
    waiting.remove(held[2])
    assert waiting.behind(4) == 2
    waiting.remove(held[1])
    assert waiting.behind(4) == 0
    waiting.clear()
    assert waiting.behind(9) == 0 and not waiting


def test_a_block_that_its_callers_gave_up_does_not_count_as_waiting() -> None:
    """It held up what homes may forget, and its publisher's credit, until the session ended."""
    waiting = Unacknowledged()
    given_up = sealed(1)
    for each in (given_up, sealed(2), sealed(3)):
        waiting.add(each)
    given_up.ticket.fail(Unknown("nobody waits"))
    assert waiting.behind(3) == 1 and len(waiting) == 3


def test_the_distance_is_limited_to_the_largest_value_of_the_field() -> None:
    waiting = Unacknowledged()
    waiting.add(sealed(1))
    assert waiting.behind(1 << 40) == BEHIND_MAX
