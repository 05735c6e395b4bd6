"""Delivery: what brokers published, delivered and dropped, and what crossed each link, from `stats` rows.

The counters are cumulative since boot, so the last row of a boot holds its sum, and a broker's is the sum
over its boots. The last seconds of a killed broker (five at most, since its last `stats` row) are not known.
``delivered`` may fall within a boot: it loses the messages that were under way on a lost link or session.
Round-trip times are those of the heartbeats.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

BROKER_COUNTERS: Final = ("published", "delivered", "dropped")
LINK_COUNTERS: Final = ("msgs_in", "msgs_out", "bytes_in", "bytes_out", "dropped", "lost")


def broker_totals(rows: DataFrame) -> DataFrame:
    """(run, node, published, delivered, dropped, rss_bytes_max, loop_late_ms_p50, loop_late_ms_max)."""
    of_boot = (
        _stats(rows)
        .groupBy("run", "node", "boot")
        .agg(
            *(F.max_by(name, "seq").alias(name) for name in BROKER_COUNTERS),
            F.max("rss_bytes").alias("rss_bytes_max"),
            F.max("loop_late_ms_max").alias("loop_late_ms_max"),
            F.percentile_approx("loop_late_ms_p50", 0.5).alias("loop_late_ms_p50"),
        )
    )
    return of_boot.groupBy("run", "node").agg(
        *(F.sum(name).alias(name) for name in BROKER_COUNTERS),
        *(F.max(name).alias(name) for name in ("rss_bytes_max", "loop_late_ms_p50", "loop_late_ms_max")),
    )


def drop_totals(rows: DataFrame) -> DataFrame:
    """(run, node, reason, count): why brokers dropped messages."""
    reasons = _stats(rows).select("run", "node", "boot", F.explode("drops").alias("reason", "count"))
    of_boot = reasons.groupBy("run", "node", "boot", "reason").agg(F.max("count").alias("count"))
    return of_boot.groupBy("run", "node", "reason").agg(F.sum("count").alias("count"))


def link_totals(rows: DataFrame) -> DataFrame:
    """(run, node, peer, counters..., answers, rtt_p50_us, rtt_p99_us): each link as ``node`` counted it."""
    links = _stats(rows).select("run", "node", "boot", F.explode("links").alias("link"))
    of_boot = links.groupBy("run", "node", "boot", F.col("link.peer").alias("peer")).agg(
        *(F.max(f"link.{name}").alias(name) for name in LINK_COUNTERS)
    )
    counted = of_boot.groupBy("run", "node", "peer").agg(*(F.sum(name).alias(name) for name in LINK_COUNTERS))
    return counted.join(round_trips(rows), ["run", "node", "peer"], "full")


def round_trips(rows: DataFrame) -> DataFrame:
    """(run, node, peer, answers, rtt_p50_us, rtt_p99_us) from the answers that ``node`` heard."""
    answers = rows.where((F.col("kind") == "hb") & F.col("rtt_us").isNotNull())
    return answers.groupBy("run", "node", F.col("src").alias("peer")).agg(
        F.count("*").alias("answers"), *_quantiles()
    )


def round_trips_over_time(rows: DataFrame, bucket_us: int) -> DataFrame:
    """(run, bucket_us, rtt_p50_us, rtt_p99_us) over all links."""
    answers = rows.where((F.col("kind") == "hb") & F.col("rtt_us").isNotNull())
    return answers.groupBy("run", _bucket(bucket_us)).agg(F.count("*").alias("answers"), *_quantiles())


def traffic(rows: DataFrame, bucket_us: int) -> DataFrame:
    """(run, bucket_us, node, counters..., msgs_out, bytes_out, loop_late_ms_max, rss_bytes).

    Counters here are what was added in the bucket, up to the last `stats` row in it.
    """
    boot = Window.partitionBy("run", "node", "boot").orderBy("seq")
    sent = {
        name: F.expr(f"aggregate(links, 0L, (sum, link) -> sum + coalesce(link.{name}, 0L))") for name in SENT
    }
    counted = _stats(rows).select(
        *("run", "node", "boot", "seq", "us", "loop_late_ms_max", "rss_bytes", *BROKER_COUNTERS),
        *(F.coalesce(total, F.lit(0)).alias(name) for name, total in sent.items()),
    )
    grown = [_grown(name, boot).alias(name) for name in BROKER_COUNTERS]
    added = grown + [_added(name, boot).alias(name) for name in SENT]
    return (
        counted.select("run", "node", "us", "loop_late_ms_max", "rss_bytes", *added)
        .groupBy("run", _bucket(bucket_us), "node")
        .agg(
            *(F.sum(name).alias(name) for name in (*BROKER_COUNTERS, *SENT)),
            F.max("loop_late_ms_max").alias("loop_late_ms_max"),
            F.max("rss_bytes").alias("rss_bytes"),
        )
    )


SENT: Final = ("msgs_out", "bytes_out")


def _grown(name: str, boot: WindowSpec) -> Column:
    """Growth since the row before: negative if the counter fell."""
    return F.col(name) - F.coalesce(F.lag(name).over(boot), F.lit(0))


def _added(name: str, boot: WindowSpec) -> Column:
    """Growth of a sum over links since the row before; a sum that fell has lost a link and began anew."""
    growth = _grown(name, boot)
    return F.when(growth < 0, F.col(name)).otherwise(growth)


def _stats(rows: DataFrame) -> DataFrame:
    return rows.where(F.col("kind") == "stats")


def _bucket(bucket_us: int) -> Column:
    return (F.floor(F.col("us") / bucket_us) * bucket_us).alias("bucket_us")


def _quantiles() -> list[Column]:
    both = F.percentile_approx("rtt_us", [0.5, 0.99])
    return [both[0].alias("rtt_p50_us"), both[1].alias("rtt_p99_us")]
