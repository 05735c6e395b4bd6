"""Records become columns: their types, their order, which may be null, and which are instants."""

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

from mesh.analysis.results.spark_types import as_table, decided_type, decision_schema, table_schema

RECORDS = [*TABLES.values(), facts.Boot, facts.Said, facts.Linked, facts.Stretch, facts.Late]


def test_an_instant_is_a_timestamp_in_a_table_and_a_number_in_a_decision() -> None:
    assert table_schema(Part).simpleString() == (
        "struct<run:string,no:bigint,start:timestamp,end:timestamp,kind:string,majority:boolean>"
    )
    assert decision_schema(Part)["start"].dataType.simpleString() == "bigint"


def test_a_decision_returns_all_columns_except_its_callers_key() -> None:
    assert decided_type(Part, "run").simpleString() == (
        "struct<no:bigint,start:bigint,end:bigint,kind:string,majority:boolean>"
    )
    assert all(field.nullable for field in decided_type(Part, "run").fields)


def test_only_fields_that_may_be_none_are_nullable() -> None:
    assert [field.name for field in table_schema(Life).fields if field.nullable] == [
        "boot",
        "cause",
        "met",
    ]


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
def test_a_decision_becomes_a_table(spark: SparkSession) -> None:
    """To the microsecond, even before 1970 and if an instant is unknown."""
    start: Instant = 1_795_000_000_123_457
    told = [Part("a", 1, start, None, "partial", True), Part("a", 2, -1, start, "complete", False)]
    decided = spark.createDataFrame([msgspec.structs.astuple(part) for part in told], decision_schema(Part))
    table = as_table(decided.select(*reversed(decided.columns)), Part)
    assert table.schema.names == table_schema(Part).names
    assert table.selectExpr("unix_micros(start)").collect() == [(start,), (-1,)]
    assert table.first()["start"].replace(tzinfo=UTC).year == datetime.fromtimestamp(start / 1e6, UTC).year
