"""Which bytes of which file a reduced store covers, and what is to be read of the files now. Pure.

A file is known by its stem, its name without ``.part``. So it stays itself when its broker finishes it. A
file that grows is covered up to its last whole line. It is read anew, as its next generation, if it is
shorter than what is covered, or begins with another line. A finished file that neither grew nor was touched
is not looked at.
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
"""So many batches of a size become one of the next size. A row is written again as often as sizes there are.
"""


class Seen(msgspec.Struct, frozen=True):
    """One file, as it was when it was last read."""

    stem: str
    generation: int
    covered: int
    """Bytes whose lines are in the store, of this generation."""
    bytes: int
    modified_us: int
    first: str | None
    """Hash of its first line; None: it was read in one piece, when it was finished."""


class Head(msgspec.Struct, frozen=True):
    """What is looked at in a file that may grow."""

    bytes: int
    whole: int
    """Up to the end of its last whole line."""
    first: str | None
    """Hash of its first line; None: it has no whole line."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes of a file, from ``start`` up to ``end``."""

    file: LogFile
    start: int
    end: int


@dataclass(slots=True)
class Plan:
    """What is to be read: for the store, and of last lines that are not whole, which are read each time."""

    files: list[LogFile] = field(default_factory=list)
    """From beginning to end: they are finished."""
    slices: list[Slice] = field(default_factory=list)
    tails: list[Slice] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    """What the store covers of the above, once they are in it."""


def stem_of(name: str) -> str:
    """A file's name that stays when its broker finishes it."""
    return name.removesuffix(GROWING)


def to_look_at(files: Iterable[LogFile], seen: Mapping[str, Seen]) -> list[LogFile]:
    """Files of which a `Head` is needed: those that grow, or grew before they were finished."""
    found = []
    for file in files:
        known = seen.get(stem_of(file.name))
        may_grow = file.name.endswith(GROWING) or (known is not None and known.first is not None)
        if may_grow and not _is_as_it_was(file, known):
            found.append(file)
    return found


def plan(files: Sequence[LogFile], seen: Mapping[str, Seen], heads: Mapping[str, Head]) -> Plan:
    """What is to be read; ``heads`` are by the name of the file."""
    made = Plan()
    for file in files:
        stem = stem_of(file.name)
        known, head = seen.get(stem), heads.get(file.name)
        next_generation = 0 if known is None else known.generation + 1
        if known is not None and _is_as_it_was(file, known):
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


def _is_as_it_was(file: LogFile, known: Seen | None) -> bool:
    """Nobody touched it since it was read."""
    return known is not None and (known.bytes, known.modified_us) == (file.bytes, file.modified_us)


Span = tuple[int, int]
"""The first and the last number of the batches that are in one folder."""


def visible(spans: Iterable[Span]) -> list[Span]:
    """Those to read, in order: a folder that holds batches of others stands for them."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not found or span[1] > found[-1][1]:
            found.append(span)
    return found


def to_merge(spans: Sequence[Span]) -> list[Span]:
    """`MERGED` neighbours of one size, the smallest first; none: nothing is to be merged."""
    size = 1
    while size <= len(spans) * MERGED**4:
        of_size = [span for span in spans if span[1] - span[0] + 1 == size]
        if len(of_size) >= MERGED:
            return of_size[:MERGED]
        size *= MERGED
    return []
