"""Frames that several others stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW: Final = 50_000
"""So many rows take one task about as long as several tasks take to exchange them."""


def made(frame: DataFrame) -> DataFrame:
    """The frame, computed now, without the plan that led to it.

    A plan that holds the plans of all it stands on takes Spark minutes to look at. Rows that fit into one
    partition are put into one: otherwise Spark exchanges them before each group and join, which takes longer
    than the work itself. More rows get as few partitions as hold `FEW` rows each, since a task costs 10 ms
    even without rows. The rows are counted while they are computed.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    counted = Observation()
    kept = frame.observe(counted, F.count(F.lit(1)).alias("rows")).localCheckpoint()
    return _in_few_parts(kept, counted.get["rows"])


def by_column(kept: DataFrame) -> DataFrame:
    """The rows of a persisted frame, which is computed now, in as few partitions as `made` makes.

    For rows with many columns that are mostly empty: kept by column, these take next to no memory. Release
    ``kept`` after use.
    """
    return _in_few_parts(kept, kept.count())


def _in_few_parts(frame: DataFrame, rows: int) -> DataFrame:
    return frame.coalesce(rows // FEW + 1)
