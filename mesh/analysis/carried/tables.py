"""Brokers, links, traffic and drops, computed by Spark from `stats` rows and from `heard`.

Counters of `stats` rows are cumulative since boot. So the last row of a boot has its sum, and a broker's sum
is that of its boots. The last seconds of a killed broker, up to `stats_s`, are unknown. ``delivered`` may
fall within a boot: it loses the messages in flight on a lost link or session.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from mesh.analysis.carried.pairs import of_links

BROKER_COUNTERS: Final = ("published", "delivered", "dropped")
LINK_COUNTERS: Final = ("msgs_in", "msgs_out", "bytes_in", "bytes_out", "dropped", "lost")
SENT: Final = ("msgs_out", "bytes_out")


def brokers(boots: DataFrame, said: DataFrame, stats: DataFrame) -> DataFrame:
    """The table ``brokers``. ``boots`` and ``said`` have the columns of those records in
    `mesh.analysis.facts`."""
    counted = (
        stats.groupBy("run", "node", "boot")
        .agg(
            *(F.max_by(name, "seq").alias(name) for name in BROKER_COUNTERS),
            F.max("rss_bytes").alias("rss_bytes_max"),
            F.max("loop_late_ms_max").alias("loop_late_ms_max"),
            F.percentile_approx("loop_late_ms_p50", 0.5).alias("loop_late_ms_p50"),
        )
        .groupBy("run", "node")
        .agg(
            *(F.sum(name).alias(name) for name in BROKER_COUNTERS),
            *(F.max(name).alias(name) for name in ("rss_bytes_max", "loop_late_ms_p50", "loop_late_ms_max")),
        )
    )
    told = F.nullif(F.nullif("name", F.lit("")), "node")  # a boot without a `meta` row has its id for a name
    latest = (F.max_by(name, "first").alias(name) for name in ("period_s", "deadline_s", "stats_s"))
    known = boots.groupBy("run", "node").agg(
        F.coalesce(F.max_by(told, F.when(told.isNotNull(), F.col("first"))), F.first("node")).alias("name"),
        F.max_by("host", "first").alias("host"),
        F.max_by("version", "first").alias("version"),
        F.countDistinct("boot").alias("boots"),
        *latest,
    )
    told_of = (
        said.groupBy("run", F.col("subject").alias("node"))
        .agg(F.max_by("subject_name", F.when(F.col("subject_name") != "", F.col("at"))).alias("name"))
        .join(F.broadcast(known.select("run", "node")), ["run", "node"], "left_anti")
        .select("run", "node", F.coalesce("name", "node").alias("name"), F.lit(0).cast("long").alias("boots"))
    )
    return known.join(counted, ["run", "node"], "left").unionByName(told_of, allowMissingColumns=True)


def drops(stats: DataFrame) -> DataFrame:
    """The table ``drops``."""
    reasons = stats.select("run", "node", "boot", F.explode("drops").alias("reason", "count"))
    of_boot = reasons.groupBy("run", "node", "boot", "reason").agg(F.max("count").alias("count"))
    return of_boot.groupBy("run", "node", "reason").agg(F.sum("count").alias("count"))


def links(stats: DataFrame, pairs: DataFrame) -> DataFrame:
    """The table ``links``. ``pairs`` are those of `mesh.analysis.carried.pairs`."""
    each = stats.select("run", "node", "boot", F.explode("links").alias("link"))
    of_boot = each.groupBy("run", "node", "boot", F.col("link.peer").alias("peer")).agg(
        *(F.max(f"link.{name}").alias(name) for name in LINK_COUNTERS)
    )
    counted = of_boot.groupBy("run", "node", "peer").agg(*(F.sum(name).alias(name) for name in LINK_COUNTERS))
    # A broker lists each link that carried something. One that never wrote its counters tells nothing.
    told = F.broadcast(stats.select("run", "node", F.lit(0).alias("least")).distinct())
    both = counted.join(of_links(pairs), ["run", "node", "peer"], "full").join(told, ["run", "node"], "left")
    return both.select(
        *("run", "node", "peer"),
        *(F.coalesce(name, "least").alias(name) for name in LINK_COUNTERS),
        F.coalesce("answers", F.lit(0)).alias("answers"),
        *("rtt_p50_us", "rtt_p99_us", "missed"),
    )


def traffic(stats: DataFrame, window_s: float) -> DataFrame:
    """The table ``traffic``: the growth in each window, up to the last `stats` row in it.

    ``stats`` has a column ``at``: microseconds in mesh time, and ``first_seq``: the first number of its boot
    that is there.
    """
    window_us = round(window_s * 1e6)
    boot = Window.partitionBy("run", "node", "boot").orderBy("seq")
    sent = {
        name: F.expr(f"aggregate(links, 0L, (sum, link) -> sum + coalesce(link.{name}, 0L))") for name in SENT
    }
    counted = stats.select(
        *("run", "node", "boot", "first_seq", "seq", "at", "loop_late_ms_max", "rss_bytes", *BROKER_COUNTERS),
        *(F.coalesce(total, F.lit(0)).alias(name) for name, total in sent.items()),
    )
    grown = [_grown(name, boot).alias(name) for name in BROKER_COUNTERS]
    added = grown + [_added(name, boot).alias(name) for name in SENT]
    start = (F.floor(F.col("at") / window_us) * window_us).alias("start")
    return (
        counted.select("run", "node", "at", "loop_late_ms_max", "rss_bytes", *added)
        .groupBy("run", start, "node")
        .agg(
            *(F.sum(name).alias(name) for name in (*BROKER_COUNTERS, *SENT)),
            F.max("loop_late_ms_max").alias("loop_late_ms_max"),
            F.max("rss_bytes").alias("rss_bytes"),
        )
        .withColumn("window_s", F.lit(float(window_s)))
        .withColumn("owed", F.col("delivered") + F.col("dropped"))
    )


def _grown(name: str, boot: WindowSpec) -> Column:
    """Growth since the row before. Negative if the counter fell. NULL if the boot's first files are gone: the
    first row left has the sum of all that was before."""
    return F.col(name) - F.coalesce(F.lag(name).over(boot), F.when(F.col("first_seq") == 1, F.lit(0)))


def _added(name: str, boot: WindowSpec) -> Column:
    """Growth of a sum over links since the row before. A sum that fell has lost a link and starts anew."""
    growth = _grown(name, boot)
    return F.when(growth < 0, F.col(name)).otherwise(growth)
