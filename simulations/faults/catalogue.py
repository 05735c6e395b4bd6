"""Every kind of fault by its name, and the doing and undoing of one."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from simulations.faults import clocks, disks, links, processes
from simulations.faults.kind import Kind
from simulations.faults.record import Fault

if TYPE_CHECKING:
    from simulations.world import World

KINDS: Final[dict[str, Kind]] = {
    kind.name: kind for kind in (*processes.KINDS, *links.KINDS, *clocks.KINDS, *disks.KINDS)
}


def check(fault: Fault, *, processes: Collection[str], hosts: Collection[str]) -> Kind:
    """The fault's kind, if the fault can be.

    Raises `ValueError`: there is no such kind, process or host, or the kind has no such number.
    """
    kind = KINDS.get(fault.kind)
    if kind is None:
        raise ValueError(f"there is no fault kind {fault.kind!r}; there are {', '.join(KINDS)}")
    kind.check(fault)
    known, what = (processes, "process") if kind.of == "processes" else (hosts, "host")
    for name in (*fault.a, *fault.b):
        if name not in known:
            raise ValueError(f"there is no {what} {name!r} in this world; there are {', '.join(known)}")
    if kind.of in ("processes", "hosts") and not fault.a:
        raise ValueError(f"{fault.kind} strikes {kind.of}; name some in a")
    return kind


def apply(world: World, fault: Fault) -> None:
    """Do it now, note it in the world's history and truth, and undo it when its time is over."""
    kind = check(fault, processes=world.nodes, hosts=world.network.hosts)
    world.note(fault)
    kind.begin(world, fault)
    if kind.end is not None:
        world.lasting(fault)


def undo(world: World, fault: Fault) -> None:
    """Take back what a lasting fault did."""
    end = KINDS[fault.kind].end
    assert end is not None, f"{fault.kind} does not last"
    end(world, fault)
