"""A large world in large pages.

A message of a hundred brokers meets some thirty objects that no cache near the core has kept, each on a page
of its own, and to find a page of four kilobytes among a hundred thousand costs the processor as much again,
in a virtual machine most of all. In pages of two megabytes the same messages take a seventh less time.

The interpreter asks the kernel for small pages, so a world that grows large has its memory put together
(``MADV_COLLAPSE``, since Linux 6.1). Nothing that is simulated can tell; where the kernel cannot do it, or
will not, all stays as it was.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HUGE_BYTES: Final = 2 << 20
LARGE_BYTES: Final = 128 << 20
"""A process that has less fits what the processor remembers of pages well enough."""
STEP_BYTES: Final = 32 << 20
"""It is done again whenever so much has been added. A gigabyte takes about three seconds."""

_MADV_COLLAPSE: Final = 25
_ANONYMOUS: Final = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) rw-p 00000000 00:00 0 +(?:\[heap\])?$", re.MULTILINE
)
"""In ``/proc/self/maps``: private memory without a file."""


class HugePages:
    """Of one world: whoever runs it calls `look` now and then."""

    __slots__ = ("_next_bytes",)

    def __init__(self) -> None:
        self._next_bytes = max(LARGE_BYTES, resident_bytes() + STEP_BYTES)

    def look(self) -> bool:
        """Put the memory together if it has grown enough; returns whether that was done."""
        now_bytes = resident_bytes()
        if now_bytes < self._next_bytes:
            return False
        self._next_bytes = now_bytes + STEP_BYTES
        return collapse() > 0


def resident_bytes() -> int:
    """What this process has in memory; 0 where that is not told."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def collapse() -> int:
    """Put this process' memory into huge pages; returns how many bytes are in such now, as far as known."""
    try:
        madvise = ctypes.CDLL(None).madvise
        maps = Path("/proc/self/maps").read_text()
    except (OSError, AttributeError):
        return 0
    return sum(
        size
        for start, size in aligned(maps)
        if madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_COLLAPSE) == 0
    )


def aligned(maps: str) -> Iterator[tuple[int, int]]:
    """Start and size of what can be in huge pages, of memory as ``/proc/self/maps`` tells it."""
    for first, last in _ANONYMOUS.findall(maps):
        start = -(-int(first, 16) // HUGE_BYTES) * HUGE_BYTES
        end = int(last, 16) // HUGE_BYTES * HUGE_BYTES
        if start < end:
            yield start, end - start
