"""The targets and times of a scenario follow from the seed, and are concrete once it has been resolved."""

from __future__ import annotations

import random

import pytest

from simulations.faults import Fault
from simulations.scenario import AFTERMATH_S, Expectation, Scenario, ScenarioError, Workload
from simulations.scenarios.selecting import Selection, homes, resolve

BROKERS = Scenario("test", brokers=10, spares=1)


def selected(
    *selectors: str, scenario: Scenario = BROKERS, seed: int = 1, before: tuple[str, ...] = ()
) -> tuple[str, ...]:
    return Selection.of(scenario, seed).names(selectors, random.Random(seed), before=before)


@pytest.mark.parametrize(
    ("selector", "least", "most"),
    [
        ("brokers", 10, 10),
        ("2 of brokers", 2, 2),
        ("half of brokers", 5, 5),
        ("majority of brokers", 6, 6),
        ("minority of brokers", 4, 4),
        ("25% of brokers", 2, 2),
        ("1% of brokers (at least 1)", 1, 1),
        ("1 to half of brokers", 1, 5),
        ("half of half of brokers", 2, 2),
        ("rest of brokers", 10, 10),
    ],
)
def test_the_given_number_of_brokers_is_chosen_once_each_and_in_order(
    selector: str, least: int, most: int
) -> None:
    sizes = set()
    for seed in range(40):
        names = selected(selector, seed=seed)
        assert list(names) == [name for name in BROKERS.broker_names if name in names]
        sizes.add(len(names))
    assert min(sizes) == least and max(sizes) == most


def test_the_seed_decides_the_choice_and_every_broker_may_be_chosen() -> None:
    assert selected("1 of brokers", seed=3) == selected("1 of brokers", seed=3)
    assert {selected("1 of brokers", seed=seed)[0] for seed in range(200)} == set(BROKERS.broker_names)


def test_first_chooses_without_chance() -> None:
    assert {selected("first 2 of brokers", seed=seed) for seed in range(20)} == {("broker-1", "broker-2")}


def test_the_rest_are_those_not_named_before_in_the_fault_or_else_not_picked() -> None:
    scenario = Scenario("test", picks=(("one", "broker-1"), ("other", "1 of rest of brokers")))
    for seed in range(20):
        other = selected("other", scenario=scenario, seed=seed)
        assert other != ("broker-1",)
        assert selected("rest of brokers", scenario=scenario, seed=seed) == tuple(
            name for name in scenario.broker_names if name not in ("broker-1", *other)
        )
    rest = selected("rest of brokers", scenario=scenario, before=("broker-2",))
    assert rest == ("broker-1", "broker-3", "broker-4", "broker-5")
    both = selected("broker-5", "rest of brokers", scenario=scenario)
    assert both == ("broker-5", "broker-1", "broker-2", "broker-3", "broker-4")


def test_clients_are_found_by_their_host_and_hosts_by_their_clients() -> None:
    places = homes(BROKERS, 1)
    assert selected("host of sub-1") == (places["sub-1"],)
    assert selected(f"clients of {places['sub-1']}")[0] == "sub-1"
    assert all(
        places[name] in BROKERS.broker_names for name in (*BROKERS.subscriber_names, *BROKERS.publisher_names)
    )


def test_clients_are_spread_over_the_brokers() -> None:
    scenario = Scenario("test", brokers=4, workload=Workload(publishers=4, subscribers=4))
    places = homes(scenario, 5)
    assert sorted(places[name] for name in scenario.subscriber_names) == scenario.broker_names
    assert sorted(places[name] for name in scenario.publisher_names) == scenario.broker_names


