"""Times in which a broker was heard without a gap, from the windows of `heard`. Pure.

A window knows its first and last heartbeat to the nanosecond, and which quarters of a period had one. So a
gap between two windows is exact. A gap inside a window goes from the middle of one quarter to the middle of
another, and each of its ends may be wrong by an eighth of a period.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

SLOTS: Final = 64
"""Slots of a window, each a quarter of a period."""
MASK: Final = (1 << SLOTS) - 1


class Window(NamedTuple):
    """One window in which something was heard, in nanoseconds of the listener's clock."""

    start: int
    length: int
    first: int
    last: int
    slots: int


class Heard(NamedTuple):
    """From one heartbeat to another, without a gap longer than allowed. ``error`` applies to either end."""

    first: int
    last: int
    error: int


def heard_stretches(windows: Iterable[Window], gap: int) -> list[Heard]:
    """Stretches without a silence of ``gap`` nanoseconds or more. Windows may be in any order."""
    found: list[Heard] = []
    for piece in sorted(piece for window in windows for piece in _pieces(window, gap)):
        if found and piece.first - found[-1].last < gap:
            before = found[-1]
            found[-1] = Heard(before.first, max(before.last, piece.last), max(before.error, piece.error))
        else:
            found.append(piece)
    return found


def _pieces(window: Window, gap: int) -> list[Heard]:
    """The window itself, or its parts between silences."""
    slot = window.length // SLOTS
    least = -(-gap // slot)
    if not _has_silence(window.slots & MASK, least):
        return [Heard(window.first, window.last, 0)]

    def middle(number: int) -> int:
        """The middle of a quarter, but not before the first heartbeat nor after the last."""
        return min(window.last, max(window.first, window.start + number * slot + slot // 2))

    taken = [number for number in range(SLOTS) if window.slots >> number & 1]
    found, first, error = [], window.first, 0
    for before, after in pairwise(taken):
        if after - before >= least:
            found.append(Heard(first, max(first, middle(before)), slot // 2))
            first, error = middle(after), slot // 2
    found.append(Heard(first, max(first, window.last), error))
    return found


def _has_silence(slots: int, least: int) -> bool:
    """True if some occupied quarter is followed by the next one ``least`` later or more. Nearly all windows
    are complete, so this tests all quarters at once: each is spread over the ``least - 2`` quarters behind
    it."""
    spread, reach = slots, 1
    while reach < least - 1:
        step = min(reach, least - 1 - reach)
        spread |= spread << step
        reach += step
    between = (1 << slots.bit_length() >> 1) - (slots & -slots)
    return bool(between & ~spread)
