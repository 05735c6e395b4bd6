"""The content of a file that is written in place, such as a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from simulations.kernel.file_content import FileContent

SECTOR: Final = 4096
ZEROS: Final = bytes(SECTOR)

Sectors = Sequence[tuple[int, bytes]]
"""Whole sectors by number."""


class SectorContent(FileContent):
    """Bytes that are written at any offset. Sectors of zeros take no memory."""

    __slots__ = ("_sectors", "_size")

    def __init__(self, data: bytes = b"") -> None:
        self._sectors: list[bytes] = []
        self._size = 0
        self.write(0, data)

    def __len__(self) -> int:
        return self._size

    @property
    def stored(self) -> int:
        return sum(len(sector) for sector in self._sectors if sector is not ZEROS)

    def pieces(self, start: int = 0) -> Iterator[bytes]:
        for number in range(start // SECTOR, len(self._sectors)):
            first = max(start - number * SECTOR, 0)
            yield self._sectors[number][first : self._size - number * SECTOR]

    def read(self, offset: int, size: int) -> bytes:
        """So many bytes, fewer at the end of the file."""
        end = min(offset + size, self._size)
        if end <= offset:
            return b""
        first = offset // SECTOR
        joined = b"".join(self._sectors[first : (end - 1) // SECTOR + 1])
        return joined[offset - first * SECTOR : end - first * SECTOR]

    def write(self, offset: int, data: bytes) -> None:
        """Bytes between the end of the file and ``offset`` are zeros."""
        self.put(overwritten(self.sector, offset, data), offset + len(data) if data else 0)

    def append(self, data: bytes) -> None:
        self.write(self._size, data)

    def resize(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""
        whole, rest = divmod(size, SECTOR)
        count = whole + bool(rest)
        if count > len(self._sectors):
            self._sectors += [ZEROS] * (count - len(self._sectors))
        del self._sectors[count:]
        if rest:
            self._sectors[whole] = self._sectors[whole][:rest] + ZEROS[rest:]
        self._size = size

    def cut(self, size: int) -> None:
        self.resize(min(size, self._size))

    def flip(self, bit: int) -> None:
        number, within = divmod(bit // 8, SECTOR)
        sector = bytearray(self._sectors[number])
        sector[within] ^= 1 << bit % 8
        self._sectors[number] = bytes(sector)

    def sector(self, number: int) -> bytes:
        """A whole sector; after the end of the file there are zeros."""
        return self._sectors[number] if number < len(self._sectors) else ZEROS

    def put(self, sectors: Sectors, size: int) -> None:
        """Replace sectors; the file then has at least that size."""
        mine = self._sectors
        for number, sector in sectors:
            if number < len(mine):
                mine[number] = sector
            else:
                mine += [ZEROS] * (number - len(mine))
                mine.append(sector)
        if size > self._size:
            self._size = size

    def copy(self) -> SectorContent:
        same = SectorContent()
        same._sectors = self._sectors.copy()
        same._size = self._size
        return same


def overwritten(sector_of: Callable[[int], bytes], offset: int, data: bytes) -> Sectors:
    """The sectors that a write changes, with their new content."""
    found: list[tuple[int, bytes]] = []
    number, within = divmod(offset, SECTOR)
    at, size = 0, len(data)
    while at < size:
        part = data[at : at + SECTOR - within]
        if len(part) < SECTOR:
            old = sector_of(number)
            part = old[:within] + part + old[within + len(part) :]
        found.append((number, ZEROS if part == ZEROS else part))
        at += SECTOR - within
        number, within = number + 1, 0
    return found
