"""A CRC changes with everything that it covers, and is a number that SQLite stores in four bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mesh.journal.checksums import of_block, of_part, of_publisher, of_subscription, of_waiting


@pytest.mark.parametrize(
    "checksum, fields",
    [
        (of_block, (7, 1_700_000_000_000_000, 64, 4096, 0, b"\x00\x00\x00\x01", 0xFFFFFFFF)),
        (of_waiting, (1, 7, 3, b"\x05", b"\x00\x04\x00\x01")),
        (of_publisher, (7, -9, 5)),
        (of_part, (-(1 << 63), (1 << 63) - 1, 5, 0, 7, 65_536, 1 << 24)),
        (of_subscription, (1, b"mail", b"jobs.#\nlog.#", 1_700_000_000_000_000)),
    ],
)
def test_a_flipped_bit_in_any_field_changes_the_crc(checksum: Callable[..., int], fields: Any) -> None:
    made = checksum(*fields)
    assert -(1 << 31) <= made < 1 << 31
    for place, field in enumerate(fields):
        if isinstance(field, bytes):
            others = [bytes([field[0] ^ 1 << bit]) + field[1:] for bit in range(8)] + [field + b"\x00"]
        else:
            others = [field ^ 1 << bit for bit in range(31)]
        for other in others:
            assert checksum(*fields[:place], other, *fields[place + 1 :]) != made


def test_bytes_that_move_from_one_field_to_the_next_change_the_crc() -> None:
    assert of_waiting(1, 7, 3, b"\x05\x00", b"\x04\x00\x01") != of_waiting(
        1, 7, 3, b"\x05", b"\x00\x04\x00\x01"
    )
    assert of_subscription(1, b"mail", b"s.#", 5) != of_subscription(1, b"mails", b".#", 5)
