"""All works of `mesh bench durable`, and their targets."""

from __future__ import annotations

from typing import Final

from mesh.bench.durable import alone, handling, jetstream, rates, untouched, waiting
from mesh.bench.harness import Case, Target
from mesh.bench.processor import can_read_processor

_WORKS: Final = (rates, alone, handling, waiting, untouched)

TARGETS: Final[tuple[Target, ...]] = tuple(target for work in _WORKS for target in work.TARGETS)


def cases(scale: float, skipped: dict[str, str]) -> list[Case]:
    """All cases that can run here; ``scale`` multiplies message counts."""
    no_jetstream = jetstream.absent()
    if no_jetstream:
        skipped[jetstream.JETSTREAM] = no_jetstream
    result = [case for work in _WORKS for case in work.cases(scale, not no_jetstream)]
    if not can_read_processor():
        skipped[untouched.UNTOUCHED] = (
            "the processor's time of a process is read from /proc, as only Linux has it"
        )
        result = [case for case in result if case.work != untouched.UNTOUCHED]
    return result
