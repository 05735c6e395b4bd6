"""Files of a virtual disk, and what a power loss leaves of them.

A `File` is appended to or replaced as a whole. A power loss removes its end from some byte on, as in file
systems that write data before sizes.

A `SectorFile` is written in place. Between two syncs the kernel writes sectors back in any order. So a power
loss keeps, loses or tears each sector written since, by seed:

* A torn sector is the new one up to some byte and the old one after that, or the other way round.
* A sector that is written again may have been written back before that.
* The size of the file is separate: it is the old one, the new one or one between.

A sync that fails drops its sectors, as Linux does (https://lwn.net/Articles/752063/). A reader still finds
the new bytes. No later sync writes them, and a power loss takes them, unless they are written again.
"""

from __future__ import annotations

import random
from typing import Final

from simulations.kernel.file_content import FileContent
from simulations.kernel.sectors import SECTOR, SectorContent, Sectors, overwritten

WRITTEN_BACK: Final = 0.25
"""The chance that a sector that is written again was written back meanwhile."""


class File:
    """``content`` is what a reader sees; its first ``durable`` bytes would survive a power loss."""

    __slots__ = ("content", "durable", "written_ns")

    def __init__(self, content: FileContent, durable: int) -> None:
        self.content = content
        self.durable = durable
        self.written_ns = 0

    def append(self, data: bytes) -> None:
        self.content.append(data)

    def sync(self) -> None:
        self.durable = len(self.content)

    def lose_power(self, rng: random.Random) -> None:
        """Forget a seeded part of the unsynced data."""
        self._keep(rng.randint(self.durable, len(self.content)))

    def tear(self, size: int) -> None:
        """Cut so many bytes off the end."""
        self._keep(max(0, len(self.content) - size))

    def _keep(self, size: int) -> None:
        self.content.cut(size)
        self.durable = min(self.durable, size)


class SectorFile(File):
    """A file that is written in place; ``durable`` is its size on the medium."""

    __slots__ = ("_dropped", "_unsynced", "locks", "sectors")

    def __init__(self, content: SectorContent | None = None) -> None:
        self.sectors = content if content is not None else SectorContent()
        super().__init__(self.sectors, len(self.sectors))
        self._unsynced: dict[int, bytes] = {}
        """For each sector written since the last sync: what the medium has of it."""
        self._dropped: dict[int, bytes] = {}
        """The same for sectors that no sync will write, since one failed."""
        self.locks: dict[object, int] = {}
        """SQLite's locks on it, and their holders."""

    @classmethod
    def of(cls, file: File) -> SectorFile:
        """The same file, to be written in place from now on."""
        data = bytes(file.content)
        same = cls(SectorContent(data[: file.durable]))
        same.append(data[file.durable :])
        same.written_ns = file.written_ns
        return same

    @property
    def dirty(self) -> int:
        """How many sectors a power loss may take."""
        return len(self._unsynced) + len(self._dropped)

    def write(self, offset: int, data: bytes, rng: random.Random | None = None) -> None:
        """See `put`."""
        self.put(overwritten(self.sectors.sector, offset, data), offset + len(data) if data else 0, rng)

    def put(self, sectors: Sectors, size: int, rng: random.Random | None = None) -> None:
        """Replace sectors; the file then has at least that size.

        ``rng`` decides what was written back meanwhile; without one, nothing was.
        """
        unsynced, dropped = self._unsynced, self._dropped
        for number, _ in sectors:
            if number not in unsynced:
                unsynced[number] = dropped.pop(number) if number in dropped else self.sectors.sector(number)
            elif rng is not None and rng.random() < WRITTEN_BACK:
                unsynced[number] = self.sectors.sector(number)
        self.sectors.put(sectors, size)

    def append(self, data: bytes) -> None:
        self.write(len(self.sectors), data)

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""
        for number in range(size // SECTOR, -(-len(self.sectors) // SECTOR)):
            if number not in self._unsynced and number not in self._dropped:
                self._unsynced[number] = self.sectors.sector(number)
        self.sectors.resize(size)

    def sync(self) -> None:
        super().sync()
        self._unsynced.clear()

    def drop(self) -> None:
        """A sync that fails."""
        self._dropped |= self._unsynced
        self._unsynced.clear()

    def lose_power(self, rng: random.Random) -> None:
        if not self.dirty and self.durable == len(self.sectors):
            return
        written, sectors = len(self.sectors), self.sectors
        size = rng.choice((self.durable, written, rng.randint(*sorted((self.durable, written)))))
        kept = rng.choice((0.0, 0.5, 0.9, 1.0))
        left = list(self._dropped.items())
        for number, old in sorted(self._unsynced.items()):
            if number * SECTOR >= written:
                left.append((number, old))  # it was cut off, and returns if its size does
            elif rng.random() >= kept:
                at = rng.choice((0, rng.randrange(SECTOR)))
                new = sectors.sector(number)
                left.append((number, rng.choice((new[:at] + old[at:], old[:at] + new[at:])) if at else old))
        sectors.put(left, 0)
        sectors.resize(size)
        self.durable = size
        self._unsynced.clear()
        self._dropped.clear()

    def copy(self) -> SectorFile:
        """A copy for another disk, without holders."""
        same = SectorFile(self.sectors.copy())
        same.durable, same.written_ns = self.durable, self.written_ns
        same._unsynced, same._dropped = self._unsynced.copy(), self._dropped.copy()
        return same

    def _keep(self, size: int) -> None:
        """Damage of the medium: nothing of it comes back."""
        super()._keep(size)
        for kept in (self._unsynced, self._dropped):
            for number in [number for number in kept if number * SECTOR >= size]:
                del kept[number]
