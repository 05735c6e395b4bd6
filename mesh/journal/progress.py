"""What a subscription has settled of a row: its record in ``waiting``, checked against damage.

The record of a row that nobody has settled anything of has floor 0 and no bitmap. So a damaged record counts
as one of nothing settled where it has to be changed: its messages may be delivered again, and none is lost.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import apsw

from mesh.database.settings import every
from mesh.journal import checksums
from mesh.journal.records import settled_in, settled_mask

COLUMNS: Final = "floor, bitmap, attempts, crc"
"""The columns of `checked`."""


class Progress(NamedTuple):
    """The settled messages of a row, and the attempts at others, as `records.pack_attempts` packs them."""

    sound: bool
    """False if the record is not what was stored. Then it says that nothing is settled."""
    floor: int
    bitmap: bytes
    attempts: bytes

    @property
    def mask(self) -> int:
        return settled_mask(self.floor, self.bitmap)

    def settled_in(self, count: int) -> int:
        """How many of ``count`` messages are settled."""
        return settled_in(count, self.floor, self.bitmap)


DAMAGED: Final = Progress(False, 0, b"", b"")


def checked(subscription: int, row: Any, floor: Any, bitmap: Any, attempts: Any, crc: Any) -> Progress:
    """The record of a row from its columns. `DAMAGED` if they do not have their CRC."""
    if (
        type(row) is int
        and type(floor) is int
        and type(bitmap) is bytes
        and type(attempts) is bytes
        and crc == checksums.of_waiting(subscription, row, floor, bitmap, attempts)
    ):
        return Progress(True, floor, bitmap, attempts)
    return DAMAGED


def progress(db: apsw.Connection, subscription: int, row: int) -> Progress | None:
    """The record of a row. None if the row does not wait in that subscription. Raises `apsw.CorruptError` if
    its columns cannot be read."""
    found = every(
        db, f"select {COLUMNS} from waiting where subscription = ? and row = ?", (subscription, row)
    )
    return checked(subscription, row, *found[0]) if found else None
