"""Runs the decisions on lives in Spark: one group for each broker, one for each run.

Instants are in microseconds throughout, as in `mesh.analysis.facts`.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.analysis.gathered import columns_of, gathered
from mesh.analysis.lives.availability import availability
from mesh.analysis.lives.churn import churn
from mesh.analysis.lives.evidence import Evidence
from mesh.analysis.lives.survival import survival
from mesh.analysis.lives.telling import tell

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from mesh.analysis.clocks.apply import Facts

KNOWN: Final = {
    "boots": "boot first last told first_seq last_seq rows stopped reason left torn stats_s period_s",
    "said": "node boot at subject_boot to_state reason",
    "since": "since",
    "linked": "node boot at up reason",
    "heard": "dst boot first last resumed",
    "awake": "boot first last",
    "late": "boot at late_s",
    "holes": "start end",
}
"""Lists of evidence about a broker, and their columns."""
RECORDS: Final = {name: namedtuple(name, columns) for name, columns in KNOWN.items()}


def lives(facts: Facts) -> DataFrame:
    """The table ``lives``, for every broker that has a log, or that others met or heard."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import Life

    said = facts.said.where("subject != node").withColumnRenamed("subject", "who")
    lists = {
        "boots": facts.boots.withColumn("who", F.col("node")),
        "said": telling_reports(said, facts.boots),
        "since": _since(said, facts.boots),
        "linked": links_of_others(facts.linked, facts.boots).withColumnRenamed("peer", "who"),
        "heard": facts.stretches.withColumnRenamed("src", "who"),
        "awake": facts.awake.withColumnRenamed("node", "who"),
        "late": facts.late.withColumnRenamed("node", "who"),
        "holes": facts.holes.withColumnRenamed("node", "who"),
    }
    of_run = facts.boots.groupBy("run").agg(
        F.min("first").alias("begin"),
        F.max("last").alias("end"),
        F.mode("period_s", deterministic=True).alias("usual_s"),
    )
    known = {name: (frame, KNOWN[name]) for name, frame in lists.items()}
    of_broker = gathered(("run", "who"), known).withColumnRenamed("who", "node")
    of_broker = of_broker.join(F.broadcast(of_run), "run")
    decide = F.udf(_tell, ArrayType(decided_type(Life, "run", "node")), useArrow=False)
    period_s = F.coalesce(F.array_max("boots.period_s"), "usual_s")
    evidence = [columns_of(name, columns) for name, columns in KNOWN.items()]
    told = of_broker.select("run", "node", decide("node", "begin", "end", period_s, *evidence).alias("told"))
    return told.select("run", "node", F.explode("told").alias("life")).select("run", "node", "life.*")


def telling_reports(said: DataFrame, boots: DataFrame) -> DataFrame:
    """The reports of others that can change a life: about a boot without a log, or that a boot left or
    refuted a report.

    `tell` reads no others, and nearly all are others: opinions about boots that have a log.
    """
    from pyspark.sql import functions as F

    logged = boots.select(
        "run", F.col("node").alias("who"), F.col("boot").alias("subject_boot"), F.lit(True).alias("logged")
    )
    words = said.join(F.broadcast(logged), ["run", "who", "subject_boot"], "left")
    return words.where("logged is null or to_state = 'left' or reason = 'refuted'")


def links_of_others(linked: DataFrame, boots: DataFrame) -> DataFrame:
    """The rows about links, without those that a broker wrote after it had left. Then its peers close their
    links to it, which is no sign of an end of theirs."""
    from pyspark.sql import functions as F

    left = F.broadcast(boots.where(F.col("left").isNotNull()).select("run", "boot", "left"))
    before = F.col("left").isNull() | (F.col("at") < F.col("left"))
    return linked.join(left, ["run", "boot"], "left").where(before).drop("left")


def _since(said: DataFrame, boots: DataFrame) -> DataFrame:
    """For each broker, the earliest row of all boots that ever reported about it."""
    from pyspark.sql import functions as F

    first = boots.select("run", "boot", "first")
    spoke = said.select("run", "who", "boot").distinct().join(F.broadcast(first), ["run", "boot"])
    return spoke.groupBy("run", "who").agg(F.min("first").alias("since"))


@dataclass(frozen=True)
class Figures:
    """Figures from lives, as frames with the columns of the tables of these names."""

    availability: DataFrame
    churn: DataFrame
    survival: DataFrame


def figures(lives: DataFrame, window_s: float) -> Figures:
    """``window_s`` is the length of the windows of ``churn``."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import Availability, Churn, Survival

    life = F.struct("node", "no", "state", "start", "end", "cause", "truncated", "censored")
    of_run = lives.groupBy("run").agg(F.collect_list(life).alias("lives"))
    of_broker = lives.groupBy("run", "node").agg(F.collect_list(life).alias("lives"))
    available = F.udf(_availability, decided_type(Availability, "run", "node"), useArrow=False)
    churned = F.udf(_churn, ArrayType(decided_type(Churn, "run")), useArrow=False)
    survives = F.udf(_survival, ArrayType(decided_type(Survival, "run")), useArrow=False)
    return Figures(
        availability=of_broker.select("run", "node", available("lives").alias("of")).select(
            "run", "node", "of.*"
        ),
        churn=_each(of_run.select("run", churned("lives", F.lit(window_s)).alias("rows"))),
        survival=_each(of_run.select("run", survives("lives").alias("rows"))),
    )


def _each(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    row: Column = F.explode("rows").alias("row")
    return rows.select("run", row).select("run", "row.*")


def _tell(node: str, begin: int, end: int, period_s: float, *known: Any) -> list[tuple[Any, ...]]:
    lists: dict[str, Any] = {
        name: [record(*each) for each in zip(*columns, strict=True)]
        for (name, record), columns in zip(RECORDS.items(), known, strict=True)
    }
    lists["since"] = [row.since for row in lists["since"]]
    evidence = Evidence(node=node, begin=begin, end=end, period_s=period_s, **lists)
    return [tuple(row) for row in tell(evidence)]


def _availability(lives: Any) -> tuple[Any, ...]:
    return tuple(availability(lives))


def _churn(lives: Any, window_s: float) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in churn(lives, window_s)]


def _survival(lives: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in survival(lives)]
