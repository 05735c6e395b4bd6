"""The rows of the event log as one Spark struct, and the checks of a valid row, both from `mesh.eventlog`.

The schema is never inferred: a line that does not fit goes to quarantine with its file and a reason, and the
others are still read. Spark's JSON reader already refuses strings for numbers and fractions for integers. It
accepts numbers for strings, but the patterns of ids and times reject those.
"""

from __future__ import annotations

from collections.abc import Mapping
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
US_MAX: Final = 32_503_680_000_000_000
"""The year 3000, where the times of rows end."""
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


def problem(corrupt: str, text: str) -> Column:
    """The first reason why a line is no row, else null; beside it stand the columns of `row_type`."""
    broken = f"{corrupt} is not null"
    return _first_of(
        {
            f"not (startswith({text}, '{{') and endswith({text}, '}}'))": NOT_JSON,
            f"{text} rlike r'{GLUED}'": "two rows on one line",
            f"v != {VERSION}": "unknown version",
            f"{broken} and try_parse_json({text}) is null": NOT_JSON,
            broken: "a value has the wrong type",
            "v is null": "no version",
        }
    )


def value_problem() -> Column:
    """The first reason that the values of a row give. Its ``ts`` is a timestamp."""
    ts = f"us between 0 and {US_MAX}"
    return _first_of({f"v != {VERSION}": "unknown version"}, common_checks() | {"ts": ts})


def _first_of(reasons: Mapping[str, str], common: Mapping[str, str] | None = None) -> Column:
    """These reasons by their conditions, then those of the values, as one text for Spark to parse. A row is
    only checked for what its kind has. ``common`` are the checks of every row, if not `common_checks`."""
    kinds = " ".join(
        f"when '{kind}' then {_case(_malformed(kind_checks(record)))}" for kind, record in KINDS.items()
    )
    rest = f"case kind {kinds} else 'unknown kind' end"
    return F.expr(_case({**reasons, **_malformed(common or common_checks())}, rest))


def rules() -> str:
    """All columns and checks as a text: two programs with the same one read lines alike."""
    checks = {name: kind_checks(record) for name, record in KINDS.items()}
    return f"{row_type().json()} {common_checks()} {checks}"


def _malformed(checks: Mapping[str, str]) -> dict[str, str]:
    return {f"not coalesce({good}, false)": f"missing or malformed {name}" for name, good in checks.items()}


def _case(reasons: Mapping[str, str], rest: str = "null") -> str:
    if not reasons:
        return rest
    whens = " ".join(f"when {condition} then '{reason}'" for condition, reason in reasons.items())
    return f"case {whens} else {rest} end"


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
        options = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        return _check(name, options[0]) if len(options) == 1 else ""
    if isinstance(info, inspect.LiteralType):
        return f"{name} in ({', '.join(repr(value) for value in info.values)})"
    if isinstance(info, inspect.ListType) and isinstance(info.item_type, inspect.StructType):
        each = " and ".join(_checks(info.item_type.cls, "each.").values())
        return f"forall({name}, each -> coalesce({each}, false))" if each else ""
    if isinstance(info, inspect.DictType):
        each = _check("each", info.value_type)
        return f"forall(map_values({name}), each -> coalesce({each}, false))" if each else ""
    if isinstance(info, inspect.StrType):
        conditions = [f"{name} rlike r'{info.pattern}'"] if info.pattern else []
        conditions += [f"length({name}) >= {info.min_length}"] if info.min_length else []
        return " and ".join(conditions)
    if isinstance(info, inspect.FloatType):
        if info.ge is not None and info.le is not None:
            return f"{name} between {info.ge!r}D and {info.le!r}D"
        return f"abs({name}) < double('infinity')"  # which JSON's 1e400 is; Spark holds NaN for larger
    if isinstance(info, inspect.IntType):
        conditions = [f"{name} >= {info.ge}"] if info.ge is not None else []
        conditions += [f"{name} <= {info.le}"] if info.le is not None else []
        conditions += [f"{name} < {info.lt}"] if info.lt is not None else []
        return " and ".join(conditions)
    return ""
