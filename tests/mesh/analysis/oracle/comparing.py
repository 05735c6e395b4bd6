"""Compares the pipeline's tables with those of plain Python: counts, sides and times equal, fractions to
1e-9."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mesh.analysis.pipeline import analyse, read_tables
from mesh.analysis.results.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOLERANCE = 1e-9
WINDOW_S = 5.0

Row = dict[str, Any]
Table = list[Row]


class Analysed(NamedTuple):
    """Logs and all tables of the whole pipeline, as written."""

    logs: Path
    tables: dict[str, Table]


def analysed(spark: SparkSession, logs: Path, out: Path) -> Analysed:
    return Analysed(logs, written(spark, analyse(logs, out, window_s=WINDOW_S).where))


def written(spark: SparkSession, result: str) -> dict[str, Table]:
    found = {name: frame.collect() for name, frame in read_tables(spark, result).items()}
    return {name: [row.asDict() for row in rows] for name, rows in found.items()}


def compare(found: Mapping[str, Table], wanted: Mapping[str, Table]) -> None:
    """Raises AssertionError with all tables that differ, and the first rows of each."""
    assert set(found) == set(wanted) == set(TABLES)
    told = [sentence for name in TABLES for sentence in differences(name, found[name], wanted[name])]
    assert not told, "\n".join(told)


def differences(name: str, found: Table, wanted: Table) -> list[str]:
    columns = TABLES[name].__struct_fields__
    one, other = (ordered(rows, columns) for rows in (found, wanted))
    if len(one) != len(other):
        lacking = [row for row in other if not any(alike(row, each) for each in one)]
        extra = [row for row in one if not any(alike(row, each) for each in other)]
        return [f"{name}: {len(one)} rows, not {len(other)}; lacks {lacking[:3]}, has {extra[:3]}"]
    return [
        f"{name}: {dict(zip(columns, a, strict=True))}\n  not {dict(zip(columns, b, strict=True))}"
        for a, b in zip(one, other, strict=True)
        if not alike(a, b)
    ][:3]


def ordered(rows: Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    def key(row: tuple[Any, ...]) -> str:
        # Only the digits of fractions that do not depend on the order of addition.
        return json.dumps([f"{value:.6g}" if isinstance(value, float) else value for value in row])

    for row in rows:
        assert set(row) == set(columns), (set(row) ^ set(columns), row)
    return sorted((tuple(row[name] for name in columns) for row in rows), key=key)


def alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(
        math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        if isinstance(a, float) and isinstance(b, float | int)
        else a == b
        for a, b in zip(one, other, strict=True)
    )
