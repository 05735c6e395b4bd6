"""Clocks, facts and lives through Spark, of a simulated mesh in which a wall clock jumps by an hour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.analysis.carried.pairs import pairs
from mesh.analysis.clocks.apply import Facts, facts
from mesh.analysis.clocks.measuring import clocks, measure
from mesh.analysis.lives.tables import links_of_others, lives, telling_reports
from mesh.analysis.reading.logs import Logs, read_logs
from mesh.analysis.results.spark_types import decision_schema
from mesh.analysis.results.tables import Clock, Life
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load
from tests.mesh.analysis.lives.gathering import lives_of
from tests.mesh.analysis.oracle.log_facts import Row, read_facts, wall_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCENARIO = """
name = "lives"
summary = "what a process may do, and a clock that jumps"
brokers = 4
quiet_s = 2

[[fault]]
at_s = 3
kind = "crash"
a = "broker-2"
for_s = 5

[[fault]]
at_s = 0.2
kind = "clock_step"
a = "broker-4"
value = 3600

[[fault]]
at_s = 12
kind = "power_off"
a = "broker-3"
for_s = 6

[[fault]]
at_s = 22
kind = "pause"
a = "broker-4"
for_s = 4

[[fault]]
at_s = 30
kind = "restart"
a = "broker-1"
value = 1.5
how = "stop"
"""
FUZZ = 150_000
"""Microseconds: the end of a silence is known to an eighth of a period."""


class Analysed:
    """One analysis for all tests here."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        file = folder / "lives.toml"
        file.write_text(SCENARIO)
        self.folder = folder / "logs"
        assert Play(load(str(file)), seed=7, out=str(self.folder)).run().ok
        self.logs: Logs = read_logs(spark, str(self.folder))
        self.measured: DataFrame = measure(self.logs)
        self.facts: Facts = facts(
            self.logs, self.measured, pairs(self.logs.heard, self.logs.mem, self.logs.holes)
        )
        self.lives: DataFrame = lives(self.facts).localCheckpoint()


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = Analysed(spark, tmp_path_factory.mktemp("lives"))
    yield found
    found.logs.close()


class TrueTime:
    """The simulator's time of a row: that of its boot's first row, which is before any jump of the clock,
    plus the time since then on its monotonic clock."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[int, int]] = {}

    def __call__(self, row: Row) -> int:
        us, ns = self._first.setdefault(row["boot"], (wall_us(row), row["mono_ns"]))
        return us + (row["mono_ns"] - ns) // 1000


def test_boots_agree_on_the_time_as_far_as_clocks_drift_in_a_minute(analysed: Analysed) -> None:
    """Clocks drift by at most 50 parts in a million in either direction. A sample is accurate to half a
    millisecond."""
    expected = {boot.boot: boot.first for boot in read_facts(analysed.folder, at=TrueTime()).boots}

    found = {row.boot: row.first for row in analysed.facts.boots.collect()}

    assert found.keys() == expected.keys()
    wrong = [found[boot] - expected[boot] for boot in expected]
    assert max(wrong) - min(wrong) < 5000
    assert max(map(abs, wrong)) < 5000, "the middle of the wall clocks drifts as well"


def test_the_table_of_clocks_tells_of_the_jump(analysed: Analysed) -> None:
    table = clocks(analysed.logs, analysed.measured)
    rows = table.collect()

    assert table.columns == [*decision_schema(Clock).names]
    assert all(row.error_s is not None and row.error_s < 0.002 for row in rows)
    ahead = [row for row in rows if row.steps]
    assert [row.steps for row in ahead] == [2], "there, and back when the world was healed"
    assert ahead[0].wall_s == pytest.approx(3600, abs=1)
    assert all(abs(row.wall_s) < 0.1 for row in rows if not row.steps)


def test_lives_are_those_that_the_oracle_tells(analysed: Analysed) -> None:
    expected = lives_of(read_facts(analysed.folder, at=TrueTime()))
    names = {row.node: row.name for row in analysed.facts.boots.collect()}

    found: dict[str, list[Any]] = {}
    for row in analysed.lives.orderBy("node", "no").collect():
        found.setdefault(names[row.node], []).append(row)

    assert found.keys() == expected.keys()
    for name, told in expected.items():
        rows = found[name]
        assert [(row.no, row.boot, row.state, row.cause, row.truncated, row.censored) for row in rows] == [
            (one.no, one.boot, one.state, one.cause, one.truncated, one.censored) for one in told
        ]
        for row, one in zip(rows, told, strict=True):
            assert abs(row.start - one.start) < FUZZ
            assert abs(row.end - one.end) < FUZZ
    causes = [row.cause for rows in found.values() for row in rows]
    assert {"crash", "power_off", "pause", "resume", "leave", "restart", "start"} <= {*causes}
    assert causes.count("crash") == causes.count("power_off") == causes.count("pause") == 1
    assert analysed.lives.columns == decision_schema(Life).names


def test_reports_that_lives_are_told_from_are_kept(spark: SparkSession) -> None:
    """An opinion about a boot that has a log tells nothing of its life. Another broker may have that boot's
    id."""
    words = [
        ("r", "a", "a1", "dead", "missed rounds"),
        ("r", "a", "a1", "alive", "joined"),
        ("r", "a", "a1", "alive", "refuted"),
        ("r", "a", "a1", "left", ""),
        ("r", "a", "a2", "alive", "joined"),
        ("r", "b", "a1", "alive", "joined"),
        ("q", "a", "a1", "alive", "joined"),
    ]
    said = spark.createDataFrame(
        words, "run string, who string, subject_boot string, to_state string, reason string"
    )
    boots = spark.createDataFrame([("r", "a", "a1")], "run string, node string, boot string")

    kept = telling_reports(said, boots).select(*said.columns).collect()

    assert sorted(tuple(row) for row in kept) == sorted(words[2:])


def test_links_that_close_because_their_own_broker_left_are_no_evidence(spark: SparkSession) -> None:
    """Brokers whose logs were missing seemed to crash when another one left."""
    linked = [
        ("r", "b", "b1", "a", 5),
        ("r", "b", "b1", "a", 10),
        ("r", "c", "c1", "a", 20),
        ("q", "b", "b1", "a", 20),
    ]
    boots = [("r", "b", "b1", 10), ("r", "c", "c1", None)]
    schema = "run string, node string, boot string"

    kept = links_of_others(
        spark.createDataFrame(linked, f"{schema}, peer string, at long"),
        spark.createDataFrame(boots, f"{schema}, left long"),
    )

    assert sorted(tuple(row) for row in kept.select("run", "node", "boot", "peer", "at").collect()) == sorted(
        [linked[0], *linked[2:]]
    )
