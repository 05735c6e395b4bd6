"""The rows of the event log as one Spark struct, and the checks of a valid row, both from `mesh.eventlog`.

The schema is never inferred: a line that does not fit goes to quarantine with its file and a reason, and the
others are still read. Spark's JSON reader already refuses strings for numbers and fractions for integers. It
accepts numbers for strings, but the patterns of ids and times reject those.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import inspect
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from mesh.analysis.results.spark_types import decision_schema
from mesh.eventlog.rows import KINDS, VERSION, Row

NOT_JSON: Final = "cut off, or not a JSON object"
GLUED: Final = r'\}\s*\{\s*"v"\s*:'
"""Two rows on one line: the reader would take the first and silently drop the second."""
UNKNOWN: Final = ("unknown version", "unknown kind")
"""Reasons that may apply to rows of a newer program."""


def row_type() -> StructType:
    """Every column of every kind, in one struct. A row has nulls for columns that its kind does not have."""
    fields: dict[str, StructField] = {}
    for kind in KINDS.values():
        for field in decision_schema(kind).fields:
            field = StructField(field.name, field.dataType)  # nullable, since other kinds lack it
            if fields.setdefault(field.name, field) != field:
                raise TypeError(f"column {field.name} of {kind.__name__} has another type in another kind")
    fields["kind"] = StructField("kind", StringType())
    return StructType(list(fields.values()))


def common_checks() -> dict[str, str]:
    """Conditions on the columns of every row, in SQL, by column; null counts as false. The column ``us`` is
    ``ts`` as a number, and null if ``ts`` is not a time."""
    checks = _checks(Row)
    checks["ts"] = f"us is not null and {checks['ts']}"
    return checks


def kind_checks(kind: type[Row]) -> dict[str, str]:
    """The same for the further columns of this kind."""
    common = common_checks()
    return {name: check for name, check in _checks(kind).items() if name not in common}


def problem(corrupt: Column, text: Column) -> Column:
    """The first reason why a line is not a row, or null. The columns of `row_type` must be in the same
    frame."""
    broken = corrupt.isNotNull()
    found = (
        F.when(~(text.startswith("{") & text.endswith("}")), NOT_JSON)
        .when(text.rlike(GLUED), "two rows on one line")
        .when(F.col("v") != VERSION, "unknown version")
        .when(broken & F.try_parse_json(text).isNull(), NOT_JSON)
        .when(broken, "a value has the wrong type")
        .when(F.col("v").isNull(), "no version")
    )
    return value_problem(found)


def value_problem(found: Column | None = None) -> Column:
    """The first reason in the values of a row. ``found`` are reasons that take precedence."""
    if found is None:
        found = F.when(F.col("v") != VERSION, "unknown version")
    for name, good in common_checks().items():
        bad = ~F.expr(f"coalesce({good}, false)")
        found = found.when(bad, f"missing or malformed {name}")
    found = found.when(~F.coalesce(F.col("kind").isin(*KINDS), F.lit(False)), "unknown kind")
    for kind, record in KINDS.items():
        for name, good in kind_checks(record).items():
            bad = ~F.expr(f"coalesce({good}, false)")
            found = found.when((F.col("kind") == kind) & bad, f"missing or malformed {name}")
    return found


def _checks(record: type[msgspec.Struct], prefix: str = "") -> dict[str, str]:
    info = inspect.type_info(record)
    assert isinstance(info, inspect.StructType)
    checks = {}
    for field in info.fields:
        name = f"{prefix}{field.name}"
        check = _check(name, field.type)
        if field.required:
            checks[field.name] = check or f"{name} is not null"
        elif check:
            checks[field.name] = f"({name} is null or {check})"
    return checks


def _check(name: str, info: inspect.Type) -> str:
    """A condition in SQL. Empty: every value of the right type is valid."""
    if isinstance(info, inspect.Metadata):
        return _check(name, info.type)
    if isinstance(info, inspect.UnionType):
        (of,) = (each for each in info.types if not isinstance(each, inspect.NoneType))
        return _check(name, of)
    if isinstance(info, inspect.LiteralType):
        return f"{name} in ({', '.join(repr(value) for value in info.values)})"
    if isinstance(info, inspect.ListType) and isinstance(info.item_type, inspect.StructType):
        each = " and ".join(_checks(info.item_type.cls, "each.").values())
        return f"forall({name}, each -> coalesce({each}, false))" if each else ""
    if isinstance(info, inspect.StrType):
        conditions = [f"{name} rlike r'{info.pattern}'"] if info.pattern else []
        conditions += [f"length({name}) >= {info.min_length}"] if info.min_length else []
        return " and ".join(conditions)
    if isinstance(info, inspect.IntType):
        conditions = [f"{name} >= {info.ge}"] if info.ge is not None else []
        conditions += [f"{name} <= {info.le}"] if info.le is not None else []
        conditions += [f"{name} < {info.lt}"] if info.lt is not None else []
        return " and ".join(conditions)
    return ""
