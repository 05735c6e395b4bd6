"""Where results are stored, and which of them is current.

Each analysis writes to ``<out>/<id>/``. It is current when ``<out>/current.json`` names it, which is written
last. So a failed run leaves the current result, and nobody reads half of one. The id is derived from the
input and the settings: the same input has the same place and the same tables.

``<out>`` is a folder of this machine or a URL of one of Spark's file systems. The latter are written only
through DataFrames, so that Spark Connect and a cluster's rights apply. A text is a folder with one part
there, and ``current.json`` gains a part for each result; the one with the highest number counts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

from mesh.analysis.reading.finding import escaped
from mesh.errors import Locked, MeshError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = 1
KEPT: Final = 5
"""Results that are kept, including the current one."""
CURRENT: Final = "current.json"
REDUCED: Final = "reduced"
LOCK: Final = ".lock"
EARLIER: Final = frozenset(("tables", "quarantine", "report.html", "summary.json"))
"""Names in the first level of an output of version 0.1."""
ID: Final = re.compile(r"[0-9a-f]{16}")
URL: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:")

CANNOT_CREATE: Final = 73
CANNOT_WRITE: Final = 74
NOT_PERMITTED: Final = 77
"""Exit codes of the command, as in sysexits.h."""


class OutputError(MeshError):
    """Results cannot be written. ``code`` is the exit code of the command."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True)
class Current:
    """The content of ``current.json``. ``kept`` are ids, the newest first, which is the current one."""

    no: int = 0
    kept: tuple[str, ...] = ()

    @property
    def id(self) -> str | None:
        return self.kept[0] if self.kept else None

    def next(self, id: str) -> Current:
        """With ``id`` as the current one, without the oldest."""
        return Current(self.no + 1, (id, *(kept for kept in self.kept if kept != id))[:KEPT])

    def as_json(self) -> str:
        told = {"format": FORMAT, "no": self.no, "current": self.id, "kept": list(self.kept)}
        return json.dumps(told)

    @classmethod
    def of(cls, text: str) -> Current:
        """The newest of some lines.

        Raises:
            ValueError: a line is none of ours.
        """
        read = [cls(), *(cls._of_line(line) for line in text.splitlines() if line.strip())]
        return max(read, key=lambda current: current.no)

    @classmethod
    def _of_line(cls, line: str) -> Current:
        told = json.loads(line)
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            raise ValueError(f"not of format {FORMAT}")
        kept = told.get("kept")
        if not isinstance(kept, list) or not all(isinstance(id, str) and ID.fullmatch(id) for id in kept):
            raise ValueError("no ids of results")
        return cls(int(told["no"]), tuple(kept))


class Place(Protocol):
    """A folder. Names are relative to it, with slashes."""

    @property
    def url(self) -> str:
        """Its URL for Spark, without a slash at the end."""
        ...

    def names(self) -> set[str]:
        """The names in its first level. Empty if it does not exist."""
        ...

    def read(self, name: str) -> str:
        """A text. Empty if it does not exist."""
        ...

    def write(self, name: str, text: str) -> None:
        """Replace a text, completely or not at all."""
        ...

    def add(self, name: str, line: str) -> None:
        """Write a line that `read` then returns, perhaps after earlier ones."""
        ...

    def remove(self, name: str) -> None:
        """Remove a folder with its content."""
        ...


class LocalPlace:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def url(self) -> str:
        return f"file://{self._folder}"  # Spark interprets a %

    def names(self) -> set[str]:
        try:
            return set(os.listdir(self._folder))
        except FileNotFoundError:
            return set()

    def read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def write(self, name: str, text: str) -> None:
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.new")
        try:
            with beside.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise

    def add(self, name: str, line: str) -> None:
        self.write(name, f"{line}\n")

    def remove(self, name: str) -> None:
        shutil.rmtree(self._folder / name, ignore_errors=True)


