"""Faults of processes and of their hosts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault

if TYPE_CHECKING:
    from simulations.world import Node, World

DOWN: Final = ("crash", "stop", "power_off")
"""Kinds that keep processes down while they last."""
HOG_S: Final = 0.8
HOG_EVERY_S: Final = 2.0
STARVED: Final = 10.0
SLICE_S: Final = 0.01


def _living(world: World, fault: Fault) -> Iterator[Node]:
    """The processes that are up: a process that is down cannot be struck, and a schedule cannot know which
    are.
    """
    return (node for node in map(world.node, fault.a) if node.alive)


def _crash(world: World, fault: Fault) -> None:
    for node in _living(world, fault):
        node.crash()


def _power_off(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.power_off(name)


def _start_again(world: World, fault: Fault) -> None:
    """Start the processes again. One that was started meanwhile runs already; one that is still ending starts
    afterwards.
    """
    down = [name for name in fault.a if not world.node(name).alive and not world.node(name).once]
    start_unless_kept_down(world, down)
    for name in fault.a:
        process = world.node(name).process
        if name not in down and process is not None and process.asked_to_end:
            process.when_over(partial(start_if_down, world, name))


def start_if_down(world: World, name: str) -> None:
    """For later: it may have been started by then."""
    if not world.node(name).alive:
        start_unless_kept_down(world, [name])


def start_unless_kept_down(world: World, names: Collection[str]) -> None:
    """Start the processes that nothing else keeps down.

    The others start when the last fault that keeps them down ends. So each such end also checks processes
    that an earlier fault left down.
    """
    to_start = world.ongoing.to_start
    to_start |= dict.fromkeys(names)
    free = [name for name in to_start if not _is_kept_down(world, world.node(name))]
    if free:
        world.inject("start", free)


def _is_kept_down(world: World, node: Node) -> bool:
    """True if a lasting fault keeps it down, unless it was started during that fault."""
    return any(
        node.name in other.a if other.kind != "power_off" else node.host.name in other.a
        for other in world.ongoing.faults()
        if other.kind in DOWN and not _was_started_since(world, node.name, other.at_s)
    )


def _was_started_since(world: World, name: str, at_s: float) -> bool:
    for done_s, fault in reversed(world.faults):
        if done_s <= at_s:
            return False
        if fault.kind == "start" and name in fault.a:
            return True
    return False


def _power_on(world: World, fault: Fault) -> None:
    """Start the processes that ran on the hosts. One that had ended before the power loss stays down."""
    start_unless_kept_down(world, ended_since(world, fault.a, fault.at_s))


def ended_since(world: World, hosts: Collection[str], at_s: float) -> list[str]:
    """The processes on hosts whose lives ended at or after that time, and that are down."""
    return [
        node.name
        for node in world.nodes.values()
        if node.host.name in hosts and node.process is not None and not node.alive
        if (node.process.ended_s or 0.0) >= at_s - 1e-6
    ]


def _start(world: World, fault: Fault) -> None:
    """Start it. A process that is being slowed down stays slow in its next life."""
    for name in fault.a:
        node = world.node(name)
        world.ongoing.to_start.pop(name, None)
        if not node.alive:
            node.start()
            slowness = _slowness(_of_kind(world, "slow_process", name))
            if slowness != 1:
                node.slow_down(slowness)


def _stop(world: World, fault: Fault) -> None:
    for node in _living(world, fault):
        node.stop()


def _pause(world: World, fault: Fault) -> None:
    for node in _living(world, fault):
        node.pause()


def _resume(world: World, fault: Fault) -> None:
    for node in _living(world, fault):
        node.resume()


def _wake(world: World, fault: Fault) -> None:
    """Wake processes, except those killed or resumed meanwhile, and those that another fault keeps paused."""
    for name in fault.a:
        if world.node(name).paused and not list(_of_kind(world, fault.kind, name)):
            world.node(name).resume()


def _block_io(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.network.block_io(name)


def _unblock_io(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.network.unblock_io(name)


def _slow_down(world: World, fault: Fault) -> None:
    """This fault is not yet among those that last."""
    for node in _living(world, fault):
        node.slow_down(_slowness(_of_kind(world, fault.kind, node.name)) * fault.amount)


def _speed_up(world: World, fault: Fault) -> None:
    for node in _living(world, fault):
        node.slow_down(_slowness(_of_kind(world, fault.kind, node.name)))


def _slowness(by: Iterable[Fault]) -> float:
    return math.prod(fault.amount for fault in by)


def _of_kind(world: World, kind: str, name: str) -> Iterator[Fault]:
    """The lasting faults that strike that process."""
    return (other for other in world.ongoing.faults() if other.kind == kind and name in other.a)


def _stall(world: World, fault: Fault) -> None:
    for node in _living(world, fault):
        node.stall(fault.amount)


def _hog(world: World, fault: Fault, rng: Random) -> Iterator[Fault]:
    at_s = world.now_s
    while True:
        yield Fault(at_s, "stall", fault.a, value=fault.amount)
        at_s += max(fault.number("every_s", HOG_EVERY_S), fault.amount)


def _starve(world: World, fault: Fault, rng: Random) -> Iterator[Fault]:
    """Each process has its own rhythm."""
    slice_s = fault.number("slice_s", SLICE_S)
    round_s = slice_s * fault.amount
    begun = sorted((world.now_s + rng.uniform(0, round_s), name) for name in fault.a)
    for number in count():
        for at_s, name in begun:
            yield Fault(at_s + number * round_s, "stall", (name,), value=round_s - slice_s)


KINDS: Final = (
    Kind(
        "crash",
        "kills processes (SIGKILL): no code of theirs runs again, and their kernels close their sockets "
        "(FIN, or RST where bytes are unread); then starts them again",
        "processes",
        _crash,
        _start_again,
    ),
    Kind(
        "power_off",
        "hosts lose power with all their processes: silence, and unsynced data are lost; "
        "then those processes start again",
        "hosts",
        _power_off,
        _power_on,
    ),
    Kind(
        "start",
        "starts those of the processes that are down, powering their hosts on where needed",
        "processes",
        _start,
    ),
    Kind(
        "stop",
        "asks those of the processes that are up to end (SIGTERM), then starts them again",
        "processes",
        _stop,
        _start_again,
    ),
    Kind(
        "pause",
        "stops running processes (SIGSTOP); their kernels still take what arrives",
        "processes",
        _pause,
        _wake,
    ),
    Kind("resume", "resumes stopped processes (SIGCONT)", "processes", _resume),
    Kind(
        "block_io",
        "processes read, write and accept nothing, while their timers run; what arrives waits",
        "processes",
        _block_io,
        _unblock_io,
    ),
    Kind(
        "slow_process",
        "code of processes takes so many times as long; the usual is 5 us a turn and 1 us a callback",
        "processes",
        _slow_down,
        _speed_up,
        (Parameter("value", "how many times as long", 1.0, 0.001),),
    ),
    Kind(
        "stall",
        "code of processes computes for a while without a pause, so that their loops do nothing else",
        "processes",
        _stall,
        None,
        (Parameter("value", "seconds", HOG_S, 0, 3600),),
    ),
    Kind(
        "hog",
        "code of processes stalls their loops again and again",
        "processes",
        parameters=(
            Parameter("value", "seconds of each stall", HOG_S, 0.001, 3600),
            Parameter("every_s", "from one to the next", HOG_EVERY_S, 0.001, 3600),
        ),
        unfold=_hog,
    ),
    Kind(
        "starve",
        "processes get the processor for one of so many slices of time, as on an overloaded machine",
        "processes",
        parameters=(
            Parameter("value", "of how many slices they have one", STARVED, 1.01, 10_000),
            Parameter("slice_s", "seconds of a slice", SLICE_S, 0.0001, 10),
        ),
        unfold=_starve,
    ),
)
