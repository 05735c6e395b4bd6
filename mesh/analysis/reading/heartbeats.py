"""Reduces heartbeats to `mesh.analysis.results.tables.Heard` with one group-by, without sorting.

Only 64-bit numbers are aggregated, since Spark keeps these in place; a text among them would make it sort.
Grouped data can be grouped again: the same sums, minima and maxima merge files, windows that span two of
them, and rows of kind ``heard``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mesh.eventlog.windows import COUNTER_BITS, COUNTERS, PERIODS, RTT_BELOW_US, SLOTS

KEY: Final = ("run", "node", "boot", "src", "window_ns", "window")
SUMS: Final = ("surveys", "answers", "rtt_sum_us", *COUNTERS)
LEAST: Final = ("first_ns", "first_round", "rtt_min_us")
MOST: Final = ("last_ns", "last_round", "rtt_max_us", "survey_ns", "answer_ns")
LATEST: Final = {
    "survey_round": "survey_ns",
    "answer_round": "answer_ns",
    "answer_rtt_us": "answer_ns",
}
"""Each value belongs to the maximum of the other column."""
VALUES: Final = (*SUMS, *LEAST, *MOST, "slots", *LATEST)


def reduce(beats: DataFrame, numbers: list[Column], *keys: str) -> DataFrame:
    """Rows (run, node, boot, src, window_ns, survey, hb_seq, rtt_us, mono_ns) grouped by window. ``numbers``
    are further aggregates, ``keys`` further columns to group by."""
    survey, answer = F.col("survey"), ~F.col("survey")
    round_, now = F.col("hb_seq"), F.col("mono_ns")
    compared = (round_ % PERIODS == 0) | (round_.bitwiseAND(round_ - 1) == 0)
    survey_ns = F.when(survey & compared, now)
    answer_ns = F.when(answer & compared, now)
    window = F.expr("mono_ns div window_ns").alias("window")
    slot = F.expr(f"cast((mono_ns % window_ns) * {SLOTS} div window_ns as int)")
    return beats.groupBy(*keys, *KEY[:-1], window).agg(
        F.count(F.when(survey, 1)).alias("surveys"),
        F.count(F.when(answer, 1)).alias("answers"),
        F.min(now).alias("first_ns"),
        F.max(now).alias("last_ns"),
        F.min(F.when(survey, round_)).alias("first_round"),
        F.max(F.when(survey, round_)).alias("last_round"),
        F.coalesce(F.sum("rtt_us"), F.lit(0)).alias("rtt_sum_us"),
        F.min("rtt_us").alias("rtt_min_us"),
        F.max("rtt_us").alias("rtt_max_us"),
        *_counters(),
        F.bit_or(F.call_function("shiftleft", F.lit(1).cast("long"), slot)).alias("slots"),
        F.max_by(round_, survey_ns).alias("survey_round"),
        F.max(survey_ns).alias("survey_ns"),
        F.max_by(round_, answer_ns).alias("answer_round"),
        F.max(answer_ns).alias("answer_ns"),
        F.max_by("rtt_us", answer_ns).alias("answer_rtt_us"),
        *numbers,
    )


def merge(parts: DataFrame, numbers: Sequence[Column] = (), *keys: str) -> DataFrame:
    """Merges parts of windows. ``numbers`` and ``keys`` are as in `reduce`."""
    return parts.groupBy(*keys, *KEY).agg(
        *(F.try_sum(name).alias(name) for name in SUMS),
        *(F.min(name).alias(name) for name in LEAST),
        *(F.max(name).alias(name) for name in MOST),
        F.bit_or("slots").alias("slots"),
        *(F.max_by(name, at).alias(name) for name, at in LATEST.items()),
        *numbers,
    )


def _counters() -> list[Column]:
    """The histogram of round trips: three numbers with five counters each."""
    each = (len(RTT_BELOW_US) + 1) // len(COUNTERS)
    counters = []
    for first, name in zip(range(0, len(RTT_BELOW_US) + 1, each), COUNTERS, strict=True):
        case = "case when rtt_us is null then 0"
        if first:
            case += f" when rtt_us < {RTT_BELOW_US[first - 1]} then 0"
        for place, below in enumerate(RTT_BELOW_US[first : first + each]):
            case += f" when rtt_us < {below} then {1 << COUNTER_BITS * place}L"
        last = first + each > len(RTT_BELOW_US)
        case += f" else {1 << COUNTER_BITS * (each - 1)}L end" if last else " else 0L end"
        counters.append(F.coalesce(F.try_sum(F.expr(case)), F.lit(0)).alias(name))
    return counters
