"""Messages from a broker's answers to ``export``. Pure.

A page has rows. A row has a sealed block, or some pieces of a large body. Its other pieces are on the next
pages.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mesh.errors import BlockError
from mesh.wire import blocks
from mesh.wire.blocks import HeaderValue


@dataclass(frozen=True, slots=True)
class Message:
    """One message that waits."""

    about: dict[str, Any]
    body: bytes
    headers: dict[str, HeaderValue]


class Exported:
    """Pieces of large bodies, gathered from several pages."""

    def __init__(self) -> None:
        self.assembler = blocks.Assembler()


def exported(page: Mapping[str, Any], reading: Exported) -> Iterator[Message | str]:
    """The messages of a page that are not settled, and a sentence for each row that cannot be read."""
    for row in page.get("rows") or ():
        if "damaged" in row:
            yield f"row {row.get('row')} cannot be read: {row['damaged']}"
            continue
        try:
            yield from _messages(row, reading)
        except (BlockError, ValueError, KeyError, TypeError, IndexError) as error:
            yield f"row {row.get('row')} cannot be read: {error}"


def _messages(row: Mapping[str, Any], reading: Exported) -> Iterator[Message]:
    settled = int.from_bytes(b64decode(row["bitmap"]), "little") << row["floor"] | ((1 << row["floor"]) - 1)
    for encoded in row["blocks"]:
        opened = blocks.open_block(b64decode(encoded))
        if opened.whole_size:
            whole = reading.assembler.add(opened)
            if whole is not None:
                yield _message(row, opened, 0, *whole)
            continue
        for index, body in enumerate(opened.bodies):
            if not settled >> index & 1:
                headers = opened.headers[index] if opened.headers else b""
                yield _message(row, opened, index, bytes(body), headers)


def _message(
    row: Mapping[str, Any], opened: blocks.Opened, index: int, body: bytes, headers: bytes
) -> Message:
    arrived = datetime.fromtimestamp(row["arrived_us"] / 1e6, UTC).isoformat(timespec="milliseconds")
    about = {
        "id": f"{opened.publisher:016x}-{opened.boot:x}-{opened.sequence + index}",
        "topic": opened.topic.decode(),
        "arrived": arrived.replace("+00:00", "Z"),
        "attempts": row["attempts"].get(str(index), 0),
    }
    return Message(about, body, blocks.unpack_headers(headers) or {})
