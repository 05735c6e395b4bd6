"""Output that waits for the kernel, handed out one piece at a time.

asyncio's transport copies whatever the kernel does not take at once, so a message of 64 MiB given to it whole
is in memory three times. A connection gives it at most one `PIECE` more than the kernel takes, and keeps the
rest here: the codec's buffers, made on demand, and the remainder of the current one.

Replies that the codec owes the peer meanwhile (an alert, a pong) wait for the end of that buffer: it may be
in the middle of a frame or of a TLS record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

PIECE: Final = 524288
"""Larger than the buffers that codecs build from several frames, so that those go out whole."""


def limit_hint(size: int) -> str:
    """An addition to the reason of a lost connection, if the last large write had a buffer above a `PIECE`;
    0: none had.
    """
    return f"; the last large message sent has {size} bytes, is that above its limit?" if size else ""


class Outgoing:
    """The buffers of one flush, beginning with ``first``."""

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
        """Put this after the current buffer."""
        self._owed += reply

    def next_piece(self) -> bytes | memoryview | None:
        """What to write next; None if nothing is left."""
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
