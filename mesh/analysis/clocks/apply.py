"""Logs as facts in mesh time. The decisions of the analysis are made from these.

The frames have the columns of `mesh.analysis.facts`. Their instants are microseconds of mesh time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from mesh.analysis.clocks.deciding import SILENCE, SPANS, awake_of, stretches_of
from mesh.analysis.clocks.joining import joined
from mesh.analysis.clocks.pieces import PIECE
from mesh.analysis.facts import Boot, Late, Linked, Said, Stretch
from mesh.analysis.reading.repeats import LATE_NS
from mesh.analysis.results.spark_types import as_decided
from mesh.analysis.results.tables import Hole

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from mesh.analysis.reading.logs import Logs

TOLD_NS: Final = (
    "if(summary_ns is null or stopped_ns is not null, last_ns,"
    f" greatest(first_ns, greatest(last_ns - {LATE_NS}, 0) div summary_ns * summary_ns))"
)
"""Until when a log tells what its broker heard. A kill loses the summary of the window that was open."""
AT_ONCE: Final = 1.2
"""Periods. What a listener hears for longer was not only waiting for it."""
BEAT_S: Final = 0.1
"""Interval at which a broker samples its loop's lateness. A stop may be longer by this."""
READ_AFTER: Final = 0.25
"""Periods. A loop that resumes may write its counters first, and read what waits for it so much later."""
LATE: Final = 1.0
"""Periods. A loop less late than this was not stopped long enough to matter."""


@dataclass(frozen=True)
class Facts:
    """The frames."""

    boots: DataFrame
    """`mesh.analysis.facts.Boot`: boots that have a log."""
    said: DataFrame
    linked: DataFrame
    late: DataFrame
    holes: DataFrame
    """`mesh.analysis.results.tables.Hole`"""
    stretches: DataFrame
    """`mesh.analysis.facts.Stretch`, without those that `sent_in_time` leaves out."""
    awake: DataFrame
    """``run``, ``node``, ``boot``, ``first``, ``last``: times in which it wrote rows without a gap of 2.2
    periods."""


def facts(logs: Logs, measured: DataFrame, pairs: DataFrame) -> Facts:
    """``measured`` is the result of `mesh.analysis.clocks.measuring.measure` for the same logs. ``pairs`` are
    the windows of `heard`, joined (`mesh.analysis.clocks.joining`) by run, dst, boot and src."""
    clock = F.broadcast(measured.select("run", "boot", "rough", "pieces"))
    boots = _boots(measured)
    periods = F.broadcast(boots.select("run", "boot", "period_s"))

    def timed(rows: DataFrame) -> DataFrame:
        return rows.join(clock, ["run", "boot"])

    said = timed(logs.mem).withColumns(
        {
            "at": at("mono_ns"),
            "subject_name": F.coalesce("subject_name", F.lit("")),
            "incarnation": F.col("subject_inc"),
            "reason": F.coalesce("reason", F.lit("")),
            "via": F.coalesce("via", "node"),
        }
    )
    linked = timed(logs.link).withColumns(
        {
            "at": at("mono_ns"),
            "out": F.coalesce(F.col("dir") == "out", F.lit(False)),
            "up": F.col("state") == "up",
            "reason": F.coalesce("reason", F.lit("")),
        }
    )
    lateness = F.col("loop_late_ms_max") / 1000
    late = timed(logs.stats).join(periods, ["run", "boot"]).where(lateness >= F.col("period_s") * LATE)
    late = as_decided(late.withColumns({"at": at("mono_ns"), "late_s": lateness}), Late)
    heard = sent_in_time(_stretches(pairs, timed), late, boots)
    return Facts(
        boots=as_decided(
            boots.withColumns(
                {
                    "first": at("first_ns"),
                    "last": at("last_ns"),
                    "told": at("told_ns"),
                    "stopped": at("stopped_ns"),
                    "left": at("left_ns"),
                }
            ),
            Boot,
        ),
        said=as_decided(said, Said),
        linked=as_decided(linked, Linked),
        late=late,
        holes=as_decided(timed(logs.holes).withColumns({"start": at("start_ns"), "end": at("end_ns")}), Hole),
        stretches=as_decided(heard, Stretch),
        awake=_awake(logs, timed, periods),
    )


