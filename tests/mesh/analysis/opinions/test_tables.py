"""The opinions of a small run through Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.analysis.facts import Said
from mesh.analysis.opinions.tables import opinions
from mesh.analysis.results.spark_types import decision_schema
from mesh.analysis.results.tables import Change, Detector, Life, Mistake, Outage, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

S = 1_000_000


def said(node: str, at_s: float, subject: str, from_state: str, to_state: str) -> tuple[object, ...]:
    return ("r", node, "b1", round(at_s * S), subject, subject, "b1", 1, from_state, to_state, "", node)


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
    found = opinions(
        spark.createDataFrame(talk, decision_schema(Said)),
        spark.createDataFrame(lives, decision_schema(Life)),
        spark.createDataFrame([("r", "b", "a", 15 * S, 29 * S, True, "cut", 0.0)], decision_schema(Outage)),
        periods={"r": 1.0},
        window_s=10.0,
    )
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
