"""Brokers and clients in virtual time: the shipped scenarios, their determinism and their traces."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from simulations.kernel.history import first_difference
from simulations.runs.playing import Play, Result
from simulations.scenarios.scenario_file import load

ROOT = Path(__file__).parents[3]


def complaints(result: Result) -> str:
    return "\n".join(f"{each.check}: {each.violations[:5]}" for each in result.verdicts if not each.ok)


@pytest.mark.parametrize("scenario", ["calm", "crash-and-return", "split-and-heal"])
def test_every_scenario_passes_its_checks(scenario: str) -> None:
    result = Play(load(scenario), seed=1).run()
    assert result.ok, complaints(result)
    assert result.counts["accepted"] > 100 and result.counts["delivered"] > 100


def test_the_same_seed_gives_the_same_history_twice_in_one_process() -> None:
    first, again = (Play(load("crash-and-return"), seed=1, keep_history=True) for _ in range(2))
    assert first.run() == again.run()
    assert first_difference(first.world.history, again.world.history) is None


def test_two_processes_with_different_hash_seeds_print_the_same_result() -> None:
    shown = []
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "mesh", "simulate", "split-and-heal", "--seed", "11", "--json"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        shown.append(done.stdout)
    assert shown[0] == shown[1]
    assert len(json.loads(shown[0])["history_hash"]) == 32


def test_logs_and_truth_are_written_in_the_schema_of_every_broker(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/event-log.md").read_text()
    kinds = re.findall(r"^## `(\w+)`", page, re.MULTILINE)
    table = page[: page.index("## `meta`")]
    columns = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(columns) == 9 and "truth" in kinds
    result = Play(load("crash-and-return"), seed=2, out=str(tmp_path / "logs")).run()
    files = sorted((tmp_path / "logs").iterdir())
    assert sum(file.name.startswith("truth-") for file in files) == 1
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in files:
        lines = file.read_text().split("\n")
        assert lines[-1] == "" or file.name.endswith(".part")
        for line in lines[:-1]:  # the last one of a broker that was killed may be torn
            row = json.loads(line)
            assert set(columns) <= set(row)
            rows[row["kind"]].append(row)
    assert set(rows) == set(kinds) - {"heard"}, "rows of summaries are written only if asked for"
    ops = [row["op"] for row in rows["truth"]]
    assert ops[:5] == ["start"] * 5
    assert {fault.kind for fault in result.scenario.faults} | {"start", "stop", "end"} <= set(ops)
    told = set(re.findall(r"`(\w+)`", page[page.index("## `truth`") :]))
    assert all(set(row) - set(columns) <= told for row in rows["truth"])
    assert sum(op not in ("end", "ended") for op in ops) == len(result.faults)
    seqs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in (row for kind, group in rows.items() if kind != "truth" for row in group):
        seqs[row["node"], row["boot"]].append(row["seq"])
    for numbers in seqs.values():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