@pytest.mark.parametrize(
    ("selector", "sentence"),
    [
        ("broker-11x", "there is no 'broker-11x'; there are broker-1 to broker-10"),
        ("11 of brokers", "are 11, but there are only 10"),
        ("1% of brokers", "matches nobody here"),
        ("many of brokers", "say how many of whom"),
        ("5 to 2 of brokers", "from 5 to 2, which is no span"),
        ("rest of brokers of mine", "there is no 'mine'"),
        ("", "there is no ''"),
    ],
)
def test_a_selector_without_a_match_is_one_sentence(selector: str, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:
        selected(selector)
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


# --- a scenario


def drawn() -> Scenario:
    return Scenario(
        "test",
        picks=(("victim", "1 of brokers"),),
        faults=(
            Fault(9.0, "crash", ("victim",)),
            Fault(
                1.0,
                "partition",
                ("2 of brokers",),
                ("rest of brokers",),
                for_s=4.0,
                more=(("at_s:most", 5.0), ("for_s:most", 8.0)),
            ),
            Fault(
                2.0,
                "slow_process",
                ("broker-1",),
                value=2.0,
                more=(("repeat", 3), ("repeat_s", 2.0), ("value:most", 9.0)),
            ),
        ),
        expect=(Expectation("detected", (("whom", ("victim",)), ("within_s", 4.0))),),
    )


def test_a_resolved_scenario_has_only_names_and_numbers_and_resolves_to_itself() -> None:
    found = resolve(drawn(), 7)
    assert found.picks == ()
    assert found.safety_s == max(fault.at_s + (fault.for_s or 0) for fault in found.faults) + AFTERMATH_S
    assert [fault.at_s for fault in found.faults] == sorted(fault.at_s for fault in found.faults)
    crash = next(fault for fault in found.faults if fault.kind == "crash")
    split = next(fault for fault in found.faults if fault.kind == "partition")
    assert 1 <= split.at_s <= 5 and split.for_s is not None and 4 <= split.for_s <= 8
    assert sorted(split.a + split.b) == found.broker_names and len(split.a) == 2
    assert found.expect[0].parameters == (("whom", crash.a), ("within_s", 4.0))
    assert all(not fault.more for fault in found.faults)
    assert resolve(found, 7) == found == resolve(found, 8)


def test_a_repeated_fault_comes_again_and_draws_anew() -> None:
    slow = [fault for fault in resolve(drawn(), 7).faults if fault.kind == "slow_process"]
    assert [fault.at_s for fault in slow] == [2.0, 4.0, 6.0]
    assert len({fault.value for fault in slow}) == 3 and all(2 <= fault.value <= 9 for fault in slow)


def test_one_more_fault_changes_nothing_about_the_others() -> None:
    one = drawn()
    more = Scenario("test", picks=one.picks, faults=(*one.faults, Fault(0.0, "pause", ("1 of brokers",))))
    for seed in range(10):
        assert [fault for fault in resolve(more, seed).faults if fault.kind != "pause"] == list(
            resolve(one, seed).faults
        )


@pytest.mark.parametrize(
    ("fault", "where", "sentence"),
    [
        (Fault(0.0, "crash", ("broker-9",)), ("fault", 0, "a"), "there is no 'broker-9'"),
        (
            Fault(0.0, "earthquake", ("broker-1",)),
            ("fault", 0, "kind"),
            "there is no fault kind 'earthquake'",
        ),
        (Fault(0.0, "power_off", ("sub-1",)), ("fault", 0, "a"), "there is no host 'sub-1'"),
        (
            Fault(0.0, "crash", ("broker-1",), value=3.0),
            ("fault", 0, "value"),
            "crash has no parameter value",
        ),
        (
            Fault(0.0, "crash", ("broker-1",), more=(("repeat", 3),)),
            ("fault", 0, "repeat_s"),
            "give both or none",
        ),
        (
            Fault(0.0, "crash", ("broker-1",), more=(("repeat", 0),)),
            ("fault", 0, "repeat"),
            "it must be from 1 to",
        ),
        (
            Fault(5.0, "crash", ("broker-1",), more=(("at_s:most", 2.0),)),
            ("fault", 0, "at_s"),
            "from 5.0 to 2.0, which is no span",
        ),
    ],
)
def test_a_fault_that_cannot_be_is_refused_with_its_place(
    fault: Fault, where: tuple[str | int, ...], sentence: str
) -> None:
    with pytest.raises(ScenarioError) as raised:
        resolve(Scenario("test", faults=(fault,)), 1)
    assert raised.value.where == where
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("pick", "sentence"),
    [(("brokers", "broker-1"), "a pick cannot be called 'brokers'"), (("one", "9 of brokers"), "only 5")],
)
def test_a_pick_that_cannot_be_is_refused_with_its_place(pick: tuple[str, str], sentence: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        resolve(Scenario("test", picks=(pick,)), 1)
    assert raised.value.where == ("pick", pick[0])
    assert sentence in str(raised.value)
