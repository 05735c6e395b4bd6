"""Finds the damaged ones among files that Spark could not read: compressed lines and Parquet.

Spark's own readers judge, each strictly and without keeping anything. So nothing is examined unless a reading
has failed, and the verdict is that of the reading. Halves of the files are read until each damaged one is
alone: one among a thousand takes twenty jobs, which together read each file about twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from mesh.analysis.reading.failures import damage
from mesh.analysis.reading.sources import lines_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mesh.analysis.reading.finding import LogFile

JAVA: Final = (PySparkException, Py4JError)
"""The forms in which a failure of Java arrives."""


def find_damage(spark: SparkSession, files: Sequence[LogFile]) -> dict[LogFile, str]:
    """What is wrong with each damaged file.

    Raises:
        PySparkException, Py4JError: a file cannot be read for another reason.
    """
    tables = [file for file in files if file.is_parquet]
    packed = [file for file in files if file.is_compressed]
    return _among(spark, packed) | _among(spark, tables)


def _among(spark: SparkSession, files: Sequence[LogFile]) -> dict[LogFile, str]:
    """All of them are of one format."""
    if not files:
        return {}
    rows = rows_of(spark, files) if files[0].is_parquet else lines_of(spark, files)
    try:
        rows.write.format("noop").mode("overwrite").save()
    except JAVA as error:
        wrong = damage(str(error), parquet=files[0].is_parquet)
        if wrong is None:
            raise
        if len(files) == 1:
            return {files[0]: wrong}
    else:
        return {}
    half = len(files) // 2
    return _among(spark, files[:half]) | _among(spark, files[half:])
