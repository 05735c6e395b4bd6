"""Finds damaged files, compressed or Parquet, after Spark failed to read them.

It reads the files again with Spark's strict readers, so what it finds is what the analysis failed for. It
halves the list until each damaged file is alone. One among a thousand takes twenty jobs, which together read
each file about twice. One more job shows if Spark can read past the damage of a Parquet file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from mesh.analysis.reading.sources import lines_of, rows_of
from mesh.analysis.reading.spark_errors import damage_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mesh.analysis.reading.finding import LogFile

JAVA_ERRORS: Final = (PySparkException, Py4JError)
"""The classes in which an exception of Java arrives."""


def find_damage(spark: SparkSession, files: Sequence[LogFile]) -> dict[LogFile, LogFile]:
    """The damaged ones of these files, each as the file with its damage.

    Raises:
        PySparkException, Py4JError: a file cannot be read for another reason.
    """
    tables = [file for file in files if file.is_parquet]
    packed = [file for file in files if file.is_compressed]
    return _among(spark, packed) | _among(spark, tables)


def _among(spark: SparkSession, files: Sequence[LogFile]) -> dict[LogFile, LogFile]:
    """The files are all compressed, or all Parquet."""
    wrong = _damage_of(spark, files) if files else None
    if wrong is None:
        return {}
    if len(files) == 1:
        damaged = replace(files[0], damage=wrong)
        return {files[0]: replace(damaged, is_lost=_is_lost(spark, damaged))}
    half = len(files) // 2
    return _among(spark, files[:half]) | _among(spark, files[half:])


def _is_lost(spark: SparkSession, damaged: LogFile) -> bool:
    """True if the lenient reader does not help. It passes over its own errors only, and Spark decodes the
    texts of a Parquet file where a query uses them."""
    return damaged.is_parquet and _damage_of(spark, [damaged]) is not None


def _damage_of(spark: SparkSession, files: Sequence[LogFile]) -> str | None:
    """The damage that makes a reading of the files fail."""
    rows = rows_of(spark, files) if files[0].is_parquet else lines_of(spark, files)
    try:
        rows.write.format("noop").mode("overwrite").save()
    except JAVA_ERRORS as error:
        wrong = damage_in(str(error), parquet=files[0].is_parquet)
        if wrong is None:
            raise
        return wrong
    return None
