"""The event logs as DataFrames, the basis of every later stage of the analysis.

Files are read twice: for heartbeats, which are reduced at once, and for all other rows, which are kept. Only
a boot with inconsistent numbers is examined again row by row (`mesh.analysis.reading.repeats`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from mesh.analysis.made import made
from mesh.analysis.reading import heartbeats, numbering
from mesh.analysis.reading.damage import JAVA_ERRORS, find_damage
from mesh.analysis.reading.finding import COMPRESSED, PARQUET, find_logs, paths_of
from mesh.analysis.reading.material import BOOT, Direct
from mesh.analysis.reading.repeats import HOLES, Repeats
from mesh.analysis.reading.schema import NOT_JSON, UNKNOWN
from mesh.analysis.reading.sources import heartbeats_of, ids_are_sound, listed, sources, union
from mesh.analysis.reading.spark_errors import ENDS_EARLY, NOT_PARQUET, is_gone, may_be_damage
from mesh.analysis.results.spark_types import table_schema
from mesh.analysis.results.tables import FileRow, Heard
from mesh.errors import MeshError
from mesh.eventlog.rows import KINDS, columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from mesh.analysis.reading.finding import LogFile
    from mesh.analysis.reading.material import Material
    from mesh.analysis.reading.reduced import Store
    from mesh.analysis.reading.sources import Source

READINGS_MAX: Final = 5
"""The logs are read again if a broker renamed a file meanwhile, as it does every ten minutes or 64 MiB, and
if damaged files were found."""
GROWN: Final = r"\.jsonl(\.part)?$"
"""Names of the files that brokers write."""
ABSENT: Final = "no line of it reached Spark, so it may not be on the machine of each worker"
FEW: Final = ("meta", "mem", "link", "truth")
"""Kinds of which there are few rows, apart from the others, so that a look at them does not read all."""
ABOUT: Final = ("name", "host", "version", "period_s", "deadline_s", "stats_s")


@dataclass(frozen=True)
class Logs:
    """The DataFrames. `close` releases what Spark keeps for them.

    Frames named like a kind have its columns in the event log, and ``us``: the wall clock in microseconds
    since the epoch.
    """

    files: DataFrame
    """Table `FileRow`. Times are by the writers' wall clocks, in microseconds."""
    quarantine: DataFrame
    """``file``, ``problem`` and ``line`` for each line that is not a row, with the reason."""
    boots_raw: DataFrame
    """One row for each boot: ``run``, ``node``, ``boot``. From its `meta` rows: ``name``, ``host``,
    ``version``, ``period_s``, ``deadline_s``, ``stats_s`` (null: it has none). From all rows: ``first_ns``,
    ``last_ns`` (monotonic), ``first_us``, ``last_us`` (wall), ``first_seq``, ``last_seq``, ``rows``. From its
    end: ``stopped_ns`` and ``reason`` of the stop, ``left_ns`` of its own row that it leaves. ``torn``: its
    last line is incomplete. That requires an incomplete line in its last file and no missing number there; a
    line damaged in the middle leaves its number missing."""
    holes: DataFrame
    """Where rows of a boot are missing: ``run``, ``node``, ``boot``, ``start_ns`` and ``end_ns`` (monotonic)
    and how many ``rows``."""
    heard: DataFrame
    """Table `Heard`."""
    meta: DataFrame
    mem: DataFrame
    link: DataFrame
    stats: DataFrame
    truth: DataFrame
    kept: tuple[DataFrame, ...]
    material: Material

    def close(self) -> None:
        for frame in self.kept:
            frame.unpersist()
        self.material.close()


def read_logs(spark: SparkSession, place: str, store: Store | None = None) -> Logs:
    """Every log below ``place``, a folder or a URL. ``files`` and ``quarantine`` exist even if no line is a
    row. With a ``store``, only data that is not in it yet is parsed, and is then stored.

    Raises:
        NoLogs: nothing is there, or nothing that is a log.
        MeshError: files were renamed or replaced under the reader, time and again.
    """
    damaged: dict[LogFile, LogFile] = {}
    for _ in range(READINGS_MAX):
        files = find_logs(spark, place)
        try:
            logs = _read(spark, [damaged.get(file, file) for file in files], store)
        except JAVA_ERRORS as error:
            if not is_gone(str(error)):
                damaged |= _damage_behind(spark, files, damaged, store, error)
            continue
        # A broker that finished a file has renamed its .part, perhaps before it was read.
        if {file.path for file in files} <= paths_of(spark, place):
            return logs
        logs.close()
    raise MeshError(
        f"the logs in {place} are renamed or replaced faster than they can be read; analyse a copy of them"
    )


