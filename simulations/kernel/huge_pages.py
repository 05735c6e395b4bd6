"""Puts a large world into large pages.

A message of a hundred brokers touches about thirty objects outside the near caches, each on a different page.
To find a page of four kilobytes among a hundred thousand costs the processor as much again, especially in a
virtual machine. In pages of two megabytes the same messages take a seventh less time.

The interpreter asks the kernel for small pages, so the memory of a world that grows large is collapsed into
huge pages (``MADV_COLLAPSE``, since Linux 6.1). The simulation cannot notice. If the kernel cannot or will
not do it, nothing changes.
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
"""A process with less memory gains nothing: the processor can cache enough of its pages."""
STEP_BYTES: Final = 32 << 20
"""The growth after which it is repeated. A gigabyte takes about three seconds."""

_MADV_COLLAPSE: Final = 25
_ANONYMOUS: Final = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) rw-p 00000000 00:00 0 +(?:\[heap\])?$", re.MULTILINE
)
"""In ``/proc/self/maps``: private memory without a file."""


class HugePages:
    """For one world: its runner calls `look` now and then."""

    __slots__ = ("_next_bytes",)

    def __init__(self) -> None:
        self._next_bytes = max(LARGE_BYTES, resident_bytes() + STEP_BYTES)

    def look(self) -> bool:
        """Collapse the memory if it has grown enough; return True if that was done."""
        now_bytes = resident_bytes()
        if now_bytes < self._next_bytes:
            return False
        self._next_bytes = now_bytes + STEP_BYTES
        return collapse() > 0


def resident_bytes() -> int:
    """The resident memory of this process; 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def collapse() -> int:
    """Put this process's memory into huge pages; return how many bytes are now in such, as far as known."""
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
    """Start and size of the part that can be in huge pages, from a line of ``/proc/self/maps``."""
    for first, last in _ANONYMOUS.findall(maps):
        start = -(-int(first, 16) // HUGE_BYTES) * HUGE_BYTES
        end = int(last, 16) // HUGE_BYTES * HUGE_BYTES
        if start < end:
            yield start, end - start
