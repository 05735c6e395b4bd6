"""Stretches, round trips and missed rounds of each pair, from one pass over `heard`.

A pair is a boot and a broker that it heard. `heard` has a row for each window, and few windows of a pair have
a silence. So the windows between two silences become one row here. Everything about a pair is decided from
these rows.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mesh.analysis.carried.round_trips import BUCKETS, COUNTER_BITS, IN_NUMBER, quantile_us
from mesh.analysis.clocks.joining import in_order, joined

PAIR: Final = ("run", "dst", "boot", "src")
PACKED: Final = ("rtt_low", "rtt_mid", "rtt_high")
COUNTS: Final = tuple(f"rtt_{bucket}" for bucket in range(BUCKETS))


def pairs(heard: DataFrame, mem: DataFrame, holes: DataFrame) -> DataFrame:
    """Joined windows (`mesh.analysis.clocks.joining`) by run, dst, boot and src, from frames of
    `mesh.analysis.reading.logs`.

    ``answers`` and ``missed`` are the sums of answers and of missed rounds. ``least`` and ``most`` are the
    shortest and the longest round trip. `COUNTS` are the numbers of round trips in each bucket.
    """
    missed = F.sum("missed").alias("missed")
    return joined(_missed(heard, mem, holes), *PAIR, sums=[*_round_trips(), missed])


def of_links(pairs: DataFrame) -> DataFrame:
    """For each ``node`` and ``peer``: the ``answers`` that the node heard, quantiles of their round trips,
    and the rounds of the peer that the node ``missed``."""
    named = pairs.withColumnsRenamed({"dst": "node", "src": "peer"})
    summed = named.groupBy("run", "node", "peer").agg(
        F.sum("answers").alias("answers"),
        F.min("least").alias("least"),
        F.max("most").alias("most"),
        F.array(*(F.sum(name) for name in COUNTS)).alias("counts"),
        F.sum("missed").alias("missed"),
    )
    return _with_quantiles(summed).select(
        "run", "node", "peer", "answers", "missed", "rtt_p50_us", "rtt_p99_us"
    )


def pooled_round_trips(heard: DataFrame) -> DataFrame:
    """(run, answers, rtt_p50_us, rtt_p99_us, least, counts) over all links. ``counts`` are the buckets."""
    summed = heard.groupBy("run").agg(*_round_trips()).withColumn("counts", F.array(*COUNTS))
    return _with_quantiles(summed).select("run", "answers", "rtt_p50_us", "rtt_p99_us", "least", "counts")


def _round_trips() -> list[Column]:
    """Sums and extremes of round trips, as aggregates over windows."""
    mask = F.lit((1 << COUNTER_BITS) - 1)
    counters = [
        F.shiftright(name, COUNTER_BITS * place).bitwiseAND(mask)
        for name in PACKED
        for place in range(IN_NUMBER)
    ]
    return [
        F.sum("answers").alias("answers"),
        F.min("rtt_min_us").alias("least"),
        F.max("rtt_max_us").alias("most"),
        *(F.sum(counter).alias(name) for counter, name in zip(counters, COUNTS, strict=True)),
    ]


def _with_quantiles(summed: DataFrame) -> DataFrame:
    return summed.withColumns(
        {
            "rtt_p50_us": _quantile("counts", "least", "most", F.lit(0.5)),
            "rtt_p99_us": _quantile("counts", "least", "most", F.lit(0.99)),
        }
    )


def _quantile(*columns: Any) -> Column:
    return F.udf(quantile_us, "double", useArrow=False)(*columns)


def _missed(heard: DataFrame, mem: DataFrame, holes: DataFrame) -> DataFrame:
    """Windows with ``missed``: the peer's rounds without a survey, in the window and between it and the
    previous one.

    A restarted peer counts its rounds anew. The rounds of a window with two of its boots tell nothing, nor do
    those of a window from which rows are missing.
    """
    order = in_order(*PAIR)
    gap = F.col("first_round") - F.lag("last_round").over(order) - 1
    follows = F.col("window") == F.lag("window").over(order) + 1
    within = F.col("last_round") - F.col("first_round") + 1 - F.col("surveys")
    is_known = F.col("first_round").isNotNull() & ~F.col("mixed")
    lost = F.greatest(within, F.lit(0)) + F.when(follows & (gap > 0), gap).otherwise(0)
    mixed = F.exists("met", lambda ns: F.expr("window") == F.floor(ns / F.col("window_ns")))
    lacking = F.expr(
        "exists(holes, h -> h.end_ns >= window * window_ns and h.start_ns < (window + 1) * window_ns)"
    )
    of_boot = holes.groupBy("run", F.col("node").alias("dst"), "boot").agg(
        F.collect_list(F.struct("start_ns", "end_ns")).alias("holes")
    )
    return (
        heard.join(F.broadcast(_restarts(mem)), list(PAIR), "left")
        .join(F.broadcast(of_boot), ["run", "dst", "boot"], "left")
        .withColumn("mixed", F.coalesce(mixed, F.lit(False)) | F.coalesce(lacking, F.lit(False)))
        .withColumn("missed", F.when(is_known, lost))
    )


def _restarts(mem: DataFrame) -> DataFrame:
    """When each boot met further boots of a peer, as ``met``: nanoseconds of its clock."""
    first = mem.groupBy(
        "run", F.col("node").alias("dst"), "boot", F.col("subject").alias("src"), "subject_boot"
    )
    times = first.agg(F.min("mono_ns").alias("ns")).groupBy("run", "dst", "boot", "src")
    met = times.agg(F.array_sort(F.collect_list("ns")).alias("met")).where(F.size("met") > 1)
    return met.withColumn("met", F.slice("met", 2, F.size("met")))
