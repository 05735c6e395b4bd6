"""How long what one broker or client sends another may take to arrive, whatever was done meanwhile."""

from __future__ import annotations

from typing import Final

from simulations.invariants.circumstances import Circumstances

PASSAGE_S: Final = 3.0
"""Within this a message has passed through brokers that nothing is done to."""
LOOK_S: Final = 1.0
"""From one look to the next."""


def passed_s(
    circumstances: Circumstances, here: str, there: str, at_s: float, passage_s: float = PASSAGE_S
) -> float:
    """When a message has certainly passed: silences, slow readers and bad links hold it up, and TCP comes
    back as late after a cut as that lasted."""
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
