"""The checks find answers that count twice and surveys that never end."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from simulations.evidence import Evidence, Life
from simulations.evidence.ledger import Answered
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from simulations.invariants.surveys import Numbers
from tests.simulations.invariants.histories import (
    ONE,
    THREE,
    TWO,
    Log,
    Spoilt,
    history,
    judged,
    log_spoilt,
    spoilt,
)


def _survey(**changes: Any) -> Callable[[Evidence], None]:
    def spoil(evidence: Evidence) -> None:
        for name, value in changes.items():
            setattr(evidence.ledger.questions[0], name, value)

    return spoil


def _answer_twice(log: Log) -> None:
    log.answer(ONE, 10.7, TWO, 10)


def _answer_late(log: Log) -> None:
    log.answer(ONE, 2.9, THREE, 2, rtt_us=900_000)


SPOILT: list[Spoilt] = [
    spoilt("answers_count_once", _survey(answers=[Answered("x", "question 1", 5.1)] * 2), "question 1 twice"),
    spoilt(
        "answers_count_once",
        _survey(answers=[Answered("x", "question 0", 5.1)]),
        "which belongs to question 0",
    ),
    spoilt(
        "answers_count_once", _survey(answers=[Answered("x", "question 1", 6.1)]), "after the survey was over"
    ),
    spoilt("surveys_return", _survey(ended_s=6.2), "returned after 1.200 s; it had 1 s"),
    spoilt("surveys_return", _survey(ended_s=None), "returned never"),
    log_spoilt(
        "answers_count_once",
        _answer_twice,
        "the answer of broker-2 to round 10 of broker-1 was counted twice",
    ),
    log_spoilt("answers_count_once", _answer_late, "was counted after 0.900 s"),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_client_waits_a_second_longer_for_a_broker_that_left() -> None:
    """Broker-1 leaves at 24 s."""
    for host, right in ((ONE, True), (TWO, False)):
        evidence = history()
        evidence.lives.append(Life("asker", 1, host, 1.0))
        evidence.ledger.questions[0].asked_s = 23.5
        evidence.ledger.questions[0].ended_s = 25.4
        assert judged(evidence, "surveys_return").ok is right


@pytest.mark.parametrize(("asked_to_end_s", "right"), [(4.8, True), (7.0, False)])
@pytest.mark.parametrize(("kind", "more"), [("stop", ()), ("restart", (("how", "stop"),))])
def test_a_client_waits_a_second_longer_for_a_broker_that_is_leaving(
    kind: str, more: tuple[tuple[str, str], ...], asked_to_end_s: float, right: bool
) -> None:
    """However long that takes; the question is asked at 5 s and has one second."""
    evidence = history()
    evidence.lives.append(Life("asker", 1, ONE, 1.0))
    evidence.ledger.questions[0].ended_s = 6.9
    evidence.faults.append(Span(Fault(asked_to_end_s, kind, (ONE,), more=more), asked_to_end_s))
    assert judged(evidence, "surveys_return").ok is right


@pytest.mark.parametrize("kind", ["config_skew", "version_skew"])
@pytest.mark.parametrize(("broker", "right"), [(ONE, True), (TWO, False)])
def test_a_broker_whose_settings_were_restored_is_leaving(kind: str, broker: str, right: bool) -> None:
    """Swarm seed 9272169761: it left for three seconds, and was blamed for its client's wait."""
    evidence = history()
    evidence.lives.append(Life("asker", 1, ONE, 1.0))
    evidence.ledger.questions[0].ended_s = 6.9
    evidence.faults.append(Span(Fault(0.05, kind, (broker,), for_s=3.85), 0.05, 3.9))
    assert judged(evidence, "surveys_return").ok is right


def test_stalls_at_the_question_and_at_the_deadline_add_up() -> None:
    """It is asked at 5 s and has one second. Neither stall is long enough to make the broker unhealthy."""
    stalls = [(4.9, 0.12), (5.95, 0.12)]
    for done, ended_s, right in ((stalls, 6.16, True), (stalls, 6.18, False), (stalls[:1], 6.16, False)):
        evidence = history()
        evidence.lives.append(Life("asker", 1, ONE, 1.0))
        evidence.ledger.questions[0].ended_s = ended_s
        evidence.faults += [Span(Fault(at_s, "stall", (ONE,), value=for_s), at_s) for at_s, for_s in done]
        assert judged(evidence, "surveys_return").ok is right


def test_no_client_waits_longer_than_a_second_beyond_its_deadline() -> None:
    """This holds while its broker computes, too."""
    for ended_s, right in ((7.0, True), (7.2, False)):
        evidence = history()
        evidence.lives.append(Life("asker", 1, ONE, 1.0))
        evidence.ledger.questions[0].ended_s = ended_s
        evidence.faults.append(Span(Fault(4.9, "stall", (ONE,), value=2.0), 4.9))
        assert judged(evidence, "surveys_return").ok is right


@pytest.mark.parametrize("seed", range(5))
def test_numbers_that_were_seen_are_known_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    numbers, seen = Numbers(), set[int]()
    for _ in range(400):
        number = rng.randrange(60) if rng.random() < 0.5 else max(seen, default=0) + rng.randrange(3)
        assert numbers.add(number) == (number not in seen), (number, sorted(seen))
        seen.add(number)
