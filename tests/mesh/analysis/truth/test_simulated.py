"""The effects of faults on simulated meshes are found in their logs: parts, crashes, power losses and pauses.

Twenty scenarios: cuts of all shapes, crashes, pauses, loss, slow links and calm; and random faults of
brokers. ``MANGROVE_SEEDS=50`` plays more seeds than the default, ``MANGROVE_SCENARIOS`` names fewer
scenarios. `tests.mesh.analysis.truth.proof` does the same as a command.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from simulations.runs.playing import Play
from simulations.scenarios.scenario_file import load
from tests.mesh.analysis.oracle.everything import tables
from tests.mesh.analysis.truth.proof import KINDS, LIVES, SCENARIOS, SHARE, Score, plays

SEEDS = int(os.environ.get("MANGROVE_SEEDS", "1"))
NAMES = os.environ.get("MANGROVE_SCENARIOS", ",".join((*SCENARIOS, LIVES))).split(",")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_faults_of_a_scenario_are_found(name: str, tmp_path: Path) -> None:
    """Parts of 3.2 periods and more, pauses over 2.2, and all deaths are found. They begin within a period,
    or within the error in their table. No part ends before its cut does."""
    total = {kind: Score() for kind in KINDS}
    for where, rows in plays([name], range(1, SEEDS + 1), tmp_path):
        for kind, score in total.items():
            score.add(where, [each for each in rows if each.row[0] == kind])
    for kind, score in total.items():
        assert score.share("fp") >= SHARE, score.wrong
        assert score.share("fn") >= SHARE, score.wrong
        assert len(score.wrong) <= 0.01 * SEEDS * max(1, score.counts["tp"]), (kind, score.wrong)


def found_in(scenario: str, how: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The tables of a played scenario. ``how`` is ``log_heartbeats``."""
    (folder / "scenario.toml").write_text(scenario)
    Play(load(str(folder / "scenario.toml")), seed=1, out=str(folder / "logs"), log_heartbeats=how).run()
    return tables(folder / "logs", 5.0)


KILLED = """
name = "killed"
summary = "two brokers are killed"
brokers = 4
[[fault]]
at_s = 25
kind = "crash"
a = ["broker-2"]
for_s = 6
[[fault]]
at_s = 45
kind = "crash"
a = ["broker-3"]
for_s = 6
"""


def test_the_summary_that_a_kill_loses_is_no_silence(tmp_path: Path) -> None:
    """A killed broker has not written what it heard in its last window. That was told as a cut of its links,
    for up to 16 periods before each kill."""
    found = found_in(KILLED, "summary", tmp_path)

    assert found["parts"] == []
    assert {row["verdict"] for row in found["matches"]} == {"tp"}


PAUSED = """
name = "paused"
summary = "a peer is paused while a broker is killed, and while the mesh is cut"
brokers = 5
[[fault]]
at_s = 20
kind = "pause"
a = ["broker-3"]
for_s = 8
[[fault]]
at_s = 22
kind = "crash"
a = ["broker-2"]
for_s = 14
[[fault]]
at_s = 50
kind = "pause"
a = ["broker-3"]
for_s = 8
[[fault]]
at_s = 54
kind = "partition"
a = ["broker-1", "broker-2"]
for_s = 9
"""


@pytest.mark.parametrize("how", ["each", "summary"])
def test_what_a_paused_broker_reads_when_it_goes_on_is_no_sign(how: str, tmp_path: Path) -> None:
    """The killed broker seemed to live until then, in a partition of its own. The cut was two parts, since
    heartbeats from before it seemed to cross it."""
    found = found_in(PAUSED, how, tmp_path)

    assert {row["verdict"] for row in found["matches"]} == {"tp"}
    assert [part["kind"] for part in found["parts"]] == ["complete"]
    assert all(abs(row["start_lag_s"]) < 1 for row in found["matches"])
