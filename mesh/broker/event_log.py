"""The event log: JSON Lines of what a broker observed, for the console's feed and for the analysis.

A row waits in memory and is written within a second, many rows in one append. Files are named
``<folder>/<name>-<boot>-<n>.jsonl.part`` while they grow. They lose the ``.part`` when they are rotated (by
size or age) or closed. `mesh.broker.log_retention` removes old ones if configured. Heartbeats may be combined
in windows (`mesh.broker.heard_windows`), which end with their file at the latest.

The broker never waits for the log. At most `ROWS_MAX` rows wait. Rows without room are counted; their numbers
are used up, so a reader sees the gap. A failing disk is counted, logged once with the number of waiting rows,
and tried again. When it works again, that is logged too. If the folder is removed under a running broker, it
is made again, without the rows that were in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mesh.broker.heard_windows import HeardWindows
from mesh.broker.log_retention import Retention, remove_old
from mesh.broker.log_rows import Fields, Heard, RowBuilder, as_text
from mesh.errors import MeshError, StorageError
from mesh.eventlog.rows import HeardRow, MetaRow, Row, StatsRow
from mesh.logs import log
from mesh.storage import Storage, disk_advice, disk_reason, is_full

ROWS_MAX: Final = 65_536
EVENTS_KEPT: Final = 100
"""Rows of kinds mem, link and meta that are kept for status snapshots."""
FLUSH_PAUSE_S: Final = 0.75
CLOSE_TIMEOUT_S: Final = 3.0
FILE_SIZE_MAX: Final = 64 << 20
FILE_AGE_MAX_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The status of the event log."""

    folder: str | None
    """None: no log is written."""
    rows: int
    """Rows numbered since the start, which is how many there should be."""
    waiting: int
    """Rows that are not written yet."""
    lost: int
    """Rows without room while the disk failed."""
    errors: int
    """Failed writes."""
    failing: str | None
    """Why writing fails now. None if it works."""

    def entry(self) -> dict[str, Any] | None:
        """The entry in a snapshot. It omits the folder, which not everybody should see."""
        if self.folder is None:
            return None
        return {
            "rows": self.rows,
            "waiting": self.waiting,
            "lost": self.lost,
            "errors": self.errors,
            "failing": self.failing,
        }


def stem_of(name: str, boot: str) -> str:
    """The beginning of the names of a boot's files. Spark skips files whose names begin with ``_``."""
    return f"@{name}-{boot}" if name.startswith("_") else f"{name}-{boot}"


