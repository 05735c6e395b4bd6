"""The opinions of small runs through Spark."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from mesh.analysis.facts import Said
from mesh.analysis.opinions.detector import NOTHING, Pool, quality
from mesh.analysis.opinions.tables import Opinions, Run, opinions, pool_type, pooled
from mesh.analysis.results.spark_types import decision_schema
from mesh.analysis.results.tables import Change, Detector, Life, Mistake, Outage, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

S = 1_000_000
Row = tuple[object, ...]
SUMS = Pool._fields[:-1]


def said(node: str, at_s: float, subject: str, from_state: str, to_state: str, run: str = "r") -> Row:
    return (run, node, "b1", round(at_s * S), subject, subject, "b1", 1, from_state, to_state, "", node)


def judged(
    spark: SparkSession,
    talk: Iterable[Row],
    lives: Iterable[Row],
    outages: Iterable[Row],
) -> Opinions:
    return opinions(
        spark.createDataFrame([*talk], decision_schema(Said)),
        spark.createDataFrame([(*life, None) for life in lives], decision_schema(Life)),
        spark.createDataFrame([*outages], decision_schema(Outage)),
        periods={"r": 1.0},
        window_s=10.0,
    )


def test_opinions_of_a_run(spark: SparkSession) -> None:
    lives = [
        ("r", "a", 1, "b1", "up", 0, 100 * S, None, False, True, 0.0),
        ("r", "b", 1, "b1", "up", 0, 100 * S, None, False, True, 0.0),
        ("r", "m", 1, "b1", "up", 0, 50 * S, "crash", False, False, 0.0),
        ("r", "m", 2, None, "down", 50 * S, 100 * S, None, False, True, 0.0),
    ]
    talk = [said(one, 1, other, "unknown", "alive") for one in "abm" for other in "abm" if one != other]
    talk += [
        said("a", 20, "b", "alive", "dead"),
        said("a", 30, "b", "dead", "alive"),
        said("a", 53, "m", "alive", "dead"),
        said("b", 54, "m", "alive", "dead"),
    ]
    found = judged(spark, talk, lives, [("r", "b", "a", 15 * S, 29 * S, True, "cut", 0.0)])
    deaths = found.changes.where("state = 'dead'").orderBy("subject").collect()
    assert [(row.subject, row.cause, row.at, row.reached, row.of) for row in deaths] == [
        ("b", "cut off", None, 1, 2),
        ("m", "crash", 50 * S, 2, 2),
    ]
    (mistake,) = found.mistakes.collect()
    assert (mistake.observer, mistake.subject, mistake.start, mistake.end) == ("a", "b", 20 * S, 30 * S)
    everybody = found.detector.where("observer = '*' and subject = '*'").first()
    assert everybody is not None
    assert (everybody.mistakes, everybody.failures, everybody.detection_p99_s) == (1, 2, 4.0)
    rows = {row.start // S: (row.observers, row.distinct) for row in found.views.collect()}
    assert rows[0] == (3, 1)
    assert rows[10] == (3, 2), "a misses b"
    assert rows[50] == (2, 1), "m is gone in both views by 60 s"
    for frame, record in (
        (found.changes, Change),
        (found.mistakes, Mistake),
        (found.detector, Detector),
        (found.views, View),
    ):
        assert frame.columns == decision_schema(record).names


def test_brokers_that_report_nothing_have_rows_too(spark: SparkSession) -> None:
    """Run ``r`` has no report at all, though ``b`` was down for a moment. In run ``q`` only ``a`` reports."""
    lives: list[Row] = [
        (run, node, 1, "b1", "up", 0, 100 * S, None, False, True, 0.0) for run in "rq" for node in "ac"
    ]
    for run in "rq":
        lives += [
            (run, "b", 1, "b1", "up", 0, 50 * S, "crash", False, False, 0.0),
            (run, "b", 2, None, "down", 50 * S, 60 * S, "restart", False, False, 0.0),
            (run, "b", 3, "b2", "up", 60 * S, 100 * S, None, False, True, 0.0),
        ]

    found = judged(spark, [said("a", 53, "b", "alive", "dead", run="q")], lives, [])

    rows = {
        (row.run, row.observer, row.subject): (row.exposure_s, row.failures, row.missed, row.detection_p50_s)
        for row in found.detector.collect()
    }
    everybody = {
        ("a", "*"): (190, 1, 1, None),
        ("b", "*"): (180, 0, 0, None),
        ("c", "*"): (190, 1, 1, None),
        ("*", "a"): (190, 0, 0, None),
        ("*", "b"): (180, 2, 2, None),
        ("*", "c"): (190, 0, 0, None),
        ("*", "*"): (560, 2, 2, None),
        ("a", "b"): (90, 1, 1, None),
        ("c", "b"): (90, 1, 1, None),
    }
    noticed = {
        ("a", "*"): (190, 1, 0, 3.0),
        ("*", "b"): (180, 2, 1, 3.0),
        ("*", "*"): (560, 2, 1, 3.0),
        ("a", "b"): (90, 1, 0, 3.0),
    }
    assert rows == {("r", *key): row for key, row in everybody.items()} | {
        ("q", *key): row for key, row in (everybody | noticed).items()
    }
    views = {(row.run, row.start // S): (row.observers, row.distinct) for row in found.views.collect()}
    # Nobody ever reported to know another, so every view is another. The end of the last window is that of
    # all lives.
    there = {start: (2, 2) if start == 40 else (3, 3) for start in range(0, 90, 10)}
    assert views == {(run, start): row for run in "rq" for start, row in there.items()}


def test_reports_of_a_run_without_lives_are_left_out(spark: SparkSession) -> None:
    """A run whose logs hold a single instant has no lives."""
    lives: list[Row] = [("r", "a", 1, "b1", "up", 0, 100 * S, None, False, True, 0.0)]
    talk = [said("a", 5, "b", "unknown", "alive", run=run) for run in "rq"]

    found = judged(spark, talk, lives, [])

    for frame in (found.changes, found.detector, found.views):
        assert {row.run for row in frame.collect()} == {"r"}


def test_spark_pools_as_python_would(spark: SparkSession) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    rng = random.Random(1)
    nodes = [f"n{number}" for number in range(12)]
    rows: list[Row] = [("r", node, node, *NOTHING) for node in nodes]
    of_key: dict[tuple[str, str], list[Pool]] = defaultdict(list)
    for observer in nodes[:10]:
        for subject in nodes[2:]:
            lags_us = [rng.randrange(99) for _ in range(observer < subject)]
            pool = Pool(**{name: rng.randrange(9) for name in SUMS}, lags_us=lags_us)
            rows.append(("r", observer, subject, *pool))
            for key in ((observer, "*"), ("*", subject), ("*", "*")):
                of_key[key].append(pool)
    for node in nodes:
        of_key[node, "*"] += [NOTHING]
        of_key["*", node] += [NOTHING]
    run = Run(ran={node: [(0, 3600 * S)] for node in nodes}, ends={}, failures={}, started=0, ended=3600 * S)

    shape = StructType([StructField("run", StringType()), *pool_type().fields])
    found = pooled(spark.createDataFrame(rows, shape).repartition(3), {"r": run}).collect()

    exposed = 11 * 3600 * S
    assert {(row.observer, row.subject): tuple(row)[1:] for row in found} == {
        key: tuple(quality(*key, added(pools), exposed * (12 if key == ("*", "*") else 1)))
        for key, pools in of_key.items()
    }


def added(pools: list[Pool]) -> Pool:
    sums = {name: sum(getattr(pool, name) for pool in pools) for name in SUMS}
    return Pool(**sums, lags_us=[lag for pool in pools for lag in pool.lags_us])
