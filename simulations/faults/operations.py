"""Operations on a mesh, planned or accidental: restarts, brokers that come and go in crowds, settings that
differ, a state folder copied to a second machine.

A process that is asked to end takes its time. The next step (changing its files, starting it again) happens
when its life is over, and not if it has been started again by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from simulations.faults.kind import Kind, Parameter
from simulations.faults.processes import ended_since, start_if_down, start_unless_kept_down
from simulations.faults.record import Fault
from simulations.kernel.scheduler import nanoseconds
from simulations.kernel.storage import STATE_FOLDER

if TYPE_CHECKING:
    from simulations.world import Node, World

DOWN_S: Final = 1.0
GAP_S: Final = 2.0
CROWD_S: Final = 1.0
SKEW: Final = 4.0
STALE: Final = ("10.254.0.1", "10.254.0.2")
"""Addresses that no host has."""

HOW: Final = Parameter("how", "how they end", "crash", choices=("crash", "stop"))
STATE: Final = Parameter(
    "state", "the fate of their state files", "kept", choices=("kept", "lost", "torn", "flipped")
)
SEEDS: Final = Parameter(
    "seeds", "the addresses that they join afterwards", "usual", choices=("usual", "stale")
)


def _restart(world: World, fault: Fault) -> None:
    rng = world.ongoing.stream(fault)
    for name in fault.a:
        _end(world, name, fault.text("how", "crash"), partial(_ended, world, fault, name, rng))


def _end(world: World, name: str, how: str, then: Callable[[], None]) -> None:
    """``then`` is called at once for a process that is already down."""
    node = world.node(name)
    if node.process is None or not node.alive:
        then()
        return
    node.process.when_over(then)
    if how == "crash":
        node.crash()
    else:
        node.stop()


def _ended(world: World, fault: Fault, name: str, rng: Random) -> None:
    node = world.node(name)
    _damage_state(world, node, fault.text("state", "kept"), rng)
    if fault.text("seeds", "usual") == "stale":
        node.settings.join = STALE
    world.wall_clock(node.host.name).offset_s += fault.number("clock_s", 0.0)
    world.scheduler.after(nanoseconds(fault.amount), start_if_down, world, name)


def _damage_state(world: World, node: Node, how: str, rng: Random) -> None:
    disk = world.disk(node.host.name)
    folder = f"{STATE_FOLDER}/{node.name}"
    if how == "lost":
        disk.lose(folder)
    for path in disk.paths_under(folder):
        if path.endswith("/lock"):
            continue
        if how == "torn":
            disk.tear(path, rng.randint(1, max(1, len(disk.files[path].content) - 1)))
        elif how == "flipped":
            disk.flip(path, rng)


def _move(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.power_off(name)
        world.network.readdress(name)
        world.scheduler.after(nanoseconds(fault.amount), _start_moved, world, name, world.now_s)


def _start_moved(world: World, host: str, since_s: float) -> None:
    start_unless_kept_down(world, ended_since(world, (host,), since_s))


def _roll(world: World, fault: Fault, rng: Random) -> Iterator[Fault]:
    how = fault.text("how", "stop")
    for number, name in enumerate(fault.a):
        at_s = fault.at_s + number * fault.amount
        yield Fault(at_s, "restart", (name,), value=fault.number("down_s", DOWN_S), more=(("how", how),))


def _crowd(kind: str, fault: Fault) -> Iterator[Fault]:
    """In the order in which they are named."""
    for number, name in enumerate(fault.a):
        yield Fault(fault.at_s + fault.amount * number / len(fault.a), kind, (name,))


def _join(world: World, fault: Fault, rng: Random) -> Iterator[Fault]:
    return _crowd("start", fault)


def _leave(world: World, fault: Fault, rng: Random) -> Iterator[Fault]:
    return _crowd("stop", fault)


def _skew(world: World, fault: Fault) -> None:
    """Settings are read at a start, so the brokers end in good order and start again."""
    for name in fault.a:
        world.node(name).settings.times = fault.amount
        _restart_for_settings(world, name)


def _even_out(world: World, fault: Fault) -> None:
    """Restore the usual value, or the value that another such fault still demands."""
    for name in fault.a:
        others = [
            other.amount for other in world.ongoing.faults() if other.kind == fault.kind and name in other.a
        ]
        world.node(name).settings.times = others[-1] if others else 1.0
        _restart_for_settings(world, name)


def _put_ahead(world: World, fault: Fault) -> None:
    for name in fault.a:
        world.node(name).settings.versions_ahead = int(fault.amount)
        _restart_for_settings(world, name)


def _put_back(world: World, fault: Fault) -> None:
    """Restore the usual version, or the version that another such fault still demands."""
    for name in fault.a:
        others = [
            other.amount for other in world.ongoing.faults() if other.kind == fault.kind and name in other.a
        ]
        world.node(name).settings.versions_ahead = int(others[-1]) if others else 0
        _restart_for_settings(world, name)


def _restart_for_settings(world: World, name: str) -> None:
    if world.node(name).alive:
        _end(world, name, "stop", partial(start_if_down, world, name))


def twin_of(name: str) -> str:
    """The name of the process that runs with the copied state of another."""
    return f"{name}-twin"


def _copy(world: World, fault: Fault) -> None:
    for name in fault.a:
        original, twin = world.node(name), twin_of(name)
        if twin in world.nodes and world.node(twin).alive:
            continue
        if twin not in world.nodes:
            world.add_node(twin, original.main, host=twin, once=True)
        here, there = world.disk(original.host.name), world.disk(twin)
        there.lose(f"{STATE_FOLDER}/{twin}")
        there.make_folder(f"{STATE_FOLDER}/{twin}")
        for path, content in here.under(f"{STATE_FOLDER}/{name}").items():
            if not path.endswith("/lock"):
                there.write(path.replace(f"/{name}/", f"/{twin}/", 1), content)
        world.inject("start", [twin])


def _end_copies(world: World, fault: Fault) -> None:
    """End the copies. A broker that noticed may have ended by itself, and another such fault may still need
    it.
    """
    wanted = [name for other in world.ongoing.faults() if other.kind == fault.kind for name in other.a]
    over = [twin_of(name) for name in fault.a if name not in wanted and world.node(twin_of(name)).alive]
    if over:
        world.inject("crash", over)


KINDS: Final = (
    Kind(
        "restart",
        "processes end and start again after a while",
        "processes",
        _restart,
        None,
        (
            Parameter("value", "seconds they are down", DOWN_S, 0.001, 1e6),
            HOW,
            STATE,
            SEEDS,
            Parameter("clock_s", "seconds by which their wall clocks are off afterwards", 0.0, -1e9, 1e9),
        ),
    ),
    Kind(
        "move",
        "hosts lose power and get another address; after a while their processes start again",
        "hosts",
        _move,
        None,
        (Parameter("value", "seconds they are down", DOWN_S, 0.001, 1e6),),
    ),
    Kind(
        "rolling_restart",
        "processes are restarted one after the other",
        "processes",
        parameters=(
            Parameter("value", "seconds from one to the next", GAP_S, 0.001, 1e6),
            Parameter("down_s", "seconds each is down", DOWN_S, 0.001, 1e6),
            Parameter("how", "how they end", "stop", choices=("crash", "stop")),
        ),
        unfold=_roll,
    ),
    Kind(
        "mass_join",
        "processes that are down are started, one right after the other",
        "processes",
        parameters=(Parameter("value", "seconds in which all are", CROWD_S, 0, 3600),),
        unfold=_join,
    ),
    Kind(
        "mass_leave",
        "processes are asked to end, one right after the other, then started again",
        "processes",
        parameters=(Parameter("value", "seconds in which all are", CROWD_S, 0, 3600),),
        unfold=_leave,
    ),
    Kind(
        "config_skew",
        "brokers are restarted with other settings: their periods and deadlines are longer than the others'",
        "processes",
        _skew,
        _even_out,
        (Parameter("value", "how many times as long", SKEW, 0.1, 100),),
    ),
    Kind(
        "version_skew",
        "brokers are restarted in a future version, which speaks the present one too",
        "processes",
        _put_ahead,
        _put_back,
        (Parameter("value", "how many versions ahead", 1.0, 1, 1000),),
    ),
    Kind(
        "duplicate_id",
        "the state folders of brokers are copied to other machines, and brokers with the same ids run there",
        "processes",
        _copy,
        _end_copies,
    ),
)
