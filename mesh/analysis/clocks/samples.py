"""Samples of the differences between clocks, from rounds that both ends noted.

`Heard` notes in each window the latest round that is a multiple of 16 or a power of two. It has the time when
the survey of another broker arrived, and the time when the answer to the own survey did. If the survey's row
at one end and the answer's at the other have the same round, they form a sample.

Clocks drift slowly. So of the rounds from `EACH_BELOW` on, only multiples of `STEP` are used. A minute of
logs from long lives may have no such multiple. So a run uses every noted round if its longest log is shorter
than `EACH_BELOW` periods.

A heartbeat does not name its sender's boot, and rounds begin anew with each boot. So the boot is the one that
the writer last named for that broker. It names every boot when it meets it, before it hears a heartbeat of
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from mesh.eventlog.windows import PERIODS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from mesh.analysis.reading.logs import Logs

EACH_BELOW: Final = 256
"""Rounds of a boot, of which each noted one is used. A short life has no others."""
STEP: Final = 64
"""Rounds. A pair has nine such multiples in ten minutes at a period of a second. To use four times as many
takes 2 s of CPU more for 600,000 windows."""


def samples(logs: Logs) -> DataFrame:
    """``run``, ``one``, ``other`` (boots), ``ns`` by the clock of ``one``, ``difference`` and ``error`` in
    microseconds (see `mesh.analysis.clocks.offsets.Sample`)."""
    longest = logs.boots_raw.groupBy("run").agg(F.max(F.expr("last_ns - first_ns")).alias("longest_ns"))
    windows = logs.heard.join(F.broadcast(longest), "run")
    used = windows.where(_is_used("survey_round") | _is_used("answer_round"))
    heard = used.join(_met(logs.mem), ["run", "dst", "boot", "src"], "left")
    asked = heard.where(_is_used("survey_round")).select(
        "run",
        F.col("src").alias("asker"),
        F.col("dst").alias("answerer"),
        F.col("survey_round").alias("round"),
        F.col("boot").alias("other"),
        F.col("survey_ns").alias("noted_ns"),
        _boot_at(F.col("survey_ns")).alias("asker_boot"),
    )
    told = heard.where(_is_used("answer_round") & F.col("answer_rtt_us").isNotNull()).select(
        "run",
        F.col("dst").alias("asker"),
        F.col("src").alias("answerer"),
        F.col("answer_round").alias("round"),
        F.col("boot").alias("one"),
        F.col("answer_ns").alias("told_ns"),
        F.col("answer_rtt_us").alias("rtt_us"),
        _boot_at(F.col("answer_ns")).alias("answerer_boot"),
    )
    same = F.coalesce(F.col("asker_boot") == F.col("one"), F.lit(True)) & F.coalesce(
        F.col("answerer_boot") == F.col("other"), F.lit(True)
    )
    middle_ns = F.col("told_ns") - F.expr("rtt_us * 500")
    return (
        told.join(asked, ["run", "asker", "answerer", "round"])
        .where(same)
        .select(
            "run",
            "one",
            "other",
            middle_ns.alias("ns"),
            F.expr("(told_ns - rtt_us * 500 - noted_ns) div 1000").alias("difference"),
            F.expr("rtt_us div 2 + 1").alias("error"),  # and the part of a microsecond that was cut off
        )
    )


def _is_used(round: str) -> Column:
    """False for null, too. Powers of two from `EACH_BELOW` on are multiples of `STEP`."""
    is_short = f"longest_ns < window_ns * {EACH_BELOW // PERIODS}"
    return F.expr(f"{round} is not null and ({round} < {EACH_BELOW} or {round} % {STEP} = 0 or {is_short})")


def _met(mem: DataFrame) -> DataFrame:
    """The boots of other brokers that each boot knew, as ``met``: structs of ``ns`` and ``subject_boot``.

    A boot that was there before the log begins, for example because old files were removed, counts as met at
    the beginning. One that replaced another boot was not there, whatever the state of that one.
    """
    came = F.coalesce(F.col("reason"), F.lit("")).isin("restarted", "returned")
    was_there = ~F.col("from_state").isin("unknown", "dead", "left") & ~came
    first = mem.groupBy("run", F.col("node").alias("dst"), "boot", "subject", "subject_boot").agg(
        F.min(F.struct("mono_ns", was_there.alias("was_there"))).alias("first")
    )
    ns = F.when(F.col("first.was_there"), F.lit(0).cast("long")).otherwise(F.col("first.mono_ns"))
    return first.groupBy("run", "dst", "boot", F.col("subject").alias("src")).agg(
        F.collect_list(F.struct(ns.alias("ns"), "subject_boot")).alias("met")
    )


def _boot_at(ns: Column) -> Column:
    """The boot of ``src`` that the writer had met last at ``ns`` of its clock. Null: it names none."""
    return F.array_max(F.filter("met", lambda each: each["ns"] <= ns))["subject_boot"]
