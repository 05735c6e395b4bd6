"""Wires as numbers: their pairs, their ends, and which of them need special handling."""

from __future__ import annotations

import pytest

from simulations.cores.wires import Wires


@pytest.fixture
def wires() -> Wires:
    """The wires of four running places, of which the first is connected with all others."""
    found = Wires()
    for place in range(4):
        found.add_place()
        found.runs(place, True)
    for other in (1, 2, 3):
        found.connect(0, other)
    return found


def test_the_other_direction_of_a_wire_is_its_number_with_the_last_bit_turned(wires: Wires) -> None:
    for place, others in enumerate(wires.of):
        for other, wire in others.items():
            assert (wires.source(wire), wires.targets[wire]) == (place, other)
            assert wires.of[other][place] == wire ^ 1


def test_connecting_twice_in_either_direction_changes_nothing(wires: Wires) -> None:
    wires.connect(0, 1)
    wires.connect(1, 0)
    assert len(wires.targets) == 6


def test_wires_between_are_of_one_direction(wires: Wires) -> None:
    assert [wires.targets[wire] for wire in wires.between([0], [2, 3])] == [2, 3]
    assert [wires.source(wire) for wire in wires.between([1, 2], [0, 3])] == [1, 2]
    assert list(wires.between([1], [2])) == []


def test_a_wire_is_special_while_it_has_a_fault_or_its_end_is_down(wires: Wires) -> None:
    wire = wires.of[0][1]
    wires.suffer(wire).cuts += 1
    wires.judge(wire)
    wires.runs(1, False)
    assert wires.special[wire] and not wires.special[wire ^ 1]
    wires.suffer(wire).cuts -= 1
    wires.judge(wire)
    assert wires.special[wire]
    wires.runs(1, True)
    assert not any(wires.special)


def test_a_wire_to_a_place_that_is_not_started_is_special() -> None:
    wires = Wires()
    wires.add_place()
    wires.add_place()
    wires.runs(0, True)
    wires.connect(0, 1)
    assert list(wires.special) == [True, False]
