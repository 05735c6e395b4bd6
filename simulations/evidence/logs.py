"""The rows of event logs, as brokers wrote them, with their true times.

Nine rows in ten are heartbeats, and their number grows with the square of the brokers, every second. So rows
are decoded when they are read, one at a time, from the files that hold them, and are never all in memory.
`Logs.changes` are the rows about members and links.
"""

from __future__ import annotations

import heapq
import sys
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from simulations.kernel.file_content import FileContent
from simulations.world import EPOCH_S

Row = Mapping[str, Any]
Writer = tuple[str, str]
"""Node and boot."""
Clock = tuple[Sequence[float], Sequence[float]]
"""Readings of a monotonic clock, and the true times at which they were taken, both in seconds."""
STEADY: Final = ("hb", "stats")
"""Kinds that are written all the time, whether anything changes or not."""
_STEADY_MARKS: Final = tuple(f'"kind":"{kind}"'.encode() for kind in STEADY)


class _Fields(msgspec.Struct, gc=False, kw_only=True):
    """A row that reads like a mapping, and takes a fifth of a mapping's memory."""

    kind: str
    node: str
    boot: str
    inc: int
    seq: int
    mono_ns: int
    ts: str
    at_s: float = 0.0

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __contains__(self, name: str) -> bool:
        return name in self.__struct_fields__

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


class HeartbeatRow(_Fields):
    msg: str
    src: str
    dst: str
    hb_seq: int
    rtt_us: int | None


class LinkRow(_Fields):
    peer: str
    state: str
    reason: str = ""


class MemberRow(_Fields):
    subject: str
    subject_name: str
    subject_boot: str
    subject_inc: int
    from_state: str
    to_state: str
    reason: str
    via: str


_KINDS: Final[dict[bytes, type[_Fields]]] = {
    b'"kind":"hb"': HeartbeatRow,
    b'"kind":"link"': LinkRow,
    b'"kind":"mem"': MemberRow,
}
_DECODERS: Final = tuple((mark, msgspec.json.Decoder(row).decode) for mark, row in _KINDS.items())
_SHARED: Final = {
    row: [field.name for field in msgspec.structs.fields(row) if field.type is str and field.name != "ts"]
    for row in _KINDS.values()
}
"""Texts with few different values, of which many are equal."""


def log_rows(files: Mapping[str, FileContent | bytes]) -> list[Any]:
    """All whole rows by the writers' wall clocks, with ``at_s``, the time since the run began.

    Lines torn by a crash, and those that flipped bits made senseless, are left out.
    """
    rows = [row for content in files.values() for row in _rows(_lines(content))]
    return sorted(rows, key=lambda row: float(row["at_s"]))


def log_changes(files: Mapping[str, FileContent]) -> list[Any]:
    """The same without rows of the `STEADY` kinds."""
    rows = [row for content in files.values() for row in _rows(_changes_only(_lines(content)))]
    return sorted(rows, key=lambda row: float(row["at_s"]))


def _lines(content: FileContent | bytes) -> Iterator[bytes]:
    begun = b""
    for piece in content.pieces() if isinstance(content, FileContent) else (content,):
        lines = (begun + piece).split(b"\n")
        begun = lines.pop()
        yield from lines
    yield begun


def _changes_only(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        if not any(mark in line for mark in _STEADY_MARKS):
            yield line


def _rows(lines: Iterable[bytes]) -> Iterator[Any]:
    for line in lines:
        try:
            row = _decoded(line)
            row["at_s"] = datetime.fromisoformat(row["ts"]).timestamp() - EPOCH_S
            row["ts"] = ""
        except (ValueError, TypeError, KeyError, msgspec.DecodeError):
            continue
        yield row


def _decoded(line: bytes) -> Any:
    for mark, decode in _DECODERS:
        if mark in line:
            row = decode(line)
            for name in _SHARED[type(row)]:
                setattr(row, name, sys.intern(getattr(row, name)))
            return row
    return msgspec.json.decode(line)


class Logs:
    """All rows of a run by the true time, with ``at_s``; they may be read any number of times.

    Rows are timed by their writer's monotonic clock, since wall clocks may have been stepped. The clock runs
    evenly between two comparisons, and nearly like the true one outside of them. A writer without clock
    comparisons is timed by its wall clock.
    """

    def __init__(
        self,
        files: Mapping[str, FileContent],
        clocks: Mapping[Writer, Clock],
        sound: Container[Writer] | None = None,
    ) -> None:
        """``sound`` are the writers to read; None is all."""
        self._files = files
        self._clocks = clocks
        self._sound = sound
        self._count: int | None = None

    def __iter__(self) -> Iterator[Row]:
        """A file is in the order of writing, and so of its writer's clock."""
        count = 0
        for row in heapq.merge(*map(self._timed, map(_lines, self._files.values())), key=_place):
            count += 1
            yield row
        self._count = count

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count

    def changes(self) -> list[Row]:
        """All rows except those of the `STEADY` kinds."""
        lines = [_changes_only(_lines(content)) for content in self._files.values()]
        return list(heapq.merge(*map(self._timed, lines), key=_place))

    def _timed(self, lines: Iterator[bytes]) -> Iterator[Row]:
        untimed = []
        for row in _rows(lines):
            writer = (row.get("node"), row.get("boot"))
            if self._sound is not None and writer not in self._sound:
                continue
            clock = self._clocks.get(writer)
            if clock is None:
                untimed.append(row)
                continue
            row["at_s"] = true_s(clock, row)
            yield row
        yield from sorted(untimed, key=_place)


def true_s(clock: Clock, row: Row) -> float:
    local, true = clock
    here = float(row["mono_ns"]) / 1e9
    after = bisect_left(local, here)
    if 0 < after < len(local):
        share = (here - local[after - 1]) / (local[after] - local[after - 1])
        return true[after - 1] + share * (true[after] - true[after - 1])
    near = min(after, len(local) - 1)
    return true[near] + here - local[near]


def _place(row: Row) -> tuple[float, str, str, int]:
    return row["at_s"], row["node"], row["boot"], row["seq"]
