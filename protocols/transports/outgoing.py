"""Output that waits for the kernel, handed out a piece at a time.

asyncio's transport copies whatever the kernel does not take at once, so a message of 64 MiB given to it
whole is in memory three times. A connection gives it no more than a `PIECE` beyond that and keeps the rest
here: the codec's buffers, made as they are asked for, and what is left of the one under way.

What the codec owes the peer meanwhile (an alert, a pong) waits for the end of that buffer, which may be in
the middle of a frame or of a TLS record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

PIECE: Final = 524288
"""Larger than the buffers that codecs put together of several frames, which so go out whole."""


def limit_hint(size: int) -> str:
    """What a lost connection adds to its reason when a buffer above a `PIECE` was the last large one written;
    0: none was."""
    return f"; the last large message sent has {size} bytes, is that above its limit?" if size else ""


class Outgoing:
    """The buffers of one flush, from ``first`` on."""

    __slots__ = ("_buffers", "_owed", "_position", "_under_way")

    def __init__(self, first: bytes, buffers: Iterator[bytes]) -> None:
        self._under_way: memoryview | None = memoryview(first) if first else None
        self._position = 0
        self._buffers = buffers
        self._owed = b""

    @property
    def inside_buffer(self) -> bool:
        """True while a buffer has been handed out in part."""
        return self._under_way is not None

    def owe(self, reply: bytes) -> None:
        """Put this behind the buffer under way."""
        self._owed += reply

    def next_piece(self) -> bytes | memoryview | None:
        """What to write next; None: nothing is left."""
        if self._under_way is None:
            buffer: bytes | None = self._owed
            if buffer:
                self._owed = b""
            else:
                buffer = next(self._buffers, None)
            if buffer is None or len(buffer) <= PIECE:
                return buffer
            self._under_way = memoryview(buffer)
            self._position = 0
        piece = self._under_way[self._position : self._position + PIECE]
        self._position += len(piece)
        if self._position == len(self._under_way):
            self._under_way = None  # even an empty view would keep all of it in memory
        return piece
