"""The checks find heartbeats that wait, and readers that make others wait."""

from __future__ import annotations

import pytest

from simulations.evidence import Evidence
from tests.simulations.invariants.histories import (
    ONE,
    TWO,
    Log,
    Spoilt,
    history,
    judged,
    log_spoilt,
    slower,
    spoilt,
    with_view,
)


def _wait(log: Log) -> None:
    log.answer(ONE, 10.9, TWO, 100, rtt_us=700_000)


def _late(evidence: Evidence) -> None:
    with_view(evidence, 10.0, ONE, counters={"late_answers": 0})
    with_view(evidence, 11.0, ONE, counters={"late_answers": 3})


def _hold_back(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, sizes={"queued": 200_000})


SPOILT: list[Spoilt] = [
    log_spoilt("heartbeats_pass", _wait, "waited 0.350 s each way, more than 0.25 s"),
    spoilt("heartbeats_pass", _late, "3 answers came to broker-1 after the deadline"),
    spoilt(
        "others_unaffected",
        lambda evidence: slower(evidence, "sub-1", 0.5),
        "p99 of deliveries among the others is 0.5020 s",
        whom=("sub-2",),
    ),
    spoilt("others_unaffected", _hold_back, "broker-1 holds back 200000 messages", whom=("sub-1",)),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_share_of_heartbeats_may_be_allowed_to_wait() -> None:
    assert judged(history(_wait), "heartbeats_pass", share=0.9).ok


def test_a_slow_reader_may_be_late_itself() -> None:
    evidence = history()
    slower(evidence, "sub-1", 0.5)
    assert judged(evidence, "others_unaffected", whom=("sub-1",)).ok
