"""A broadcast tree that is none is found."""

from __future__ import annotations

import pytest

from simulations.evidence import Evidence
from tests.simulations.invariants.histories import (
    ONE,
    THREE,
    TWO,
    Spoilt,
    history,
    with_view,
    with_views,
)

CHAIN = {ONE: (2,), TWO: (1, 3), THREE: (2,)}
PIECES = {ONE: (), TWO: (3,), THREE: (2,)}
RING = {ONE: (2, 3), TWO: (1, 3), THREE: (1, 2)}


def _tree(edges: dict[str, tuple[int, ...]] = CHAIN, copies: int = 0) -> Evidence:
    evidence = history()
    for name, eager in edges.items():
        with_views(evidence, (name,), eager=eager)
    with_view(evidence, 22.0, ONE, counters={"copies": copies})
    return evidence


SPOILT: list[Spoilt] = [
    Spoilt("tree", _tree, lambda: _tree(PIECES), "the eager edges leave 2 pieces"),
    Spoilt("tree", _tree, lambda: _tree(RING), "3 eager edges among 3 brokers"),
    Spoilt("tree", _tree, lambda: _tree(copies=99), "99 payloads came for"),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_what_was_spoilt_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()
