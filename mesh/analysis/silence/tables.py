"""Runs the decisions on silence in Spark, on data extracted from heartbeats and grouped by run.

Spark expressions turn stretches into gaps, without Python, since there are as many stretches as pairs of
brokers. Gaps are as many as incidents. All gaps of a run are decided in one call.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.analysis.gathered import gathered
from mesh.analysis.made import made
from mesh.analysis.silence.deciding import FULL_SHARE, TOGETHER_PERIODS
from mesh.analysis.silence.rows import tables
from mesh.analysis.silence.sweep import SILENT_PERIODS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LAST_AND_NEXT: Final = (
    "named_struct('last', if(i = 0, null, s[i - 1].last), 'next', if(i = size(s), null, s[i].first),"
    " 'error_s', greatest(if(i = 0, 0D, s[i - 1].error_s), if(i = size(s), 0D, s[i].error_s)))"
)
"""The i-th gap: before the first stretch, between two, or after the last."""
LONG: Final = f"coalesce(g.next, until) - coalesce(g.last, begin) > {SILENT_PERIODS}D * period_us"


@dataclass(frozen=True, slots=True)
class Silences:
    """Frames with the columns of the tables of these names, as `decision_schema` has them."""

    outages: DataFrame
    parts: DataFrame
    part_sides: DataFrame


def silences(
    boots: DataFrame, stretches: DataFrame, linked: DataFrame, lives: DataFrame, holes: DataFrame
) -> Silences:
    """All three tables. ``boots``, ``stretches`` and ``linked`` have the columns of those records in
    `mesh.analysis.facts`, ``lives`` and ``holes`` those of their tables. Instants are in microseconds."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, StructField, StructType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import Outage, Part, PartSide

    wrote = boots.where(F.col("rows") > 0).select(
        "run",
        F.col("node").alias("dst"),
        "boot",
        F.col("first").alias("begin"),
        F.col("told").alias("until"),
        "last",
        (F.col("period_s") * 1e6).alias("period_us"),
    )
    stretched = F.sort_array(_gathered("first", "last", "error_s")).alias("s")
    heard = made(stretches.groupBy("run", "src", "dst", "boot").agg(stretched))
    pairs = heard.select("run", "src", "dst").distinct()
    full = _full_runs(pairs, boots, lives)
    gaps = _gaps(heard, wrote).unionByName(_unheard(heard, pairs, wrote, lives, full))
    joined = heard.groupBy("run", "dst", "boot").agg(F.min(F.col("s")[0]["first"]).alias("at"))
    cut_short = F.broadcast(wrote.where(F.col("until") < F.col("last")).select("run", "dst", "boot", "until"))
    beyond = stretches.join(cut_short, ["run", "dst", "boot"]).where(F.col("last") > F.col("until"))
    neighbours = ~F.col("run").isin(sorted(full))
    closed = linked.where(neighbours & ~F.col("up")).select(
        "run", F.col("peer").alias("src"), F.col("node").alias("dst"), "at"
    )
    known = {
        "lives": (lives, "node state start end boot met"),
        "gaps": (gaps, "src dst last next begin until error_s"),
        "joined": (joined, "dst at"),
        "periods": (boots, "node period_s"),
        "ties": (pairs.where(neighbours), "src dst"),
        "closed": (closed, "src dst at"),
        "logs": (wrote, "dst begin until"),
        "holes": (holes, "node start end"),
        "beyond": (beyond, "src dst first last"),
    }
    shape = StructType(
        [
            StructField(name, ArrayType(decided_type(record, "run")))
            for name, record in (("outages", Outage), ("parts", Part), ("sides", PartSide))
        ]
    )
    decide = F.udf(_decided, shape, useArrow=False)
    of_run = gathered(("run",), known).where(F.size("lives") > 0)
    decided = made(of_run.select("run", decide(*known).alias("decided")))

    def table(name: str) -> DataFrame:
        return decided.select("run", F.explode(f"decided.{name}").alias("row")).select("run", "row.*")

    return Silences(table("outages"), table("parts"), table("sides"))