class SparkPlace:
    """A folder of any of Spark's file systems."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._url = url.rstrip("/")

    @property
    def url(self) -> str:
        return self._url

    def names(self) -> set[str]:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        listing = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            paths = listing.load(escaped(self._url)).select("path")
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return set()
        root = F.lit(f"{_tail(self._url)}/")
        below = F.substr("path", F.instr("path", root) + F.length(root))
        found = paths.select(F.substring_index(below, "/", 1).alias("name")).distinct().collect()
        return {row["name"] for row in found}

    def read(self, name: str) -> str:
        from pyspark.errors import AnalysisException

        try:
            lines = self._spark.read.text(escaped(f"{self._url}/{name}")).collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return ""
        return "".join(f"{row['value']}\n" for row in lines)

    def write(self, name: str, text: str) -> None:
        self._put(name, text, "overwrite")

    def add(self, name: str, line: str) -> None:
        self._put(name, line, "append")

    def _put(self, name: str, text: str, mode: str) -> None:
        frame = self._spark.createDataFrame([(text,)], "value string")
        frame.coalesce(1).write.mode(mode).text(f"{self._url}/{name}")

    def remove(self, name: str) -> None:
        """DataFrames cannot delete. An empty one in its place frees the space."""
        self._spark.createDataFrame([], "value string").write.mode("overwrite").text(f"{self._url}/{name}")


def open_place(spark: SparkSession, out: str) -> Place:
    """The folder of this machine, or the URL, that a user named."""
    if URL.match(out):
        return SparkPlace(spark, out)
    return _local_place(out)


def _local_place(out: str) -> LocalPlace:
    # Path.expanduser raises if no user has the name; then it is a folder's.
    return LocalPlace(Path(os.path.expanduser(out.removeprefix("file://").removeprefix("file:"))).resolve())


class Results:
    """The folder of results that a user named as ``--out``."""

    def __init__(self, place: Place, current: Current) -> None:
        self.place = place
        self.current = current

    def url_of(self, id: str) -> str:
        """The place of the result with this id."""
        return f"{self.place.url}/{id}"

    def has(self, id: str) -> bool:
        """True if this result was finished earlier and nobody removed it since."""
        return id in self.current.kept and id in self.place.names()

    @contextmanager
    def building(self, id: str) -> Iterator[None]:
        """Remove this result if the block fails, since half of it is of no use."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # the file system or Spark may have failed
                self.place.remove(id)
            raise

    def write_table(self, id: str, name: str, table: DataFrame) -> None:
        """Write a table of a result."""
        with writing(self.place.url):
            table.write.mode("overwrite").parquet(f"{self.url_of(id)}/tables/{name}")

    def write_lines(self, id: str, name: str, lines: DataFrame) -> None:
        """Write rows as JSON Lines into a folder. Writes nothing if there are none."""
        with writing(self.place.url):
            if not lines.isEmpty():
                lines.write.mode("overwrite").json(f"{self.url_of(id)}/{name}")

    def write_text(self, id: str, name: str, text: str) -> None:
        """A small file, such as the report."""
        with writing(self.place.url):
            self.place.write(f"{id}/{name}", text)

    def make_current(self, id: str) -> None:
        """The last step: from now on readers find this result. Results beyond `KEPT` are removed."""
        following = self.current.next(id)
        with writing(self.place.url):
            self.place.add(CURRENT, following.as_json())
        self.current = following
        for name in sorted(self.place.names()):
            if ID.fullmatch(name) and name not in following.kept:
                self.place.remove(name)


@contextmanager
def open_results(spark: SparkSession, out: str) -> Iterator[Results]:
    """Open the folder, or make it. No other process of this machine may write to it meanwhile.

    Raises:
        OutputError: it belongs to another program, or cannot be written.
        Locked: another analysis writes to it.
    """
    place = open_place(spark, out)
    with writing(out):
        _check_ours(place, place.names(), out)
    with _lock(place, out):
        with writing(out):
            current = Current.of(place.read(CURRENT))
        yield Results(place, current)


def check_output(out: str) -> None:
    """Refuse a folder of this machine that cannot hold results before Spark is started.

    Raises:
        OutputError: it is somebody else's, or cannot be written.
        Locked: another analysis writes to it.
    """
    if URL.match(out):
        return
    place = _local_place(out)
    with writing(out):
        _check_ours(place, place.names(), out)
        if number := _write_error(place):
            raise OSError(number, os.strerror(number))
    if LOCK in place.names():
        with _lock(place, out):
            pass


def result_id(files: DataFrame, settings: Mapping[str, object]) -> str:
    """16 hex digits derived from the input, as in the table of files, and from the settings.

    The order of files and the folder that contains them do not matter.
    """
    from pyspark.sql import functions as F

    columns = sorted(files.columns)
    marks = [F.xxhash64(F.lit(seed), *columns).alias(f"mark{seed}") for seed in (1, 2)]
    sums = [F.bit_xor(f"mark{seed}") for seed in (1, 2)]
    read = files.select(*marks).agg(F.count("*"), *sums).collect()[0]
    told = json.dumps([FORMAT, list(read), sorted((key, str(value)) for key, value in settings.items())])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@contextmanager
