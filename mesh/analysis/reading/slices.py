"""Byte ranges of files on any of Spark's file systems: only the data added to a file.

Spark's text reader has no offsets. A growing file has at most 64 MiB, so it is read as a whole and cut by
bytes. Only the new lines are parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from mesh.analysis.reading.coverage import Head, Slice
from mesh.analysis.reading.finding import escaped
from mesh.analysis.reading.sources import listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mesh.analysis.reading.finding import LogFile


def lines_of_slices(spark: SparkSession, slices: Sequence[Slice]) -> DataFrame:
    """``path`` and ``line`` of these bytes. A last line without an end counts too."""
    spans = [(part.file.path, part.start, part.end) for part in slices]
    ends = spark.createDataFrame(spans, "listed string, start int, stop int")
    cut = _contents(spark, [part.file for part in slices]).join(F.broadcast(ends), "listed")
    text = F.expr("cast(substring(content, start + 1, stop - start) as string)")
    lines = cut.select("path", F.explode(F.split(text, "\r?\n")).alias("line"))
    return lines.where(F.col("line") != "")


def heads_of(spark: SparkSession, files: Sequence[LogFile]) -> dict[str, Head]:
    """By file name: the end of the last complete line, and a hash of the first."""
    if not files:
        return {}
    text = F.col("content").cast("string")
    rest = F.octet_length(F.substring_index(text, "\n", -1))
    first = F.when(text.contains("\n"), F.sha2(F.substring_index(text, "\n", 1), 256).substr(1, 16))
    size = F.octet_length("content")
    found = _contents(spark, files).select(
        "listed", size.alias("bytes"), (size - rest).alias("whole"), first.alias("first")
    )
    heads = {row["listed"]: Head(row["bytes"], row["whole"], row["first"]) for row in found.collect()}
    nothing = Head(0, 0, None)  # an empty file has no content
    return {file.name: heads.get(file.path, nothing) for file in files}


def _contents(spark: SparkSession, files: Sequence[LogFile]) -> DataFrame:
    # A file that was renamed meanwhile must not look like one without new lines.
    reader = spark.read.format("binaryFile").option("ignoreMissingFiles", "false")
    found = reader.load([escaped(file.path) for file in files])
    path = F.col("_metadata.file_path")
    return found.select(path.alias("path"), listed(path).alias("listed"), "content")
