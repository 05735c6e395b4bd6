"""Short ways to open an outbox and to fill it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from mesh.outbox.outbox import Outbox
from mesh.outbox.records import OutboxBlock
from mesh.wire import blocks

NOW_US = 1_700_000_000_000_000


def opened(folder: Path, seed: int | str | None = None, **given: Any) -> Outbox:
    """The outbox of a folder; the same seed draws the same secret and boot."""
    how: dict[str, Any] = {"token": random.Random(seed).randbytes, "now_us": NOW_US} | given
    return Outbox.open(str(folder / "outbox.db"), **how)


def sealed(
    outbox: Outbox, first: int, count: int = 1, *, topic: bytes = b"a", body: bytes = b"body"
) -> bytes:
    """A block of different messages."""
    bodies = [body + b" %d" % number for number in range(first, first + count)]
    return blocks.seal(topic, bodies, publisher=outbox.publisher, boot=outbox.boot, sequence=first, level=1)


def appended(outbox: Outbox, *sealed_blocks: bytes) -> list[int]:
    """The rows that these blocks became."""
    return [row.row for row in outbox.append(sealed_blocks, NOW_US)]


def waiting(outbox: Outbox, after_row: int = 0, bytes_max: int = 1 << 30, **given: Any) -> list[OutboxBlock]:
    """The blocks that are not freed, all undamaged."""
    rows: list[OutboxBlock] = []
    for row in outbox.read(after_row, bytes_max, **given):
        assert isinstance(row, OutboxBlock), row
        rows.append(row)
    return rows


def numbers(outbox: Outbox) -> list[int]:
    """The first number of each waiting block."""
    return [row.first for row in waiting(outbox)]
