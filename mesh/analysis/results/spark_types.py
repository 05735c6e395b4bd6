"""Spark's schemas of the records of the analysis: for tables as written, and for decisions.

Decisions use plain tuples in which an `Instant` is a number of microseconds. Tables have timestamps.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLAIN: Final[dict[type[msgspec.inspect.Type], type[DataType]]] = {
    msgspec.inspect.BoolType: BooleanType,
    msgspec.inspect.IntType: LongType,
    msgspec.inspect.FloatType: DoubleType,
    msgspec.inspect.StrType: StringType,
}


@cache
def table_schema(record: type[msgspec.Struct]) -> StructType:
    """The columns of a table. An `Instant` is a timestamp. Columns that may be None are nullable.

    Raises:
        TypeError: a field is of a type that no table has.
    """
    return StructType(
        [
            StructField(name, TimestampType() if moment else kind, null)
            for name, kind, null, moment in _fields(record)
        ]
    )


@cache
def decision_schema(record: type[msgspec.Struct]) -> StructType:
    """The same with microseconds as whole numbers, as returned by functions inside Spark.

    Raises:
        TypeError: a field is of a type that no table has.
    """
    return StructType([StructField(name, kind, null) for name, kind, null, _ in _fields(record)])


def decided_type(record: type[msgspec.Struct], *known: str) -> StructType:
    """The return type of a Spark function that makes a row of a table. The function's caller has the columns
    ``known``.

    Any column may be null, so that Spark checks nothing."""
    fields = [field for field in decision_schema(record).fields if field.name not in known]
    return StructType([StructField(field.name, field.dataType) for field in fields])


def as_table(decided: DataFrame, record: type[msgspec.Struct]) -> DataFrame:
    """The table's columns in their order, of a frame with those of `decision_schema` in any order."""
    return decided.selectExpr(
        *(
            f"timestamp_micros(`{name}`) as `{name}`" if moment else _cast(name, kind)
            for name, kind, _, moment in _fields(record)
        )
    )


def as_decided(rows: DataFrame, record: type[msgspec.Struct]) -> DataFrame:
    """The columns of `decision_schema` in their order, of a frame that has more."""
    return rows.selectExpr(*(_cast(name, kind) for name, kind, *_ in _fields(record)))


def of_table(table: DataFrame, record: type[msgspec.Struct]) -> DataFrame:
    """The columns of `decision_schema` in their order, of a table."""
    return table.selectExpr(
        *(
            f"unix_micros(`{name}`) as `{name}`" if moment else f"`{name}`"
            for name, _, _, moment in _fields(record)
        )
    )


def _cast(name: str, kind: DataType) -> str:
    # In SQL, since a column of Python is several calls of Java: 300 of them took a second.
    return f"cast(`{name}` as {kind.simpleString()}) as `{name}`"


@cache
def _fields(record: type[msgspec.Struct]) -> tuple[tuple[str, DataType, bool, bool], ...]:
    """For each field: its name, its type with an `Instant` as a number, whether it may be None, whether it is
    an `Instant`."""
    info = msgspec.inspect.type_info(record)
    assert isinstance(info, msgspec.inspect.StructType)
    return tuple((field.encode_name, *_kind(record, field)) for field in info.fields)


def _kind(record: type[msgspec.Struct], field: msgspec.inspect.Field) -> tuple[DataType, bool, bool]:
    given, moment = _unwrapped(field.type)
    options = given.types if isinstance(given, msgspec.inspect.UnionType) else (given,)
    null = any(isinstance(option, msgspec.inspect.NoneType) for option in options)
    kinds: list[DataType] = []
    for option in options:
        if isinstance(option, msgspec.inspect.NoneType):
            continue
        bare, is_moment = _unwrapped(option)
        moment = moment or is_moment
        kind = _plain(bare)
        if kind is not None:
            kinds.append(kind)
    if len(kinds) != 1 or len(options) != 1 + null:
        raise TypeError(f"{record.__name__}.{field.name}: no column of a table has the type {field.type}")
    return kinds[0], null, moment


def _plain(given: msgspec.inspect.Type) -> DataType | None:
    """The type of a column or of its elements. None: Spark has none for it."""
    bare, _ = _unwrapped(given)
    if isinstance(bare, msgspec.inspect.LiteralType):
        kinds = {type(value) for value in bare.values}
        return StringType() if kinds == {str} else LongType() if kinds == {int} else None
    if isinstance(bare, msgspec.inspect.ListType):
        item = _plain(bare.item_type)
        return None if item is None else ArrayType(item)
    if isinstance(bare, msgspec.inspect.DictType):
        key, value = _plain(bare.key_type), _plain(bare.value_type)
        return None if key is None or value is None else MapType(key, value)
    if isinstance(bare, msgspec.inspect.UnionType):  # a text can contain a number too
        return StringType() if any(isinstance(each, msgspec.inspect.StrType) for each in bare.types) else None
    if isinstance(bare, msgspec.inspect.StructType):
        return decision_schema(bare.cls)
    return PLAIN[type(bare)]() if type(bare) in PLAIN else None


def _unwrapped(given: msgspec.inspect.Type) -> tuple[msgspec.inspect.Type, bool]:
    """The type under a `Meta`, and whether the `Meta` marks an instant."""
    if not isinstance(given, msgspec.inspect.Metadata):
        return given, False
    return given.type, (given.extra or {}).get("spark") == "timestamp"
