"""Traces of the Failure Trace Archive become lives.

The LANL trace is not part of the project. ``MANGROVE_LANL_TRACE`` names a copy of its ``event_trace.tab``,
gzipped or not, from the Failure Trace Archive. Without it that test skips.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from mesh.analysis.fta import NoTrace, read_trace
from mesh.analysis.lives.tables import figures
from mesh.analysis.results.spark_types import decision_schema
from mesh.analysis.results.tables import Life

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

NAMES = "event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time"
TRACE = f"""{NAMES} event_end_reason
# a comment
    0\t       0\t     7\t    3\t       7.000\t         0\t   \t\t1000\t   \t\t1600\t       \t8000
    1\t       0\t     7\t    3\t       7.000\t         1\t   \t\t1600\t   \t\t5200\t       \t4022
    2\t       0\t     7\t    3\t       7.000\t         0\t   \t\t5200\t   \t\t5200\t       \t8000
    3\t       0\t     7\t    3\t       7.000\t         1\t   \t\t5200\t   \t\t8800\t       \t2
    4,0,8,3,8.000,1,1000,4600,0
    5,0,8,3,8.000,1,6400,8200,0
"""


def trace(folder: Path, text: str = TRACE) -> str:
    path = folder / "event_trace.tab.gz"
    path.write_bytes(gzip.compress(text.encode()))
    return str(path)


def plain(lives: DataFrame) -> list[tuple[Any, ...]]:
    second = 1_000_000
    return [
        (row.node, row.no, row.state, row.start // second, row.end // second, row.cause, row.censored)
        for row in lives.orderBy("node", "no").collect()
    ]


def test_events_become_stretches_and_the_time_between_them_is_unknown(
    spark: SparkSession, tmp_path: Path
) -> None:
    lives = read_trace(spark, trace(tmp_path), "small")

    seven, eight = "0000000300000007", "0000000300000008"
    assert plain(lives) == [
        (seven, 1, "down", 1000, 1600, "restart", False),
        (seven, 2, "up", 1600, 5200, "crash", False),
        (seven, 3, "down", 5200, 5200, "restart", False),
        (seven, 4, "up", 5200, 8800, None, True),
        (eight, 1, "up", 1000, 4600, "log lost", False),
        (eight, 2, "unknown", 4600, 6400, "heard again", False),
        (eight, 3, "up", 6400, 8200, None, True),
    ]
    assert lives.columns == decision_schema(Life).names
    (one, other) = figures(lives, 3600.0).availability.orderBy("node").collect()
    assert (one.failures, one.up_s, one.down_s, one.mttf_s, one.mttr_s) == (1, 7200, 600, 7200, 300)
    assert (other.failures, other.unknown_s, other.availability) == (0, 1800, 1.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no event of a failure trace"),
        ("# nothing\n", "holds no event of a failure trace"),
        (
            TRACE + "6 0 8 3 8.0 2 8200 9000 0\n",
            "1 of 7 lines are not events of a failure trace; the first is '6 0 8",
        ),
        (TRACE + "6 0 8 3 8.0 1 9000 8200 0\n", "1 of 7 lines are not events of a failure trace"),
        ('{"v":1,"run":"mangrove"}\n', "1 of 1 lines are not events of a failure trace"),
    ],
)
def test_a_malformed_trace_is_one_sentence(spark: SparkSession, tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(NoTrace) as told:
        read_trace(spark, trace(tmp_path, text), "bad")

    assert says in str(told.value)


@pytest.fixture
def lanl() -> str:
    path = os.environ.get("MANGROVE_LANL_TRACE")
    if not path:
        pytest.skip("MANGROVE_LANL_TRACE names no copy of the trace, which is not part of the project")
    return path


def test_the_trace_of_los_alamos_gives_its_known_figures(spark: SparkSession, lanl: str) -> None:
    """Equal in each digit to the results of DuckDB and plain Python with the same definitions."""
    lives = read_trace(spark, lanl, "lanl").persist()
    hours = ((F.col("end") - F.col("start")) / 3.6e9).alias("hours")

    def lengths(state: str) -> list[float]:
        rows = lives.where((F.col("state") == state) & (F.col("end") > F.col("start"))).select(hours)
        figures = rows.agg(
            F.count("hours"), F.avg("hours"), F.percentile("hours", 0.5), F.percentile("hours", 0.9)
        ).first()
        assert figures is not None
        return [round(each, 4) for each in figures]

    assert lengths("up") == [19874, 1779.9898, 280.2833, 5811.4133]
    assert lengths("down") == [23329, 5.9155, 0.9833, 5.5]
    assert lives.where("state in ('up', 'down') and start = `end`").count() == 122
    assert lives.where("state = 'unknown'").count() == 0

    available = figures(lives, 86_400.0).availability
    of = available.agg(
        F.sum("up_s") / (F.sum("up_s") + F.sum("down_s")),
        F.avg("availability"),
        F.percentile("availability", 0.1),
    ).first()
    assert of is not None
    assert [round(each, 6) for each in of] == [0.996114, 0.728663, 0]
    lives.unpersist()
