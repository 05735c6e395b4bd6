"""The check finds a broker that does not know the interest of another."""

from __future__ import annotations

import pytest

from simulations.evidence import Evidence
from tests.simulations.invariants.histories import (
    ONE,
    Spoilt,
    spoilt,
    with_view,
)


def _interest_missed(evidence: Evidence) -> None:
    for at_s in (17.0, 18.0):
        with_view(evidence, at_s, ONE, held={2: (2, (("#", 0), ("x", 0))), 3: (2, (("#", 0),))})


def _interest_behind(evidence: Evidence) -> None:
    with_view(evidence, 22.0, ONE, held={2: (1, (("#", 0),)), 3: (2, (("#", 0),))})


SPOILT: list[Spoilt] = [
    spoilt("interest_known", _interest_missed, "broker-1 does not hold what broker-2 wants at 18.0 s"),
    spoilt("interest_known", _interest_behind, "broker-1 does not hold what broker-2 wants at 22.0 s"),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()
