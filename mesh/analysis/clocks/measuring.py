"""Measures the clock of every boot: first one rough offset each, then one for each ten minutes.

There are two small decisions, each in one Spark function: the offsets of all boots of a run, from the best
sample of each pair, and the same for each ten minutes. Both take pairs of boots, not rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from mesh.analysis.clocks.deciding import OFFSETS, PIECES, filled_pieces, solved, solved_piece
from mesh.analysis.clocks.pieces import PIECE
from mesh.analysis.clocks.samples import samples
from mesh.analysis.gathered import gathered
from mesh.analysis.made import made

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from mesh.analysis.reading.logs import Logs

STEP_US: Final = 100_000
"""A wall clock that moves by more than this against the monotonic one, from one row to the next, has
jumped."""


def measure(logs: Logs) -> DataFrame:
    """One row for each boot that has a log, with the columns of `Logs.boots_raw` and three more. ``wall`` is
    how far its wall clock was ahead of its monotonic one most of the time. ``rough`` is its offset in
    microseconds. ``pieces`` has the offset and its error by the number of the ten minutes. Use it with
    `mesh.analysis.clocks.apply.at`."""
    # As many rows as boots. Without its plan, frames built on it are planned in a moment.
    boots = made(logs.boots_raw.join(_walls(logs), ["run", "boot"], "left"))
    boots = boots.withColumn("wall", F.coalesce("wall", F.expr("first_us - first_ns div 1000")))
    found = made(samples(logs))
    rough = made(_rough(boots, _best(found), _words(logs, boots, found)))
    known = _pieces(rough, _best(_in_pieces(found, rough), "piece"))
    fill = F.udf(filled_pieces, PIECES, useArrow=False)
    first, last = _piece("first_ns"), _piece("last_ns")
    return made(
        boots.join(rough, ["run", "boot"])
        .join(known, ["run", "boot"], "left")
        .withColumn("pieces", fill(first, last, "rough", "error", "known"))
        .drop("error", "known")
    )


def clocks(logs: Logs, measured: DataFrame) -> DataFrame:
    """The table ``clocks``, with times in microseconds."""
    rows = logs.stats.select("run", "boot", "mono_ns", "us").unionByName(
        logs.meta.select("run", "boot", "mono_ns", "us")
    )
    by_piece = measured.select(
        "run",
        "node",
        "boot",
        "first_ns",
        F.col("wall").alias("ever"),
        F.explode("pieces").alias("piece", "of"),
    )
    walls = _stepped(rows).join(measured.select("run", "boot", "rough"), ["run", "boot"])
    walls = (
        walls.withColumn("piece", _piece("mono_ns"))
        .groupBy("run", "boot", "piece")
        .agg(F.median("delta").alias("wall"), F.count_if("stepped").alias("steps"))
    )
    wall = F.coalesce("wall", "ever")
    start = F.greatest(F.col("piece") * PIECE, F.expr("first_ns div 1000") + F.col("of.offset"))
    return by_piece.join(walls, ["run", "boot", "piece"], "left").select(
        "run",
        "node",
        "boot",
        start.alias("start"),
        (F.col("of.offset") / 1e6).alias("offset_s"),
        (F.col("of.error") / 1e6).alias("error_s"),
        ((wall - F.col("of.offset")) / 1e6).alias("wall_s"),
        F.coalesce("steps", F.lit(0).cast("long")).alias("steps"),
    )


def _walls(logs: Logs) -> DataFrame:
    """For each boot: how far its wall clock was ahead of its monotonic one most of the time."""
    delta = F.expr("us - mono_ns div 1000")
    rows = logs.stats.select("run", "boot", delta.alias("delta")).unionByName(
        logs.meta.select("run", "boot", delta.alias("delta"))
    )
    return rows.groupBy("run", "boot").agg(
        F.expr("percentile_disc(0.5) within group (order by delta)").cast("long").alias("wall")
    )


def _stepped(rows: DataFrame) -> DataFrame:
    """Rows with ``delta``, how far the wall clock was ahead, and whether it had jumped since the row
    before."""
    from pyspark.sql import Window

    before = F.lag("delta").over(Window.partitionBy("run", "boot").orderBy("mono_ns"))
    rows = rows.withColumn("delta", F.expr("us - mono_ns div 1000"))
    return rows.withColumn("stepped", F.coalesce(F.abs(F.col("delta") - before) > STEP_US, F.lit(False)))


def _best(found: DataFrame, *keys: str) -> DataFrame:
    """The sample with the smallest error for each pair of boots."""
    best = F.min(F.struct("error", "difference")).alias("best")
    rows = found.groupBy("run", *keys, "one", "other").agg(best)
    return rows.select("run", *keys, "one", "other", "best.difference", "best.error")


def _words(logs: Logs, boots: DataFrame, found: DataFrame) -> DataFrame:
    """Of boots without a sample: when they first named another, and when others named them."""
    sampled = found.select("run", F.col("one").alias("boot")).union(found.select("run", "other"))
    alone = F.broadcast(boots.select("run", "boot").join(sampled, ["run", "boot"], "left_anti"))
    own = logs.mem.where("subject != node").join(alone, ["run", "boot"], "left_semi")
    of_others = logs.mem.where("subject_boot != boot").join(
        alone.withColumnRenamed("boot", "subject_boot"), ["run", "subject_boot"], "left_semi"
    )
    words = own.select("run", "boot", F.col("boot").alias("of"), "mono_ns").unionByName(
        of_others.select("run", "boot", F.col("subject_boot").alias("of"), "mono_ns")
    )
    return words.groupBy("run", "boot", "of").agg(F.expr("min(mono_ns) div 1000").alias("us"))


def _rough(boots: DataFrame, best: DataFrame, words: DataFrame) -> DataFrame:
    """``run``, ``boot``, ``rough`` and ``error``, from the best samples of a boot's whole life."""
    decide = F.udf(solved, OFFSETS, useArrow=False)
    known = {
        "boots": (boots, "boot node wall"),
        "samples": (best, "one other difference error"),
        "words": (words, "boot of us"),
    }
    rows = gathered(("run",), known).select("run", F.explode(decide("boots", "samples", "words")).alias("of"))
    return rows.select("run", "of.boot", F.col("of.offset").alias("rough"), "of.error")


def _in_pieces(found: DataFrame, rough: DataFrame) -> DataFrame:
    one = rough.select("run", F.col("boot").alias("one"), "rough")
    return found.join(F.broadcast(one), ["run", "one"]).withColumn("piece", _piece("ns"))


def _pieces(rough: DataFrame, pairs: DataFrame) -> DataFrame:
    """``run``, ``boot`` and ``known``: offsets for the pieces that have samples."""
    decide = F.udf(solved_piece, OFFSETS, useArrow=False)
    runs = rough.groupBy("run").agg(F.collect_list(F.struct("boot", "rough")).alias("boots"))
    pairs = pairs.groupBy("run", "piece").agg(
        F.collect_list(F.struct("one", "other", "difference", "error")).alias("samples")
    )
    rows = pairs.join(runs, "run").select("run", "piece", F.explode(decide("boots", "samples")).alias("of"))
    return rows.groupBy("run", "of.boot").agg(
        F.collect_list(F.struct("piece", "of.offset", "of.error")).alias("known")
    )


def _piece(ns: str) -> Column:
    """The piece of a moment in this column, as `mesh.analysis.clocks.pieces.piece_of` computes it. ``rough``
    must be in the same frame."""
    return F.expr(f"({ns} div 1000 + rough) div {PIECE}")
