"""Traces of the Failure Trace Archive as lives, so that other systems have the same figures.

A trace has one event on each line, in columns separated by blanks or commas: event_id, component_id, node_id,
platform_id, node_name, event_type (0: not available, 1: available), start, stop in seconds since the epoch,
end_reason. Lines that begin with ``#``, and a first line of names, are not events. A trace may be gzipped.

The state of a node between two events is unknown where the trace has none. Each end of availability is a
failure, as in the archive. A node is identified by its platform and its number; the tables show it as 16 hex
digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from mesh.errors import MeshError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS: Final = (
    "event_id",
    "component_id",
    "node_id",
    "platform_id",
    "node_name",
    "event_type",
    "start",
    "stop",
    "end_reason",
)
NUMBERS: Final = ("node_id", "platform_id", "event_type", "start", "stop")
PLATFORM: Final = 1 << 32
"""Node numbers are smaller. In the 16 digits the platform's number comes first."""


class NoTrace(MeshError):
    """The file is not a trace."""


def read_trace(spark: SparkSession, place: str, run: str) -> DataFrame:
    """The columns of the table ``lives``, with instants in microseconds; ``run`` names the trace.

    Raises:
        NoTrace: a line is no event, or there is none.
    """
    lines = spark.read.text(place).where((F.trim("value") != "") & ~F.col("value").startswith("#"))
    words = F.split(F.trim("value"), r"[\s,]+")
    events = lines.select("value", words.alias("words")).where(F.col("words")[0] != COLUMNS[0])
    events = events.select(
        "value", *(F.try_element_at("words", F.lit(n)).alias(name) for n, name in enumerate(COLUMNS, 1))
    ).withColumns({name: F.expr(f"try_cast(try_cast({name} as double) as bigint)") for name in NUMBERS})
    _check(events, place)
    return _as_lives(events, run)


def _check(events: DataFrame, place: str) -> None:
    good = (
        F.col("event_type").isin(0, 1)
        & (F.col("stop") >= F.col("start"))
        & F.col("node_id").between(0, PLATFORM - 1)
        & F.col("platform_id").between(0, PLATFORM // 2 - 1)
    )
    bad = events.where(~F.coalesce(good, F.lit(False)))
    counted = events.agg(F.count(F.lit(1)).alias("events")).first()
    first = bad.select("value").first()
    if counted is None or not counted["events"]:
        raise NoTrace(f"{place} holds no event of a failure trace")
    if first is not None:
        raise NoTrace(
            f"{place}: {bad.count()} of {counted['events']} lines are not events of a failure trace; "
            f"the first is {first['value'].strip()[:80]!r}"
        )


def _as_lives(events: DataFrame, run: str) -> DataFrame:
    rows = events.select(
        F.lpad(F.lower(F.hex(F.col("platform_id") * PLATFORM + F.col("node_id"))), 16, "0").alias("node"),
        F.when(F.col("event_type") == 1, "up").otherwise("down").alias("state"),
        (F.col("start") * 1_000_000).alias("start"),
        (F.col("stop") * 1_000_000).alias("end"),
    )
    of_node = Window.partitionBy("node").orderBy("start", "end", "state")
    rows = rows.withColumns(
        {"next_start": F.lead("start").over(of_node), "next_state": F.lead("state").over(of_node)}
    )
    gaps = rows.where(F.col("next_start") > F.col("end")).select(
        "node",
        F.lit("unknown").alias("state"),
        F.col("end").alias("start"),
        F.col("next_start").alias("end"),
        F.lit("heard again").alias("cause"),
    )
    both = rows.withColumn("cause", _cause()).drop("next_start", "next_state").unionByName(gaps)
    no = F.row_number().over(of_node).cast("long")
    return both.select(
        F.lit(run).alias("run"),
        "node",
        no.alias("no"),
        F.lit(None).cast("string").alias("boot"),
        "state",
        "start",
        "end",
        "cause",
        F.lit(False).alias("truncated"),
        F.col("cause").isNull().alias("censored"),
        F.lit(0.0).alias("error_s"),
        F.lit(None).cast("long").alias("met"),  # no peer reports in such a trace
    )


def _cause() -> Column:
    """The next event of the trace, which may have the same state."""
    last = F.col("next_state").isNull()
    unknown = F.col("next_start") > F.col("end")
    return (
        F.when(last, F.lit(None).cast("string"))
        .when(unknown, "log lost")
        .when(F.col("state") == "up", "crash")
        .otherwise("restart")
    )
