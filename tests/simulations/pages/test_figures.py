"""Figures of the shipped scenarios: measured by playing them, and kept until the next measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulations.pages import figures
from simulations.pages.figures import Figures, keep, kept, measured
from simulations.scenarios.scenario_file import load

FOUND = Figures("calm", "ci", "abc", "2026-01-01", 5, ("sound",), "nothing", 60.0, 2.5, 50)


@pytest.fixture
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "KEPT", tmp_path / "scenarios.json")


@pytest.mark.usefixtures("_empty")
def test_a_new_measurement_replaces_the_kept_one() -> None:
    keep([FOUND, replace(FOUND, size="full")])
    keep([replace(FOUND, failed=())])
    assert kept() == {
        ("calm", "ci"): replace(FOUND, failed=()),
        ("calm", "full"): replace(FOUND, size="full"),
    }


def test_a_scenario_is_played_in_a_process_of_its_own() -> None:
    found = measured(load("process-kill"), "ci", 120)
    assert (found.name, found.size, found.brokers, found.broke) == ("process-kill", "ci", 6, "")
    assert found.failed == ("detected",) and found.ours == ""
    assert found.virtual_s > 30 and found.cpu_s > 0 and 20 < found.memory_mb < 2000


def test_a_run_that_takes_too_long_is_stopped_and_reported() -> None:
    assert measured(load("rolling-partition"), "ci", 1).broke == "not done in 1 s"


def test_a_full_size_is_played_by_the_cores_alone() -> None:
    found = measured(load("split-and-heal"), "cores", 120)
    assert (found.size, found.brokers, found.broke, found.failed) == ("cores", 5, "", ())
    assert found.ours.startswith("whole at the end; 8 deaths seen, ")


def test_scenarios_that_the_cores_cannot_play_are_not_kept(
    _empty: None, capsys: pytest.CaptureFixture[str]
) -> None:
    figures.main(["restart-in-the-past", "--cores"])
    assert kept() == {}
    assert "restart-in-the-past cores: ended with exit code 64" in capsys.readouterr().out


def test_only_full_sizes_that_can_be_played_today_are() -> None:
    full = {scenario.name for scenario in figures._chosen((), "full")}
    assert "lifeguard-interval" in full and "ten-thousand" not in full and "calm" not in full
    assert len(figures._chosen((), "ci")) == 46
    cores = {scenario.name for scenario in figures._chosen((), "cores")}
    assert {"process-kill", "split-in-half"} <= cores
    assert not {"twins", "slow-reader", "ten-thousand"} & cores
