"""Brokers, links, traffic and drops, computed by Spark from `stats` rows and from `heard`.

Counters of `stats` rows are cumulative since boot. So the last row of a boot has its sum, and a broker's sum
is that of its boots. The last seconds of a killed broker, up to `stats_s`, are unknown. ``delivered`` may
fall within a boot: it loses the messages in flight on a lost link or session.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from mesh.analysis.carried.round_trips import COUNTER_BITS, IN_NUMBER, quantile_us

BROKER_COUNTERS: Final = ("published", "delivered", "dropped")
LINK_COUNTERS: Final = ("msgs_in", "msgs_out", "bytes_in", "bytes_out", "dropped", "lost")
SENT: Final = ("msgs_out", "bytes_out")
PACKED: Final = ("rtt_low", "rtt_mid", "rtt_high")


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


def links(stats: DataFrame, heard: DataFrame, mem: DataFrame, holes: DataFrame) -> DataFrame:
    """The table ``links``. ``heard``, ``mem`` and ``holes`` are those of `mesh.analysis.reading.logs`."""
    each = stats.select("run", "node", "boot", F.explode("links").alias("link"))
    of_boot = each.groupBy("run", "node", "boot", F.col("link.peer").alias("peer")).agg(
        *(F.max(f"link.{name}").alias(name) for name in LINK_COUNTERS)
    )
    counted = of_boot.groupBy("run", "node", "peer").agg(*(F.sum(name).alias(name) for name in LINK_COUNTERS))
    both = counted.join(_round_trips(heard), ["run", "node", "peer"], "full").join(
        _missed(heard, mem, holes), ["run", "node", "peer"], "left"
    )
    # A broker lists each link that carried something. One that never wrote its counters tells nothing.
    told = F.broadcast(stats.select("run", "node", F.lit(0).alias("least")).distinct())
    return both.join(told, ["run", "node"], "left").select(
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


def pooled_round_trips(heard: DataFrame) -> DataFrame:
    """(run, answers, rtt_p50_us, rtt_p99_us, least, counts) over all links. ``counts`` are the buckets."""
    return _quantiles(heard, "run")


def _round_trips(heard: DataFrame) -> DataFrame:
    """Answers that ``node`` heard from each peer, with quantiles of their round trips."""
    named = heard.withColumnRenamed("dst", "node").withColumnRenamed("src", "peer")
    return _quantiles(named, "run", "node", "peer").drop("least", "counts")


def _quantiles(heard: DataFrame, *key: str) -> DataFrame:
    mask = (1 << COUNTER_BITS) - 1
    buckets = [
        F.sum(F.shiftright(name, COUNTER_BITS * place).bitwiseAND(F.lit(mask)))
        for name in PACKED
        for place in range(IN_NUMBER)
    ]
    summed = heard.groupBy(*key).agg(
        F.sum("answers").alias("answers"),
        F.min("rtt_min_us").alias("least"),
        F.max("rtt_max_us").alias("most"),
        F.array(*buckets).alias("counts"),
    )
    return summed.select(
        *(*key, "answers", "least", "counts"),
        _quantile("counts", "least", "most", F.lit(0.5)).alias("rtt_p50_us"),
        _quantile("counts", "least", "most", F.lit(0.99)).alias("rtt_p99_us"),
    )


def _quantile(*columns: Any) -> Column:
    return F.udf(quantile_us, "double", useArrow=False)(*columns)


def _missed(heard: DataFrame, mem: DataFrame, holes: DataFrame) -> DataFrame:
    """Rounds of each peer without a survey, within windows and between one window and the next.

    A restarted peer counts its rounds anew. The rounds of a window with two of its boots tell nothing, nor do
    those of a window from which rows are missing.
    """
    in_order = Window.partitionBy("run", "dst", "boot", "src").orderBy("window")
    gap = F.col("first_round") - F.lag("last_round").over(in_order) - 1
    follows = F.col("window") == F.lag("window").over(in_order) + 1
    within = F.col("last_round") - F.col("first_round") + 1 - F.col("surveys")
    lost = F.when(
        ~F.col("mixed"), F.greatest(within, F.lit(0)) + F.when(follows & (gap > 0), gap).otherwise(0)
    )
    mixed = F.exists("met", lambda ns: F.expr("window") == F.floor(ns / F.col("window_ns")))
    lacking = F.expr(
        "exists(holes, h -> h.end_ns >= window * window_ns and h.start_ns < (window + 1) * window_ns)"
    )
    of_boot = holes.groupBy("run", F.col("node").alias("dst"), "boot").agg(
        F.collect_list(F.struct("start_ns", "end_ns")).alias("holes")
    )
    return (
        heard.where(F.col("first_round").isNotNull())
        .join(F.broadcast(_restarts(mem)), ["run", "dst", "boot", "src"], "left")
        .join(F.broadcast(of_boot), ["run", "dst", "boot"], "left")
        .withColumn("mixed", F.coalesce(mixed, F.lit(False)) | F.coalesce(lacking, F.lit(False)))
        .select("run", "dst", "src", lost.alias("lost_rounds"))
        .groupBy("run", F.col("dst").alias("node"), F.col("src").alias("peer"))
        .agg(F.sum("lost_rounds").alias("missed"))
    )


def _restarts(mem: DataFrame) -> DataFrame:
    """When each boot met further boots of a peer, as ``met``: nanoseconds of its clock."""
    first = mem.groupBy(
        "run", F.col("node").alias("dst"), "boot", F.col("subject").alias("src"), "subject_boot"
    )
    times = first.agg(F.min("mono_ns").alias("ns")).groupBy("run", "dst", "boot", "src")
    met = times.agg(F.array_sort(F.collect_list("ns")).alias("met")).where(F.size("met") > 1)
    return met.withColumn("met", F.slice("met", 2, F.size("met")))


def _grown(name: str, boot: WindowSpec) -> Column:
    """Growth since the row before. Negative if the counter fell. NULL if the boot's first files are gone: the
    first row left has the sum of all that was before."""
    return F.col(name) - F.coalesce(F.lag(name).over(boot), F.when(F.col("first_seq") == 1, F.lit(0)))


def _added(name: str, boot: WindowSpec) -> Column:
    """Growth of a sum over links since the row before. A sum that fell has lost a link and starts anew."""
    growth = _grown(name, boot)
    return F.when(growth < 0, F.col(name)).otherwise(growth)
