"""Files as rows. Heartbeats, which most rows are, have few columns and cheap checks; all others are complete.

Both kinds of source give the same columns:

* heartbeats: ``path``, ``ok``, ``run``, ``node``, ``boot``, ``seq``, ``mono_ns``, ``us`` (wall clock),
  ``src``, ``survey``, ``hb_seq``, ``rtt_us``. Their ids are not checked: code that groups them checks those
  of each group.
* others: ``path``, ``raw``, ``problem``, ``us`` and the columns of `mesh.analysis.reading.schema.row_type`
  except ``ts``. A row with a problem is invalid; ``raw`` is its text.

Of a damaged file, Spark reads what it can, and nothing of a lost one. The damage is one more invalid row,
without a text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from mesh.analysis.reading.finding import escaped
from mesh.analysis.reading.schema import US_MAX, problem, row_type, value_problem
from mesh.eventlog.rows import MICROS_MAX, NANOS_MAX, ROUND_MAX, SEQ_MAX, VERSION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

    from mesh.analysis.reading.finding import LogFile

HEARTBEAT: Final = "run ts mono_ns node boot seq msg src hb_seq rtt_us".split()
KIND_IN_PATH: Final = re.compile("/kind=([^/]+)/")
MARK: Final = '"kind":"hb"'
BEGINS: Final = '{"v":1,'
ID: Final = "^[0-9a-f]{16}$"


class Source(Protocol):
    """Files of one format."""

    def heartbeats(self) -> DataFrame: ...

    def others(self) -> DataFrame: ...

    def bad_heartbeats(self) -> DataFrame:
        """``path``, ``problem`` and ``raw`` of the invalid rows among `heartbeats`."""
        ...


class Lines:
    """JSON Lines. A line that looks like a broker's heartbeat is read as one. Everything else, such as half a
    line or two in one, is among the others. ``lines`` has the columns ``path`` and ``line``."""

    def __init__(self, lines: DataFrame) -> None:
        self._lines = lines
        line = F.col("line")
        # In bytes, since Spark takes as long to count the characters of a line as to parse it.
        before = F.octet_length(F.substring_index(line, "}", 1))
        is_one = before == F.octet_length(line) - 1
        self._beats = line.startswith(BEGINS) & is_one & line.contains(MARK)

    def heartbeats(self) -> DataFrame:
        columns = [field for field in row_type().fields if field.name in HEARTBEAT]
        return _as_heartbeats(self._parsed(self._beats, columns), F.col("_corrupt").isNull())

    def others(self) -> DataFrame:
        return _as_others(self._whole(~self._beats & (F.trim("line") != "")), F.col("line"))

    def bad_heartbeats(self) -> DataFrame:
        sound = F.col("_corrupt").isNull()
        return _bad_heartbeats(self._whole(self._beats), sound, F.col("line"))

    def _whole(self, which: Column) -> DataFrame:
        rows = self._parsed(which, row_type().fields)
        return rows.withColumn("problem", problem("_corrupt", "trim(line)"))

    def _parsed(self, which: Column, fields: list[StructField]) -> DataFrame:
        row = StructType([*fields, StructField("_corrupt", StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
        # As a table of one row. Otherwise Spark parses the line again for every column that is used.
        parsed = F.inline(F.array(F.from_json("line", row, options)))
        rows = self._lines.where(which).select("path", "line", parsed)
        return rows.withColumn("us", F.unix_micros(F.try_to_timestamp("ts")))


class Parquet:
    """Parquet with the columns of the event log, ``ts`` as a timestamp. The kind of its rows may be in a
    file's path, as ``kind=hb``. Such a file is read for its kind only."""

    def __init__(self, spark: SparkSession, files: Sequence[LogFile]) -> None:
        def of(files: Sequence[LogFile], kind: Column) -> list[DataFrame]:
            if not files:
                return []
            return [rows_of(spark, files).withColumns({"us": F.unix_micros("ts"), "kind": kind})]

        named = [(file, KIND_IN_PATH.search(file.path)) for file in files]
        mixed = of([file for file, kind in named if not kind], F.col("kind"))
        beats = of([file for file, kind in named if kind and kind[1] == "hb"], F.lit("hb"))
        in_path = F.regexp_extract("path", KIND_IN_PATH.pattern, 1)
        others = of([file for file, kind in named if kind and kind[1] != "hb"], in_path)
        is_beat = F.coalesce(F.col("kind") == "hb", F.lit(False))
        nothing = [rows.where(F.lit(False)) for rows in (beats + others)[:1]]
        self._beats = union([*beats, *(rows.where(is_beat) for rows in mixed)] or nothing)
        self._others = union([*others, *(rows.where(~is_beat) for rows in mixed)] or nothing)

    def heartbeats(self) -> DataFrame:
        return _as_heartbeats(self._beats, F.col("v") == VERSION)

    def others(self) -> DataFrame:
        return _as_others(_judged(self._others), _text())

    def bad_heartbeats(self) -> DataFrame:
        return _bad_heartbeats(_judged(self._beats), F.col("v") == VERSION, _text())


