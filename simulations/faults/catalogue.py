"""Every kind of fault by its name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from simulations.faults import clocks, connections, data, disks, links, operations, partitions, processes
from simulations.faults.kind import Kind
from simulations.faults.record import Fault

KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        *processes.KINDS,
        *partitions.KINDS,
        *links.KINDS,
        *connections.KINDS,
        *clocks.KINDS,
        *disks.KINDS,
        *operations.KINDS,
        *data.KINDS,
    )
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
    return kind