def _read(spark: SparkSession, files: Sequence[LogFile], store: Store | None) -> Logs:
    if store is None:
        found = sources(spark, files)
        reading = _Reading(spark, files, found, Direct(found))
    else:
        reading = _Reading(spark, files, *store.read(files))
    try:
        return reading.logs()
    except BaseException:
        reading.close()
        raise


def _damage_behind(
    spark: SparkSession,
    files: Sequence[LogFile],
    damaged: Mapping[LogFile, LogFile],
    store: Store | None,
    error: Exception,
) -> dict[LogFile, LogFile]:
    """The damaged files that made a reading of these files fail, beside those that are known. If it is one of
    the known, all that may be it are lost. Empty if a file disappeared meanwhile.

    Raises:
        PySparkException, Py4JError: the failure has another cause.
    """
    if not may_be_damage(str(error)):
        raise error
    # Stored files were read before, and only those with doubtful numbers are read again.
    unknown = [file for file in files if file not in damaged]
    stored = {file for file in unknown if store is not None and store.has(file)}
    try:
        found = find_damage(spark, [file for file in unknown if file not in stored])
        found = found or find_damage(spark, list(stored))
    except JAVA_ERRORS as other:
        if is_gone(str(other)):
            return {}
        raise
    if not found:
        # The reading uses other columns than the search, and may get further in a file.
        found = {file: replace(each, is_lost=True) for file, each in damaged.items() if _may_be_lost(each)}
    if not found:
        raise error
    return found


def _may_be_lost(damaged: LogFile) -> bool:
    return damaged.is_parquet and not damaged.is_lost


