"""The job reads a simulated mesh as it reads a data centre, and finds what the simulator's truth says."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.analysis.job import analyse
from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SEED = 7
WINDOW_S = 5.0


def when(row: dict[str, Any]) -> float:
    return datetime.fromisoformat(row["ts"]).timestamp()


def test_a_simulated_split_is_found_where_it_was_made(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    assert Play(load("split-and-heal"), seed=SEED, out=str(logs)).run().ok
    truth = [
        json.loads(row) for row in (logs / f"truth-split-and-heal-{SEED}.jsonl").read_text().splitlines()
    ]
    (cut,) = [row for row in truth if row["op"] == "cut"]
    (heal,) = [row for row in truth if row["op"] == "end" and row["of"] == "partition"]

    found = analyse(logs, tmp_path / "out")

    assert found.runs == (f"split-and-heal-{SEED}",)
    assert not found.quality.problems
    starts = [name for row in truth if row["op"] == "start" for name in row["a"].split(",")]
    brokers = sorted(name for name in starts if name.startswith("broker-"))
    assert sorted(event.name for event in found.joins) == brokers
    (episode,) = found.partitions
    sides = [sorted(name for name in row.split(",") if name in brokers) for row in (cut["a"], cut["b"])]
    assert sorted(episode.named(found.names)) == sorted(sides)
    assert episode.end is not None
    assert abs(episode.start - when(cut)) <= WINDOW_S
    assert abs(episode.end - when(heal)) <= 2 * WINDOW_S
