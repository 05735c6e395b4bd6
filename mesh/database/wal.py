"""Finds damage in the write-ahead log of a database, which SQLite does not report.

At opening, SQLite replays frames up to the first one whose checksum fails and ignores the rest. That is right
for a commit that a crash cut short, but wrong for a flipped bit: every synced commit behind it vanishes while
``integrity_check`` says ok. Two facts distinguish the cases:

* Commit n+1 is written only after commit n was synced. So behind a frame of an *unfinished* commit there is
  at most the end of that commit.
* Each frame carries a checksum that continues that of the frame before it. Frames that continue each other
  are a *run*: they were written one after the other, as one history.

**A run with two commits in it, at or behind a bad frame, is damage.** A run begins at any frame of the log's
generation (its two salts) and extends while frames continue it. The remains of failed or unfinished commits
do not continue anything written later, so each such remainder is a run of one commit. Damage in the last
commit of a log looks the same, and is not found.

A frame continues its predecessor if its checksum follows from the one stored there, or from the one that
should be stored there, since a bit can flip in the checksum too. No checksum covers its salts. So a frame
that continues its predecessor belongs to the log whatever its salts, unless a neighbour has the same other
salts: then both are of an older generation. A frame's head may be torn between its salts and its checksum, so
that frames of that generation continue it.

SQLite ignores a log as a whole if the header fails its checksum. A power loss tears the header only while the
log is being restarted, and then the database holds everything that is in the frames. So the opener of the
database compares it with `Scan.ignored`, which has the pages as the last commit left them.

If SQLite assumes that a device damages the neighbours of overwritten data, it fills the last sector with
copies of the commit's last frame. A copy is not a commit of its own.

Format: https://sqlite.org/fileformat2.html#walformat. Pure: bytes in, a verdict out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

HEADER: Final = struct.Struct(">8I")
FRAME: Final = struct.Struct(">6I")
MAGIC: Final = 0x377F0682
"""With 1 added, words are summed in big-endian order."""
VERSION: Final = 3007000
PAGE_SIZES: Final = tuple(1 << bits for bits in range(9, 17))

Sum = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of scanning a log."""

    frames: int
    """Frames that SQLite replays: those of the commits before the first bad frame."""
    pages: frozenset[int]
    """The pages in these frames, by number from 1."""
    damaged_at: int | None = None
    """Offset of a bad frame, or of a bad header, with commits behind it."""
    lost: int = 0
    """Commits that SQLite would ignore because of it; at least 1 if there is damage."""
    ignored: Mapping[int, memoryview] = field(default_factory=dict)
    """Behind a bad header: the pages of the commits up to the first bad frame, as the last commit left them.
    If the database holds the same, the log was being restarted, and nothing is lost."""


def scan(data: bytes, page_size: int) -> Scan:
    """Judge a whole -wal file. ``page_size`` is the database's, for a log that does not name it."""
    if len(data) < HEADER.size:
        return Scan(0, frozenset())
    magic, version, size, _, *salts, stored0, stored1 = HEADER.unpack_from(data)
    known = magic in (MAGIC, MAGIC + 1) and version == VERSION and size in PAGE_SIZES
    log = _Log(data, size if known else page_size, magic == MAGIC + 1)
    stored = (stored0, stored1)
    if not known or log.sum(data[:24], (0, 0)) != stored:
        return _without_header(log, stored)
    salt = (salts[0], salts[1])
    committed = at = 0
    before = stored
    pages: list[int] = []
    while at < log.count:
        frame = log.frame(at)
        if frame.salts != salt or not frame.page or log.sum_of(at, before) != frame.sum:
            break
        before = frame.sum
        pages.append(frame.page)
        at += 1
        if frame.commit:
            committed = at
    most, lost = _runs(log, at, before, salt)
    damaged_at = log.offset(at) if most > 1 else None
    return Scan(committed, frozenset(pages[:committed]), damaged_at, lost if most > 1 else 0)


@dataclass(frozen=True, slots=True)
class _Frame:
    page: int
    commit: int
    """Number of pages of the database after this commit; 0 for a frame that ends none."""
    salts: tuple[int, int]
    sum: Sum