def _decided(
    lives: Any,
    gaps: Any,
    joined: Any,
    periods: Any,
    ties: Any,
    closed: Any,
    logs: Any,
    holes: Any,
    beyond: Any,
) -> Any:
    full = None  # no ties: the mesh is full
    return tuple(tables(lives, gaps, joined, periods, ties or full, closed, logs, holes, beyond))


def _gaps(heard: DataFrame, wrote: DataFrame) -> DataFrame:
    """The gaps of all pairs that heard each other. Most pairs have none."""
    from pyspark.sql import functions as F

    gaps = F.expr(f"filter(transform(sequence(0, size(s)), i -> {LAST_AND_NEXT}), g -> {LONG})")
    return (
        heard.join(F.broadcast(wrote), ["run", "dst", "boot"])
        .withColumn("gaps", gaps)
        .where(F.size("gaps") > 0)
        .select("run", "src", "dst", "begin", "until", F.explode("gaps").alias("g"))
        .select(
            "run",
            "src",
            "dst",
            "g.last",
            "g.next",
            F.coalesce("g.last", "begin").alias("begin"),
            F.coalesce("g.next", "until").alias("until"),
            "g.error_s",
        )
    )


def _unheard(
    heard: DataFrame, pairs: DataFrame, wrote: DataFrame, lives: DataFrame, full: Collection[str]
) -> DataFrame:
    """Brokers that could have been heard in a boot, but never were. In a full mesh that is every other
    broker, otherwise those that heard that broker, or were heard by it, at another time."""
    from pyspark.sql import functions as F

    nodes = lives.select("run", F.col("node").alias("src")).distinct()
    is_full = F.col("run").isin(sorted(full))
    either = pairs.unionByName(pairs.select("run", F.col("dst").alias("src"), F.col("src").alias("dst")))
    might = (
        wrote.where(is_full)
        .join(nodes, "run")
        .where(F.col("src") != F.col("dst"))
        .unionByName(wrote.join(either.where(~is_full).distinct(), ["run", "dst"]))
    )
    nobody = F.lit(None).cast("long")
    return (
        might.where(F.col("until") - F.col("begin") > F.col("period_us") * SILENT_PERIODS)
        .join(heard, ["run", "src", "dst", "boot"], "left_anti")
        .select(
            "run",
            "src",
            "dst",
            nobody.alias("last"),
            nobody.alias("next"),
            "begin",
            "until",
            F.lit(0.0).alias("error_s"),
        )
    )


def _full_runs(pairs: DataFrame, boots: DataFrame, lives: DataFrame) -> set[str]:
    """The runs in which nearly all brokers that ran together heard each other. `tables` examines the others
    more closely: a mesh that was always cut is full too."""
    from pyspark.sql import functions as F

    period = boots.groupBy("run").agg((F.max("period_s") * 1e6 * TOGETHER_PERIODS).alias("least_us"))
    ran = (
        lives.where(F.col("state") == "up")
        .groupBy("run", "node")
        .agg(F.min("start").alias("start"), F.max("end").alias("end"))
        .join(period, "run")
    )
    one, other = ran.alias("one"), ran.alias("other")
    met = F.least("one.end", "other.end") - F.greatest("one.start", "other.start")
    together = (
        one.join(other, (F.col("one.run") == F.col("other.run")) & (F.col("one.node") < F.col("other.node")))
        .where(met > F.col("one.least_us"))
        .select("one.run", F.col("one.node").alias("one"), F.col("other.node").alias("other"))
    )
    known = pairs.select(
        "run",
        F.least("src", "dst").alias("one"),
        F.greatest("src", "dst").alias("other"),
        F.lit(1).alias("met"),
    ).distinct()
    counted = (
        together.join(known, ["run", "one", "other"], "left")
        .groupBy("run")
        .agg(F.count("*").alias("pairs"), F.count("met").alias("met"))
    )
    return {row.run for row in counted.collect() if row.met >= FULL_SHARE * row.pairs}


def _gathered(*names: str) -> Column:
    from pyspark.sql import functions as F

    return F.collect_list(F.struct(*(F.col(name) for name in names)))