class _Reading:
    """One reading. The attributes are made in order, each from earlier ones."""

    def __init__(
        self, spark: SparkSession, files: Sequence[LogFile], sources: Sequence[Source], material: Material
    ) -> None:
        self._spark = spark
        self._files = files
        self._sources = sources
        self._material = material
        self._windows = material.windows
        self._parts = material.parts
        self._good = material.rows
        self._kept: list[DataFrame] = []

    def close(self) -> None:
        """Release what Spark keeps, instead of `Logs.close`."""
        for frame in self._kept:
            frame.unpersist()
        self._material.close()

    def logs(self) -> Logs:
        parts = self._parts.where("ok")
        rows = self._good.where(F.col("kind") != "hb")
        extent = made(self._extent(parts, rows))
        counts = extent.select(
            "path",
            *BOOT,
            F.col("n").alias("rows"),
            F.lit(0).cast("long").alias("duplicates"),
            F.lit(0).cast("long").alias("conflicts"),
            F.col("n").alias("numbers"),
        )
        holes = self._spark.createDataFrame([], HOLES)
        doubtful = self._doubtful(extent)
        if doubtful is not None:
            beats = union([source.heartbeats() for source in self._sources] + [heartbeats_of(self._good)])
            sound = beats.where(F.col("ok") & ids_are_sound())
            again = Repeats(_of(sound, doubtful), _of(rows, doubtful))
            counts = _without(counts, doubtful).unionByName(again.counts())
            rows = _without(rows, doubtful).unionByName(again.others())
            fresh = heartbeats.reduce(self._windows.of(again.beats()), [])
            parts = _without(parts, doubtful).select(*fresh.columns).unionByName(fresh)
            rows, counts, holes = made(rows), made(counts), made(again.holes())
            self._kept += again.kept
        bad = made(self._material.bad())
        names = self._names()
        few = made(rows.where(F.col("kind").isin(*FEW)).select(*_columns(*FEW)))
        kinds = {kind: _kind(few if kind in FEW else rows, kind) for kind in KINDS}
        heard = self._heard(parts, kinds["heard"], extent)
        return Logs(
            files=made(_files(names, extent, counts, bad)),
            quarantine=_named(bad, names).select("file", "problem", F.col("raw").alias("line")),
            boots_raw=made(_boots(kinds, extent, counts, bad)),
            holes=holes,
            heard=heard,
            meta=kinds["meta"],
            mem=kinds["mem"],
            link=kinds["link"],
            stats=kinds["stats"],
            truth=kinds["truth"],
            kept=tuple(self._kept),
            material=self._material,
        )

    def _extent(self, parts: DataFrame, rows: DataFrame) -> DataFrame:
        """For each file and boot: the numbers, the times, whether it belongs to a simulator's truth, whether
        there are windows of heartbeats in it, whether two of these may be parts of one, and the length of
        the windows of summaries."""
        of_rows = rows.groupBy("path", *BOOT, (F.col("kind") == "truth").alias("truth")).agg(
            *numbering.count(),
            F.min("us").alias("first_us"),
            F.max("us").alias("last_us"),
            F.min("mono_ns").alias("first_ns"),
            F.max("mono_ns").alias("last_ns"),
            F.max(F.when(F.col("kind") == "heard", F.lit("summary"))).alias("batch"),
            F.max("window_ns").alias("summary_ns"),
        )
        of_parts = parts.withColumns({"truth": F.lit(False), "summary_ns": F.lit(None).cast("long")})
        both = of_parts.select(*of_rows.columns).unionByName(of_rows)
        divided = (F.max("batch") != F.min("batch")) | (F.max("batch") == F.lit("summary"))
        return both.groupBy("path", *BOOT, "truth").agg(
            *numbering.merge(),
            *_times(),
            F.coalesce(divided, F.lit(False)).alias("divided"),
            F.max("batch").isNotNull().alias("has_windows"),
            F.max("summary_ns").alias("summary_ns"),
        )

    def _doubtful(self, extent: DataFrame) -> DataFrame | None:
        """Boots with inconsistent numbers."""
        of_boot = extent.groupBy(*BOOT).agg(*numbering.merge())
        found = made(of_boot.where(~numbering.is_whole()).select(*BOOT))
        return None if found.isEmpty() else found

    def _heard(self, parts: DataFrame, rows: DataFrame, extent: DataFrame) -> DataFrame:
        """The table `Heard`. A boot whose heartbeats are in one file that was read at once has each window
        once: nothing is merged for it."""
        names = [*heartbeats.KEY, *heartbeats.VALUES]
        parts = parts.select(*names)
        several = (F.count_distinct("path") > 1) | F.max("divided")
        of_boots = extent.where("has_windows").groupBy(*BOOT).agg(several.alias("several"))
        divided = made(of_boots.where("several").select(*BOOT))
        if not divided.isEmpty():
            merged = heartbeats.merge(_of(parts, divided).unionByName(rows.select(*names))).persist()
            self._kept.append(merged)
            parts = _without(parts, divided).unionByName(merged.select(*names))
        return parts.withColumnRenamed("node", "dst").select(*table_schema(Heard).names)

    def _names(self) -> DataFrame:
        files = [(file.path, file.name, file.bytes, file.damage) for file in self._files]
        return self._spark.createDataFrame(files, "listed string, file string, bytes long, damage string")


