"""Runs the decisions on opinions in Spark: one group for each member, and for views one for each observer.

There may be reports for each pair of brokers, and one row cannot hold those of a whole run. It holds only
sums, and the changes of views. Instants are in microseconds throughout. The times in which brokers ran are
collected on the driver: their number grows with events, not with rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mesh.analysis.gathered import columns_of, gathered
from mesh.analysis.made import made
from mesh.analysis.opinions.causes import Silence, Stretch
from mesh.analysis.opinions.changes import Saying, changes_of
from mesh.analysis.opinions.detector import (
    ALL,
    NOTHING,
    Failure,
    Pool,
    Spans,
    Wrong,
    overlap,
    pairs,
    pooled_exposures,
    quality,
    reported_dead,
)
from mesh.analysis.opinions.mistakes import mistakes_of
from mesh.analysis.opinions.views import PRESENT, Held, Step, held, views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

RAN: Final = ("up", "paused")
FAILED: Final = ("crash", "power_off")


@dataclass(frozen=True, slots=True)
class Run:
    """The times in which each broker of a run ran, and the start and end of the run."""

    ran: Mapping[str, Spans]
    ends: Mapping[str, Sequence[int]]
    """When processes of each broker ended, in order."""
    failures: Mapping[str, Sequence[tuple[int, int | None, str | None]]]
    """By broker: when it failed, when it ran again, and the boot that failed. None: no report can name it."""
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
    failures: dict[str, list[tuple[int, int | None, str | None]]] = defaultdict(list)
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
                failures[node].append((row.end, back, row.boot))
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
    # A run whose logs hold a single instant has no lives to judge reports by.
    said = said.where(F.col("run").isin(*runs))
    decided = made(_by_member(said, lives, outages, runs, periods))
    return Opinions(
        _exploded(decided, "changes"),
        _exploded(decided, "mistakes"),
        _exploded(decided, "pairs").unionByName(pooled(_exploded(decided, "pools"), runs)),
        _views(said, lives, runs, round(window_s * 1e6)),
    )


def _by_member(
    said: DataFrame,
    lives: DataFrame,
    outages: DataFrame,
    runs: Mapping[str, Run],
    periods: Mapping[str, float],
) -> DataFrame:
    """One row for each member: its changes, the mistakes about it, and how well its failures were detected by
    each observer, as rows of the table ``detector`` and as pools."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, StructField, StructType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import Change, Detector, Mistake

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
    failures = {run: dict(of.failures) for run, of in runs.items()}
    ended = {run: of.ended for run, of in runs.items()}
    period_us = {run: round(period_s * 1e6) for run, period_s in periods.items()}

    def decide(run: str, subject: str, said: Any, life: Any, silences: Any) -> Any:
        sayings = [Saying(*each) for each in zip(*said, strict=True)]
        stretches = sorted((Stretch(*each) for each in zip(*life, strict=True)), key=lambda each: each.start)
        cuts: dict[str, list[Silence]] = defaultdict(list)
        for dst, last, next_ in zip(*silences, strict=True):
            cuts[dst].append(Silence(last or 0, next_))
        period = period_us.get(run, 1_000_000)
        changes = changes_of(subject, sayings, stretches, cuts, ran[run], period_us=period)
        mistakes = mistakes_of(subject, sayings, stretches, cuts, ends[run], period_us=period)
        told = reported_dead(sayings)
        of_pairs = pairs(
            subject,
            [Wrong(each.observer, each.start, each.end) for each in mistakes if each.state == "dead"],
            [
                Failure(at, back, {} if boot is None else told.get(boot, {}))
                for at, back, boot in failures[run].get(subject, ())
            ],
            ran[run],
            ended=ended[run],
        )
        rows = [
            quality(observer, subject, pool, overlap(ran[run].get(observer, ()), ran[run].get(subject, ())))
            for observer, pool in of_pairs.items()
        ]
        # Every broker has a pool, so that it has its rows even if there was no event.
        pools = [(subject, subject, *NOTHING)]
        pools += [(observer, subject, *pool) for observer, pool in of_pairs.items()]
        return (
            [tuple(each) for each in changes],
            [tuple(each) for each in mistakes],
            [*map(tuple, rows)],
            pools,
        )

    shape = StructType(
        [
            StructField("changes", ArrayType(decided_type(Change, "run"))),
            StructField("mistakes", ArrayType(decided_type(Mistake, "run"))),
            StructField("pairs", ArrayType(decided_type(Detector, "run"))),
            StructField("pools", ArrayType(pool_type())),
        ]
    )
    judged = F.udf(decide, shape, useArrow=False)
    evidence = [columns_of(name, columns) for name, (_, columns) in known.items()]
    of_member = gathered(("run", "subject"), known)
    return of_member.select("run", judged("run", "subject", *evidence).alias("of")).select("run", "of.*")


