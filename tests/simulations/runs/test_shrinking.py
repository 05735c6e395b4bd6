"""Shrinking keeps the failure and leaves out everything else."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from simulations.evidence.measuring import measure
from simulations.faults import Fault
from simulations.invariants import Verdict
from simulations.runs import shrinking
from simulations.runs.playing import Result
from simulations.runs.replaying import failure_of, replay
from simulations.runs.shrinking import Ending, ddmin, shrink, size_of
from simulations.scenario import Scenario, Workload
from tests.simulations.broken import play_blind


@pytest.mark.parametrize("wanted", [(), (3,), (0, 19), (4, 5, 6), tuple(range(20))])
def test_ddmin_finds_exactly_the_needed_parts(wanted: tuple[int, ...]) -> None:
    assert ddmin(range(20), lambda part: set(wanted) <= set(part)) == list(wanted)


def result(scenario: Scenario, *verdicts: Verdict) -> Result:
    return Result(scenario, 7, "ci", "ab", 1.0, (), None, verdicts, {}, (), {}, measure((), (), ()))


def stand_in(scenario: Scenario, **given: Any) -> Result:
    """Fails if broker-4 is paused, and otherwise if there is nothing to judge."""
    paused = any(fault.kind == "pause" and "broker-4" in fault.a for fault in scenario.faults)
    violations = ("it was missed",) if paused else ()
    verdicts = [
        Verdict("detected", "1", violations),
        Verdict("complete", "0", ("there is no delivery to look at",), 0),
    ]
    return result(scenario, *verdicts)


LARGE = Scenario(
    "large",
    brokers=7,
    safety_s=60.0,
    faults=(
        Fault(1.0, "crash", ("broker-1",), for_s=3.0),
        Fault(10.0, "pause", ("broker-2", "broker-4"), for_s=8.0),
        Fault(12.0, "partition", ("broker-1", "broker-2"), ("broker-5",), for_s=4.0),
        Fault(40.0, "slow_link", ("broker-6",), value=0.2, for_s=4.0, more=(("jitter_s", 0.05),)),
    ),
)


CRASHED = Scenario(
    "crashed",
    brokers=3,
    warm_s=0.0,
    quiet_s=1.0,
    workload=Workload(publishers=1, subscribers=1, pause_s=0.5),
    faults=(
        Fault(0.5, "slow_link", ("broker-1",), value=0.02, for_s=1.0),
        Fault(1.0, "reset", ("broker-1",), ("broker-3",)),
        Fault(10.0, "power_off", ("broker-2",), for_s=12.0),
        Fault(26.0, "pause", ("broker-3",), for_s=0.5),
    ),
)


def test_everything_that_is_not_needed_is_removed() -> None:
    failure = failure_of(stand_in(LARGE))
    told: list[str] = []
    shrunk = shrink(failure, play=stand_in, say=lambda plays, text: told.append(text))
    scenario = shrunk.after.scenario
    assert shrunk.ending is Ending.SMALLEST and shrunk.after.check == "detected"
    assert [fault.kind for fault in scenario.faults] == ["pause"]
    assert scenario.faults[0].a == ("broker-4",) and scenario.faults[0].at_s == 0
    assert scenario.brokers == 4 and scenario.workload.publishers == scenario.workload.subscribers == 0
    assert size_of(scenario) in told
    assert f"from {size_of(LARGE)} to {size_of(scenario)}" in str(shrunk)


def test_another_check_that_fails_is_another_failure() -> None:
    failure = replace(failure_of(stand_in(LARGE)), check="complete")
    with pytest.raises(ValueError, match="complete does not fail in it"):
        shrink(failure, play=stand_in)


def test_shrinking_ends_after_the_allowed_plays_with_the_smallest_so_far() -> None:
    plays = []

    def counting(scenario: Scenario, **given: Any) -> Result:
        plays.append(scenario)
        return stand_in(scenario)

    shrunk = shrink(failure_of(stand_in(LARGE)), plays_max=8, play=counting)
    assert len(plays) == shrunk.plays == 8 and shrunk.ending is Ending.PLAYS
    assert len(shrunk.after.scenario.faults) < len(LARGE.faults)


def test_shrinking_ends_in_time_with_the_smallest_so_far() -> None:
    shrunk = shrink(failure_of(stand_in(LARGE)), wall_max_s=0.0, play=stand_in)
    assert shrunk.ending is Ending.TIME and shrunk.plays == 1
    assert shrunk.after.scenario == LARGE


def test_an_interrupt_keeps_the_smallest_so_far() -> None:
    plays = []

    def interrupted(scenario: Scenario, **given: Any) -> Result:
        plays.append(scenario)
        if len(plays) == 6:
            raise KeyboardInterrupt
        return stand_in(scenario)

    shrunk = shrink(failure_of(stand_in(LARGE)), play=interrupted)
    assert shrunk.ending is Ending.INTERRUPTED and "it was interrupted" in str(shrunk)
    assert shrunk.after.scenario != LARGE and failure_of(stand_in(shrunk.after.scenario)).check == "detected"


def test_an_interrupt_before_the_first_play_is_raised() -> None:
    def interrupted(scenario: Scenario, **given: Any) -> Result:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shrink(failure_of(stand_in(LARGE)), play=interrupted)


def test_another_violation_of_the_same_check_is_another_failure() -> None:
    def fragile(scenario: Scenario, **given: Any) -> Result:
        said = "broker-4: main ended by AssertionError at 7.5 s: no such peer"
        if not any(fault.kind == "pause" and "broker-4" in fault.a for fault in scenario.faults):
            said = "sub-1: main left a task behind at 9.0 s"
        return result(scenario, Verdict("sound", "1", (said,)))

    shrunk = shrink(failure_of(fragile(LARGE)), play=fragile)
    assert "AssertionError" in shrunk.after.violation
    assert [fault.kind for fault in shrunk.after.scenario.faults] == ["pause"]


def test_a_candidate_that_breaks_the_simulator_is_left_alone() -> None:
    def broken(scenario: Scenario, **given: Any) -> Result:
        if scenario.brokers < 7:
            raise IndexError("nothing there")
        return stand_in(scenario)

    shrunk = shrink(failure_of(stand_in(LARGE)), play=broken)
    assert shrunk.after.scenario.brokers == 7 and len(shrunk.after.scenario.faults) == 1


def test_a_candidate_that_never_ends_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(scenario: Scenario, **given: Any) -> Result:
        while scenario.workload.publishers == 0:
            time.perf_counter()
        return stand_in(scenario)

    monkeypatch.setattr(shrinking, "SEED_MAX_S", 0.02)
    scenario = shrink(failure_of(stand_in(LARGE)), play=stuck).after.scenario
    assert scenario.workload.publishers == 1 and len(scenario.faults) == 1


def test_brokers_are_removed_although_later_faults_name_others() -> None:
    def needs_the_last(scenario: Scenario, **given: Any) -> Result:
        joins = [fault for fault in scenario.faults if fault.kind == "mass_join"]
        right = all(name in scenario.spare_names for fault in joins for name in fault.a)
        return result(scenario, Verdict("detected", "1", ("it was missed",) if joins and right else ()))

    faults = (Fault(3.0, "mass_join", ("broker-6", "broker-7")), Fault(4.0, "crash", ("broker-2",)))
    crowd = Scenario("crowd", brokers=5, spares=2, faults=faults)
    scenario = shrink(failure_of(needs_the_last(crowd)), play=needs_the_last).after.scenario
    assert (scenario.brokers, scenario.spares) == (1, 1)
    assert [(fault.kind, fault.a) for fault in scenario.faults] == [("mass_join", ("broker-2",))]


def test_numbers_that_need_not_be_exact_are_rounded() -> None:
    def needs_a_while(scenario: Scenario, **given: Any) -> Result:
        lasting = [fault for fault in scenario.faults if (fault.for_s or 0) >= 6.2 and fault.at_s >= 2.7]
        return result(scenario, Verdict("detected", "1", ("it was missed",) if lasting else ()))

    long = Scenario("long", brokers=2, faults=(Fault(4.913, "pause", ("broker-1",), for_s=7.378),))
    (fault,) = shrink(failure_of(needs_a_while(long)), play=needs_a_while).after.scenario.faults
    assert (fault.at_s, fault.for_s) == (5.0, 7.0)


def test_a_real_failure_becomes_small_enough_to_read_and_comes_again() -> None:
    failure = failure_of(play_blind(CRASHED, seed=3))
    shrunk = shrink(failure, plays_max=40, play=play_blind)
    assert [fault.kind for fault in shrunk.after.scenario.faults] == ["power_off"]
    again = replay(shrunk.after, play=play_blind)
    assert again.exact and again.again is not None and again.again.check == failure.check == "detected"
    assert replay(shrunk.after).again is None  # the membership was broken, and not the check
