"""What happens to clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault

if TYPE_CHECKING:
    from simulations.world import World


def _step(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.step_clock(name, fault.value)


def _step_back(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.step_clock(name, -fault.value)


KINDS: Final = (
    Kind(
        "clock_step",
        "the wall clocks of hosts jump; monotonic clocks never do",
        "hosts",
        _step,
        _step_back,
        (Parameter("value", "seconds, backwards below 0", 0.0, -1e9, 1e9),),
    ),
)