def writing(out: str, only: Container[int | None] | None = None) -> Iterator[None]:
    """Turn failures of an output into sentences. ``only``: the error numbers that come from the output, if
    the block reads other files as well. None: all of them.

    Raises:
        OutputError: there is no room, no right, or something in the way.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    out = out.removeprefix("file://")
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        raise _refusal(out, error.errno, error.strerror or str(error)) from error
    except (PySparkException, Py4JError) as error:  # a failed task comes as the latter
        said = str(error)
        number = next((number for words, number in SAID.items() if words in said), None)
        if number is None and NO_FOLDER in said:
            number = (None if URL.match(out) else _write_error(_local_place(out))) or errno.EACCES
        if number is None or (only is not None and number not in only):
            raise
        reason = os.strerror(number)
        if number in FULL and _elsewhere(out):
            reason += f", there or in Spark's temporary folder ({tempfile.gettempdir()})"
        raise _refusal(out, number, reason) from error


SAID: Final = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Permission denied": errno.EACCES,
    "Read-only file system": errno.EROFS,
}
"""A file system's refusal in the words of Java's errors."""
NO_FOLDER: Final = "Mkdirs failed to create"
"""Hadoop's words for a folder that it could not make. They lack the reason."""
FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
DISK: Final = FULL | {errno.EROFS}
"""Errors that come from writing, never from reading."""


def _elsewhere(out: str) -> bool:
    """True if Spark's temporary folder is on another disk than the output. Java's errors name neither."""
    if URL.match(out):
        return True
    folder = _nearest_folder(_local_place(out))
    return os.stat(folder).st_dev != os.stat(tempfile.gettempdir()).st_dev


def _nearest_folder(place: LocalPlace) -> Path:
    """The folder, or the nearest one above it that exists."""
    folder = Path(place.url.removeprefix("file://"))
    while not folder.exists():
        folder = folder.parent
    return folder


def _write_error(place: LocalPlace) -> int | None:
    """The error number of making a file in a folder, or in the nearest one above it. None: it is possible."""
    try:
        folder = _nearest_folder(place)
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return errno.EROFS
    except OSError as error:
        return error.errno
    return None if os.access(folder, os.W_OK | os.X_OK) else errno.EACCES


def _refusal(out: str, number: int | None, reason: str) -> OutputError:
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return OutputError(
            f"--out {out} cannot be written: {reason}; the current result is unchanged", CANNOT_WRITE
        )
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OutputError(f"--out {out} cannot be written: {reason}; name another folder", NOT_PERMITTED)
    return OutputError(f"--out {out} cannot be written: {reason}; name another folder", CANNOT_CREATE)


def _check_ours(place: Place, names: set[str], out: str) -> None:
    """An existing output is ours if it says so, or if it contains nothing but failed runs of ours."""
    strangers = sorted(name for name in names if not (ID.fullmatch(name) or name in (REDUCED, LOCK, CURRENT)))
    if CURRENT in names:
        try:
            Current.of(place.read(CURRENT))
        except (ValueError, KeyError, TypeError, OSError):
            strangers = [CURRENT]
        else:
            return
    if "report.html" in strangers and set(strangers) <= EARLIER:
        sentence = f"--out {out} has a report of version 0.1; move it away, or name another folder"
        raise OutputError(sentence, CANNOT_CREATE)
    if strangers:
        shown = ", ".join(strangers[:3]) + (" ..." if len(strangers) > 3 else "")
        sentence = f"--out {out} contains files that no analysis wrote ({shown}); name another folder"
        raise OutputError(sentence, CANNOT_CREATE)


@contextmanager
def _lock(place: Place, out: str) -> Iterator[None]:
    """Hold a lock while the output is written to. Other file systems have no locks: there the last writer is
    current."""
    if not isinstance(place, LocalPlace):
        yield
        return
    with writing(out):
        folder = Path(place.url.removeprefix("file://"))
        folder.mkdir(parents=True, exist_ok=True)
        file: IO[str] = (folder / LOCK).open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(f"--out {out}", 0, "wait for that analysis to end, or name another folder") from None
        yield


def _tail(url: str) -> str:
    """The path of a URL."""
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?", "", url)
