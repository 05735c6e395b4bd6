"""Runs the decisions on opinions in Spark: one group for each member, one for each run.

Instants are in microseconds throughout. The times in which brokers ran are collected on the driver: their
number grows with events, not with rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.analysis.gathered import gathered
from mesh.analysis.made import made
from mesh.analysis.opinions.causes import Silence, Stretch
from mesh.analysis.opinions.changes import Saying, changes_of
from mesh.analysis.opinions.detector import Failure, Spans, Wrong, detector
from mesh.analysis.opinions.mistakes import mistakes_of
from mesh.analysis.opinions.views import Step, views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RAN: Final = ("up", "paused")
FAILED: Final = ("crash", "power_off")


@dataclass(frozen=True, slots=True)
class Run:
    """The times in which each broker of a run ran, and the start and end of the run."""

    ran: Mapping[str, Spans]
    ends: Mapping[str, Sequence[int]]
    """When processes of each broker ended, in order."""
    failures: Sequence[tuple[str, str | None, int, int | None]]
    """Broker, boot, when it failed, when it ran again."""
    started: int
    ended: int


@dataclass(frozen=True, slots=True)
class Opinions:
    """Frames with the columns of the tables of these names, as `decision_schema` has them."""

    changes: DataFrame
    mistakes: DataFrame
    detector: DataFrame
    views: DataFrame


def runs_of(lives: DataFrame) -> dict[str, Run]:
    """The part of all lives that `opinions` needs, by run."""
    of_node: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in lives.select("run", "node", "no", "boot", "state", "start", "end", "cause").collect():
        of_node[row.run][row.node].append(row)
    return {run: _run(nodes) for run, nodes in of_node.items()}


def _run(nodes: Mapping[str, list[Any]]) -> Run:
    ran: dict[str, list[tuple[int, int]]] = {}
    ends: dict[str, list[int]] = {}
    failures = []
    for node, stretches in nodes.items():
        stretches.sort(key=lambda row: (row.start, row.no))
        spans: list[tuple[int, int]] = []
        for row in stretches:
            if row.state not in RAN or row.end <= row.start:
                continue
            if spans and spans[-1][1] == row.start:
                spans[-1] = (spans[-1][0], row.end)
            else:
                spans.append((row.start, row.end))
        ran[node] = spans
        ends[node] = [row.end for row in stretches if row.cause in (*FAILED, "leave")]
        for row in stretches:
            if row.cause in FAILED:
                back = next((span[0] for span in spans if span[0] >= row.end), None)
                failures.append((node, row.boot, row.end, back))
    starts = [row.start for stretches in nodes.values() for row in stretches]
    stops = [row.end for stretches in nodes.values() for row in stretches]
    return Run(ran, ends, failures, min(starts), max(stops))


def opinions(
    said: DataFrame, lives: DataFrame, outages: DataFrame, *, periods: Mapping[str, float], window_s: float
) -> Opinions:
    """All four tables. ``periods`` are the heartbeats' periods in seconds, by run.

    ``said`` has the columns of `mesh.analysis.facts.Said`, the others those of their tables.
    """
    from pyspark.sql import functions as F

    runs = runs_of(lives)
    decided = made(_by_member(said, lives, outages, runs, periods))
    changes = decided.select("run", F.explode("decided.changes").alias("row")).select("run", "row.*")
    mistakes = decided.select("run", F.explode("decided.mistakes").alias("row")).select("run", "row.*")
    return Opinions(
        changes,
        mistakes,
        _detector(said, mistakes, runs),
        _views(said, runs, round(window_s * 1e6)),
    )


def _by_member(
    said: DataFrame,
    lives: DataFrame,
    outages: DataFrame,
    runs: Mapping[str, Run],
    periods: Mapping[str, float],
) -> DataFrame:
    """One row for each member: its changes, and the mistakes about it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, StructField, StructType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import Change, Mistake

    known = {
        "said": (said, "node at subject_boot incarnation to_state via"),
        "life": (lives.withColumnRenamed("node", "subject"), "boot state start end cause"),
        "silences": (
            outages.where(F.col("cause") == "cut").withColumnRenamed("src", "subject"),
            "dst last next",
        ),
    }
    ran = {run: dict(of.ran) for run, of in runs.items()}
    ends = {run: dict(of.ends) for run, of in runs.items()}
    period_us = {run: round(period_s * 1e6) for run, period_s in periods.items()}

    def decide(run: str, subject: str, said: Any, life: Any, silences: Any) -> Any:
        sayings = [Saying(*each) for each in said]
        stretches = sorted((Stretch(*each) for each in life), key=lambda each: each.start)
        cuts = [Silence(dst, last or 0, next_) for dst, last, next_ in silences]
        period = period_us.get(run, 1_000_000)
        return (
            [tuple(row) for row in changes_of(subject, sayings, stretches, cuts, ran[run], period_us=period)],
            [
                tuple(row)
                for row in mistakes_of(subject, sayings, stretches, cuts, ends[run], period_us=period)
            ],
        )

    shape = StructType(
        [
            StructField("changes", ArrayType(decided_type(Change, "run"))),
            StructField("mistakes", ArrayType(decided_type(Mistake, "run"))),
        ]
    )
    judged = F.udf(decide, shape, useArrow=False)
    of_member = gathered(("run", "subject"), known).where(F.size("said") > 0)
    return of_member.select("run", judged("run", "subject", "said", "life", "silences").alias("decided"))


