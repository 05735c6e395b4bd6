"""What happens to processes and to the hosts under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault

if TYPE_CHECKING:
    from simulations.world import World


def _crash(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.node(name).crash()


def _power_off(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.power_off(name)


def _start_again(world: World, fault: Fault) -> None:
    """Who was started meanwhile runs already."""
    down = [name for name in fault.a if not world.node(name).alive]
    if down:
        world.inject("start", down)


def _power_on(world: World, fault: Fault) -> None:
    """What ran on the hosts begins anew; what had ended before the power was lost does not."""
    down = [
        node.name
        for node in world.nodes.values()
        if node.host.name in fault.a and node.process is not None and not node.alive
        if (node.process.ended_s or 0.0) >= fault.at_s - 1e-6
    ]
    if down:
        world.inject("start", down)


def _start(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.node(name).start()


def _stop(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.node(name).stop()


def _pause(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.node(name).pause()


def _resume(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.node(name).resume()


def _wake(world: World, fault: Fault) -> None:
    """Who was killed or resumed meanwhile need not be."""
    for name in fault.a:
        if world.node(name).paused:
            world.node(name).resume()


def _slow_down(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.node(name).slow_down(fault.value)


def _speed_up(world: World, fault: Fault) -> None:
    for name in fault.a:
        if world.node(name).alive:
            world.node(name).slow_down(1)


KINDS: Final = (
    Kind(
        "crash",
        "kills processes (SIGKILL): no code of theirs runs again, their peers get RST; "
        "then starts them again",
        "processes",
        _crash,
        _start_again,
    ),
    Kind(
        "power_off",
        "hosts lose power with all their processes: silence, and what was not synced is lost; "
        "then those processes start again",
        "hosts",
        _power_off,
        _power_on,
    ),
    Kind("start", "starts processes (again), powering their hosts on where needed", "processes", _start),
    Kind("stop", "asks processes to end (SIGTERM), then starts them again", "processes", _stop, _start_again),
    Kind(
        "pause",
        "stops running processes (SIGSTOP); their kernels still take what arrives",
        "processes",
        _pause,
        _wake,
    ),
    Kind("resume", "goes on running processes (SIGCONT)", "processes", _resume),
    Kind(
        "slow_process",
        "code of processes takes so many times as long",
        "processes",
        _slow_down,
        _speed_up,
        (Parameter("value", "how many times as long", 1.0, 0.001),),
    ),
)
