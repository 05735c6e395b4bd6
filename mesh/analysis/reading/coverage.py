"""Which bytes of which files a store covers, and what still has to be read. Pure.

A file is identified by its stem, its name without ``.part``, which stays when its broker finishes it. A
growing file is covered up to its last complete line. It is read anew, as its next generation, if it is
shorter than the covered part, or begins with another line. A finished file that neither grew nor was touched
is not opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from mesh.analysis.reading.finding import LogFile

GROWING: Final = ".part"
MERGED: Final = 16
"""So many batches of one size become one of the next size. A row is rewritten as often as there are sizes."""


class Seen(msgspec.Struct, frozen=True):
    """One file, as it was when last read."""

    stem: str
    generation: int
    covered: int
    """Bytes whose lines are in the store, for this generation."""
    bytes: int
    modified_us: int
    first: str | None
    """Hash of its first line. None: it was already finished and read as a whole."""


class Head(msgspec.Struct, frozen=True):
    """Facts about a file that may grow."""

    bytes: int
    whole: int
    """End of its last complete line."""
    first: str | None
    """Hash of its first line. None: it has no complete line."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes of a file, from ``start`` up to ``end``."""

    file: LogFile
    start: int
    end: int


@dataclass(slots=True)
class Plan:
    """Slices to read for the store, and incomplete last lines, which are read each time."""

    files: list[LogFile] = field(default_factory=list)
    """To be read completely: they are finished."""
    slices: list[Slice] = field(default_factory=list)
    tails: list[Slice] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    """The coverage of the store once the above is in it."""


def stem_of(name: str) -> str:
    """A file's name that stays the same when its broker finishes it."""
    return name.removesuffix(GROWING)


def without_copies(files: Iterable[LogFile]) -> list[LogFile]:
    """One file of each stem, the larger one: a tool that copies logs may leave a copy of the growing file
    beside the finished one."""
    of_stem: dict[str, LogFile] = {}
    for file in sorted(files, key=lambda file: file.name):
        known = of_stem.setdefault(stem_of(file.name), file)
        if file.bytes > known.bytes:
            of_stem[stem_of(file.name)] = file
    return sorted(of_stem.values(), key=lambda file: file.name)


def to_look_at(files: Iterable[LogFile], seen: Mapping[str, Seen]) -> list[LogFile]:
    """Files that need a `Head`: those that grow, or grew before they were finished."""
    found = []
    for file in files:
        known = seen.get(stem_of(file.name))
        may_grow = file.name.endswith(GROWING) or (known is not None and known.first is not None)
        if may_grow and not is_as_it_was(file, known):
            found.append(file)
    return found


def plan(files: Sequence[LogFile], seen: Mapping[str, Seen], heads: Mapping[str, Head]) -> Plan:
    """Plan the reading. ``heads`` are by file name."""
    made = Plan()
    for file in files:
        stem = stem_of(file.name)
        known, head = seen.get(stem), heads.get(file.name)
        next_generation = 0 if known is None else known.generation + 1
        if known is not None and is_as_it_was(file, known):
            if known.covered < known.bytes:
                made.tails.append(Slice(file, known.covered, known.bytes))
        elif head is None:
            made.files.append(file)
            made.seen.append(
                Seen(stem, next_generation, file.bytes, file.bytes, file.modified_us, first=None)
            )
        else:
            goes_on = known is not None and known.covered <= head.whole and known.first == head.first
            start, generation = (
                (known.covered, known.generation) if known and goes_on else (0, next_generation)
            )
            if head.whole > start:
                made.slices.append(Slice(file, start, head.whole))
            if head.bytes > head.whole:
                made.tails.append(Slice(file, head.whole, head.bytes))
            made.seen.append(Seen(stem, generation, head.whole, head.bytes, file.modified_us, head.first))
    return made


def is_as_it_was(file: LogFile, known: Seen | None) -> bool:
    """True if nobody touched it since it was read."""
    return known is not None and (known.bytes, known.modified_us) == (file.bytes, file.modified_us)


Span = tuple[int, int]
"""The first and the last number of the batches in one folder."""


def visible(spans: Iterable[Span]) -> list[Span]:
    """The spans to read, in order. A folder that contains other batches replaces them."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not found or span[1] > found[-1][1]:
            found.append(span)
    return found


def to_merge(spans: Sequence[Span]) -> list[Span]:
    """`MERGED` neighbours of one size, the smallest first. Empty if nothing should be merged."""
    size = 1
    while size <= len(spans) * MERGED**4:
        of_size = [span for span in spans if span[1] - span[0] + 1 == size]
        if len(of_size) >= MERGED:
            return of_size[:MERGED]
        size *= MERGED
    return []
