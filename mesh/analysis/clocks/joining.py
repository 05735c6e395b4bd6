"""Joins windows that follow one another without a silence, in Spark.

Nearly all windows do, and Python takes ten times as long as Spark to look at one. So Python gets one row for
each run of such windows, and each window that may have a silence in it.

The conditions here are stricter than those of `mesh.analysis.clocks.stretches`, which decides: it joins what
is left apart here without a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from mesh.eventlog.windows import PERIODS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

GAP: Final = 1.9
"""Periods. No silence that counts is shorter: 2.2, less a quarter where its ends are not exact."""
SPREAD: Final = (1, 2, 3)
"""Steps in which an occupied quarter is spread over the six behind it, so that quarters up to 1.75 periods
apart touch."""
SIGN: Final = -(2**63)
"""The last quarter alone. One less does not fit into 64 bits."""


def joined(windows: DataFrame, *keys: str, sums: Sequence[Column] = ()) -> DataFrame:
    """Windows (``window``, ``window_ns``, ``first_ns``, ``last_ns``, ``slots``) by ``keys``, with their
    ``start_ns``. Windows without a silence in or between them become one row, whose ``slots`` are 0. ``sums``
    are aggregates over the windows of a row."""
    order = in_order(*keys)
    gap = F.expr(f"window_ns * {GAP / PERIODS}")
    follows = F.col("first_ns") - F.lag("last_ns").over(order) < gap
    goes_on = F.col("solid") & F.lag("solid").over(order) & follows
    begins = F.when(F.coalesce(goes_on, F.lit(False)), 0).otherwise(1)
    of_rows = (
        windows.withColumn("solid", _solid())
        .withColumn("begins", begins)
        .withColumn("number", F.sum("begins").over(order))
    )
    start = F.min(F.expr("window * window_ns")).alias("start_ns")
    return of_rows.groupBy(*keys, "number").agg(
        start,
        F.max("window_ns").alias("window_ns"),
        F.min("first_ns").alias("first_ns"),
        F.max("last_ns").alias("last_ns"),
        F.max(F.when(F.col("solid"), F.lit(0).cast("long")).otherwise(F.col("slots"))).alias("slots"),
        *sums,
    )


def in_order(*keys: str) -> WindowSpec:
    """The order in which windows are joined. Spark sorts once for all that use it."""
    return Window.partitionBy(*keys).orderBy("first_ns", "window")


def _solid() -> Column:
    """True if the quarters from the first occupied one to the end of the window have no silence."""
    slots = F.col("slots")
    spread = slots
    for step in SPREAD:
        spread = spread.bitwiseOR(F.shiftleft(spread, step))
    below = F.when(slots == SIGN, F.lit(-1)).otherwise(F.bitwise_not(slots).bitwiseAND(slots - 1))
    return F.coalesce(spread.bitwiseOR(below) == -1, F.lit(False))
