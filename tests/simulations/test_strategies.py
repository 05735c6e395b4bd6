"""Faults drawn by hypothesis can be applied to a mesh, and shrink to a few."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from simulations import Fault, Mesh, World, strategies
from simulations.faults import KINDS, check
from simulations.runs.playing import play
from simulations.scenario import Scenario
from simulations.scenarios.generating import leaves

NAMES = ("broker-1", "broker-2", "broker-3")
# Always the same few: finding defects by fresh draws of whole meshes is the swarm's task, and no gate.
FEW = settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(strategies.faults(3))
def test_drawn_faults_are_in_order_and_possible(faults: list[Fault]) -> None:
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    for fault in faults:
        assert check(fault, processes=NAMES, hosts=NAMES) is KINDS[fault.kind]
        assert fault.at_s <= 20


@given(strategies.faults(["east", "west"], most=4))
def test_brokers_may_have_names_of_their_own(faults: list[Fault]) -> None:
    assert len(faults) <= 4
    assert {name for fault in faults for name in (*fault.a, *fault.b)} <= {"east", "west"}


@given(strategies.faults(1))
def test_a_single_broker_is_never_parted_from_another(faults: list[Fault]) -> None:
    for fault in faults:
        check(fault, processes=["broker-1"], hosts=["broker-1"])


@given(strategies.faults(3, kinds=["move", "stop"], most=10))
def test_one_broker_always_keeps_its_address(faults: list[Fault]) -> None:
    moved = {name for fault in faults if fault.kind == "move" for name in fault.a}
    left = {name for fault in faults if leaves(fault) for name in fault.a}
    assert not moved or set(NAMES) - moved - left


def test_only_requested_kinds_are_drawn() -> None:
    drawn = find(strategies.faults(3, kinds=["crash", "pause"]), lambda faults: len(faults) == 3)
    assert {fault.kind for fault in drawn} <= {"crash", "pause"}
    with pytest.raises(ValueError, match="no fault of kind crush is drawn"):
        strategies.faults(3, kinds=["crush"])
    with pytest.raises(ValueError, match="too small for partition"):
        strategies.faults(1, kinds=["partition"])
    with pytest.raises(ValueError, match="at least one broker"):
        strategies.faults(0)


def test_a_failure_shrinks_to_the_one_fault_that_matters() -> None:
    # the search is bounded in steps, so a rare draw is not shrunk to the end: always the same one
    drawn = find(
        strategies.faults(5), lambda faults: any(fault.kind == "crash" for fault in faults), random=Random(1)
    )
    (fault,) = drawn
    assert (fault.kind, fault.at_s, fault.a) == ("crash", 0.0, ("broker-1",))


@FEW
@given(faults=strategies.faults(3, within_s=6.0), seed=st.integers(0, 2**32))
def test_a_mesh_survives_all_drawn_faults(faults: list[Fault], seed: int) -> None:
    with World(seed) as world:
        mesh = Mesh(world, brokers=3)
        mesh.schedule(faults)
        world.run_for(10)
        mesh.finish()


@pytest.mark.long
@FEW
@given(scenario=strategies.scenarios(3, within_s=6.0), seed=st.integers(0, 2**32))
def test_whole_scenarios_can_be_played(scenario: Scenario, seed: int) -> None:
    result = play(scenario, seed=seed)
    assert result.ok, [each.violations[:2] for each in result.verdicts if not each.ok]
