"""The event log: JSON Lines that say what a broker saw, for the console's feed and for the analysis.

A row waits in memory and is written within a second, many rows in one append. Rows of heartbeats, which most
are, are only noted when they come and made into text when they are written, all in one go.
Files are ``<folder>/<name>-<boot>-<n>.jsonl.part`` while they grow and lose the ``.part`` when they are
rotated (by size or age) or closed. Rows of one boot are numbered without a gap; so a gap is a loss.

The broker never waits for this: `ROWS_MAX` rows wait at most, those that find no room are counted in
``dropped`` (their numbers are used up), and a failing disk is counted, said once on the log, and tried again.
A folder that somebody takes away under a running broker is made again, without the rows that were in it.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mesh.broker.identity import format_id
from mesh.errors import MeshError, StorageError
from mesh.logs import log
from mesh.storage import Storage, disk_advice, disk_reason

VERSION: Final = 1
ROWS_MAX: Final = 65_536
EVENTS_KEPT: Final = 100
"""Rows of kinds mem, link and meta kept for status snapshots."""
SOURCES_KEPT: Final = 1024
"""Members whose part of a heartbeat's row is remembered, before all are forgotten."""
FLUSH_PAUSE_S: Final = 0.75
CLOSE_TIMEOUT_S: Final = 3.0
FILE_SIZE_MAX: Final = 64 << 20
FILE_AGE_MAX_S: Final = 600.0

Row = dict[str, Any]
Heard = tuple[bool, int, int, float | None, int, int, float, float]
"""A heartbeat as it was noted: whether it was a survey, of whom, its round, the round-trip time of an answer,
the row's number, the writer's incarnation, and when, by the loop's clock and by the wall's."""

_encode: Final = msgspec.json.Encoder().encode


def as_text(value: Any) -> str:
    """JSON of a row or of a part of one. Of what is no UTF-8, as a path may be, each byte becomes a ``?``."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="replace").decode()


class RowBuilder:
    """Pure: the columns every row of one writer has, and its number."""

    def __init__(self, *, run: str, node: int, boot: int) -> None:
        self.incarnation = 0
        self.seq = 0
        self._run = run
        self._node = format_id(node)
        self._boot = format_id(boot)
        self._begins = f'{{"v":{VERSION},"run":{as_text(run)},"ts":"'
        self._of_whom = f',"node":"{self._node}","boot":"{self._boot}","inc":'
        self._said: dict[int, tuple[str, str]] = {}
        self._second = -2.0
        self._second_as_text = ""

    def row(self, kind: str, fields: Row, *, now: float, wall: float) -> Row:
        """A whole row; ``now`` is monotonic, ``wall`` since the epoch, both in seconds."""
        self.seq += 1
        row: Row = {
            "v": VERSION,
            "run": self._run,
            "ts": self._time(wall),
            "mono_ns": int(now * 1e9),
            "node": self._node,
            "boot": self._boot,
            "inc": self.incarnation,
            "seq": self.seq,
            "kind": kind,
        }
        row.update(fields)
        return row

    def lines(self, rows: list[str | Heard]) -> list[str]:
        """Rows as they are written. Those of heartbeats are written by hand: a dict through json costs seven
        times as much."""
        begins, of_whom = self._begins, self._of_whom
        lines = []
        whole_s, second = self._second, self._second_as_text
        for row in rows:
            if isinstance(row, str):
                lines.append(row)
                continue
            survey, source, number, rtt_s, seq, incarnation, now, wall = row
            said = self._said.get(source) or self._say(source)
            rtt_us = "null" if rtt_s is None else int(rtt_s * 1e6 + 0.5) if rtt_s > 0.0 else 0
            us = round((wall - whole_s) * 1e6)
            if not 0 <= us < 1_000_000:
                us = self._enter_second(wall)
                whole_s, second = self._second, self._second_as_text
            digits = us if us >= 100_000 else f"{us:06d}"  # filling up is slow
            lines.append(
                f'{begins}{second}.{digits}Z","mono_ns":{int(now * 1e9)}{of_whom}{incarnation},"seq":{seq}'
                f'{said[survey]}{number},"rtt_us":{rtt_us}}}'
            )
        return lines

    def _say(self, source: int) -> tuple[str, str]:
        """The middle of a heartbeat's row, which is always the same of one member: of an answer, of a
        survey."""
        if len(self._said) >= SOURCES_KEPT:
            self._said.clear()
        to_us = f'"src":"{format_id(source)}","dst":"{self._node}","hb_seq":'
        begins = ',"kind":"hb","msg":'
        said = self._said[source] = (f'{begins}"answer",{to_us}', f'{begins}"survey",{to_us}')
        return said

    def _time(self, wall: float) -> str:
        """RFC 3339 in UTC with microseconds; the text of the second is kept, since many rows share it."""
        us = round((wall - self._second) * 1e6)
        if not 0 <= us < 1_000_000:
            us = self._enter_second(wall)
        return f"{self._second_as_text}.{us:06d}Z"

    def _enter_second(self, wall: float) -> int:
        """Another second than that of the last row; returns the microseconds in it."""
        fraction, second = math.modf(wall)
        microseconds = round(fraction * 1e6)
        if microseconds == 1_000_000:
            second, microseconds = second + 1, 0
        self._second = second
        self._second_as_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return microseconds


def member_fields(
    *,
    subject: int,
    name: str,
    boot: int,
    incarnation: int,
    from_state: str,
    to_state: str,
    reason: str,
    via: int,
) -> Row:
    """A member changed its state in this writer's eyes; ``via`` is who told, perhaps the writer."""
    return {
        "subject": format_id(subject),
        "subject_name": name,
        "subject_boot": format_id(boot),
        "subject_inc": incarnation,
        "from_state": from_state,
        "to_state": to_state,
        "reason": reason,
        "via": format_id(via),
    }


