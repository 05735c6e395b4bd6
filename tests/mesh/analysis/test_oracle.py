"""Every table of the whole pipeline equals the one that plain Python computes from the same files.

``MANGROVE_ORACLE_ROWS=200000`` makes logs of about so many rows. The default is small.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.analysis.results.tables import TABLES
from tests.mesh.analysis.conftest import ROWS
from tests.mesh.analysis.oracle.comparing import WINDOW_S, Analysed, Table, analysed, compare
from tests.mesh.analysis.oracle.everything import tables
from tests.mesh.analysis.oracle.story import play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]


def test_every_table_is_that_of_plain_python(story: Analysed) -> None:
    check(story)


def test_every_table_of_summaries_is_that_of_plain_python(spark: SparkSession, tmp_path: Path) -> None:
    check(analysed(spark, play(tmp_path, ROWS, "summary"), tmp_path / "out"))


def check(found: Analysed) -> None:
    compare(found.tables, tables(found.logs, WINDOW_S))
    empty = [name for name, rows in found.tables.items() if not rows]
    assert not empty, f"the story tells nothing of {empty}"
    verdicts = {row["verdict"] for row in found.tables["matches"]}
    # Each power loss of a long story takes minutes of a log, and what happened in them.
    known = {"tp"} if ROWS <= 20_000 else {"tp", "below resolution", "not observable"}
    assert "tp" in verdicts <= known, found.tables["matches"]


def test_disguised_logs_give_the_same_tables(spark: SparkSession, story: Analysed, tmp_path: Path) -> None:
    disguised(story.logs, tmp_path / "disguised")

    again = unmasked(analysed(spark, tmp_path / "disguised", tmp_path / "out").tables)

    # In a file that was cut and shuffled, everything but times and sizes differs.
    compare({**again, "files": []}, {**story.tables, "files": []})


SHIFT = timedelta(hours=1)


def disguised(logs: Path, out: Path) -> None:
    """The same logs an hour later, with other names of brokers and files, files cut in two, and in each all
    rows twice and in any order."""
    out.mkdir()
    rng = random.Random(1)
    for number, path in enumerate(sorted(logs.glob("*.jsonl*"))):
        lines = [line for line in path.read_text().split("\n") if line]
        torn = [] if lines[-1].endswith("}") else [lines.pop()]
        lines = [later(line.replace("broker-", "kiosk-")) for line in lines]
        half = len(lines) // 2
        for part, rows in enumerate((lines[:half], lines[half:])):
            rows = rows * 2
            rng.shuffle(rows)
            rows += torn if part else []
            (out / f"{number:02d}-{part}.jsonl").write_text("\n".join(rows) + ("" if torn and part else "\n"))


def later(line: str) -> str:
    row = json.loads(line)
    moment = datetime.fromisoformat(row["ts"]) + SHIFT
    return json.dumps(row | {"ts": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")})


def unmasked(found: Mapping[str, Table]) -> dict[str, Table]:
    """With the original names and times."""
    shift = round(SHIFT.total_seconds() * 1e6)
    moments = {
        (name, column)
        for name, record in TABLES.items()
        for column, kind in record.__annotations__.items()
        if "Instant" in str(kind)
    }

    def plain(name: str, column: str, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("kiosk-", "broker-")
        if (name, column) in moments and value is not None:
            return value - shift
        return value - SHIFT.total_seconds() if (name, column) == ("clocks", "offset_s") else value

    return {
        name: [{column: plain(name, column, value) for column, value in row.items()} for row in rows]
        for name, rows in found.items()
    }
