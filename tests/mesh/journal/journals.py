"""Shortcuts to open a journal and to put something into it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mesh.journal.journal import Journal
from mesh.journal.records import Answer, Damaged, Entry, Store, Subscribe, Waiting
from mesh.wire import blocks

BROKER = "b0"
MESH = "m"
NOW_US = 1_700_000_000_000_000


def opened(folder: Path, **given: Any) -> Journal:
    """The journal of a folder."""
    how: dict[str, Any] = {"broker": BROKER, "mesh": MESH, "now_us": NOW_US} | given
    return Journal.open(str(folder / "journal.db"), **how)


def done(journal: Journal, *entries: Entry, now_us: int = NOW_US) -> Sequence[Answer]:
    """The answers to one commit."""
    return journal.commit(entries, now_us)


def subscribed(journal: Journal, name: str = "mail", *patterns: str) -> int:
    (answer,) = done(journal, Subscribe(name, patterns or ("jobs.#",)))
    return answer.subscription


def sealed(first: int, count: int = 1, *, publisher: int = 1, boot: int = 1, body: bytes = b"body") -> bytes:
    """A block of messages that differ."""
    bodies = [body + b" %d" % number for number in range(first, first + count)]
    return blocks.seal(b"jobs.a", bodies, publisher=publisher, boot=boot, sequence=first)


def store(
    first: int,
    *wants: int,
    count: int = 1,
    publisher: int = 1,
    boot: int = 1,
    lowest: int = 0,
    body: bytes = b"body",
) -> Store:
    block = sealed(first, count, publisher=publisher, boot=boot, body=body)
    return Store(publisher, boot, first, first + count - 1, lowest, block, wants)


def pieces(first: int, *wants: int, body: bytes, headers: bytes = b"") -> list[Store]:
    """A large body as the blocks that its publisher sends."""
    made = blocks.seal_pieces(b"jobs.big", body, publisher=1, boot=1, sequence=first, headers=headers)
    return [Store(1, 1, first, first, 0, block, wants) for block in made]


def waiting(
    journal: Journal, subscription: int, after_row: int = 0, bytes_max: int = 1 << 24
) -> list[Waiting]:
    """All waiting messages, which must be undamaged."""
    rows: list[Waiting] = []
    for row in journal.read(subscription, after_row, bytes_max):
        assert not isinstance(row, Damaged), row
        rows.append(row)
    return rows


def bodies(journal: Journal, subscription: int) -> list[bytes]:
    """Bodies of the messages that wait and are not settled."""
    found: list[bytes] = []
    for row in waiting(journal, subscription):
        if row.parts:
            found.append(b"".join(piece(journal, part) for part in row.parts))
            continue
        settled = int.from_bytes(row.bitmap, "little") << row.floor | (1 << row.floor) - 1
        found += [
            bytes(body)
            for index, body in enumerate(blocks.open_block(row.block).bodies)
            if not settled >> index & 1
        ]
    return found


def piece(journal: Journal, row: int) -> bytes:
    """The content of a piece of a large body."""
    found = journal.fetch(row)
    assert not isinstance(found, Damaged), found
    return bytes(blocks.open_block(found.block).bodies[0])
