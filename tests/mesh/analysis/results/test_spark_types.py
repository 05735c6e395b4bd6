"""Records become columns: their types, their order, what may be null, and what is a moment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from mesh.analysis import facts
from mesh.analysis.results.tables import TABLES, Instant, Life, Part
from mesh.eventlog.rows import StatsRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="the extra 'analysis' is not installed")

from mesh.analysis.results.spark_types import as_table, decision_schema, frame_of, table_schema

RECORDS = [*TABLES.values(), facts.Boot, facts.Said, facts.Linked, facts.Stretch, facts.Late, facts.Effect]


def test_an_instant_is_a_timestamp_in_a_table_and_a_number_in_a_decision() -> None:
    assert table_schema(Part).simpleString() == (
        "struct<run:string,no:bigint,start:timestamp,end:timestamp,kind:string,majority:boolean>"
    )
    assert decision_schema(Part)["start"].dataType.simpleString() == "bigint"


def test_only_what_may_be_none_is_nullable() -> None:
    assert [field.name for field in table_schema(Life).fields if field.nullable] == ["boot", "cause"]


@pytest.mark.parametrize("record", RECORDS)
def test_each_record_has_both_schemas(record: type[msgspec.Struct]) -> None:
    names = [field.name for field in msgspec.structs.fields(record)]
    assert table_schema(record).names == decision_schema(record).names == names


def test_a_type_that_no_table_has_is_refused_by_name() -> None:
    class Odd(msgspec.Struct):
        sides: list[bytes]

    with pytest.raises(TypeError, match=r"Odd\.sides: no column"):
        table_schema(Odd)


def test_a_row_of_the_log_may_hold_lists_and_objects() -> None:
    kinds = {field.name: field.dataType.simpleString() for field in table_schema(StatsRow).fields}
    assert kinds["v"] == "bigint" and kinds["drops"] == "map<string,bigint>"
    assert kinds["links"].startswith("array<struct<peer:string,msgs_in:bigint")


@pytest.mark.spark
@pytest.mark.long
def test_records_and_decisions_become_the_same_table(spark: SparkSession) -> None:
    """To the microsecond, also before 1970 and where a moment is unknown."""
    start: Instant = 1_795_000_000_123_457
    told = [Part("a", 1, start, None, "partial", True), Part("a", 2, -1, start, "complete", False)]
    by_records = frame_of(spark, Part, told)
    decided = spark.createDataFrame([msgspec.structs.astuple(part) for part in told], decision_schema(Part))
    by_decisions = as_table(decided.select(*reversed(decided.columns)), Part)
    assert by_records.columns == by_decisions.columns
    assert by_records.collect() == by_decisions.collect()
    assert by_records.selectExpr("unix_micros(start)").collect() == [(start,), (-1,)]
    assert (
        by_records.first()["start"].replace(tzinfo=UTC).year == datetime.fromtimestamp(start / 1e6, UTC).year
    )