def link_fields(*, peer: int, dialed: bool, up: bool, reason: str) -> Row:
    """A link came up or went down; ``dialed`` by this writer."""
    return {
        "peer": format_id(peer),
        "dir": "out" if dialed else "in",
        "state": "up" if up else "down",
        "reason": reason,
    }


@dataclass(frozen=True, slots=True)
class LogStatus:
    """How the event log fares."""

    folder: str | None
    """None: no log is written."""
    rows: int
    """Numbered since the start, so many as there should be."""
    waiting: int
    """Rows that are not written yet."""
    lost: int
    """Rows that found no room while the disk failed."""
    errors: int
    """Failed writes."""
    failing: str | None
    """Why writing fails now; None: it does not."""


class EventLog:
    """Writes rows of one boot into ``folder`` (None: only keeps the latest events); `run` is its one task."""

    def __init__(
        self,
        rows: RowBuilder,
        *,
        folder: str | None,
        file_stem: str,
        storage: Storage,
        clock: Callable[[], float],
        wall_time: Callable[[], float],
    ) -> None:
        self.events: deque[Row] = deque(maxlen=EVENTS_KEPT)
        self.dropped = 0
        self.write_errors = 0
        self.rows = rows
        self._folder = folder
        self._stem = file_stem
        self._storage = storage
        self._clock = clock
        self._wall_time = wall_time
        self._buffer: list[str | Heard] = []
        self._writing = 0
        self._failing: str | None = None
        self._file_number = 0
        self._file_size = 0
        self._file_since = 0.0

    @property
    def path(self) -> str:
        """The file that grows now."""
        return f"{self._folder}/{self._stem}-{self._file_number}.jsonl.part"

    def status(self) -> LogStatus:
        return LogStatus(
            folder=self._folder,
            rows=self.rows.seq,
            waiting=len(self._buffer) + self._writing,
            lost=self.dropped,
            errors=self.write_errors,
            failing=self._failing,
        )

    def write(self, kind: str, fields: Row) -> None:
        """Add a row; never waits, never raises for the disk's sake."""
        row = self.rows.row(kind, fields, now=self._clock(), wall=self._wall_time())
        if kind != "hb" and kind != "stats":
            self.events.append(row)
        if self._folder is None:
            return
        if len(self._buffer) + self._writing < ROWS_MAX:
            self._buffer.append(as_text(row))
        else:
            self.dropped += 1

    def heard(self, survey: bool, source: int, round: int, rtt_s: float | None, now: float) -> None:
        """Add the row of a survey or an answer, as `write` does; only answers have a round-trip time."""
        rows, buffer, wall_time = self.rows, self._buffer, self._wall_time
        rows.seq = seq = rows.seq + 1
        if self._folder is None:
            return
        if len(buffer) + self._writing < ROWS_MAX:
            buffer.append((survey, source, round, rtt_s, seq, rows.incarnation, now, wall_time()))
        else:
            self.dropped += 1

    async def start(self) -> None:
        """Make the folder and write the rows so far; raises `StorageError` if that cannot be done."""
        if self._folder is None:
            return
        try:
            await self._storage.make_folder(self._folder)
            await self._write_out()
        except OSError as error:
            self._buffer.clear()  # the broker will not start; nothing is left to be said at the end
            raise StorageError(
                f"cannot write the event log in {self._folder}: {disk_advice(error)}"
            ) from error

    async def run(self) -> None:
        """Write rows within a second until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_PAUSE_S)
            if self._buffer:
                await self.flush()

    async def flush(self) -> None:
        """Write what waits; on failure it waits on."""
        try:
            await self._write_out()
        except (OSError, MeshError) as error:
            self.write_errors += 1
            if self._failing is None:
                log.warning("cannot write %s (%s); rows wait, trying again", self.path, disk_reason(error))
            self._failing = disk_reason(error)
        else:
            self._failing = None

    async def aclose(self) -> None:
        """Write the rest and give the file its final name; gives up after `CLOSE_TIMEOUT_S`."""
        if self._folder is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._write_out()
                await self._finish_file()
        except (OSError, MeshError) as error:
            self.write_errors += 1
            rows = len(self._buffer)
            log.warning(
                "the event log %s ends without its last %d rows (%s)", self.path, rows, disk_reason(error)
            )

    async def _write_out(self) -> None:
        """One append of everything that waits, then rotation if the file is large or old."""
        rows, self._buffer = self._buffer, []
        if rows:
            lines = self.rows.lines(rows)
            self._writing = len(lines)
            try:
                data = ("\n".join(lines) + "\n").encode()
                await self._append(data)
            except (OSError, MeshError):  # but not when cancelled: the storage does the job all the same
                self._buffer = [*lines, *self._buffer]
                raise
            finally:
                self._writing = 0
            if not self._file_size:
                self._file_since = self._clock()
            self._file_size += len(data)
        if self._file_size >= FILE_SIZE_MAX or (
            self._file_size and self._clock() - self._file_since >= FILE_AGE_MAX_S
        ):
            await self._finish_file()

    async def _append(self, data: bytes) -> None:
        try:
            await self._storage.append(self.path, data)
        except FileNotFoundError:  # appending makes the file, so it is the folder that is not there
            assert self._folder is not None
            await self._storage.make_folder(self._folder)
            await self._storage.append(self.path, data)
            self._file_size = 0
            log.warning("%s was gone, with the rows in it; it is made again", self._folder)

    async def _finish_file(self) -> None:
        if self._file_size:
            await self._storage.rename(self.path, self.path.removesuffix(".part"))
            self._file_number += 1
            self._file_size = 0
