"""How long a message between brokers or clients may take, whatever faults occurred meanwhile."""

from __future__ import annotations

from typing import Final

from simulations.invariants.circumstances import Circumstances

PASSAGE_S: Final = 3.0
"""Seconds within which a message has passed through brokers that no fault affects."""
LOOK_S: Final = 1.0
"""Seconds from one look to the next."""


def passed_s(
    circumstances: Circumstances, here: str, there: str, at_s: float, passage_s: float = PASSAGE_S
) -> float:
    """When a message has certainly passed. Silences, slow readers and bad links delay it, and TCP takes as
    long to recover from a cut as the cut lasted.
    """
    until_s = at_s + passage_s
    troubles = [
        (each.from_s, each.until_s)
        for each in (*circumstances.outages, *circumstances.slow_readers)
        if each.broker in (here, there)
    ]
    troubles += [
        (each.from_s, 2 * each.until_s - each.from_s)
        for each in circumstances.impairments
        if here == there or circumstances.comes_between(each, here, there)
    ]
    for begin_s, end_s in sorted(troubles):
        if begin_s <= until_s and end_s >= at_s:
            until_s = max(until_s, end_s + passage_s)
    return until_s
