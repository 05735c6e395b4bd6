"""Rows whose number occurs more than once in a boot: copies, and other rows with the same number.

One of the rows with a number stays. Among equal rows any does; among different ones it is the one whose
content has the lowest hash, wherever it is. So the result does not depend on the order of files and rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from mesh.analysis.reading.schema import row_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BOOT: Final = ("run", "node", "boot")
NUMBER: Final = (*BOOT, "seq")
LATE_NS: Final = 1_000_000_000
"""A broker writes the rows of a window within this time of its end."""
HOLES: Final = "run string, node string, boot string, start_ns long, end_ns long, rows long"
BEAT: Final = ("us", "mono_ns", "src", "survey", "hb_seq", "rtt_us")


class Repeats:
    """The boots concerned, with their heartbeats and other rows, all of them valid."""

    def __init__(self, beats: DataFrame, others: DataFrame) -> None:
        names = [field.name for field in row_type().fields if field.name not in ("ts", "kind")]
        text = F.to_json(F.struct(*names))
        self._beats = beats.withColumn("content", F.xxhash64(F.lit("hb"), *BEAT)).persist()
        self._others = others.withColumn("content", F.xxhash64("kind", "us", text))
        rows = self._beats.select("path", *NUMBER, "mono_ns", "content").unionByName(
            self._others.select("path", *NUMBER, "mono_ns", "content")
        )
        self._rows = rows
        self._stay = rows.groupBy(*NUMBER).agg(
            F.min("content").alias("stays"),
            F.min("path").alias("first_path"),
            F.min("mono_ns").alias("ns"),
        )

    def beats(self) -> DataFrame:
        """Each heartbeat once, without its path."""
        kept = self._beats.join(self._stay, list(NUMBER)).where(F.col("content") == F.col("stays"))
        return kept.select(*NUMBER, *BEAT).distinct()

    def others(self) -> DataFrame:
        """Each other row once."""
        kept = self._others.join(self._stay, list(NUMBER)).where(F.col("content") == F.col("stays"))
        return kept.dropDuplicates(list(NUMBER)).drop("content", "stays", "first_path", "ns")

    def counts(self) -> DataFrame:
        """By file and boot: ``rows`` that stay, ``duplicates``, ``conflicts`` among these, and the
        ``numbers`` that occur."""
        here = (
            self._rows.join(self._stay, list(NUMBER))
            .groupBy("path", *NUMBER)
            .agg(
                F.count(F.lit(1)).alias("copies"),
                F.count(F.when(F.col("content") != F.col("stays"), 1)).alias("others"),
                F.min("first_path").alias("first_path"),
            )
        )
        first = F.when(F.col("path") == F.col("first_path"), 1).otherwise(0)
        return here.groupBy("path", *BOOT).agg(
            F.sum(first).alias("rows"),
            F.sum(F.col("copies") - first).alias("duplicates"),
            F.sum("others").alias("conflicts"),
            F.count(F.lit(1)).alias("numbers"),
        )

    def holes(self) -> DataFrame:
        """`HOLES`: where numbers are missing between two rows of a boot. A row of kind ``heard`` is written
        at the end of its window, so a hole in a log of summaries begins with a window."""
        in_order = Window.partitionBy(*BOOT).orderBy("seq")
        before, before_ns = (F.lag(name).over(in_order) for name in ("seq", "ns"))
        summed = self._others.groupBy(*BOOT).agg(F.max("window_ns").alias("length"))
        return (
            self._stay.select(*BOOT, "seq", "ns", before.alias("before"), before_ns.alias("before_ns"))
            .where("seq > before + 1")
            .join(F.broadcast(summed), list(BOOT), "left")
            .select(
                *BOOT,
                F.expr(f"coalesce(greatest(before_ns - {LATE_NS}, 0) div length * length, before_ns)").alias(
                    "start_ns"
                ),
                F.col("ns").alias("end_ns"),
                (F.col("seq") - F.col("before") - 1).alias("rows"),
            )
        )

    @property
    def kept(self) -> tuple[DataFrame, ...]:
        """Frames that Spark keeps for it."""
        return (self._beats,)
