"""Cuts in all their shapes: who reaches whom, when, and that all of them end."""

from __future__ import annotations

import pytest

from simulations.world import Process, World
from tests.simulations.echoing import Echo, Recorder, dial, serve, wait_exposed

HOSTS = ["one", "two", "three", "four", "five"]


async def idle(process: Process) -> None:
    await process.stopping.wait()


def world_of(names: list[str], seed: int = 1) -> World:
    world = World(seed)
    for name in names:
        world.add_node(name, idle)
    return world


def reached(world: World, name: str) -> list[str]:
    """The hosts that a host reaches and is reached by."""
    hosts = world.network.hosts
    return [
        other
        for other in hosts
        if other != name
        and world.network.link(hosts[name], hosts[other]).up
        and world.network.link(hosts[other], hosts[name]).up
    ]


@pytest.mark.parametrize(
    ("kind", "a", "b", "cut"),
    [
        ("partition", ["one", "two"], [], 2 * 2 * 3),
        ("partition", [], ["one"], 2 * 4),
        ("partition", ["one"], ["two"], 2),
        ("partition", ["one"], ["two", "three"], 4),
        ("cut_one_way", ["one"], [], 4),
        ("cut_one_way", [], ["one"], 4),
        ("isolate", ["one"], [], 8),
        ("isolate", ["one", "two"], [], 14),
        ("one_edge", [], [], 2),
        ("one_edge", ["one"], ["four", "five"], 2),
        ("bridge", ["one"], [], 2 * 2 * 2),
        ("bridge", ["one"], ["two"], 2 * 3),
        ("majorities_ring", [], [], 2 * 5),
    ],
)
def test_a_cut_loses_so_many_directions_until_it_ends(
    kind: str, a: list[str], b: list[str], cut: int
) -> None:
    with world_of(HOSTS) as world:
        world.inject(kind, a, b, for_s=2)
        assert len(world.network.cuts) == cut
        world.run_for(1)
        world.inject(kind, a, b)
        world.run_for(2)
        assert len(world.network.cuts) == cut
        world.heal()
        assert world.network.cuts == []


def test_one_way_cuts_have_a_direction() -> None:
    with world_of(HOSTS) as world:
        world.inject("cut_one_way", ["one"])
        assert {source for source, _ in world.network.cuts} == {"one"}
        world.heal()
        world.inject("cut_one_way", [], ["one"])
        assert {target for _, target in world.network.cuts} == {"one"}


def test_the_hosts_of_a_bridge_reach_all_and_the_halves_only_themselves_and_it() -> None:
    with world_of(HOSTS) as world:
        world.inject("bridge", ["three"])
        assert reached(world, "three") == ["one", "two", "four", "five"]
        assert [len(reached(world, name)) for name in HOSTS if name != "three"] == [2, 2, 2, 2]
        assert all("three" in reached(world, name) for name in HOSTS if name != "three")


@pytest.mark.parametrize("size", [3, 4, 5, 6, 7, 9])
def test_every_host_in_a_ring_of_majorities_reaches_a_different_majority(size: int) -> None:
    names = [f"host-{number}" for number in range(size)]
    with world_of(names) as world:
        world.inject("majorities_ring")
        views = [frozenset([name, *reached(world, name)]) for name in names]
        assert all(len(view) >= size // 2 + 1 for view in views)
        if size > 4:  # below, a majority and its neighbours are all there are
            assert all(len(view) <= size // 2 + 2 for view in views)
            assert len(set(views)) == size


def test_a_rolling_partition_isolates_one_after_the_other_and_goes_round() -> None:
    with world_of(HOSTS) as world:
        world.inject("rolling_partition", ["one", "two"], value=2, gap_s=1, for_s=10.5)
        seen = []
        world.run_for(0.5)
        for _ in range(12):
            seen.append(" ".join(name for name in HOSTS if not reached(world, name)))
            world.run_for(1)
        assert seen == ["one", "one", "", "two", "two", "", "one", "one", "", "two", "", ""]


def test_a_rolling_partition_without_a_duration_isolates_each_host_once() -> None:
    with world_of(HOSTS) as world:
        world.inject("rolling_partition", value=2)
        world.run_for(60)
        assert [fault.a for _, fault in world.faults if fault.kind == "isolate"] == [
            (name,) for name in HOSTS
        ]
        assert world.network.cuts == [] and world.ongoing.faults() == []


def test_a_flip_flop_cuts_and_heals_in_turn_until_it_is_healed() -> None:
    with world_of(HOSTS) as world:
        world.inject("flip_flop", [], ["one"], what="cut_one_way", on_s=2, off_s=3)
        seen = []
        for _ in range(9):
            seen.append(len(world.network.cuts))
            world.run_for(1)
        assert seen == [4, 4, 0, 0, 0, 4, 4, 0, 0]
        world.run_for(1.5)
        world.heal()
        assert world.network.cuts == []
        world.run_for(30)
        assert world.network.cuts == []


def test_a_flip_flop_passes_its_number_on() -> None:
    with world_of(HOSTS) as world:
        world.inject("flip_flop", ["one"], what="lossy_link", value=0.8, on_s=30, off_s=30, for_s=100)
        world.run_for(200)
        losses = [span for span in world.ongoing.spans if span.fault.kind == "lossy_link"]
        assert [(span.start_s, span.end_s, span.fault.value) for span in losses] == [
            (0, 30, 0.8),
            (60, 90, 0.8),
        ]


def test_a_swizzle_clogs_some_in_the_first_half_and_unclogs_them_in_the_second() -> None:
    def clogged(world: World) -> list[str]:
        hosts = list(world.network.hosts.values())
        return [
            one.name
            for one in hosts
            if all(world.network.link(one, other).clogs for other in hosts if other is not one)
        ]

    names = [f"host-{number}" for number in range(10)]
    with world_of(names, seed=4) as world:
        world.inject("swizzle", value=10)
        world.run_for(5)
        struck = clogged(world)
        assert 2 <= len(struck) <= 8
        world.run_for(5)
        assert clogged(world) == []
        clogs = [span for span in world.ongoing.spans if span.fault.kind == "clog"]
        assert sorted(span.fault.a[0] for span in clogs) == sorted(struck)
        assert all(span.start_s < 5 < (span.end_s or 0) <= 10 for span in clogs)
        by_end = sorted(clogs, key=lambda span: span.end_s or 0)
        assert by_end != clogs


def test_a_clog_holds_bytes_and_connections_back_and_lets_them_go_at_once() -> None:
    with World(1) as world:
        world.add_node("server", serve(Echo)).start()
        world.run_for(0.1)
        world.add_node("client", dial("server")).start()
        wait_exposed(world, "client")
        client: Recorder = world.node("client").exposed
        world.inject("clog", ["client"], ["server"], for_s=3.3)
        for number in range(10):
            client.transport.write(b"%d," % number)
        world.add_node("other", dial("server"), host="client").start()
        world.run_for(3.29)
        assert client.data == b"" and world.node("other").exposed is None
        world.run_for(0.02)
        assert client.data == b"0,1,2,3,4,5,6,7,8,9,"
        assert isinstance(world.node("other").exposed, Recorder)
        world.node("other").crash()
        world.run_for(5)
        assert client.events == ["made"]
        assert len(world.node("server").exposed) == 2  # the retried SYNs made no more
