"""Flipped bits in an outbox: a block is sent as what it is, or named, and never freed for another."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mesh.errors import OutboxDamaged, OutboxFailed
from mesh.outbox.outbox import ROW_COST
from mesh.outbox.records import Damaged, Holding
from tests.mesh.outbox.outboxes import appended, numbers, opened, sealed, waiting


def filled(folder: Path) -> list[bytes]:
    """An outbox with three blocks, closed; returns them."""
    outbox = opened(folder, 1)
    made = [sealed(outbox, first, 2, topic=b"a") for first in (1, 3, 5)]
    appended(outbox, *made)
    outbox.close()
    return made


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "outbox.db")) as db, db:
        db.execute(statement)


@pytest.mark.parametrize(
    "field",
    ["first = 3", "last = 6", "last = 1 << 40", "boot = 7", "topic = x'62'", "topic = 'a'", "first = 'x'"],
)
def test_a_block_is_known_by_its_own_head(tmp_path: Path, field: str) -> None:
    """With the numbers of another block in its row, a block was freed when the other one was stored."""
    made = filled(tmp_path)
    change(tmp_path, f"update block set {field} where row = 1")
    outbox = opened(tmp_path, 2)
    found = waiting(outbox)
    assert [(it.row, it.first, it.last, it.topic, it.block) for it in found] == [
        (row, first, first + 1, b"a", block)
        for row, (first, block) in enumerate(zip((1, 3, 5), made, strict=True), 1)
    ]
    assert len({it.boot for it in found}) == 1
    outbox.close()


@pytest.mark.parametrize("field", ["first = 'x'", "last = x'00'", "boot = 'x'", "crc = 'x'", "data = 7"])
def test_a_damaged_row_whose_numbers_are_none_is_named(tmp_path: Path, field: str) -> None:
    filled(tmp_path)
    change(tmp_path, "update block set crc = crc + 1 where row = 2")
    change(tmp_path, f"update block set {field} where row = 2")
    outbox = opened(tmp_path, 2)
    one, damaged, three = outbox.read(0, 1 << 20)
    assert isinstance(damaged, Damaged) and damaged.row == 2 and (one.row, three.row) == (1, 3)
    assert all(type(number) is int for number in (damaged.boot, damaged.first, damaged.last))
    outbox.close()


def redeclare(folder: Path, before: str, after: str) -> None:
    """Change the declaration of a table, but none of its rows."""
    with closing(sqlite3.connect(folder / "outbox.db")) as db, db:
        db.execute("pragma writable_schema = on")
        db.execute("update sqlite_master set sql = replace(sql, ?, ?)", (before, after))


def test_a_block_that_became_null_is_named(tmp_path: Path) -> None:
    """It was a TypeError at each read."""
    filled(tmp_path)
    redeclare(tmp_path, "data blob not null)", "data blob)")
    change(tmp_path, "update block set data = null where row = 2")
    redeclare(tmp_path, "data blob)", "data blob not null)")
    outbox = opened(tmp_path, 2)
    one, damaged, three = outbox.read(0, 1 << 20)
    assert isinstance(damaged, Damaged) and (one.row, damaged.row, three.row) == (1, 2, 3)
    outbox.close()


@pytest.mark.parametrize("field", ["size = 'x'", "messages = x'00'", "appended_us = 'x'"])
def test_a_figure_of_a_block_that_is_no_number_keeps_nothing_from_being_freed(
    tmp_path: Path, field: str
) -> None:
    """It was a TypeError at each read or when the block was freed, and again after each opening."""
    filled(tmp_path)
    change(tmp_path, f"update block set {field} where row = 1")
    outbox = opened(tmp_path, 2)
    assert numbers(outbox) == [1, 3, 5]
    outbox.free([(1, 3)])
    assert numbers(outbox) == [] and outbox.failure is None
    outbox.close()


@pytest.mark.parametrize("bit", range(7))
def test_a_flipped_bit_in_a_key_sets_the_outbox_aside_or_hides_nothing(tmp_path: Path, bit: int) -> None:
    """A reader went on behind the number that the bit had made, past blocks that nobody had sent."""
    made = filled(tmp_path)
    path = tmp_path / "outbox.db"
    data = bytearray(path.read_bytes())
    head = bytes([2, 11, 0, 6])  # of the cell: its key, the size of the head, no key there, a boot of 8 bytes
    assert data.count(head) == 1
    data[data.index(head)] ^= 1 << bit
    path.write_bytes(data)
    outbox = opened(tmp_path, 2)
    try:
        found = waiting(outbox)
    except OutboxFailed as error:
        assert "out of order" in str(error) and not path.exists()
    else:
        hidden = outbox.holding.blocks - len(found)
        assert {it.block for it in found} <= set(made) and len(found) + hidden == len(made), "it is counted"
    outbox.close()


@pytest.mark.parametrize(
    "statement, why",
    [
        ("delete from total", "totals"),
        ("update total set size = 'x'", "instead of a number"),
        ("update block set row = 0x7fffffffffffffff where row = 3", "number of a row"),
    ],
)
def test_an_outbox_with_impossible_numbers_is_set_aside(tmp_path: Path, statement: str, why: str) -> None:
    """It was an error of Python at each opening, or at each append."""
    filled(tmp_path)
    change(tmp_path, statement)
    with pytest.raises(OutboxDamaged, match=f"{why}.* set aside"):
        opened(tmp_path, 2)
    opened(tmp_path, 2).close()


def test_wrong_totals_end_when_an_empty_outbox_is_opened(tmp_path: Path) -> None:
    """The outbox was full for good although nothing lay in it."""
    filled(tmp_path)
    change(tmp_path, "delete from block")
    change(tmp_path, "update total set size = 1 << 40, blocks = 3")
    outbox = opened(tmp_path, 2)
    assert outbox.holding == Holding(0, 0, 0)
    block = sealed(outbox, 1)
    appended(outbox, block)
    assert outbox.holding == Holding(1, 1, len(block) + ROW_COST)
    outbox.close()
