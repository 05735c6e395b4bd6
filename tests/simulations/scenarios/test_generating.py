"""Scenarios drawn from seeds: one seed always gives the same, many seeds give all variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from simulations import programs
from simulations.faults import KINDS
from simulations.runs.playing import Play
from simulations.scenarios.generating import BROKERS, CLASSES, SAFETY_S, generate, leaves, may_join_by
from simulations.scenarios.selecting import resolve
from simulations.world import Main

SEEDS = range(400)


def test_a_seed_has_one_scenario_and_another_seed_another() -> None:
    assert generate(5) == generate(5)
    assert len({generate(seed).faults for seed in range(50)}) > 40


def test_every_kind_of_fault_is_drawn() -> None:
    assert {recipe.kind for recipes in CLASSES.values() for recipe in recipes} == set(KINDS)


@pytest.mark.parametrize("kind", [recipe.kind for recipes in CLASSES.values() for recipe in recipes])
def test_every_recipe_comes_up(kind: str) -> None:
    assert any(fault.kind == kind for seed in SEEDS for fault in generate(seed).faults)


def test_a_drawn_scenario_is_concrete_and_possible() -> None:
    for seed in SEEDS:
        scenario = generate(seed)
        assert BROKERS[0] <= scenario.brokers <= BROKERS[1]
        assert resolve(scenario, seed) == scenario
        assert [fault.at_s for fault in scenario.faults] == sorted(fault.at_s for fault in scenario.faults)
        assert all(fault.at_s < SAFETY_S for fault in scenario.faults)


def test_some_meshes_have_no_traffic_and_some_ask_and_answer() -> None:
    loads = [generate(seed).workload for seed in range(50)]
    assert any(load.publishers == 0 for load in loads) and any(load.publishers for load in loads)
    assert any(load.askers for load in loads) and any(load.askers == 0 for load in loads)
    assert all(load.answerers for load in loads if load.askers)


def test_a_seed_has_the_same_faults_with_and_without_durable_subscriptions() -> None:
    for seed in SEEDS:
        plain, stored = generate(seed), generate(seed, stored=True)
        assert stored == generate(seed, stored=True) == resolve(stored, seed)
        assert (stored.name, stored.faults) == (f"stored-swarm-{seed}", plain.faults)
        load = stored.workload
        assert load.publishers and load.stored_share and load.workers >= load.durable_subscriptions > 0


def test_each_class_of_faults_is_left_out_of_about_half_of_the_seeds() -> None:
    seen = Counter[str]()
    for seed in SEEDS:
        kinds = {fault.kind for fault in generate(seed).faults}
        seen.update(name for name, recipes in CLASSES.items() if kinds & {recipe.kind for recipe in recipes})
    for name in CLASSES:
        assert len(SEEDS) * 0.35 < seen[name] < len(SEEDS) * 0.65, name


def test_no_broker_gets_a_fault_while_another_fault_needs_it_alone() -> None:
    alone = {recipe.kind for recipes in CLASSES.values() for recipe in recipes if recipe.alone_s is not None}
    for seed in SEEDS:
        taken_until: dict[str, float] = {}
        for fault in (each for each in generate(seed).faults if each.kind in alone):
            for name in fault.a:
                assert fault.at_s >= taken_until.get(name, 0.0)
                taken_until[name] = fault.at_s + (fault.for_s or 0.0)


def test_one_broker_always_keeps_its_address() -> None:
    moves = 0
    for seed in SEEDS:
        scenario = generate(seed)
        moved = {name for fault in scenario.faults if fault.kind == "move" for name in fault.a}
        lost = {name for fault in scenario.faults if fault.kind == "lost_files" for name in fault.a}
        moves += len(moved)
        assert len(moved) < scenario.brokers
        for name in (*scenario.spare_names, *sorted(lost)):
            assert moved.isdisjoint(may_join_by(scenario, name))
    assert moves > 50


def test_a_broker_that_never_moves_is_never_forgotten_either() -> None:
    """A leave makes the others forget an address, and a broker that restarts for its settings leaves
    first.
    """
    moves = 0
    for seed in (900032, *SEEDS):
        scenario = generate(seed)
        struck = {name for fault in scenario.faults if fault.kind == "move" for name in fault.a}
        moves += len(struck)
        gone = {name for fault in scenario.faults if leaves(fault) for name in fault.a}
        assert not struck or set(scenario.broker_names) - struck - gone, seed
    assert moves > 30


def test_brokers_join_through_the_brokers_that_may_join_by_names(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[list[str]] = []

    def broker(mesh: str, join: Sequence[str], **given: float) -> Main:
        joined.append(list(join))
        return started(mesh, join, **given)

    started = programs.broker
    monkeypatch.setattr(programs, "broker", broker)
    scenario = replace(generate(9), brokers=4, spares=2, faults=(), warm_s=0.0, quiet_s=1.0)
    for seed in range(4):
        play = Play(scenario, seed=seed)
        play.run()
        names = {host.address: host.name for host in play.world.network.hosts.values()}
        for name, join in zip((*scenario.broker_names, *scenario.spare_names), joined, strict=True):
            assert {names[address] for address in join} <= set(may_join_by(scenario, name))
        joined.clear()
