"""Finds event logs through Spark's file systems: in a folder of this machine or at any URL.

A URL goes to Spark unchanged. Only a path that exists here is taken literally if it looks like a pattern.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from mesh.analysis.reading.coverage import without_copies
from mesh.errors import MeshError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES: Final = (".jsonl", ".jsonl.part", ".jsonl.gz", ".jsonl.part.gz")
PARQUET: Final = (".parquet",)
COMPRESSED: Final = ".gz"
PATTERN: Final = "{" + ",".join(f"*{suffix}" for suffix in (*LINES, *PARQUET)) + "}"
HINT: Final = "name the folder that brokers were given as --log-dir"
RESULTS: Final = re.compile(r"(^|/)([0-9a-f]{16}/tables|reduced/\d{9}-\d{9})/")
"""Files that an earlier analysis wrote into a folder below the logs."""
SAME: Final = re.compile("^file:/+")
"""Spark writes it with one slash or with three."""
SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")


class NoLogs(FileNotFoundError):
    """There is no event log at the given place."""


class NotReadable(PermissionError):
    """This user may not read an event log, or a folder that may hold one."""


class NoRows(MeshError):
    """There are logs, but none of their lines is a row."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file. ``path`` is Spark's name for it, ``name`` its path within the analysed folder."""

    path: str
    name: str
    bytes: int
    modified_us: int = 0
    """When it was last written to, in microseconds since the epoch."""
    damage: str | None = None
    """Its damage in words, once a reading failed because of it. It is then read as far as possible."""
    is_lost: bool = False
    """True if Spark fails over the damaged file even then. Nothing of it is read."""

    @property
    def is_parquet(self) -> bool:
        return self.name.endswith(PARQUET)

    @property
    def is_compressed(self) -> bool:
        return self.name.endswith(COMPRESSED)


def no_folder(place: object) -> NoLogs:
    """The error for a place that is not there."""
    return NoLogs(f"there is no folder {place}; {HINT}")


def no_event_log(place: object) -> NoLogs:
    """The error for a place without a file that is an event log by name."""
    return NoLogs(f"{place} holds no event log (*.jsonl, *.jsonl.part, their .gz, *.parquet); {HINT}")


def all_empty(place: object, files: int) -> NoLogs:
    """The error for a place whose event logs, so many ``files``, have no byte."""
    said = f"the only event log in {place} is" if files == 1 else f"all {files:,} event logs in {place} are"
    return NoLogs(f"{said} empty")


def find_logs(spark: SparkSession, place: str) -> list[LogFile]:
    """Every event log below ``place``, ordered by name.

    Raises:
        NoLogs: nothing is there, or nothing that is a log.
    """
    from pyspark.errors import AnalysisException

    try:
        frame = _listing(spark, place)
        found = {path: (0, 0) for path in _paths(frame)}
        listed = frame.selectExpr("path", "length", "unix_micros(modificationTime) as us").collect()
        found |= {row["path"]: (row["length"], row["us"]) for row in listed}
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise no_folder(place) from None
    root = _tail(os.path.abspath(place) if os.path.exists(place) else place).rstrip("/")
    files = without_copies(LogFile(path, _name(path, root), *known) for path, known in found.items())
    files = [file for file in files if RESULTS.search(file.name) is None]
    if not files:
        raise no_event_log(place)
    if not any(file.bytes for file in files):
        raise all_empty(place, len(files))
    return files


def check_readable(place: Path) -> None:
    """Spark takes a file that it may not read for one that is gone, and says nothing.

    Raises:
        NotReadable: ``place`` on this machine is, or holds, a log or a folder that this user may not read.
    """
    closed = next(_closed(place), None)
    if closed is not None:
        raise NotReadable(f"{closed}: Permission denied; run it as a user who may read all of the logs")


def _closed(place: Path) -> Iterator[Path]:
    if not _may_read(place):
        yield place
    for folder, folders, files in os.walk(place):
        logs = (name for name in files if name.endswith((*LINES, *PARQUET)))
        yield from (path for name in (*folders, *logs) if not _may_read(path := Path(folder, name)))


def _may_read(path: Path) -> bool:
    return os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK) or not path.exists()


def is_skipped(path: PurePath) -> bool:
    """True for a broker's file within the analysed folder that only Spark takes for a hidden one. A name that
    begins with a dot is hidden for everybody, and Parquet in a folder such as _delta_log is another
    program's."""
    if any(part.startswith(".") for part in path.parts) or not path.name.endswith(LINES):
        return False
    return any(part.startswith("_") and "=" not in part for part in path.parts)


def paths_of(spark: SparkSession, place: str) -> set[str]:
    """The paths of the logs that are below ``place`` now, as in `LogFile`. Spark starts no job for them."""
    from pyspark.errors import AnalysisException

    try:
        return _paths(_listing(spark, place))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return set()


def _listing(spark: SparkSession, place: str) -> DataFrame:
    listing = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    return listing.option("pathGlobFilter", PATTERN).load(literal(place))


def _paths(listing: DataFrame) -> set[str]:
    return {SAME.sub("file:/", unquote(url)) for url in listing.inputFiles()}


def literal(place: str) -> str:
    """A form that Spark, which takes paths as patterns, takes literally."""
    if not os.path.exists(place):
        return place
    return escaped(os.path.abspath(place))


def escaped(path: str) -> str:
    """A path that stands for itself where Spark looks for patterns."""
    return "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in path)


def _name(path: str, root: str) -> str:
    tail = _tail(path)
    if tail == root:
        return tail.rpartition("/")[2]
    return tail.removeprefix(f"{root}/") if tail.startswith(f"{root}/") else tail


def _tail(path: str) -> str:
    """The URL without scheme and host."""
    return SCHEME.sub("", path)
