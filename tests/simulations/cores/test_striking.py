"""Faults on a field: the same brokers and times as in a world; each reverses its own effects, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations import Process, World, faults
from simulations.cores import KINDS, Field, Options, Striking
from simulations.cores.field import PlaceState
from simulations.cores.striking import SIMPLE
from simulations.faults import Fault
from tests.simulations.cores.echoing import BACK, OTHER, THERE, Echo, pair


def test_kinds_of_faults_of_a_field_are_kinds_of_a_world_with_the_same_duration() -> None:
    for name in KINDS:
        lasting = name not in SIMPLE or SIMPLE[name][1] is not None
        assert lasting == faults.KINDS[name].lasting, name
        assert (name in SIMPLE) == (faults.KINDS[name].unfold is None), name


def test_a_fault_that_a_field_does_not_support_is_refused_by_name() -> None:
    _, _, striking = pair()
    with pytest.raises(ValueError, match="know no disk_full; they know partition, cut_one_way"):
        striking.schedule([Fault(1.0, "disk_full", ("one",))])
    with pytest.raises(ValueError, match="no broker 'three' among 2"):
        striking.do(Fault(0.0, "crash", ("three",)))
    with pytest.raises(ValueError, match="jitter_s means nothing to the cores alone"):
        striking.do(Fault(0.0, "slow_link", ("one",), value=1.0, more=(("jitter_s", 0.1),)))
    with pytest.raises(ValueError, match="how means nothing to the cores alone"):
        striking.do(Fault(0.0, "restart", ("one",), more=(("how", "stop"),)))


def test_kinds_of_faults_of_a_field_are_on_the_page_of_the_cores() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/simulation-cores.md").read_text()
    assert [name for name in KINDS if f"`{name}`" not in page] == []


NAMES = [f"broker-{number}" for number in range(1, 8)]
COMPOUND = (
    Fault(1.0, "one_edge"),
    Fault(1.0, "bridge", ("broker-3",), for_s=9.0),
    Fault(1.0, "majorities_ring", for_s=9.0),
    Fault(1.0, "rolling_partition", value=2.0, more=(("gap_s", 1.0),)),
    Fault(1.0, "rolling_partition", ("broker-1", "broker-2"), for_s=30.0, value=3.0),
    Fault(1.0, "flip_flop", ("broker-1",), ("broker-2",), for_s=20.0, more=(("off_s", 2.0), ("on_s", 3.0))),
    Fault(1.0, "swizzle", value=10.0),
)


async def idle(process: Process) -> None:
    await process.stopping.wait()


@pytest.mark.parametrize("fault", COMPOUND, ids=str)
def test_a_compound_kind_does_the_same_as_in_a_world_of_the_same_seed(fault: Fault) -> None:
    with World(5) as world:
        for name in NAMES:
            world.add_node(name, idle).start()
        world.schedule([fault, fault])
        world.run_for(50)
        expected = world.faults
    field = Field(5)
    for name in NAMES:
        field.add(name)
    for place in range(len(NAMES)):
        for other in range(place):
            field.wires.connect(place, other)
    field.core = Echo(field)
    striking = Striking(field)
    striking.schedule([fault, fault])
    field.run_for(50)
    assert striking.done == expected and len(expected) > 2
    striking.heal()
    assert not any(field.wires.trouble(wire) for wire in range(len(field.wires.targets)))


def test_a_clog_delays_messages_which_arrive_first_at_its_end() -> None:
    field, echo, striking = pair(Options(latency_s=0.2, jitter_s=0.0))
    field.send(THERE, ("note", 1))
    striking.do(Fault(0.0, "clog", ("one",), for_s=5.0))
    field.run_for(4.9)
    field.send(THERE, ("note", 2))
    field.send(BACK, ("note", 3))
    assert not echo.heard[OTHER]
    field.run_for(1)
    assert [(round(at_s, 6), message[1]) for at_s, message in echo.heard[OTHER]] == [(5.0, 1), (5.1, 2)]
    assert len(echo.heard[0]) == 1 and not field.wires.special[THERE]


@pytest.mark.parametrize(
    ("first", "second"), [("crash", "power_off"), ("power_off", "crash"), ("power_off", "power_off")]
)
def test_a_place_down_by_two_faults_stays_down_until_the_last_ends(first: str, second: str) -> None:
    field, _, striking = pair()
    striking.schedule([Fault(1.0, first, ("other",), for_s=3.0), Fault(2.0, second, ("other",), for_s=20.0)])
    field.run_for(21.9)
    assert field.states[OTHER] is PlaceState.DOWN and field.lives[OTHER] == 1
    field.run_for(1)
    assert field.states[OTHER] is PlaceState.RUNNING and field.lives[OTHER] == 2


def test_a_place_started_by_name_is_not_held_down_by_earlier_faults() -> None:
    field, _, striking = pair()
    striking.schedule(
        [
            Fault(1.0, "crash", ("other",)),
            Fault(2.0, "start", ("other",)),
            Fault(3.0, "crash", ("other",), for_s=2.0),
        ]
    )
    field.run_for(4)
    assert field.states[OTHER] is PlaceState.DOWN
    field.run_for(2)
    assert field.states[OTHER] is PlaceState.RUNNING


def test_a_place_paused_by_two_faults_stays_so_until_the_last_ends_or_a_resume() -> None:
    field, echo, striking = pair()
    striking.schedule(
        [Fault(0.5, "pause", ("other",), for_s=3.0), Fault(1.5, "pause", ("other",), for_s=5.0)]
    )
    field.run_for(6)
    assert not echo.ticks[OTHER][1:] and field.states[OTHER] is PlaceState.PAUSED
    field.run_for(1)
    assert field.states[OTHER] is PlaceState.RUNNING
    striking.do(Fault(0.0, "pause", ("other",), for_s=5.0))
    striking.do(Fault(0.0, "resume", ("other",)))
    assert field.states[OTHER] is PlaceState.RUNNING


def test_a_restart_is_a_crash_and_a_start_unless_something_keeps_it_down() -> None:
    field, _, striking = pair()
    striking.schedule([Fault(1.0, "restart", ("other",), value=2.0)])
    field.run_for(2.9)
    assert field.states[OTHER] is PlaceState.DOWN
    field.run_for(0.2)
    assert field.lives[OTHER] == 2
    striking.schedule(
        [Fault(5.0, "restart", ("other",), value=2.0), Fault(6.0, "power_off", ("other",), for_s=4.0)]
    )
    field.run_for(6.8)
    assert field.states[OTHER] is PlaceState.DOWN
    field.run_for(0.2)
    assert field.lives[OTHER] == 3


def test_a_heal_ends_faults_of_links_all_or_those_with_a_side_among_the_named() -> None:
    field, _, striking = pair()
    for kind in ("partition", "cut_one_way", "slow_link"):
        striking.do(Fault(0.0, kind, ("one",), ("other",), value=0.1 if kind == "slow_link" else None))
    striking.do(Fault(0.0, "pause", ("other",)))
    striking.do(Fault(0.0, "flip_flop", ("one",), more=(("on_s", 1.0), ("off_s", 0.0))))
    striking.do(Fault(0.0, "heal", ("other",)))
    assert field.wires.trouble(THERE).cuts == 1  # of the flip-flop, which names one
    striking.do(Fault(0.0, "heal"))
    field.run_for(5)
    assert not field.wires.trouble(THERE) and not field.wires.trouble(BACK)
    assert field.states[OTHER] is PlaceState.PAUSED