def _detector(said: DataFrame, mistakes: DataFrame, runs: Mapping[str, Run]) -> DataFrame:
    """One group for each run: mistakes of DEAD, and when each observer reported a failed boot dead."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import Detector

    failed = {run: {(node, boot) for node, boot, *_ in of.failures} for run, of in runs.items()}
    boots = sorted({boot for of in failed.values() for _, boot in of if boot is not None})
    told = (
        said.where((F.col("to_state") == "dead") & F.col("subject_boot").isin(boots))
        .groupBy("run", "node", "subject", "subject_boot")
        .agg(F.min("at").alias("at"))
    )
    known = {
        "every": (_every_run(said, runs), "run"),
        "wrong": (mistakes.where(F.col("state") == "dead"), "observer subject start end"),
        "told": (told, "node subject subject_boot at"),
    }
    ran = {run: dict(of.ran) for run, of in runs.items()}
    failures = {run: list(of.failures) for run, of in runs.items()}
    ended = {run: of.ended for run, of in runs.items()}

    def decide(run: str, wrong: Any, told: Any) -> Any:
        by_boot: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        for node, subject, boot, at in told:
            by_boot[subject, boot][node] = at
        failed = [
            # A report of DEAD before the failure was a mistake. After the failure it was no longer news.
            Failure(node, at, back, {who: max(at, when) for who, when in by_boot[node, boot or ""].items()})
            for node, boot, at, back in failures[run]
        ]
        mistaken = [Wrong(*each) for each in wrong]
        return [tuple(row) for row in detector(ran[run], mistaken, failed, ended=ended[run])]

    judged = F.udf(decide, ArrayType(decided_type(Detector, "run")), useArrow=False)
    of_run = gathered(("run",), known).where(F.size("every") > 0)
    return _exploded(of_run.select("run", judged("run", "wrong", "told").alias("rows")))


def _views(said: DataFrame, runs: Mapping[str, Run], window_us: int) -> DataFrame:
    """One group for each run: the steps that change a view, which are few among the reports."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import View

    present = F.col("to_state").isin("alive", "suspect")
    was = F.col("from_state").isin("alive", "suspect")
    steps = said.where((present != was) & (F.col("node") != F.col("subject"))).withColumn("present", present)
    known = {
        "every": (_every_run(said, runs), "run"),
        "steps": (steps, "at node boot subject present"),
    }
    ran = {run: dict(of.ran) for run, of in runs.items()}
    bounds = {run: (of.started, of.ended) for run, of in runs.items()}

    def decide(run: str, given: Any) -> Any:
        started, ended = bounds[run]
        stepped = (Step(*each) for each in given)
        return [
            tuple(row) for row in views(stepped, ran[run], started=started, ended=ended, window_us=window_us)
        ]

    judged = F.udf(decide, ArrayType(decided_type(View, "run")), useArrow=False)
    of_run = gathered(("run",), known).where(F.size("every") > 0)
    return _exploded(of_run.select("run", judged("run", "steps").alias("rows")))


def _every_run(of: DataFrame, runs: Iterable[str]) -> DataFrame:
    return of.sparkSession.createDataFrame([(run,) for run in sorted(runs)], "run string")


def _exploded(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.select("run", F.explode("rows").alias("row")).select("run", "row.*")
