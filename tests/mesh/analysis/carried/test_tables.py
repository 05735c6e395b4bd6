"""The traffic of brokers and links, through Spark, from hand-made `stats` and `heard` rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.analysis.reading.repeats import HOLES
from mesh.analysis.results.spark_types import decision_schema
from mesh.analysis.results.tables import Broker, Drop, Link, Traffic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

S = 1_000_000
STATS = (
    "run string, node string, boot string, first_seq bigint, seq bigint, at bigint, "
    "published bigint, delivered bigint, dropped bigint, rss_bytes bigint, "
    "loop_late_ms_p50 double, loop_late_ms_max double, "
    "links array<struct<peer:string,msgs_in:bigint,msgs_out:bigint,bytes_in:bigint,bytes_out:bigint,"
    "dropped:bigint,lost:bigint>>, drops map<string,bigint>"
)
BOOTS = (
    "run string, node string, boot string, name string, host string, version string, period_s double, "
    "deadline_s double, stats_s double, first bigint"
)
HEARD = (
    "run string, dst string, boot string, src string, window bigint, window_ns bigint, "
    "surveys bigint, answers bigint, "
    "first_round bigint, last_round bigint, rtt_min_us bigint, rtt_max_us bigint, "
    "rtt_low bigint, rtt_mid bigint, rtt_high bigint, first_ns bigint, last_ns bigint, slots bigint"
)


SAID = "run string, subject string, subject_name string, at bigint"
MEM = "run string, node string, boot string, subject string, subject_boot string, mono_ns bigint"


def stats_row(
    boot: str,
    seq: int,
    at_s: float,
    published: int,
    delivered: int,
    dropped: int,
    out: int,
    *,
    first_seq: int = 1,
) -> tuple[Any, ...]:
    links = [("b", 0, out, 0, out * 10, 0, 0)]
    drops = {"queue full": dropped} if dropped else {}
    counted = (published, delivered, dropped, 1000, 0.1, 2.0, links, drops)
    return ("r", "a", boot, first_seq, seq, round(at_s * S), *counted)


@pytest.fixture
def stats(spark: SparkSession) -> DataFrame:
    rows = [
        stats_row("b1", 1, 5, 10, 20, 0, 30),
        stats_row("b1", 2, 10, 15, 18, 3, 40),  # two were in flight on a link that was lost
        stats_row("b2", 1, 25, 4, 4, 1, 7),
    ]
    return spark.createDataFrame(rows, STATS)


def test_brokers_sum_over_their_boots(spark: SparkSession, stats: DataFrame) -> None:
    from mesh.analysis.carried.tables import brokers

    boots = [
        ("r", "a", "b1", "oslo", "h", "0.2", 1.0, 0.5, 5.0, 0),
        ("r", "a", "b2", "oslo", "h", "0.3", 2.0, 0.5, 5.0, 20 * S),
        ("r", "a", "b3", "a", "h", "0.3", 2.0, 0.5, 5.0, 30 * S),  # without a `meta` row
        ("r", "c", "b9", "", None, None, 1.0, 0.5, 5.0, 0),
        ("r", "f00", "b1", "bergen", "h", "0.2", 1.0, 0.5, 5.0, 0),
        ("r", "f00", "b2", "f00", "h", "0.2", 1.0, 0.5, 5.0, 9 * S),
    ]
    said = [
        ("r", "a", "oslo", 1),
        ("r", "d", "dover", 2),
        ("r", "d", "dublin", 3),
        ("r", "d", "", 4),
        ("r", "e", "", 1),
    ]
    found = brokers(spark.createDataFrame(boots, BOOTS), spark.createDataFrame(said, SAID), stats)
    a, c, d, e, f = found.orderBy("node").collect()
    assert (d.name, d.boots, d.period_s, d.published) == ("dublin", 0, None, None), "it left no log"
    assert (e.name, e.boots) == ("e", 0)
    assert f.name == "bergen", "the id, which stands for a missing name, came later in the alphabet"
    assert (a.name, a.version, a.boots, a.period_s) == ("oslo", "0.3", 3, 2.0)
    assert (a.published, a.delivered, a.dropped) == (19, 22, 4)
    assert (c.name, c.published) == ("c", None), "NULL where nothing was counted"
    assert set(found.columns) == set(decision_schema(Broker).names)


def test_drops_by_reason(stats: DataFrame) -> None:
    from mesh.analysis.carried.tables import drops

    (row,) = drops(stats).collect()
    assert (row.reason, row["count"]) == ("queue full", 4)
    assert set(drops(stats).columns) == set(decision_schema(Drop).names)


def test_traffic_is_the_change_of_a_counter_and_may_be_negative(stats: DataFrame) -> None:
    from mesh.analysis.carried.tables import traffic

    found = traffic(stats, 10.0)
    rows = {row.start // S: row for row in found.collect()}
    assert (rows[0].published, rows[0].delivered, rows[0].msgs_out) == (10, 20, 30)
    assert (rows[10].published, rows[10].delivered, rows[10].dropped, rows[10].owed) == (5, -2, 3, 1)
    assert (rows[20].published, rows[20].msgs_out) == (4, 7), "another boot counts anew"
    assert set(found.columns) == set(decision_schema(Traffic).names)


def test_counts_from_before_the_first_file_left_are_in_no_window(spark: SparkSession) -> None:
    """Where old files are removed, the first row left has the sum since boot: a peak that never was."""
    from mesh.analysis.carried.tables import traffic

    rows = [
        stats_row("b1", 701, 5, 9_000_000, 9_000_000, 4, 8_000_000, first_seq=650),
        stats_row("b1", 801, 15, 9_000_010, 9_000_020, 4, 8_000_030, first_seq=650),
    ]
    first, second = traffic(spark.createDataFrame(rows, STATS), 10.0).orderBy("start").collect()
    assert (first.published, first.delivered, first.owed, first.msgs_out) == (None, None, None, None)
    assert (second.published, second.delivered, second.msgs_out) == (10, 20, 30)


def test_links_with_round_trips_and_missed_surveys(spark: SparkSession, stats: DataFrame) -> None:
    from mesh.analysis.carried.pairs import pairs
    from mesh.analysis.carried.tables import links

    heard = [
        # Rounds 1 to 10, of which 9 arrived; then 13 to 20, all of them. Rounds 11 and 12 are between the
        # windows.
        ("r", "a", "b1", "b", 0, 100, 9, 10, 1, 10, 120, 190, 10 << 24, 0, 0),
        ("r", "a", "b1", "b", 1, 100, 8, 8, 13, 20, 130, 900, 7 << 24, 1, 0),
        ("r", "a", "b1", "c", 0, 100, 2, 0, 5, 6, None, None, 0, 0, 0),
        # Rounds 500 to 505 of one boot, then 1 to 8 of the next: none of them was missed.
        ("r", "a", "b1", "d", 4, 100, 14, 0, 1, 505, None, None, 0, 0, 0),
        ("r", "a", "b1", "d", 5, 100, 9, 0, 9, 18, None, None, 0, 0, 0),
        # Rounds 5 to 8 arrived, and 17; the rows from window 1 to 2 are lost, and with them what was heard.
        ("r", "y", "b6", "a", 0, 100, 3, 0, 5, 8, None, None, 0, 0, 0),
        ("r", "y", "b6", "a", 1, 100, 2, 0, 9, 12, None, None, 0, 0, 0),
        ("r", "y", "b6", "a", 2, 100, 1, 0, 17, 17, None, None, 0, 0, 0),
        ("r", "z", "b5", "a", 0, 100, 2, 0, 5, 6, None, None, 0, 0, 0),
    ]
    met = [("r", "a", "b1", "d", "d1", 3), ("r", "a", "b1", "d", "d2", 450), ("r", "a", "b1", "b", "b1", 5)]
    lost = spark.createDataFrame([("r", "y", "b6", 150, 230, 9)], HOLES)
    rows = [(*row, row[4] * 100, row[4] * 100 + 99, -1) for row in heard]  # without a silence
    found = links(stats, pairs(spark.createDataFrame(rows, HEARD), spark.createDataFrame(met, MEM), lost))
    b, c, d, y, z = found.orderBy("node", "peer").collect()
    assert y.missed == 1, "only what is known"
    assert d.missed == 1, "a restart within a window was taken for 491 missed surveys"
    assert (z.node, z.msgs_out, z.lost, z.answers) == ("z", None, None, 0), "it never wrote its counters"
    assert (b.peer, b.msgs_out, b.bytes_out, b.answers, b.missed) == ("b", 47, 470, 18, 3)
    assert 120 <= b.rtt_p50_us <= 200
    assert 800 <= b.rtt_p99_us <= 900
    assert (c.peer, c.msgs_out, c.answers, c.rtt_p50_us, c.missed) == ("c", 0, 0, None, 0)
    assert set(found.columns) == set(decision_schema(Link).names)
