"""When a broker was heard without a gap, from the windows of `heard`. Pure.

A window knows its first and last heartbeat to the nanosecond, and in which quarters of a period there was
one. So a gap between two windows is exact. One inside a window goes from the middle of a quarter to that of
another; each of its ends may be wrong by an eighth of a period.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

SLOTS: Final = 64
"""Of a window: each is a quarter of a period."""
MASK: Final = (1 << SLOTS) - 1


class Window(NamedTuple):
    """One window in which something was heard, in nanoseconds of the listener's clock."""

    start: int
    length: int
    first: int
    last: int
    slots: int


class Heard(NamedTuple):
    """From one heartbeat to another, with no gap longer than allowed between; ``error`` of either end."""

    first: int
    last: int
    error: int


def heard_stretches(windows: Iterable[Window], gap: int) -> list[Heard]:
    """Stretches without a silence of ``gap`` nanoseconds or more, windows in any order."""
    found: list[Heard] = []
    for piece in sorted(piece for window in windows for piece in _pieces(window, gap)):
        if found and piece.first - found[-1].last < gap:
            before = found[-1]
            found[-1] = Heard(before.first, max(before.last, piece.last), max(before.error, piece.error))
        else:
            found.append(piece)
    return found


def _pieces(window: Window, gap: int) -> list[Heard]:
    """The window itself, or what its silences leave of it."""
    slot = window.length // SLOTS
    least = -(-gap // slot)
    if not _has_silence(window.slots & MASK, least):
        return [Heard(window.first, window.last, 0)]

    def middle(number: int) -> int:
        """Of a quarter, but not before the first heartbeat nor after the last."""
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
    """Whether a quarter that is taken is followed by the next one ``least`` later or more. Nearly all windows
    are whole, so this looks at all quarters at once: each spreads over the ``least - 2`` behind it."""
    spread, reach = slots, 1
    while reach < least - 1:
        step = min(reach, least - 1 - reach)
        spread |= spread << step
        reach += step
    between = (1 << slots.bit_length() >> 1) - (slots & -slots)
    return bool(between & ~spread)
