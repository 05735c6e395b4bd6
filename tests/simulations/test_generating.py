"""Scenarios drawn from seeds: of one seed always the same, of many seeds all there is to draw."""

from __future__ import annotations

from collections import Counter

import pytest

from simulations.faults import KINDS
from simulations.generating import BROKERS, CLASSES, LEFT_OUT, SAFETY_S, generate
from simulations.selecting import resolve

SEEDS = range(400)


def test_a_seed_has_one_scenario_and_another_seed_another() -> None:
    assert generate(5) == generate(5)
    assert len({generate(seed).faults for seed in range(50)}) > 40


def test_every_kind_of_fault_is_drawn_or_left_out_for_a_reason() -> None:
    drawn = {recipe.kind for recipes in CLASSES.values() for recipe in recipes}
    assert drawn.isdisjoint(LEFT_OUT)
    assert drawn | set(LEFT_OUT) == set(KINDS)


@pytest.mark.parametrize("kind", [recipe.kind for recipes in CLASSES.values() for recipe in recipes])
def test_every_recipe_comes_up(kind: str) -> None:
    assert any(fault.kind == kind for seed in SEEDS for fault in generate(seed).faults)


def test_what_is_drawn_is_concrete_and_can_be_done() -> None:
    for seed in SEEDS:
        scenario = generate(seed)
        assert BROKERS[0] <= scenario.brokers <= BROKERS[1]
        assert resolve(scenario, seed) == scenario
        assert [fault.at_s for fault in scenario.faults] == sorted(fault.at_s for fault in scenario.faults)
        assert all(fault.at_s < SAFETY_S for fault in scenario.faults)


def test_each_class_of_faults_is_left_out_of_about_half_of_the_seeds() -> None:
    seen = Counter[str]()
    for seed in SEEDS:
        kinds = {fault.kind for fault in generate(seed).faults}
        seen.update(name for name, recipes in CLASSES.items() if kinds & {recipe.kind for recipe in recipes})
    for name in CLASSES:
        assert len(SEEDS) * 0.35 < seen[name] < len(SEEDS) * 0.65, name


def test_nobody_is_struck_while_another_fault_needs_him_alone() -> None:
    alone = {recipe.kind for recipes in CLASSES.values() for recipe in recipes if recipe.alone_s is not None}
    for seed in SEEDS:
        taken_until: dict[str, float] = {}
        for fault in (each for each in generate(seed).faults if each.kind in alone):
            for name in fault.a:
                assert fault.at_s >= taken_until.get(name, 0.0)
                taken_until[name] = fault.at_s + (fault.for_s or 0.0)
