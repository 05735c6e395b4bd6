"""The content of a file of a virtual disk. An event log takes a ninth of its length.

Older content is kept compressed, in blocks: logs are written at the end and read once, and a heartbeat's row
resembles the one before. The end of the file stays uncompressed, so that short files and torn ends cost
nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

BLOCK: Final = 32 * 1024
"""Bytes that are compressed together; zlib looks back as far."""
LEVEL: Final = 3
"""zlib's level. 3 leaves a ninth of an event log, at 130 MB a second; 6 leaves a tenth, at 50."""


class FileContent:
    """Bytes that grow at the end. Blocks of `BLOCK` bytes come first, compressed; the rest is the tail."""

    __slots__ = ("_blocks", "_tail")

    def __init__(self, data: bytes = b"") -> None:
        self._blocks: list[bytes] = []
        self._tail = bytearray()
        self.append(data)

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK + len(self._tail)

    @property
    def stored(self) -> int:
        """The number of bytes it takes in memory."""
        return sum(map(len, self._blocks)) + len(self._tail)

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self, start: int = 0) -> Iterator[bytes]:
        """The content from that byte on, a block at a time."""
        first, skipped = divmod(start, BLOCK)
        if first < len(self._blocks):
            for number in range(first, len(self._blocks)):
                yield zlib.decompress(self._blocks[number])[skipped:]
                skipped = 0
            start = len(self._blocks) * BLOCK
        yield bytes(self._tail[start - len(self._blocks) * BLOCK :])

    def append(self, data: bytes) -> None:
        tail = self._tail
        tail += data
        if len(tail) >= 2 * BLOCK:
            done = len(tail) - len(tail) % BLOCK - BLOCK  # a torn end stays as it is
            for start in range(0, done, BLOCK):
                self._blocks.append(zlib.compress(tail[start : start + BLOCK], LEVEL))
            del tail[:done]

    def cut(self, size: int) -> None:
        """Keep so many bytes of the beginning."""
        whole, rest = divmod(size, BLOCK)
        if whole < len(self._blocks):
            self._tail = bytearray(zlib.decompress(self._blocks[whole]))
            del self._blocks[whole:]
        else:
            rest = size - len(self._blocks) * BLOCK
        del self._tail[rest:]

    def flip(self, bit: int) -> None:
        """Flip one bit."""
        number, within = divmod(bit // 8, BLOCK)
        if number < len(self._blocks):
            block = bytearray(zlib.decompress(self._blocks[number]))
            block[within] ^= 1 << bit % 8
            self._blocks[number] = zlib.compress(block, LEVEL)
        else:
            self._tail[bit // 8 - len(self._blocks) * BLOCK] ^= 1 << bit % 8
