"""The record of what is settled of a row: it says so, or that it is damaged, and never anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.journal.checksums import of_waiting
from mesh.journal.progress import DAMAGED, checked, progress
from mesh.journal.records import Attempts, Settle, pack_attempts
from tests.mesh.journal.journals import done, opened, store, subscribed

FIELDS = (3, b"\x06", b"")


def test_a_record_with_its_crc_tells_what_is_settled() -> None:
    found = checked(1, 7, *FIELDS, of_waiting(1, 7, *FIELDS))
    assert found.sound and found.mask == 0b110111
    assert [found.settled_in(count) for count in (1, 3, 4, 6, 60)] == [1, 3, 3, 5, 5]


@pytest.mark.parametrize(
    "fields",
    [
        (4, b"\x06", b""),
        (3, b"\x04", b""),
        (3, b"\x06\x00", b""),
        (3, b"\x06", b"\x00\x00\x00\x01"),
        ("3", b"\x06", b""),
        (3, "5", b""),
        (3, b"\x06", None),
        (3.0, b"\x06", b""),
    ],
)
def test_a_record_that_was_changed_says_that_nothing_is_settled(fields: tuple[object, ...]) -> None:
    found = checked(1, 7, *fields, of_waiting(1, 7, *FIELDS))
    assert found == DAMAGED and not found.sound and found.mask == 0 == found.settled_in(60)


@pytest.mark.parametrize("crc", [None, "x", b"", 0, 5.0])
def test_a_record_without_its_crc_is_damaged(crc: object) -> None:
    assert checked(1, 7, *FIELDS, crc) == DAMAGED


@pytest.mark.parametrize("place", [(2, 7), (1, 8)])
def test_the_record_of_another_row_is_damaged(place: tuple[int, int]) -> None:
    assert checked(*place, *FIELDS, of_waiting(1, 7, *FIELDS)) == DAMAGED


def test_it_is_read_from_the_journal(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    mail = subscribed(journal)
    row = done(journal, store(1, mail, count=60))[0].row
    done(journal, Settle(mail, row, *FIELDS[:2]), Attempts(mail, row, {9: 2}))
    found = progress(journal._db, mail, row)
    assert found is not None and found == (True, 3, b"\x06", pack_attempts({9: 2}))
    assert progress(journal._db, mail, row + 1) is None is progress(journal._db, mail + 1, row)
    journal.close()