class Damage:
    """Damaged files: one invalid row for each."""

    def __init__(self, spark: SparkSession, files: Sequence[LogFile]) -> None:
        wrong = spark.createDataFrame(
            [(file.path, file.damage) for file in files], "listed string, problem string"
        )
        names = [escaped(file.path) for file in files]
        path = F.col("_metadata.file_path")
        found = spark.read.format("binaryFile").load(names).select(path.alias("path"))
        nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in row_type().fields]
        both = found.withColumn("listed", listed(F.col("path"))).join(F.broadcast(wrong), "listed")
        self._rows = both.select("path", "problem", *nothing).withColumn("us", F.lit(None).cast("long"))

    def heartbeats(self) -> DataFrame:
        return _as_heartbeats(self._rows.where(F.lit(False)), F.lit(False))

    def others(self) -> DataFrame:
        return _as_others(self._rows, F.lit(None).cast("string"))

    def bad_heartbeats(self) -> DataFrame:
        return self._rows.where(F.lit(False)).select(
            "path", "problem", F.lit(None).cast("string").alias("raw")
        )


def _judged(rows: DataFrame) -> DataFrame:
    """Rows of Parquet as those of lines, with their problem."""
    return rows.withColumn("problem", value_problem())


def _text() -> Column:
    """A row of Parquet as a line. Spark makes it of the rows that have a problem only, if it is no column."""
    columns: list[Column | str] = [field.name for field in row_type().fields]
    columns[columns.index("ts")] = F.date_format("ts", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("ts")
    return F.to_json(F.struct(*columns))


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def sources(spark: SparkSession, files: Sequence[LogFile]) -> list[Source]:
    """One source for each format that occurs, and one for damage."""
    lines = [file for file in files if not file.is_parquet]
    found: list[Source] = [Lines(lines_of(spark, lines))] if lines else []
    return found + tables_and_damage(spark, files)


def tables_and_damage(spark: SparkSession, files: Sequence[LogFile]) -> list[Source]:
    """One source for Parquet files, and one for the damaged among all files."""
    found: list[Source] = []
    if tables := [file for file in files if file.is_parquet and not file.is_lost]:
        found.append(Parquet(spark, tables))
    if damaged := [file for file in files if file.damage is not None]:
        found.append(Damage(spark, damaged))
    return found


def lines_of(spark: SparkSession, files: Sequence[LogFile]) -> DataFrame:
    """``path`` and ``line`` of whole files of JSON Lines."""
    path = F.col("_metadata.file_path").alias("path")
    return union(
        [
            reader.text(names).select(path, F.col("value").alias("line"))
            for reader, names in _readers(spark, files)
        ]
    )


def rows_of(spark: SparkSession, files: Sequence[LogFile]) -> DataFrame:
    """``path`` and the columns of the event log of whole Parquet files. ``ts`` is a timestamp."""
    fields = [
        StructField("ts", TimestampType()) if field.name == "ts" else field for field in row_type().fields
    ]
    path = F.col("_metadata.file_path").alias("path")
    return union(
        [
            reader.schema(StructType(fields)).parquet(*names).select("*", path)
            for reader, names in _readers(spark, files)
        ]
    )


def _readers(spark: SparkSession, files: Sequence[LogFile]) -> list[tuple[DataFrameReader, list[str]]]:
    """A strict reader for sound files and a lenient one for damaged files, each with its paths."""
    found = []
    for is_damaged in (False, True):
        names = [escaped(file.path) for file in files if (file.damage is not None) is is_damaged]
        if names:
            found.append((spark.read.option("ignoreCorruptFiles", is_damaged), names))
    return found


def listed(path: Column) -> Column:
    """A path in Spark's metadata, which is a URL, in the form of Spark's listing."""
    plain = F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(plain, "^file:/+", "file:/")


def heartbeats_of(others: DataFrame) -> DataFrame:
    """Heartbeats that were read as other rows, since they do not have the form that a broker writes."""
    return _as_heartbeats(others.where((F.col("kind") == "hb") & F.col("problem").isNull()), F.lit(True))


def ids_are_sound() -> Column:
    """True for valid ids of a heartbeat, or of a group of them."""
    found = F.lit(True)
    for name in ("node", "boot", "src"):
        found = found & F.coalesce(F.col(name).rlike(ID), F.lit(False))
    return found


def _as_heartbeats(rows: DataFrame, sound: Column) -> DataFrame:
    names = ("run", "node", "boot", "seq", "mono_ns", "us", "src")
    survey = (F.col("msg") == "survey").alias("survey")
    return rows.select("path", _is_sound(sound).alias("ok"), *names, survey, "hb_seq", "rtt_us")


def _is_sound(sound: Column) -> Column:
    rtt = F.col("rtt_us")
    ok = (
        sound
        & (F.col("run") != "")
        & F.col("us").between(0, US_MAX)
        & F.col("mono_ns").between(0, NANOS_MAX)
        & F.col("seq").between(1, SEQ_MAX)
        & F.col("msg").isin("survey", "answer")
        & F.col("hb_seq").between(0, ROUND_MAX)
        & (rtt.isNull() | rtt.between(0, MICROS_MAX))
    )
    return F.coalesce(ok, F.lit(False))


def _bad_heartbeats(rows: DataFrame, sound: Column, text: Column) -> DataFrame:
    bad = rows.where(~(_is_sound(sound) & ids_are_sound()))
    reason = F.coalesce("problem", F.lit("malformed heartbeat")).alias("problem")
    return bad.select("path", reason, text.alias("raw"))


def _as_others(rows: DataFrame, text: Column) -> DataFrame:
    columns = [field.name for field in row_type().fields if field.name != "ts"]
    raw = F.when(F.col("problem").isNotNull(), text).alias("raw")
    return rows.select("path", "problem", raw, "us", *columns)
