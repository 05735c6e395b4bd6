"""Faults of clocks: wall clocks, which people can set, and monotonic clocks, which cannot be set but may run
too fast or too slowly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault

if TYPE_CHECKING:
    from simulations.world import World

PPM_MAX: Final = 100_000.0


def _step(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.wall_clock(name).offset_s += fault.amount


def _step_back(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.wall_clock(name).offset_s -= fault.amount


def _drift(world: World, fault: Fault) -> None:
    for name in fault.a:
        clock = world.wall_clock(name)
        clock.set_drift(clock.drift_ppm + fault.amount, world.now_s)


def _drift_no_more(world: World, fault: Fault) -> None:
    """End the drift; the offset so far stays."""
    for name in fault.a:
        clock = world.wall_clock(name)
        clock.set_drift(clock.drift_ppm - fault.amount, world.now_s)


def _gain(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.set_drift(name, world.drift_ppb(name) + round(fault.amount * 1000))


def _gain_no_more(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.set_drift(name, world.drift_ppb(name) - round(fault.amount * 1000))


KINDS: Final = (
    Kind(
        "clock_step",
        "the wall clocks of hosts jump; monotonic clocks never do",
        "hosts",
        _step,
        _step_back,
        (Parameter("value", "seconds, backwards below 0", 0.0, -1e9, 1e9),),
    ),
    Kind(
        "clock_drift",
        "the wall clocks of hosts gain or lose time",
        "hosts",
        _drift,
        _drift_no_more,
        (Parameter("value", "parts in a million, slower below 0", 1000.0, -PPM_MAX, PPM_MAX),),
    ),
    Kind(
        "monotonic_drift",
        "the monotonic clocks of hosts go too fast, and with them every timer",
        "hosts",
        _gain,
        _gain_no_more,
        (Parameter("value", "parts in a million, slower below 0", 1000.0, -PPM_MAX, PPM_MAX),),
    ),
)
