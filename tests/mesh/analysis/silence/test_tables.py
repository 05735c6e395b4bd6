"""Silence through Spark: it gathers what loops gather, and whole logs end in the parts that were made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mesh.analysis.results.spark_types import decision_schema
from mesh.analysis.results.tables import Match, Outage, Part, PartSide
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load
from tests.mesh.analysis.oracle.log_facts import Facts, read_facts
from tests.mesh.analysis.silence.known import lives_of, silence_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCENARIO = """
name = "two-cuts"
summary = "a cut of both ways, a crash in it, a bridge and a pause"
brokers = 5
quiet_s = 2

[[fault]]
at_s = 3
kind = "partition"
a = ["broker-1", "broker-2"]
for_s = 9

[[fault]]
at_s = 6
kind = "crash"
a = "broker-4"
for_s = 15

[[fault]]
at_s = 26
kind = "partition"
a = ["broker-1"]
b = ["broker-5"]
for_s = 8

[[fault]]
at_s = 40
kind = "pause"
a = "broker-2"
for_s = 5
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("silence")
    (folder / "two-cuts.toml").write_text(SCENARIO)
    Play(load(str(folder / "two-cuts.toml")), seed=3, out=str(folder / "logs")).run()
    return folder / "logs"


def frame(spark: SparkSession, rows: Iterable[Any], columns: str) -> DataFrame:
    return spark.createDataFrame([tuple(row) for row in rows], columns)


def known(spark: SparkSession, facts: Facts, lives: Sequence[Any]) -> tuple[DataFrame, ...]:
    run = facts.boots[0].run
    boots = [(run, b.node, b.boot, b.period_s, b.first, b.last, b.rows) for b in facts.boots]
    columns = "run string, node string, boot string, period_s double, first bigint, last bigint, rows bigint"
    return (
        frame(spark, boots, columns),
        frame(
            spark,
            [msgspec.structs.astuple(each) for each in facts.stretches],
            "run string, src string, dst string, boot string, first bigint, last bigint, error_s double",
        ),
        frame(
            spark,
            [(run, each.node, each.peer, each.at, each.up) for each in facts.linked],
            "run string, node string, peer string, at bigint, up boolean",
        ),
        frame(
            spark,
            [(run, *life) for life in lives],
            "run string, node string, state string, start bigint, `end` bigint, cause string",
        ),
    )


def rows_of(table: DataFrame, record: type[msgspec.Struct]) -> list[tuple[Any, ...]]:
    names = [field.name for field in decision_schema(record).fields]
    return sorted((tuple(row)[1:] for row in table.select(*names).collect()), key=repr)


def test_what_spark_gathers_is_what_loops_gather(spark: SparkSession, logs: Path) -> None:
    from mesh.analysis.silence.tables import silences

    facts = read_facts(logs)
    lives = lives_of(facts)
    wanted = silence_of(facts, lives)
    found = silences(*known(spark, facts, lives))
    assert rows_of(found.outages, Outage) == sorted(wanted.outages, key=repr)
    assert rows_of(found.parts, Part) == sorted(wanted.parts, key=repr)
    assert rows_of(found.part_sides, PartSide) == sorted(wanted.sides, key=repr)
    assert [kind for *_, kind, _ in wanted.parts] == ["complete", "partial"]


def test_whole_logs_end_in_the_parts_that_were_made(spark: SparkSession, logs: Path) -> None:
    from mesh.analysis.clocks.apply import facts
    from mesh.analysis.clocks.measuring import measure
    from mesh.analysis.lives.tables import lives
    from mesh.analysis.reading.logs import read_logs
    from mesh.analysis.silence.tables import silences
    from mesh.analysis.truth.tables import matches

    read = read_logs(spark, str(logs))
    known = facts(read, measure(read))
    told = lives(known).cache()
    found = silences(known.boots, known.stretches, known.linked, told)
    scored = matches(
        read.truth,
        boots=known.boots,
        stretches=known.stretches,
        lives=told,
        outages=found.outages,
        parts=found.parts,
        part_sides=found.part_sides,
    )
    rows = rows_of(scored, Match)
    assert [row for row in rows if row[3] != "tp"] == []
    assert sorted({row[0] for row in rows}) == ["crash", "leave", "part", "pause"]
    for of, _, _, _, _, start_lag_s, end_lag_s in rows:
        assert -1.3 <= start_lag_s <= 0.3, (of, start_lag_s)
        assert end_lag_s is None or -0.3 <= end_lag_s <= 5
    read.close()


def test_truth_of_another_run_is_told(spark: SparkSession, logs: Path) -> None:
    from mesh.analysis.truth.tables import OtherTruth, check_names, check_runs

    with pytest.raises(
        OtherTruth, match="the truth is of run 'b', and the logs are of a; put a simulation's"
    ):
        check_runs({"b"}, {"a"})
    with pytest.raises(OtherTruth, match="tells of x, and its logs of a, b, c and others"):
        check_names("run", ["x"], list("abcd"))
    check_runs({"a"}, {"a", "b"})
    check_names("run", ["x", "a"], ["a"])
