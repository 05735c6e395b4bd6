"""Which of the rounds that both ends noted are compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import pytest

from mesh.eventlog.windows import PERIODS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mesh.analysis.reading.logs import Logs

pytestmark = pytest.mark.spark

PERIOD: Final = 1_000_000_000
AHEAD: Final = 7 * PERIOD
RTT_US: Final = 400
HEARD: Final = (
    "run string, dst string, boot string, src string, window_ns long, survey_round long, survey_ns long, "
    "answer_round long, answer_ns long, answer_rtt_us long"
)
MEM: Final = (
    "run string, node string, boot string, subject string, subject_boot string, from_state string, "
    "reason string, mono_ns long"
)


def compared(spark: SparkSession, rounds: range) -> list[int]:
    """The rounds of a broker that are compared if its log and that of its peer begin and end with these."""
    from mesh.analysis.clocks.samples import samples

    noted = [number for number in rounds if number % PERIODS == 0 or number & (number - 1) == 0]
    window_ns, way_ns = PERIODS * PERIOD, RTT_US * 500
    heard: list[tuple[object, ...]] = []
    for number in noted:
        at = number * PERIOD
        heard += [
            ("r", "peer", "p1", "node", window_ns, number, at + AHEAD, None, None, None),
            ("r", "node", "n1", "peer", window_ns, None, None, number, at + way_ns, RTT_US),
        ]
    boots = [
        ("r", rounds.start * PERIOD, rounds.stop * PERIOD),
        ("r", rounds.start * PERIOD + AHEAD, rounds.stop * PERIOD + AHEAD),
    ]
    logs = SimpleNamespace(
        heard=spark.createDataFrame(heard, HEARD),
        mem=spark.createDataFrame([], MEM),
        boots_raw=spark.createDataFrame(boots, "run string, first_ns long, last_ns long"),
    )
    found = samples(cast("Logs", logs)).collect()
    assert {(row.one, row.other, row.difference) for row in found} <= {("n1", "p1", -AHEAD // 1000)}
    return sorted(row.ns // PERIOD for row in found)


def test_a_long_life_is_compared_by_each_noted_round_at_first_and_later_by_a_fourth(
    spark: SparkSession,
) -> None:
    first = [0, 1, 2, 4, 8, *range(16, 256, 16)]
    assert compared(spark, range(1000)) == [*first, *range(256, 1000, 64)]


def test_logs_from_the_middle_of_a_long_life_are_compared_by_a_fourth(spark: SparkSession) -> None:
    assert compared(spark, range(1025, 1281)) == [1088, 1152, 1216, 1280]


def test_a_minute_of_a_long_life_is_compared_by_each_noted_round(spark: SparkSession) -> None:
    """None of its rounds is a multiple of 64. The clocks of all brokers were taken from their wall clocks."""
    assert compared(spark, range(1025, 1080)) == [1040, 1056, 1072]


def test_rounds_of_a_broker_that_restarts_at_once_are_those_of_its_next_boot(spark: SparkSession) -> None:
    """Its peer had not missed it yet, and says that it went from alive to alive. So the new boot counted as
    there from the beginning, its rounds as the old one's, and three clocks were half a minute off."""
    from mesh.analysis.clocks.samples import samples

    window_ns, way_ns, back = PERIODS * PERIOD, RTT_US * 500, 50 * PERIOD
    heard: list[tuple[object, ...]] = []
    for boot, began in (("n1", 0), ("n2", back)):
        at = 16 * PERIOD
        heard += [
            ("r", "peer", "p1", "node", window_ns, 16, began + at + AHEAD, None, None, None),
            ("r", "node", boot, "peer", window_ns, None, None, 16, at + way_ns, RTT_US),
        ]
    met = [
        ("r", "peer", "p1", "node", "n1", "unknown", "joined", AHEAD),
        ("r", "peer", "p1", "node", "n2", "alive", "restarted", back + AHEAD),
    ]
    logs = SimpleNamespace(
        heard=spark.createDataFrame(heard, HEARD),
        mem=spark.createDataFrame(met, MEM),
        boots_raw=spark.createDataFrame([("r", 0, 100 * PERIOD)], "run string, first_ns long, last_ns long"),
    )

    found = {(row.one, row.other, row.difference) for row in samples(cast("Logs", logs)).collect()}

    assert found == {("n1", "p1", -AHEAD // 1000), ("n2", "p1", -(back + AHEAD) // 1000)}
