"""Scenarios as records: impossible ones are refused where they are made; the full size is the same
scenario.
"""

from __future__ import annotations

from typing import Any

import pytest

from simulations.faults import Fault
from simulations.kernel.network import LinkQuality
from simulations.scenario import AFTERMATH_S, Scenario, ScenarioError, Workload


@pytest.mark.parametrize(
    ("given", "where", "sentence"),
    [
        ({"name": "Big Storm"}, ("name",), "1 to 48 of the characters a-z 0-9 -"),
        ({"brokers": 0}, ("brokers",), "brokers is 0; it must be at least 1"),
        ({"spares": -1}, ("spares",), "spares is -1; it must be at least 0"),
        ({"warm_s": -1.0}, ("warm_s",), "warm_s is -1; it must be at least 0"),
        ({"quiet_s": float("inf")}, ("quiet_s",), "quiet_s is inf"),
        ({"bound_s": 0.0}, ("bound_s",), "bound_s is 0; it must be above 0"),
        ({"deadline_s": 2.0}, ("deadline_s",), "at most period_s, which is 1"),
        (
            {"safety_s": 5.0, "faults": (Fault(6.0, "crash", ("broker-1",)),)},
            ("fault", 0, "at_s"),
            "begin at 6 s",
        ),
        ({"full": (("faults", 3),)}, ("full", "faults"), "cannot differ in 'faults'"),
        ({"full": (("workload.size", 3),)}, ("full", "workload", "size"), "cannot differ in 'workload.size'"),
        ({"full": (("brokers", 0),)}, ("full",), "at the full size brokers is 0"),
        ({"full": (("network.loss", 2.0),)}, ("full", "network", "loss"), "at the full size"),
    ],
)
def test_an_impossible_field_is_refused_with_its_place(
    given: dict[str, Any], where: tuple[str | int, ...], sentence: str
) -> None:
    with pytest.raises(ScenarioError) as raised:
        Scenario(**{"name": "test", **given})
    assert raised.value.where == where
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    "given",
    [
        *({"publishers": -1}, {"subscribers": -1}, {"pause_s": 0.0}, {"size_max": 0}),
        *({"stored_share": 1.5}, {"work_s": 0.0}, {"work_window": 0}, {"slow_workers": 1}, {"workers": 2}),
    ],
)
def test_an_impossible_workload_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError) as raised:
        Workload(**given)
    assert raised.value.where == ("workload", *given)


def test_the_safety_phase_lasts_until_some_time_after_the_last_fault() -> None:
    faults = (
        Fault(2.0, "crash", ("broker-1",)),
        Fault(1.0, "pause", ("broker-2",), for_s=3.0, more=(("at_s:most", 4.0), ("for_s:most", 10.0))),
    )
    assert Scenario("test", faults=faults).safety_length_s == 14.0 + AFTERMATH_S
    assert Scenario("test", faults=faults, safety_s=9.0).safety_length_s == 9.0
    assert Scenario("test").safety_length_s == 0.0


def test_repeats_count_for_the_length_of_the_safety_phase() -> None:
    fault = Fault(1.0, "crash", ("broker-1",), more=(("repeat", 3), ("repeat_s", 10.0)))
    assert Scenario("test", faults=(fault,)).safety_length_s == 21.0 + AFTERMATH_S


def test_the_full_size_differs_only_in_the_fields_it_names() -> None:
    scenario = Scenario(
        "test",
        full=(("brokers", 100), ("workload.publishers", 20), ("network.loss", 0.1), ("safety_s", 60.0)),
    )
    small, full = scenario.at_size("ci"), scenario.at_size("full")
    assert small == Scenario("test")
    assert full == Scenario(
        "test", brokers=100, safety_s=60.0, workload=Workload(publishers=20), network=LinkQuality(loss=0.1)
    )
    with pytest.raises(ValueError, match="there are ci and full"):
        scenario.at_size("huge")


def test_participants_are_numbered_in_one_sequence() -> None:
    scenario = Scenario("test", brokers=2, spares=2, workload=Workload(publishers=1, subscribers=2))
    assert scenario.broker_names == ["broker-1", "broker-2"]
    assert scenario.spare_names == ["broker-3", "broker-4"]
    assert scenario.publisher_names == ["pub-1"] and scenario.subscriber_names == ["sub-1", "sub-2"]
