"""Every kind of fault by its name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mesh.spelling import nearest
from simulations.faults import clocks, connections, data, disks, links, operations, partitions, processes
from simulations.faults.kind import Kind
from simulations.faults.record import Fault, FaultError

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
    """The fault's kind, if the fault is possible.

    Raises `FaultError`: there is no such kind, process or host, or the kind has no such number.
    """
    kind = KINDS.get(fault.kind)
    if kind is None:
        raise FaultError(f"there is no fault kind {fault.kind!r}{nearest(fault.kind, KINDS)}", "kind")
    kind.check(fault)
    known, what = (processes, "process") if kind.of == "processes" else (hosts, "host")
    for side, names in (("a", fault.a), ("b", fault.b)):
        for name in names:
            if name not in known:
                sentence = f"there is no {what} {name!r} in this world; there are {', '.join(known)}"
                raise FaultError(sentence, side)
    if kind.part is not None:
        _check_part(kind.part(fault), kind)
    return kind


def _check_part(part: Fault, whole: Kind) -> None:
    try:
        KINDS[part.kind].check(part)
    except FaultError as error:
        raise FaultError(f"{whole.name}: {error}", error.field) from None
