"""The checks find a broker that is cut off and does not know it, or does not come back in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulations.evidence import Evidence
from tests.simulations.invariants.histories import (
    BACK_S,
    ONE,
    SECOND_BOOT,
    THREE,
    TWO,
    Log,
    Spoilt,
    cut,
    history,
    judged,
    log_spoilt,
    refused,
    spoilt,
    with_view,
)


def _cut_off(spoil: Callable[[Log], None] = lambda log: None) -> Evidence:
    """Broker-1, which notices it."""
    evidence = history(spoil)
    cut(evidence, 12.5, 20.5, b=())
    with_view(evidence, 16.0, ONE, state="isolated")
    return evidence


def _unaware(evidence: Evidence) -> None:
    with_view(evidence, 16.0, ONE, state="ready")


def _angry(log: Log) -> None:
    log.member(ONE, 17.0, TWO, "alive>dead")


def _not_back(log: Log) -> None:
    log.member(ONE, 11.5, THREE, "alive>dead", sub_inc=3, sub_boot=SECOND_BOOT)


SPOILT: list[Spoilt] = [
    spoilt(
        "isolated",
        _unaware,
        "broker-1 was cut off at 12.500 s and 4.5 s later it was still ready",
        right=_cut_off,
        whom=(ONE,),
    ),
    log_spoilt("isolated", _angry, "broker-1 called broker-2 dead at 17.000 s", right=_cut_off, whom=(ONE,)),
    log_spoilt(
        "back_within", _not_back, "broker-1 holds broker-3 dead 1 s after", whom=(THREE,), within_s=1.0
    ),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_return_is_timed_in_the_eyes_of_both() -> None:
    verdict = judged(history(), "back_within", whom=(THREE,), within_s=1.0)
    assert verdict.ok and "the last after 0.20 s" in verdict.looked_at
    assert BACK_S in [life.started_s for life in history().lives]
    early = judged(history(), "back_within", whom=(THREE,), within_s=0.1)
    refused(early, "broker-1 holds broker-3 dead 0.1 s after")
    refused(early, "broker-3 holds broker-1 for unknown")
