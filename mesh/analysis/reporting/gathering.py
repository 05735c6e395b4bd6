"""Collects the digest of the tables on the driver. Spark reduces what would grow with pairs or time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from mesh.analysis.reporting.digest import (
    BROKERS_MOST,
    LINKS_MOST,
    WINDOWS_MOST,
    Digest,
    Heartbeats,
    Holes,
    Mistaken,
)
from mesh.analysis.results.tables import TABLES, Churn, Link, Traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = TypeVar("Row", bound=msgspec.Struct)

WHOLE: Final = "files brokers lives availability survival parts part_sides drops matches".split()
"""Tables that grow only with brokers and their events."""


def digest_of(tables: Mapping[str, DataFrame]) -> Digest:
    """The digest of tables by name. A missing table counts as empty.

    Frames have the columns of their tables, with instants as microseconds.
    """
    from pyspark.sql import functions as F

    gathered: dict[str, list[msgspec.Struct]] = {
        name: _records(tables.get(name), TABLES[name]) for name in WHOLE
    }
    changes, detector, views = tables.get("changes"), tables.get("detector"), tables.get("views")
    gathered["changes"] = _records(
        None if changes is None else changes.where(F.col("state").isin("dead", "left")), TABLES["changes"]
    )
    gathered["detector"] = _records(
        None if detector is None else detector.where("observer = '*' or subject = '*'"), TABLES["detector"]
    )
    gathered["views"] = _records(None if views is None else views.where("agree < 1"), TABLES["views"])
    gathered["clocks"] = _records(_worst_clocks(tables.get("clocks")), TABLES["clocks"])
    gathered["churn"] = _records(_fewer_windows(tables.get("churn")), Churn)
    gathered["links"] = _records(_worst_links(tables.get("links")), Link)
    gathered["traffic"] = _records(_traffic(tables.get("traffic")), Traffic)
    gathered["holes"] = _records(_holes(tables.get("holes")), Holes)
    gathered["mistaken"] = _records(_mistaken(tables.get("mistakes")), Mistaken)
    gathered["heartbeats"] = _records(_heartbeats(tables.get("links"), tables.get("heard")), Heartbeats)
    return Digest(**gathered)  # type: ignore[arg-type]


def _records(frame: DataFrame | None, record: type[Row]) -> list[Row]:
    if frame is None:
        return []
    names = record.__struct_fields__
    return [record(*row) for row in frame.select(*names).collect()]


def _worst_clocks(clocks: DataFrame | None) -> DataFrame | None:
    """One row for each boot: the one with the largest error, or with steps."""
    from pyspark.sql import functions as F

    if clocks is None:
        return None
    names = TABLES["clocks"].__struct_fields__
    worst = F.struct(F.abs("wall_s"), F.coalesce("error_s", F.lit(0.0)), "steps")
    row = F.max_by(F.struct(*names), worst).alias("row")
    return clocks.groupBy("run", "node", "boot").agg(row).select("row.*")


def _fewer_windows(churn: DataFrame | None) -> DataFrame | None:
    """Merge windows until there are few enough for a plot."""
    from pyspark.sql import functions as F

    if churn is None:
        return None
    spans = churn.groupBy("run").agg(
        F.min("start").alias("zero"),
        F.ceil((F.max("start") - F.min("start")) / 1e6 / F.max("window_s") / WINDOWS_MOST).alias("factor"),
        F.max("window_s").alias("length_s"),
    )
    length = F.greatest("factor", F.lit(1)) * F.col("length_s")
    number = F.floor((F.col("start") - F.col("zero")) / 1e6 / length)
    return (
        churn.join(F.broadcast(spans), "run")
        .withColumn("wide_s", length)
        .withColumn("number", number)
        .groupBy("run", "zero", "wide_s", "number")
        .agg(
            F.min_by("alive", "start").alias("alive"),
            *(F.sum(name).alias(name) for name in ("joins", "leaves", "failures", "rejoins")),
            F.sum("rate").alias("rate"),
        )
        .select(
            "run",
            (F.col("zero") + F.col("number") * F.col("wide_s") * 1_000_000).cast("bigint").alias("start"),
            F.col("wide_s").cast("double").alias("window_s"),
            *("alive", "joins", "leaves", "failures", "rejoins", "rate"),
        )
        .orderBy("run", "start")
    )


def _worst_links(links: DataFrame | None) -> DataFrame | None:
    """The links that lost, dropped or missed most, then the slowest."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if links is None:
        return None
    counts = [F.coalesce(name, F.lit(0)) for name in ("lost", "dropped", "missed")]
    lost = counts[0] + counts[1] + counts[2]
    worst = Window.partitionBy("run").orderBy(lost.desc(), F.desc_nulls_last("rtt_p99_us"), "node", "peer")
    return (
        links.withColumn("rank", F.row_number().over(worst)).where(F.col("rank") <= LINKS_MOST).drop("rank")
    )


def _traffic(traffic: DataFrame | None) -> DataFrame | None:
    """For large runs the sum over all brokers, with the worst lateness."""
    from pyspark.sql import functions as F

    if traffic is None:
        return None
    many = traffic.groupBy("run").agg((F.countDistinct("node") > BROKERS_MOST).alias("many"))
    both = traffic.join(F.broadcast(many), "run").withColumn(
        "node", F.when(F.col("many"), F.lit("*")).otherwise(F.col("node"))
    )
    summed = ("published", "delivered", "owed", "dropped", "msgs_out", "bytes_out", "rss_bytes")
    return (
        both.groupBy("run", "start", "window_s", "node")
        .agg(
            *(F.sum(name).alias(name) for name in summed), F.max("loop_late_ms_max").alias("loop_late_ms_max")
        )
        .orderBy("run", "start", "node")
    )


def _holes(holes: DataFrame | None) -> DataFrame | None:
    from pyspark.sql import functions as F

    if holes is None:
        return None
    length = F.col("end") - F.col("start")
    return holes.groupBy("run", "node").agg(
        F.count("*").alias("holes"),
        F.sum("rows").alias("rows"),
        F.max_by("start", length).alias("start"),
        F.max_by("end", length).alias("end"),
    )


def _mistaken(mistakes: DataFrame | None) -> DataFrame | None:
    from pyspark.sql import functions as F

    if mistakes is None:
        return None
    return mistakes.groupBy("run", "subject", "state", "cause").agg(
        F.count("*").alias("count"),
        F.countDistinct("observer").alias("observers"),
        F.max((F.col("end") - F.col("start")) / 1e6).alias("longest_s"),
    )


def _heartbeats(links: DataFrame | None, heard: DataFrame | None) -> DataFrame | None:
    """Sums over all links. Quantiles of round trips are those of all links pooled, from packed counters."""
    from pyspark.sql import functions as F

    from mesh.analysis.carried.pairs import pooled_round_trips

    if links is None or heard is None:
        return None
    missed = links.groupBy("run").agg(F.sum("missed").alias("missed"), F.count("*").alias("links"))
    surveys = heard.groupBy("run").agg(F.sum("surveys").alias("heard"))
    return (
        missed.join(surveys, "run", "left")
        .join(pooled_round_trips(heard), "run", "left")
        .select(
            "run",
            "links",
            *(F.coalesce(name, F.lit(0)).alias(name) for name in ("heard", "missed", "answers")),
            *("rtt_p50_us", "rtt_p99_us"),
            F.col("least").alias("rtt_min_us"),
            F.coalesce("counts", F.array().cast("array<bigint>")).alias("rtt_counts"),
        )
    )
