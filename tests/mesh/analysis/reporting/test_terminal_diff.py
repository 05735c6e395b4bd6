"""The differences of two analyses at 80 columns: the important ones first, and none that looks equal."""

from __future__ import annotations

import copy
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from mesh.analysis.reporting.diff import TOPICS, differences
from mesh.analysis.reporting.findings import findings_of
from mesh.analysis.reporting.terminal_diff import ROWS_SHOWN, comparison
from tests.mesh.analysis.reporting.tables_by_hand import RUN, digest


@pytest.fixture
def before() -> dict[str, Any]:
    return findings_of(digest()).as_json()


def shown(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    console = Console(file=StringIO(), width=80, _environ={})
    console.print(comparison(differences(before, after)))
    assert isinstance(console.file, StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_failures_come_before_amounts(before: dict[str, Any]) -> None:
    """It began with the name of the run and ended with the failures of brokers."""
    after = copy.deepcopy(before)
    (run,) = after["runs"]
    run |= {"run": "replay-7", "verdict": "Worse.", "availability": 0.5, "mttr_s": 90.0, "parts": []}
    run["failures"] = {"crash": 2}
    run["deaths_told"] = {}
    run["heartbeats"]["heard"] = 900
    run["traffic"]["published"] = 7_000
    lines = shown(before, after)
    assert lines[0].startswith(f"before {RUN}: 3 brokers in 1 min 40 s, 1 crash,")
    assert "after replay-7: Worse." in lines
    for line in ("failures: crash 1 2", "mean time to repair 6.0 s 1 min 30 s", "reported dead: crash 1 -"):
        assert line in lines
    assert "availability 98.0 % 50.0 %" in lines
    assert "traffic: published 30 7,000" in lines
    assert [line for line in lines if line in TOPICS] == [
        *("failures", "availability", "partitions", "detection", "messages", "amounts")
    ]
    assert lines[-1] == "heartbeats: heard 570 900"


def test_a_part_is_a_row_of_its_own(before: dict[str, Any]) -> None:
    after = copy.deepcopy(before)
    after["runs"][0]["parts"][0]["end"] = None
    text = " ".join(shown(before, after))
    assert "broker-2, broker-10 | complete at 60.0 s for complete at 60.0 s to" in text


def test_what_looks_equal_is_counted_and_not_shown(before: dict[str, Any]) -> None:
    after = copy.deepcopy(before)
    run = after["runs"][0]
    run["availability"] += 1e-6
    assert shown(before, after) == ["1 more figure differs too little to show: see --json"]
    run["heartbeats"]["heard"] += 1
    after["quality"]["bytes"] += 1
    assert shown(before, after) == ["3 more figures differ too little to show: see --json"]
    run["heartbeats"]["missed"] = 60
    assert "heartbeats: missed 30 60" in shown(before, after)


def test_many_brokers_are_a_bounded_list(before: dict[str, Any]) -> None:
    after = copy.deepcopy(before)
    one = after["runs"][0]["brokers"][0]
    after["runs"][0]["brokers"] += [{**one, "name": f"new-{number}"} for number in range(200)]
    lines = shown(before, after)
    assert f"and {200 - ROWS_SHOWN} more: see --json" in lines
    assert len(lines) < 30


def test_each_of_several_runs_has_its_heading(before: dict[str, Any]) -> None:
    both = copy.deepcopy(before)
    both["runs"].append({**copy.deepcopy(before["runs"][0]), "run": "south"})
    after = copy.deepcopy(both)
    after["runs"][0]["failures"] = {}
    after["runs"].pop()
    lines = shown(both, after)
    assert lines[0] == RUN
    assert lines[lines.index("south") + 1].startswith("before 3 brokers in")
    assert lines[-1] == "after not there"