def at(ns: str) -> Column:
    """A column of nanoseconds on a boot's monotonic clock, converted to mesh time. ``rough`` and ``pieces``
    must be in the same frame."""
    us = F.expr(f"{ns} div 1000")
    piece = F.expr(f"({ns} div 1000 + rough) div {PIECE}")
    return us + F.coalesce(F.try_element_at("pieces", piece)["offset"], F.col("rough"))


def _boots(measured: DataFrame) -> DataFrame:
    """A boot without a `meta` row gets the values that are most frequent in its run."""
    usual = measured.groupBy("run").agg(
        *(
            F.mode(name, deterministic=True).alias(f"usual_{name}")
            for name in ("period_s", "deadline_s", "stats_s")
        )
    )
    rows = measured.join(F.broadcast(usual), "run")
    given = {"period_s": 1.0, "deadline_s": 0.5, "stats_s": 5.0}
    return rows.withColumns(
        {
            "told_ns": F.expr(TOLD_NS),
            "name": F.coalesce("name", "node"),
            **{name: F.coalesce(name, f"usual_{name}", F.lit(value)) for name, value in given.items()},
        }
    )


def _stretches(pairs: DataFrame, timed: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Runs of heartbeats of one broker at another."""
    found = F.udf(stretches_of, SPANS, useArrow=False)
    windows = pairs.groupBy("run", "src", "dst", "boot").agg(_listed())
    rows = windows.select("run", "src", "dst", "boot", F.explode(found("windows")).alias("of"))
    return timed(rows.select("run", "src", "dst", "boot", "of.*")).withColumns(
        {"first": at("first"), "last": at("last"), "error_s": F.col("error") / 1e9}
    )


def sent_in_time(stretches: DataFrame, late: DataFrame, boots: DataFrame) -> DataFrame:
    """The stretches, with the column ``resumed`` and without short ones that began as soon as their listener
    resumed after a stop of 2.2 periods. It read at once what arrived meanwhile, from a broker that may be
    gone since."""
    clocks = F.broadcast(boots.select("run", "boot", "period_s", "stats_s"))
    stops = late.join(clocks, ["run", "boot"]).where(F.col("late_s") + BEAT_S >= F.col("period_s") * SILENCE)
    since = F.col("at") - (F.col("stats_s") + BEAT_S) * 1e6
    until = F.col("at") + F.col("period_s") * READ_AFTER * 1e6
    of_boot = stops.groupBy("run", "boot", (F.col("period_s") * AT_ONCE * 1e6).alias("short")).agg(
        F.collect_list(F.struct(since.alias("since"), until.alias("until"))).alias("stops")
    )
    resumed = F.exists("stops", lambda stop: F.col("first").between(stop["since"], stop["until"]))
    is_short = F.col("last") - F.col("first") <= F.col("short")
    return (
        stretches.join(F.broadcast(of_boot), ["run", "boot"], "left")
        .withColumn("resumed", F.coalesce(resumed, F.lit(False)))
        .where(~(F.col("resumed") & F.coalesce(is_short, F.lit(False))))
        .drop("short", "stops")
    )


def _awake(logs: Logs, timed: Callable[[DataFrame], DataFrame], periods: DataFrame) -> DataFrame:
    """Times in which a broker wrote rows of any kind. A broker that hears nobody still writes rows
    about its links."""
    found = F.udf(awake_of, SPANS, useArrow=False)
    heard = logs.heard.groupBy("run", F.col("dst").alias("node"), "boot", "window", "window_ns").agg(
        F.min("first_ns").alias("first_ns"),
        F.max("last_ns").alias("last_ns"),
        F.bit_or("slots").alias("slots"),
    )
    windows = joined(heard, "run", "node", "boot").groupBy("run", "node", "boot").agg(_listed())
    others = (
        logs.mem.select("run", "node", "boot", "mono_ns")
        .unionByName(logs.link.select("run", "node", "boot", "mono_ns"))
        .groupBy("run", "node", "boot")
        .agg(F.collect_set("mono_ns").alias("others"))
    )
    both = windows.join(others, ["run", "node", "boot"], "full").join(periods, ["run", "boot"])
    rows = both.select("run", "node", "boot", F.explode(found("windows", "others", "period_s")).alias("of"))
    return timed(rows.select("run", "node", "boot", "of.*")).select(
        "run", "node", "boot", at("first").alias("first"), at("last").alias("last")
    )


def _listed() -> Column:
    return F.collect_list(F.struct("start_ns", "window_ns", "first_ns", "last_ns", "slots")).alias("windows")
