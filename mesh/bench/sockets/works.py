"""All works of `mesh bench sockets`, and their targets."""

from __future__ import annotations

from typing import Final

from mesh.bench.harness import Case, Target
from mesh.bench.measuring import can_read_memory
from mesh.bench.sockets import broadcast, contexts, flood, idle, large, pipeline, roundtrip, survey
from mesh.bench.sockets.peers import Peers

_WORKS: Final = (pipeline, broadcast, roundtrip, contexts, survey, large, idle, flood)

TARGETS: Final[tuple[Target, ...]] = tuple(target for work in _WORKS for target in work.TARGETS)


def cases(scale: float, skipped: dict[str, str]) -> list[Case]:
    """All cases whose libraries are installed; ``scale`` multiplies message counts and durations."""
    peers = Peers.present(skipped)
    result = [case for work in _WORKS for case in work.cases(scale, peers)]
    if not can_read_memory():
        skipped[idle.IDLE] = "memory is read from /proc, which only Linux has"
        result = [case for case in result if case.work != idle.IDLE]
    return result