def _files(names: DataFrame, extent: DataFrame, counts: DataFrame, bad: DataFrame) -> DataFrame:
    gaps = F.col("last_seq") - F.col("first_seq") + 1 - F.col("numbers")
    of_run = (
        extent.join(counts, ["path", *BOOT])
        .groupBy("path", "run")
        .agg(
            *(F.sum(name).alias(name) for name in ("rows", "duplicates", "conflicts")),
            F.sum(gaps).alias("gaps"),
            F.min("first_us").alias("first"),
            F.max("last_us").alias("last"),
        )
    )
    unknown = F.col("problem").isin(*UNKNOWN)
    bad_lines = bad.groupBy("path").agg(
        F.count(F.when(unknown, 1)).alias("unknown"), F.count(F.when(~unknown, 1)).alias("corrupt")
    )
    # Bad lines name no run. They go to the first run of their file.
    first_run = of_run.groupBy("path").agg(F.min("run").alias("run"))
    placed = bad_lines.join(first_run, "path", "left")
    zero = F.lit(0).cast("long")
    both = of_run.withColumns({"unknown": zero, "corrupt": zero}).unionByName(
        placed, allowMissingColumns=True
    )
    amounts = ("rows", "duplicates", "conflicts", "gaps", "unknown", "corrupt")
    summed = both.groupBy("path", "run").agg(
        *(F.coalesce(F.sum(name), zero).alias(name) for name in amounts),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    rows = names.join(summed.withColumn("listed", listed(F.col("path"))), "listed", "left")
    counted = [F.coalesce(name, zero).alias(name) for name in amounts]
    filled = rows.select("run", "file", "bytes", *counted, "first", "last", "damage")
    lines = F.col("rows") + F.col("duplicates") + F.col("unknown") + F.col("corrupt")
    # Spark takes a file for empty that is not on the machine of the task.
    absent = (F.col("lines") == 0) & (F.col("bytes") > 0) & F.col("file").rlike(GROWN)
    # Spark leaves out a file of no byte, although one of this format has a header.
    no_byte = F.when(F.col("file").endswith(COMPRESSED), F.lit(ENDS_EARLY))
    for suffix in PARQUET:
        no_byte = no_byte.when(F.col("file").endswith(suffix), F.lit(NOT_PARQUET))
    unread = F.when(absent, F.lit(ABSENT)).when(F.col("bytes") == 0, no_byte)
    return (
        filled.withColumn("lines", lines)
        .withColumn("damage", F.coalesce("damage", unread))
        .select(*table_schema(FileRow).names)
    )


def _boots(kinds: dict[str, DataFrame], extent: DataFrame, counts: DataFrame, bad: DataFrame) -> DataFrame:
    ends = (
        kinds["meta"]
        .groupBy(*BOOT)
        .agg(
            *(F.max_by(name, "seq").alias(name) for name in ABOUT),
            F.min(F.when(F.col("op") == "stop", F.col("mono_ns"))).alias("stopped_ns"),
            F.max_by("reason", F.when(F.col("op") == "stop", F.col("seq"))).alias("reason"),
        )
    )
    leaving = kinds["mem"].where((F.col("subject") == F.col("node")) & (F.col("to_state") == "left"))
    left = leaving.groupBy(*BOOT).agg(F.min("mono_ns").alias("left_ns"))
    cut = bad.where(F.col("problem") == NOT_JSON).groupBy("path").agg(F.count(F.lit(1)).alias("cut"))
    missing = F.col("last_seq") - F.col("first_seq") + 1 - F.col("numbers")
    torn = F.coalesce("cut", F.lit(0)) > missing
    spans = (
        extent.where(~F.col("truth"))
        .join(counts, ["path", *BOOT])
        .join(cut, "path", "left")
        .groupBy(*BOOT)
        .agg(
            F.min("first_seq").alias("first_seq"),
            F.max("last_seq").alias("last_seq"),
            F.sum("rows").alias("rows"),
            *_times(),
            F.max_by(torn, "last_seq").alias("torn"),
            F.max("summary_ns").alias("summary_ns"),
        )
    )
    joined = spans.join(ends, list(BOOT), "left").join(left, list(BOOT), "left")
    times = ("first_ns", "last_ns", "first_us", "last_us", "first_seq", "last_seq", "rows")
    return joined.select(*BOOT, *ABOUT, *times, "stopped_ns", "reason", "left_ns", "torn", "summary_ns")


def _kind(rows: DataFrame, kind: str) -> DataFrame:
    return rows.where(F.col("kind") == kind).select(*_columns(kind)).drop("kind")


def _columns(*kinds: str) -> list[str]:
    """The columns of these kinds, each once."""
    names = dict.fromkeys(name for kind in kinds for name in columns(KINDS[kind]))
    return ["kind", "us", *(name for name in names if name not in ("v", "ts"))]


def _named(rows: DataFrame, names: DataFrame) -> DataFrame:
    """With the ``file`` for each path."""
    return rows.withColumn("listed", listed(F.col("path"))).join(names, "listed")


def _times() -> list[Column]:
    least, most = ("first_us", "first_ns"), ("last_us", "last_ns")
    return [*(F.min(name).alias(name) for name in least), *(F.max(name).alias(name) for name in most)]


def _of(rows: DataFrame, boots: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(boots), list(BOOT), "left_semi")


def _without(rows: DataFrame, boots: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(boots), list(BOOT), "left_anti")
