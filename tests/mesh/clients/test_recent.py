"""The last acknowledged blocks are kept within bounds."""

from __future__ import annotations

from mesh.clients.recent import BLOCKS_MAX, BYTES_MAX, Recent
from mesh.clients.tickets import Ticket
from mesh.clients.unacknowledged import Sealed


def sealed(first: int, size: int) -> Sealed:
    return Sealed([bytes(size)], 1, first, first, Ticket(1))


def test_the_newest_are_kept() -> None:
    recent = Recent()
    for first in range(1, BLOCKS_MAX + 11):
        recent.add(sealed(first, 1))
    assert [each.first for each in recent.repeat()] == list(range(11, BLOCKS_MAX + 11))
    assert recent.repeats(11) and not recent.repeats(10)
    recent.add(sealed(5000, BYTES_MAX))
    assert [each.first for each in recent.repeat()] == [5000]
    recent.add(sealed(5001, BYTES_MAX + 1))
    assert recent.repeat() == [], "larger than all that may be kept"


def test_cleared_blocks_are_not_repeated() -> None:
    recent = Recent()
    recent.add(sealed(1, 10))
    recent.clear()
    assert recent.repeat() == [] and not recent.repeats(1)
