"""What `stats` rows say was delivered, by rows of one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.analysis import delivery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = (
    "run string, node string, boot string, seq long, us long, kind string, published long, delivered long, "
    "dropped long, rss_bytes long, loop_late_ms_p50 double, loop_late_ms_max double, "
    "links array<struct<peer: string, msgs_out: long, bytes_out: long>>"
)


def stats(spark: SparkSession, *delivered: int) -> DataFrame:
    """One boot of a broker, with a row a second."""
    rows = [
        ("r", "n", "b", seq, 1_000_000 * seq, "stats", 10 * seq, count, 0, 1, 0.0, 0.0, [])
        for seq, count in enumerate(delivered, start=1)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def test_delivered_is_what_the_last_row_says_also_if_it_fell(spark: SparkSession) -> None:
    """Messages under way on a lost link leave the counter; its largest value still had them."""
    (total,) = delivery.broker_totals(stats(spark, 100, 250, 240)).collect()
    assert (total["published"], total["delivered"]) == (30, 240)


def test_a_fall_of_delivered_takes_away_and_does_not_begin_anew(spark: SparkSession) -> None:
    """The whole counter was added again at each fall."""
    buckets = delivery.traffic(stats(spark, 100, 250, 240), 1_000_000).orderBy("bucket_us").collect()
    assert [bucket["delivered"] for bucket in buckets] == [100, 150, -10]
