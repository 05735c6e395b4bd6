"""Memory in large pages: what is collapsed, and when."""

from __future__ import annotations

import mmap

import pytest

from simulations.kernel import huge_pages
from simulations.kernel.huge_pages import HUGE_BYTES, LARGE_BYTES, STEP_BYTES, HugePages, aligned, collapse

MAPS = """\
55d0c0000000-55d0c0021000 r-xp 00000000 08:01 1234                       /usr/bin/python3
55d0c1000000-55d0c1600000 rw-p 00000000 00:00 0                          [heap]
7f0000100000-7f0000500000 rw-p 00000000 00:00 0 
7f0000600000-7f0000700000 rw-p 00000000 00:00 0 
7f0000800000-7f0000c00000 r--p 00000000 00:00 0 
7f0001000000-7f0001400000 rw-p 00000000 08:01 99                         /tmp/file
7f0001600000-7f0001a00000 rw-s 00000000 00:00 0 
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0                          [stack]
"""  # noqa: W291  # as the kernel writes it


def test_only_whole_large_pages_of_own_memory_are_collapsed() -> None:
    assert list(aligned(MAPS)) == [(0x55D0C1000000, 6 << 20), (0x7F0000200000, 2 << 20)]


def test_memory_is_collapsed_when_a_process_is_large_and_at_every_step_of_growth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size, calls = [0], []
    monkeypatch.setattr(huge_pages, "resident_bytes", lambda: size[0])
    monkeypatch.setattr(huge_pages, "collapse", lambda: calls.append(size[0]) or HUGE_BYTES)
    pages = HugePages()
    for size[0] in (LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + STEP_BYTES - 1, LARGE_BYTES + STEP_BYTES):
        pages.look()
    assert calls == [LARGE_BYTES, LARGE_BYTES + STEP_BYTES]


def test_a_world_in_a_large_process_counts_only_the_memory_that_it_adds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = [4 * LARGE_BYTES]
    monkeypatch.setattr(huge_pages, "resident_bytes", lambda: size[0])
    monkeypatch.setattr(huge_pages, "collapse", lambda: HUGE_BYTES)
    pages = HugePages()
    assert not pages.look()
    size[0] += STEP_BYTES
    assert pages.look()


def test_collapsing_changes_no_content_whether_the_kernel_supports_it_or_not() -> None:
    """And if it can, some of it is in huge pages now."""
    with mmap.mmap(-1, 8 * HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = bytes(range(256)) * (8 * HUGE_BYTES // 256)
        assert collapse() >= 0
        assert memory[:] == bytes(range(256)) * (8 * HUGE_BYTES // 256)