class _Log:
    """The frames of a log by number."""

    def __init__(self, data: bytes, page_size: int, big: bool) -> None:
        self.data = data
        self.step = FRAME.size + page_size
        self.count = max(0, (len(data) - HEADER.size) // self.step)
        self._order = ">" if big else "<"

    def offset(self, index: int) -> int:
        return HEADER.size + index * self.step

    def frame(self, index: int) -> _Frame:
        page, commit, salt0, salt1, sum0, sum1 = FRAME.unpack_from(self.data, self.offset(index))
        return _Frame(page, commit, (salt0, salt1), (sum0, sum1))

    def body(self, index: int) -> bytes:
        return self.data[self.offset(index) + FRAME.size : self.offset(index + 1)]

    def sum_of(self, index: int, before: Sum, commit: int | None = None) -> Sum:
        """The checksum that a frame should have behind ``before``, or would have with another ``commit``."""
        at = self.offset(index)
        head = self.data[at : at + 8]
        if commit is not None:
            head = head[:4] + commit.to_bytes(4, "big")
        return self.sum(head + self.body(index), before)

    def sum(self, data: bytes, seed: Sum) -> Sum:
        one, two = seed
        words = iter(_words(self._order, len(data)).unpack(data))
        for first, second in zip(words, words, strict=True):
            one = (one + first + two) & 0xFFFFFFFF
            two = (two + second + one) & 0xFFFFFFFF
        return one, two


@lru_cache(maxsize=8)  # a memo of a pure function
def _words(order: str, size: int) -> struct.Struct:
    return struct.Struct(f"{order}{size // 4}I")


def _runs(log: _Log, start: int, before: Sum, salts: tuple[int, int]) -> tuple[int, int]:
    """The most commits in one run of the frames from ``start``, and the commits in all runs."""
    most = in_all = here = 0
    for index, commits, linked in _links(log, start, before, salts):
        if not linked:
            here = 0
        if commits and not _is_copy(log, index, linked):
            here += 1
            in_all += 1
        most = max(most, here)
    return most, in_all


def _links(log: _Log, start: int, before: Sum, salts: tuple[int, int]) -> Iterator[tuple[int, bool, bool]]:
    """For each frame of this generation from ``start``: its number, whether it ends a commit, and whether it
    continues its predecessor."""
    seeds = {before}
    for index in range(start, log.count):
        frame = log.frame(index)
        sums = {log.sum_of(index, seed) for seed in seeds}
        linked = frame.sum in sums
        if frame.salts != salts and (not linked or _has_kin(log, index)):
            seeds = set()  # of an older generation, or no frame at all: nothing continues it
            continue
        ends = bool(frame.commit)
        if ends and not linked:  # the flipped bit may be the one that marks the end
            ends = all(log.sum_of(index, seed, commit=0) != frame.sum for seed in seeds)
        yield index, ends, linked
        seeds = {frame.sum} if linked else {frame.sum, *sums}


def _has_kin(log: _Log, index: int) -> bool:
    """True if a frame next to this one has the same salts."""
    salts = log.frame(index).salts
    return any(0 <= each < log.count and log.frame(each).salts == salts for each in (index - 1, index + 1))


def _is_copy(log: _Log, index: int, linked: bool) -> bool:
    """True if a frame that ends a commit is a copy of its predecessor, made to fill a sector."""
    if not linked or not index:
        return False
    frame, last = log.frame(index), log.frame(index - 1)
    return (frame.page, frame.commit) == (last.page, last.commit) and log.body(index) == log.body(index - 1)


def _without_header(log: _Log, stored: Sum) -> Scan:
    """The verdict on a log with an invalid header, all of which SQLite ignores."""
    if not log.count:
        return Scan(0, frozenset())
    salts = log.frame(0).salts
    _, commits = _runs(log, 0, stored, salts)
    if not commits:
        return Scan(0, frozenset())
    return Scan(0, frozenset(), 0, commits, _committed(log, salts))


def _committed(log: _Log, salts: tuple[int, int]) -> dict[int, memoryview]:
    """The pages as the commits at the beginning of a log left them. Frame 0 is trusted: its checksum follows
    from the header."""
    data = memoryview(log.data)
    pages: dict[int, memoryview] = {}
    unfinished: dict[int, memoryview] = {}
    before = log.frame(0).sum
    for index in range(log.count):
        frame = log.frame(index)
        if index and (frame.salts != salts or log.sum_of(index, before) != frame.sum):
            break
        before = frame.sum
        unfinished[frame.page] = data[log.offset(index) + FRAME.size : log.offset(index + 1)]
        if frame.commit:
            pages |= unfinished
            unfinished = {}
    return pages
