"""Facts in mesh time, made by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.analysis.clocks.apply import sent_in_time
from mesh.analysis.facts import Late, Stretch
from mesh.analysis.results.spark_types import decision_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

S = 1_000_000
RUN, A, B, BOOT = "run", "a" * 16, "b" * 16, "1" * 16


def stretch(first_s: float, last_s: float, boot: str = BOOT, *, resumed: bool = False) -> tuple[object, ...]:
    return (RUN, A, B, boot, round(first_s * S), round(last_s * S), 0.0, resumed)


def test_what_a_listener_reads_at_once_after_a_stop_was_not_sent_in_time(spark: SparkSession) -> None:
    """The loop was six seconds late by the row at 62 s. So the stop ended after 57 s, a stretch that begins
    then began with it, and counts if it goes on."""
    boots = spark.createDataFrame(
        [(RUN, B, BOOT, 1.0, 5.0)], "run string, node string, boot string, period_s double, stats_s double"
    )
    late = [(RUN, B, BOOT, 62 * S, 6.0), (RUN, B, BOOT, 82 * S, 2.0)]
    gone = [stretch(60, 60.1), stretch(57, 58.2), stretch(62.2, 62.2)]
    kept = [
        stretch(0, 50),
        stretch(60, 61.3, resumed=True),
        stretch(56.8, 56.9),
        stretch(62.3, 62.4),
        stretch(80, 80.1),
        stretch(60, 60.1, boot="2" * 16),
    ]

    found = sent_in_time(
        spark.createDataFrame([*gone, *kept], decision_schema(Stretch)).drop("resumed"),
        spark.createDataFrame(late, decision_schema(Late)),
        boots,
    )

    told = found.select(*decision_schema(Stretch).names).collect()
    assert sorted(map(tuple, told)) == sorted(kept)
