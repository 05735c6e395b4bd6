"""The checks find accusations without a witness, in void rounds, or too many of them."""

from __future__ import annotations

import pytest

from simulations.evidence import Evidence
from tests.simulations.invariants.histories import (
    ONE,
    SECOND_BOOT,
    THREE,
    TWO,
    Log,
    Spoilt,
    history,
    judged,
    log_spoilt,
    refused,
    spoilt,
    with_view,
)


def _void_instant(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, void_at=5.1)


def _void_accusation(log: Log) -> None:
    log.member(ONE, 9.5, TWO, "alive>suspect")


def _suspect_again(log: Log) -> None:
    log.member(THREE, 12.0, ONE, "alive>suspect", boot=SECOND_BOOT, inc=3)


SPOILT: list[Spoilt] = [
    spoilt(
        "void_rounds_accuse_nobody",
        _void_instant,
        "broker-1 called broker-3 suspect at 5.100 s, in a round that was void",
    ),
    log_spoilt("void_rounds_accuse_nobody", _void_accusation, "broker-1 called broker-2 suspect at 9.500 s"),
    log_spoilt(
        "suspicions_at_most", _suspect_again, "there were 3 suspicions in the run, more than 2", most=2
    ),
    log_spoilt(
        "accuses_nobody", _suspect_again, "broker-3 called broker-1 suspect", whom=(THREE,), of="suspect"
    ),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_suspicions_are_counted_by_observer_and_member_too() -> None:
    assert judged(history(), "suspicions_at_most", most=1, per="observer").ok
    refused(judged(history(), "suspicions_at_most", most=1, per="member"), "2 suspicions of broker-3")
    assert judged(history(), "suspicions_at_most", most=0, whom=(ONE,)).ok


def test_a_broker_that_declares_no_death_may_suspect_unless_that_is_asked_too() -> None:
    assert judged(history(), "accuses_nobody", whom=(THREE,)).ok
    refused(judged(history(), "accuses_nobody", whom=(ONE,)), "broker-1 called broker-3 dead at 7.100 s")
    assert judged(history(_suspect_again), "accuses_nobody", whom=(THREE,)).ok
