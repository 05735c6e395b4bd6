"""A dead letter: a block of one message that says why it died.

The message keeps its topic, publisher, boot and number, so its id stays the same for workers on dead letters,
and after it is requeued. The reason goes into its headers. Without room for all of that, the reason is left
out first, then everything; the publisher's own headers stay.
"""

from __future__ import annotations

import struct
from typing import Final

from mesh.errors import BlockError
from mesh.wire import blocks
from mesh.wire.blocks import HeaderValue, Opened

SUBSCRIPTION: Final = "dead-in"
REASON: Final = "dead-reason"
ATTEMPTS: Final = "dead-attempts"
DIED_US: Final = "dead-at-us"
OURS: Final = (SUBSCRIPTION, REASON, ATTEMPTS, DIED_US)
REASON_MAX: Final = 1024
"""Characters of a reason that are kept."""


def bury(opened: Opened, index: int, *, subscription: str, reason: str, attempts: int, now_us: int) -> bytes:
    """The dead letter of message ``index`` of a block. Raises `BlockError` for a block without it."""
    told: dict[str, HeaderValue] = {
        SUBSCRIPTION: subscription,
        ATTEMPTS: attempts,
        DIED_US: now_us,
        REASON: reason[:REASON_MAX],
    }
    without = {name: value for name, value in told.items() if name != REASON}
    before = _headers(opened, index)
    for extra in (told, without):
        try:
            return _sealed(opened, index, blocks.pack_headers({**before, **extra}))
        except ValueError:
            continue
    return _sealed(opened, index, blocks.pack_headers(before))


def revive(opened: Opened) -> bytes:
    """The original message of a dead letter."""
    headers = {name: value for name, value in _headers(opened, 0).items() if name not in OURS}
    return _sealed(opened, 0, blocks.pack_headers(headers))


def _headers(opened: Opened, index: int) -> dict[str, HeaderValue]:
    if not 0 <= index < len(opened.bodies):
        raise BlockError(f"a block of {len(opened.bodies)} records has no record {index}")
    try:
        return dict(blocks.unpack_headers(opened.headers[index] if opened.headers else b"") or {})
    except BlockError:
        return {}  # unreadable anyway; the body is worth keeping


def _sealed(opened: Opened, index: int, headers: bytes) -> bytes:
    """A block with one message of another, or the same piece of a large body, with these headers."""
    body = opened.bodies[index]
    flags, size, table = blocks.layout([body], [headers] if headers else None)
    piece = b""
    if opened.whole_size:
        flags |= blocks.PIECE
        piece = struct.pack(">II", opened.whole_size, opened.offset)
    head = blocks.HEAD.pack(
        blocks.FORMAT,
        flags,
        opened.level,
        len(opened.topic),
        1,
        size,
        opened.sequence + (0 if opened.whole_size else index),
        opened.publisher,
        opened.boot,
    )
    return b"".join((head, opened.topic, piece, table, body))
