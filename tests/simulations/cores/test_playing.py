"""Scenarios by the cores alone: phases, refusals, and their reports."""

from __future__ import annotations

import pytest

from simulations import cores
from simulations.faults import Fault
from simulations.scenario import Scenario
from simulations.scenarios import scenario_file

SPLIT = Scenario(
    name="split",
    brokers=6,
    faults=(
        Fault(1.0, "partition", ("2 of brokers",), for_s=8.0),
        Fault(12.0, "crash", ("broker-4",)),
    ),
)


def test_a_scenario_is_resolved_played_healed_and_whole_at_its_end() -> None:
    outcome = cores.play(SPLIT, seed=3)
    assert outcome.ok, outcome.wrong
    assert outcome.nodes == 6 and outcome.virtual_s > 17 + 30
    assert "broker-4" in {change.subject for change in outcome.changes if change.to_state == "dead"}
    assert cores.play(SPLIT, seed=3) == outcome


def test_brokers_that_are_not_whole_at_the_end_are_named() -> None:
    outcome = cores.play(Scenario(name="late", brokers=3, bound_s=0.0005, faults=(
        Fault(1.0, "power_off", ("broker-2",)),
    )), seed=1)  # fmt: skip
    assert not outcome.ok
    text = cores.told(outcome, 0.5)
    assert text.startswith("cores alone (3 brokers) --seed 1: NOT WHOLE")
    assert "broker-2" in text.splitlines()[-1]
    assert outcome.as_json()["ok"] is False and outcome.as_json()["wrong"] == list(outcome.wrong)


def test_a_shipped_scenario_can_be_played() -> None:
    outcome = cores.play(scenario_file.load("split-and-heal").at_size("ci"), seed=1)
    assert outcome.ok, outcome.wrong
    assert "whole at the end" in cores.told(outcome, 0.1)


def test_a_broker_that_lost_most_packets_for_half_a_minute_is_back_afterwards() -> None:
    lossy = Fault(1.0, "lossy_link", ("broker-2",), value=0.8, for_s=30.0)
    outcome = cores.play(Scenario(name="lossy", brokers=5, faults=(lossy,)), seed=1)
    assert outcome.ok and outcome.deaths_seen, outcome.wrong


def test_a_scenario_that_needs_more_than_cores_is_refused_before_it_runs() -> None:
    with pytest.raises(ValueError, match="know no disk_fault"):
        cores.play(Scenario(name="disk", faults=(Fault(1.0, "disk_fault", ("broker-1",)),)), seed=1)
    with pytest.raises(ValueError, match="spare brokers"):
        cores.play(Scenario(name="spare", spares=1), seed=1)


def test_too_many_brokers_are_refused_before_they_are_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("simulations.cores.playing.resolve")
    with pytest.raises(ValueError, match="4999950000 links; at most 500"):
        cores.play(Scenario(name="many", brokers=100_000), seed=1)
