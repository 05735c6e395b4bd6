"""The checks find too many frames, too many kept items, and counters that do not rise."""

from __future__ import annotations

import pytest

from simulations.evidence import Evidence
from tests.simulations.invariants.histories import (
    ONE,
    Spoilt,
    history,
    spoilt,
    with_view,
)


def _chatter(evidence: Evidence) -> None:
    with_view(evidence, 22.0, ONE, counters={"control_out": 1000})


def _too_many_members(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, sizes={"members": 4})


def _something_waits(evidence: Evidence) -> None:
    with_view(evidence, 22.0, ONE, sizes={"members": 3, "questions": 2})


def _refused_twice() -> Evidence:
    evidence = history()
    for at_s in range(12, 24):
        with_view(evidence, float(at_s), ONE, counters={"refused": 2})
    return evidence


SPOILT: list[Spoilt] = [
    spoilt("no_storm", _chatter, "broker-1 said"),
    spoilt("memory_bounded", _too_many_members, "broker-1 holds 4 members at 12.0 s, more than 3"),
    spoilt("memory_bounded", _something_waits, "broker-1 still holds 2 questions when all is well"),
    Spoilt(
        "counted",
        _refused_twice,
        history,
        "refused of broker-1 rose by 0; at least 2 was expected",
        {"whom": (ONE,), "least": 2},
    ),
    Spoilt(
        "counted",
        history,
        _refused_twice,
        "refused of broker-1 rose by 2; at least 0 and at most 1 was expected",
        {"whom": (ONE,), "least": 0, "most": 1},
    ),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()
