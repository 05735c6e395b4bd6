"""Faults that last, and those that unfold: when they end, what they leave, and who ends them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from simulations.faults import KINDS, Fault, Kind, Parameter
from simulations.world import Process, World


async def idle(process: Process) -> None:
    await process.stopping.wait()


def world_of(*names: str, seed: int = 1) -> World:
    world = World(seed, keep_history=True)
    for name in names:
        world.add_node(name, idle)
    return world


def cut(world: World, source: str, target: str) -> bool:
    return world.network.is_cut(source, target)


@pytest.fixture
def waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compound kind: every second one host of a is parted from all others for half a second."""

    def unfold(world: World, fault: Fault, rng: random.Random) -> Iterator[Fault]:
        at_s = world.now_s
        while True:
            yield Fault(at_s, "partition", (rng.choice(fault.a),), for_s=0.5)
            at_s += 1

    monkeypatch.setitem(
        KINDS, "waves", Kind("waves", "one after the other", "links", unfold=unfold, names_least=2)
    )


def test_a_fault_that_lasts_ends_after_its_time_and_only_that_one() -> None:
    with world_of("one", "two") as world:
        world.inject("partition", ["one"], ["two"], for_s=2)
        world.inject("partition", ["one"], ["two"], for_s=5)
        world.run_for(3)
        assert cut(world, "one", "two") and cut(world, "two", "one")
        world.run_for(3)
        assert not cut(world, "one", "two") and not cut(world, "two", "one")
        assert [(span.start_s, span.end_s) for span in world.ongoing.spans] == [(0, 2), (0, 5)]
        assert world.ongoing.faults() == []


def test_a_fault_healed_early_does_not_end_a_later_one() -> None:
    with world_of("one", "two") as world:
        world.inject("partition", ["one"], ["two"], for_s=4)
        world.run_for(1)
        world.inject("heal")
        world.inject("partition", ["one"], ["two"])
        world.run_for(10)
        assert cut(world, "one", "two")


def test_a_heal_that_names_hosts_ends_only_faults_with_a_side_among_them() -> None:
    with world_of("one", "two", "three") as world:
        world.inject("partition", ["one"], ["two"])
        world.inject("partition", ["three"], ["one", "two"])
        world.inject("heal", ["one"])
        assert not cut(world, "one", "two")
        assert cut(world, "one", "three")


def test_a_compound_fault_unfolds_in_time_and_each_part_is_noted(waves: None) -> None:
    with world_of("one", "two", "three") as world:
        world.inject("waves", ["one", "two", "three"], for_s=3.25)
        world.run_for(3.1)
        assert len(world.network.cuts) == 4  # one host from two others, both ways
        world.run_for(10)
        assert world.network.cuts == []
        parts = [span for span in world.ongoing.spans if span.parent is not None]
        assert [(span.start_s, span.end_s) for span in parts] == [(0, 0.5), (1, 1.5), (2, 2.5), (3, 3.25)]
        assert {span.parent.kind for span in parts if span.parent} == {"waves"}
        assert world.history.kept is not None
        assert sum("|fault|partition" in line for line in world.history.kept) == 4


def test_a_healed_compound_fault_does_not_continue(waves: None) -> None:
    with world_of("one", "two", "three") as world:
        world.inject("waves", ["one", "two", "three"])
        world.run_for(1.25)
        world.heal()
        assert world.network.cuts == []
        world.run_for(10)
        assert world.network.cuts == []
        assert len([fault for _, fault in world.faults if fault.kind == "partition"]) == 2


def test_the_choices_of_a_compound_fault_depend_on_seed_and_kind_and_not_on_time(waves: None) -> None:
    def struck(seed: int, at_s: float, *, others: int = 0) -> list[tuple[str, ...]]:
        with world_of("one", "two", "three", seed=seed) as world:
            for _ in range(others):
                world.inject("slow_link", ["one"], ["two"], 0.1)
            world.run_for(at_s)
            world.inject("waves", ["one", "two", "three"], for_s=20)
            world.run_for(20)
            return [fault.a for _, fault in world.faults if fault.kind == "partition"]

    assert struck(1, 0.5) == struck(1, 7) == struck(1, 0.5, others=3)
    assert struck(1, 0.5) != struck(2, 0.5)


def test_a_compound_fault_without_end_of_its_own_is_over_with_its_last_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unfold(world: World, fault: Fault, rng: random.Random) -> Iterator[Fault]:
        yield Fault(world.now_s, "partition", fault.a, for_s=1)
        yield Fault(world.now_s + 2, "partition", fault.a, for_s=1)

    monkeypatch.setitem(KINDS, "twice", Kind("twice", "two of them", "links", unfold=unfold))
    with world_of("one", "two") as world:
        world.inject("twice", ["one"])
        world.run_for(2.5)
        assert len(world.ongoing.faults()) == 2
        world.run_for(1)
        assert world.ongoing.faults() == []
        assert world.ongoing.spans[0].end_s == 3


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (Fault(0, "partition", ("one",), ("one", "two")), "partition has one on both sides"),
        (Fault(0, "partition"), "partition strikes hosts; name some in a or b"),
        (Fault(0, "pair", ("one",)), "pair strikes hosts; name 2 or more in a or b"),
        (Fault(0, "pair", ("one", "two"), more=(("how", "badly"),)), "how is badly; it must be well or ill"),
        (Fault(0, "pair", ("one", "two"), more=(("how", 1.0),)), "how is 1; it must be well or ill"),
        (Fault(0, "pair", ("one", "two"), value=9), "value is 9; it must be from 1 to 5"),
        (Fault(0, "pair", ("one", "two"), for_s=9), "pair is over at once; it has no for_s"),
    ],
)
def test_impossible_faults_are_refused_with_the_reason(
    fault: Fault, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = (
        Parameter("value", "how", 3, 1, 5),
        Parameter("how", "how", "well", choices=("well", "ill")),
    )
    pair = Kind("pair", "a pair", "links", lambda world, fault: None, None, parameters, names_least=2)
    monkeypatch.setitem(KINDS, "pair", pair)
    with world_of("one", "two") as world, pytest.raises(ValueError, match=sentence):
        world.inject(fault.kind, fault.a, fault.b, fault.value, for_s=fault.for_s, **dict(fault.more))


def test_the_main_number_is_filled_in_where_the_kind_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    parameters = (Parameter("value", "how", 3, 1, 5),)
    kind = Kind("count", "counts", "links", lambda world, fault: seen.append(fault.value), None, parameters)
    monkeypatch.setitem(KINDS, "count", kind)
    with world_of("one") as world:
        world.inject("count", ["one"])
        world.inject("count", ["one"], value=5)
    assert seen == [3, 5]