def pool_type() -> StructType:
    """Observer, subject, and the fields of `Pool`."""
    from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

    *sums, lags = Pool._fields
    return StructType(
        [StructField(name, StringType()) for name in ("observer", "subject")]
        + [StructField(name, LongType()) for name in sums]
        + [StructField(lags, ArrayType(LongType()))]
    )


def pooled(pools: DataFrame, runs: Mapping[str, Run]) -> DataFrame:
    """The rows of the table ``detector`` for each observer, each subject, and a whole run.

    ``pools`` has the run and the fields of `pool_type`. It has a row for each pair with an event, and for
    each broker with itself."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import Detector

    exposures = {run: pooled_exposures(of.ran) for run, of in runs.items()}
    for of_run in exposures.values():
        of_run[ALL] = sum(of_run.values())

    def decide(run: str, observer: str, subject: str, *pool: Any) -> Any:
        # Two brokers are exposed to each other for the same time.
        exposure_us = exposures[run].get(observer if subject == ALL else subject)
        return [] if exposure_us is None else [tuple(quality(observer, subject, Pool(*pool), exposure_us))]

    judged = F.udf(decide, ArrayType(decided_type(Detector, "run")), useArrow=False)
    *sums, lags = Pool._fields
    summed = pools.groupingSets(
        [[F.col("run"), F.col("observer")], [F.col("run"), F.col("subject")], [F.col("run")]],
        "run",
        "observer",
        "subject",
    ).agg(
        *(F.sum(name).alias(name) for name in sums),
        F.flatten(F.collect_list(lags)).alias(lags),
    )
    one, other = (F.coalesce(name, F.lit(ALL)) for name in ("observer", "subject"))
    return _exploded(summed.select("run", judged("run", one, other, *Pool._fields).alias("rows")), "rows")


def _views(said: DataFrame, lives: DataFrame, runs: Mapping[str, Run], window_us: int) -> DataFrame:
    """One group for each observer: the steps that change its view, which are few among its reports. Then one
    for each run: the views of all observers."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, LongType, StructField, StructType

    from mesh.analysis.results.spark_types import decided_type
    from mesh.analysis.results.tables import View

    present = F.col("to_state").isin(*PRESENT)
    was = F.col("from_state").isin(*PRESENT)
    steps = said.where((present != was) & (F.col("node") != F.col("subject"))).withColumn("present", present)
    known = {
        # A broker that reports nothing has a view too.
        "lives": (lives, "no"),
        "steps": (steps, "at boot subject present"),
    }
    ran = {run: dict(of.ran) for run, of in runs.items()}
    bounds = {run: (of.started, of.ended) for run, of in runs.items()}

    def hold(run: str, node: str, steps: Any) -> Any:
        started, _ = bounds[run]
        stepped = (Step(*each) for each in zip(*steps, strict=True))
        return [tuple(each) for each in held(node, stepped, started=started, window_us=window_us)]

    def compare(run: str, observers: Any) -> Any:
        started, ended = bounds[run]
        of_run = {node: [Held(*each) for each in found] for node, found in observers}
        return [
            tuple(row) for row in views(of_run, ran[run], started=started, ended=ended, window_us=window_us)
        ]

    of_observer = ArrayType(StructType([StructField(name, LongType()) for name in Held._fields]))
    holding = F.udf(hold, of_observer, useArrow=False)
    compared = F.udf(compare, ArrayType(decided_type(View, "run")), useArrow=False)
    found = gathered(("run", "node"), known).select(
        "run", "node", holding("run", "node", columns_of("steps", known["steps"][1])).alias("held")
    )
    of_run = found.groupBy("run").agg(F.collect_list(F.struct("node", "held")).alias("observers"))
    return _exploded(of_run.select("run", compared("run", "observers").alias("rows")), "rows")


def _exploded(rows: DataFrame, name: str) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.select("run", F.explode(name).alias("row")).select("run", "row.*")
