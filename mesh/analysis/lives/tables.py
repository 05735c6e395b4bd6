"""Runs the decisions on lives in Spark: one group for each broker, one for each run.

Instants are in microseconds throughout, as in `mesh.analysis.facts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.analysis.lives.availability import availability
from mesh.analysis.lives.churn import churn
from mesh.analysis.lives.evidence import Evidence
from mesh.analysis.lives.survival import survival
from mesh.analysis.lives.telling import tell

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from mesh.analysis.clocks.apply import Facts

KNOWN: Final = ("boots", "said", "linked", "heard", "awake", "late")
"""Columns with lists of evidence about a broker."""


def lives(facts: Facts) -> DataFrame:
    """The table ``lives``, for every broker that has a log, or that others met or heard."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import Life

    since = F.broadcast(facts.boots.select("run", "boot", F.col("first").alias("since")))
    lists = {
        "boots": _by(
            facts.boots, "node", "boot first last first_seq last_seq rows stopped reason left torn stats_s"
        ),
        "said": _by(
            facts.said.where("subject != node").join(since, ["run", "boot"], "left"),
            "subject",
            "node boot at subject_boot to_state reason since",
        ),
        "linked": _by(facts.linked, "peer", "node boot at up reason"),
        "heard": _by(facts.stretches, "src", "dst boot first last"),
        "awake": _by(facts.awake, "node", "boot first last"),
        "late": _by(facts.late, "node", "boot at late_s"),
    }
    of_run = facts.boots.groupBy("run").agg(
        F.min("first").alias("begin"), F.max("last").alias("end"), F.mode("period_s").alias("usual_s")
    )
    periods = facts.boots.groupBy("run", "node").agg(F.max("period_s").alias("period_s"))
    joined = None
    for name, rows in lists.items():
        rows = rows.select("run", "who", F.col("known").alias(name))
        joined = rows if joined is None else joined.join(rows, ["run", "who"], "full")
    assert joined is not None
    of_broker = joined.withColumnRenamed("who", "node").join(F.broadcast(of_run), "run")
    of_broker = of_broker.join(periods, ["run", "node"], "left")
    decide = F.udf(_tell, ArrayType(decided_type(Life, "run", "node")), useArrow=False)
    period_s = F.coalesce("period_s", "usual_s")
    told = of_broker.select("run", "node", decide("node", "begin", "end", period_s, *KNOWN).alias("told"))
    return told.select("run", "node", F.explode("told").alias("life")).select("run", "node", "life.*")


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


def _by(rows: DataFrame, who: str, columns: str) -> DataFrame:
    from pyspark.sql import functions as F

    known = F.struct(*(F.col(name) for name in columns.split()))
    return rows.groupBy("run", F.col(who).alias("who")).agg(F.collect_list(known).alias("known"))


def _each(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    row: Column = F.explode("rows").alias("row")
    return rows.select("run", row).select("run", "row.*")


def _tell(node: str, begin: int, end: int, period_s: float, *known: Any) -> list[tuple[Any, ...]]:
    lists = dict(zip(KNOWN, (rows or () for rows in known), strict=True))
    lists["awake"] = [tuple(row) for row in lists["awake"]]
    since = {row.boot: row.since for row in lists["said"] if row.since is not None}
    evidence = Evidence(node=node, begin=begin, end=end, period_s=period_s, since=since, **lists)
    return [tuple(row) for row in tell(evidence)]


def _availability(lives: Any) -> tuple[Any, ...]:
    return tuple(availability(lives))


def _churn(lives: Any, window_s: float) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in churn(lives, window_s)]


def _survival(lives: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in survival(lives)]