class EventLog:
    """Writes rows of one boot into ``folder`` (None: it only keeps the latest events). `run` is its only
    task."""

    def __init__(
        self,
        rows: RowBuilder,
        *,
        folder: str | None,
        file_stem: str,
        storage: Storage,
        clock: Callable[[], float],
        wall_time: Callable[[], float],
        retention: Retention | None = None,
        summary_of_s: float | None = None,
    ) -> None:
        """``summary_of_s``: the broker's period, if heartbeats are combined in windows. None: each has a
        row."""
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self.dropped = 0
        self.write_errors = 0
        self.stopping = False
        """The broker leaves: `aclose` makes the last attempt, and logs a failure."""
        self.rows = rows
        self._folder = folder
        self._stem = file_stem
        self._storage = storage
        self._clock = clock
        self._wall_time = wall_time
        self._buffer: list[str | Heard] = []
        self._writing = 0
        self._failing: str | None = None
        self._told_lost = False
        self.retention = retention or Retention()
        self._file_number = 0
        self._file_size = 0
        self._file_since = 0.0
        self._about: Fields | None = None
        """The start row, which each further file has too. None: not started, or stopped."""
        self._windows: HeardWindows | None = None
        self.sum_up(summary_of_s)

    @property
    def path(self) -> str:
        """The file that is growing now."""
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

    def write(self, kind: type[Row], fields: Fields) -> None:
        """Add a row. Never waits, and never raises because of the disk."""
        if kind is MetaRow:
            self._end_windows()  # heartbeats come before the stop
            self._about = fields if fields["op"] == "start" else None
            fields = {**fields, "window_ns": self._window_ns}
        row = self.rows.row(kind, fields, now=self._clock(), wall=self._wall_time())
        if kind is not StatsRow and kind is not HeardRow:
            self.events.append(msgspec.to_builtins(row))
        self._add(row)

    def _add(self, row: Row) -> None:
        if self._folder is None:
            return
        if len(self._buffer) + self._writing < ROWS_MAX:
            self._buffer.append(as_text(row))
        else:
            self.dropped += 1

    def heard(self, survey: bool, source: int, round: int, rtt_s: float | None, now: float) -> None:
        """Note a survey or an answer, in a row or in its window. Only answers have a round-trip time."""
        windows = self._windows
        if windows is not None:
            ended = windows.heard(survey, source, round, rtt_s, now)
            if ended:
                self._write_heard(ended)
            return
        rows, buffer, wall_time = self.rows, self._buffer, self._wall_time
        rows.seq = seq = rows.seq + 1
        if self._folder is None:
            return
        if len(buffer) + self._writing < ROWS_MAX:
            buffer.append((survey, source, round, rtt_s, seq, rows.incarnation, now, wall_time()))
        else:
            self.dropped += 1

    def sum_up(self, period_s: float | None) -> None:
        """From now on combine heartbeats in windows of this period, or (None) write a row for each."""
        self._end_windows()
        self._windows = None if period_s is None or self._folder is None else HeardWindows(period_s)
        if self._about is not None:
            self._add_continue()

    @property
    def _window_ns(self) -> int | None:
        return None if self._windows is None else self._windows.length_ns

    def _add_continue(self) -> None:
        assert self._about is not None
        about = {**self._about, "op": "continue", "window_ns": self._window_ns}
        self._add(self.rows.row(MetaRow, about, now=self._clock(), wall=self._wall_time()))

    def _end_windows(self, now: float | None = None) -> None:
        """Write the rows of open windows; with ``now`` only if they are over by then."""
        if self._windows is not None:
            self._write_heard(self._windows.end(now))

    def _write_heard(self, rows: list[Fields]) -> None:
        for fields in rows:
            self.write(HeardRow, fields)

    async def start(self) -> None:
        """Make the folder and write the rows so far. On a full disk they wait. Raises `StorageError` for any
        other failure."""
        if self._folder is None:
            return
        try:
            await self._storage.make_folder(self._folder)
            await self._write_out()
            await self.remove_old()
        except OSError as error:
            if is_full(error):
                self._not_written(error)
                return
            self._buffer.clear()  # the broker will not start, so nothing needs to be reported at the end
            raise StorageError(
                f"cannot write the event log in {self._folder}: {disk_advice(error)}"
            ) from error

    async def run(self) -> None:
        """Write rows within a second until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_PAUSE_S)
            self._end_windows(self._clock())
            if self._buffer:
                await self.flush()

    async def flush(self) -> None:
        """Write waiting rows. After a failure they keep waiting."""
        try:
            await self._write_out()
        except (OSError, MeshError) as error:
            self._not_written(error)
        else:
            self._tell_success()

    def _not_written(self, error: Exception) -> None:
        self.write_errors += 1
        reason = disk_reason(error)
        if self._failing is None and not self.stopping:
            log.warning("cannot write %s (%s); rows wait, trying again", self.path, reason)
        self._failing = reason
        if self.dropped and not self._told_lost:
            self._told_lost = True
            log.warning("%s: %d rows wait for the disk, further ones are lost", self.path, ROWS_MAX)

    def _tell_success(self) -> None:
        if self._failing is not None:
            log.warning("%s can be written again; %d rows were lost since the start", self.path, self.dropped)
        self._failing = None
        self._told_lost = False

    async def aclose(self) -> None:
        """Write the rest and give the file its final name. Gives up after `CLOSE_TIMEOUT_S`."""
        if self._folder is None:
            return
        self._end_windows()
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
        """Append everything that waits, then rotate the file if it is large or old."""
        await self._append_rows()
        if self._is_to_be_rotated():
            self._end_windows()
            await self._append_rows()
            await self._finish_file()
            if self._about is not None:
                self._add_continue()

    async def _append_rows(self) -> None:
        rows, self._buffer = self._buffer, []
        if rows:
            lines = self.rows.lines(rows)
            self._writing = len(lines)
            try:
                data = ("\n".join(lines) + "\n").encode()
                await self._append(data)
            except (OSError, MeshError):  # but not when cancelled: the storage still does the job
                self._buffer = [*lines, *self._buffer]
                raise
            finally:
                self._writing = 0
            if not self._file_size:
                self._file_since = self._clock()
            self._file_size += len(data)

    def _is_to_be_rotated(self) -> bool:
        return self._file_size >= FILE_SIZE_MAX or (
            self._file_size > 0 and self._clock() - self._file_since >= FILE_AGE_MAX_S
        )

    async def _append(self, data: bytes) -> None:
        try:
            await self._storage.append(self.path, data)
        except FileNotFoundError:  # appending makes the file, so the folder must be missing
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
            await self.remove_old()

    async def remove_old(self) -> None:
        """Remove files of this broker that exceed the age or size limit. A failure is logged."""
        if self._folder is not None:
            await remove_old(self._storage, self._folder, self._stem, self.retention)
