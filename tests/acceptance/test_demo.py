"""The demonstration itself: real brokers, real faults, and an analysis that finds exactly these faults."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.support.children import ends_with_tests


@pytest.mark.process
@pytest.mark.spark
@pytest.mark.xdist_group("alone")
def test_the_demonstration_ends_by_itself_and_finds_all_its_faults(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [sys.executable, "-m", "mesh", "demo", "--out", str(out)]
    done = subprocess.run(ends_with_tests(command, SIGTERM), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the analysis found exactly what was done, and no partition" in done.stdout
    (report,) = (out / "report").glob("*/report.html")
    (run,) = json.loads(report.with_name("summary.json").read_text())["runs"]
    assert run["failures"] == {"crash": 1}
    assert run["deaths_told"] == {"crash": 1, "paused": 1}
    assert run["parts"] == []
    left = [name for event in run["events"] if event["what"] == "leave" for name in event["brokers"]]
    assert len(left) == 5


@pytest.mark.process
def test_a_folder_that_holds_something_else_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    command = [sys.executable, "-m", "mesh", "demo", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 73
    assert "holds something else than a demonstration" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
