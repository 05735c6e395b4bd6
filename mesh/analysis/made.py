"""Frames that several others stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def made(frame: DataFrame) -> DataFrame:
    """The frame, computed now, without the plan that led to it.

    A plan that holds the plans of all it stands on takes Spark minutes to look at. Where one partition is
    enough, Spark is told that there is one: else it exchanges rows before each group and join.
    """
    if frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1":
        frame = frame.coalesce(1)
    return frame.localCheckpoint()
