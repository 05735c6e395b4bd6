"""The complete lines added to the logs in a folder of this machine since the last look.

Each look is a step: a file beside the others records which bytes of which files it adds. So any process can
read a step again and gets the same lines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mesh.analysis.reading.coverage import GROWING, Head, Seen, plan, stem_of, to_look_at, without_copies
from mesh.analysis.reading.finding import LogFile

SUFFIXES: Final = (".jsonl", f".jsonl{GROWING}")
STEP_BYTES: Final = 64 << 20
"""Maximum bytes of one step, except for the end of a line. The rest waits for the next."""
CHUNK_BYTES: Final = 1 << 16


class Piece(msgspec.Struct, frozen=True):
    """Bytes of a file from ``start`` up to ``end``, whole lines."""

    path: str
    """In the form of Spark's listing."""
    name: str
    start: int
    end: int


class Step(msgspec.Struct, frozen=True):
    """The result of one look."""

    pieces: list[Piece]
    seen: list[Seen]
    """The coverage once the pieces are stored."""
    waiting_bytes: int
    """Bytes that this step left for the next."""

    def lines(self, folder: Path) -> Iterator[str]:
        """The lines of all pieces."""
        for piece in self.pieces:
            for text in lines_of_piece(folder, piece.name, piece.start, piece.end):
                yield from text.split("\n")


class Steps:
    """The looks at a folder, recorded in ``scratch``. ``seen`` is the store's coverage before the first."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch
        self._known: tuple[int, dict[str, Seen]] = (-1, {})

    def begin(self, seen: Mapping[str, Seen]) -> None:
        """Start at this coverage."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._write(0, Step([], list(seen.values()), 0))

    def after(self, number: int) -> int:
        """The number of the next step, which is searched for now. ``number`` itself if there is nothing
        new."""
        if self._path(number + 1).exists():
            return number + 1
        step = self._look(self._seen(number))
        if not step.pieces:
            return number
        self._write(number + 1, step)
        return number + 1

    def more(self, number: int) -> bool:
        """True if there is something new behind step ``number``."""
        return self._path(number + 1).exists() or bool(self._look(self._seen(number)).pieces)

    def read(self, number: int) -> Step:
        return msgspec.json.decode(self._path(number).read_bytes(), type=Step)

    def _seen(self, number: int) -> dict[str, Seen]:
        at, seen = self._known if self._known[0] <= number else (-1, {})
        for each in range(at + 1, number + 1):
            seen.update((file.stem, file) for file in self.read(each).seen)
        self._known = (number, seen)
        return seen

    def _look(self, seen: Mapping[str, Seen]) -> Step:
        files = without_copies(logs_in(self._folder))
        paths = {file.name: self._folder / file.name for file in files}
        heads = {}
        for file in to_look_at(files, seen):
            known = seen.get(stem_of(file.name))
            heads[file.name] = head_of(paths[file.name], known.covered if known else 0)
        todo = plan(files, seen, heads)
        wanted = {stem_of(each.name): (each, 0, each.bytes) for each in todo.files}
        wanted |= {stem_of(part.file.name): (part.file, part.start, part.end) for part in todo.slices}
        pieces, covered, left, waiting = [], [], STEP_BYTES, 0
        for each in todo.seen:
            if each.stem not in wanted:
                continue
            file, start, end = wanted[each.stem]
            try:
                stop = end if end - start <= left else _cut(paths[file.name], start, left, end)
                first = each.first or first_line(paths[file.name])
            except FileNotFoundError:  # removed, or finished under another name, since it was listed
                continue
            waiting += end - stop
            left = max(0, left - (stop - start))
            if stop > start:
                pieces.append(Piece(file.path, file.name, start, stop))
                # Beyond the step's bound the file must be looked at again, which a different size ensures.
                size = each.bytes if stop == end else stop
                covered.append(msgspec.structs.replace(each, covered=stop, bytes=size, first=first))
        return Step(pieces, covered, waiting)

    def _path(self, number: int) -> Path:
        return self._scratch / f"step-{number}.json"

    def _write(self, number: int, step: Step) -> None:
        beside = self._scratch / f".step-{number}.new"
        beside.write_bytes(msgspec.json.encode(step))
        os.replace(beside, self._path(number))


def logs_in(folder: Path) -> Iterator[LogFile]:
    """Event logs as text, ordered by name. A file that disappears meanwhile is left out."""
    found = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    for path in sorted(path for path in found if path.name.endswith(SUFFIXES)):
        try:
            stat = path.stat()
        except OSError:
            continue
        # In milliseconds, like Spark's listing.
        modified_us = stat.st_mtime_ns // 1_000_000 * 1000
        yield LogFile(f"file:{path}", path.relative_to(folder).as_posix(), stat.st_size, modified_us)


def lines_of_piece(folder: Path, name: str, start: int, end: int) -> Iterator[str]:
    """The lines of a piece. Its broker may have finished the file since, or removed it as too old: then there
    are none."""
    for path in (folder / name, folder / stem_of(name)):
        try:
            yield from lines_of(path, start, end)
        except FileNotFoundError:
            continue
        return


def lines_of(path: Path, start: int, end: int) -> Iterator[str]:
    """The bytes as texts of a few whole lines each."""
    with path.open("rb") as file:
        file.seek(start)
        rest = b""
        while start < end:
            chunk = file.read(min(CHUNK_BYTES, end - start))
            if not chunk:
                return
            start += len(chunk)
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            if newline:
                yield whole.decode(errors="replace")


def head_of(path: Path, covered: int) -> Head:
    """Size, end of the last complete line, first line. Only bytes behind ``covered`` are searched."""
    try:
        with path.open("rb") as file:
            at = size = file.seek(0, os.SEEK_END)
            covered = covered if covered <= size else 0
            while at > covered:
                start = max(covered, at - CHUNK_BYTES)
                file.seek(start)
                newline = file.read(at - start).rfind(b"\n")
                if newline >= 0:
                    return Head(size, start + newline + 1, first_line(path))
                at = start
            return Head(size, covered, first_line(path))
    except OSError:
        return Head(0, 0, None)


def first_line(path: Path) -> str | None:
    """The hash of the first line, as a store keeps it. None: the line is incomplete."""
    with path.open("rb") as file:
        line = file.readline()
    return hashlib.sha256(line[:-1]).hexdigest()[:16] if line.endswith(b"\n") else None


def _cut(path: Path, start: int, left: int, end: int) -> int:
    """The end of the line that contains byte ``left`` from ``start``; ``start`` if ``left`` is 0."""
    if left <= 0:
        return start
    with path.open("rb") as file:
        file.seek(start + left - 1)
        file.readline()
        return min(file.tell(), end)
