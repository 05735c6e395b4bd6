"""The numbered scenarios at their CI size: each has the outcome in its file, and all of them exist.

They are played with seed 1; ``--simulation-seed 2`` plays another.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

from simulations.faults import KINDS
from simulations.pages import figures
from simulations.runs import playing
from simulations.runs.playing import BROKERS_MAX
from simulations.scenario import Scenario
from simulations.scenarios import scenario_file

BROKERS_CI_MAX: Final = 12


@cache
def numbered() -> dict[str, Scenario]:
    found = {name: scenario_file.load(name) for name in scenario_file.shipped()}
    return {name: each for name, each in found.items() if each.number is not None}


@pytest.mark.parametrize("name", sorted(numbered()))
def test_a_scenario_has_the_outcome_in_its_file(name: str, simulation_seed: int) -> None:
    """A known failure must fail, and only in the checks it names."""
    scenario = numbered()[name]
    result = playing.play(scenario, seed=simulation_seed)
    found = {each.check: each.violations[:3] for each in result.verdicts if not each.ok}
    if scenario.known_failure:
        assert found, f"{name} passes: take its known_failure away"
        unknown = {check: why for check, why in found.items() if f"{check}:" not in scenario.known_failure}
        assert not unknown, f"{name} fails in more than is known"
    else:
        assert not found


def test_every_scenario_of_the_study_is_shipped_once() -> None:
    assert sorted(each.number or 0 for each in numbered().values()) == list(range(1, 47))
    assert all(each.summary and each.expect for each in numbered().values())


def test_a_ci_size_is_small_and_a_full_size_is_playable_or_says_what_it_waits_for() -> None:
    for name, scenario in numbered().items():
        small, full = (scenario.at_size(size) for size in ("ci", "full"))
        assert small.brokers + small.spares <= BROKERS_CI_MAX, name
        waits = full.brokers + full.spares > 100
        assert bool(scenario.waiting_for) == waits, name
        assert waits or full.brokers + full.spares <= BROKERS_MAX, name


def test_a_full_size_that_is_too_large_yet_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="waits for the bounded overlay"):
        playing.play(numbered()["ten-thousand"], seed=1, size="full")


def test_known_failures_name_the_checks_that_fail() -> None:
    for name, scenario in numbered().items():
        for part in filter(None, scenario.known_failure.split("; ")):
            check, _, instead = part.partition(": ")
            assert check.replace("_", "").isalpha() and instead, f"{name}: {part!r}"


def test_figures_of_papers_stand_beside_ours() -> None:
    """All compared figures exist, and only scenarios with a paper compare."""
    kept = figures.kept()
    for name, scenario in numbered().items():
        assert scenario.paper or not scenario.compared, name
        if scenario.compared:
            assert kept[name, "ci"].ours, f"measure it: python -m simulations.pages.figures {name}"


def test_the_scenarios_use_most_kinds_of_fault() -> None:
    used = {fault.kind for scenario in numbered().values() for fault in scenario.faults}
    assert used <= set(KINDS)
    assert len(used) >= 35, sorted(set(KINDS) - used)
