"""Frames that several others stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.analysis.made import FEW, by_column, made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("rows", "parts"), [(0, 1), (100, 1), (FEW + 100, 2)])
def test_few_rows_are_few_partitions_however_they_are_kept(
    spark: SparkSession, rows: int, parts: int
) -> None:
    """A batch of the store had eight files for a few thousand rows."""
    frame = spark.range(0, rows, numPartitions=8)
    kept = frame.persist()
    try:
        for found in (made(frame), by_column(kept)):
            assert found.rdd.getNumPartitions() == parts
            assert found.count() == rows
    finally:
        kept.unpersist()
