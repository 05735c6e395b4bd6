"""The checks find rows that are missing from a log, and answers to questions that no log has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.broker.identity import format_id
from mesh.cluster.membership import State
from simulations.evidence import Evidence, Life
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from tests.simulations.invariants.histories import (
    ONE,
    TWO,
    Log,
    Spoilt,
    history,
    judged,
    log_spoilt,
    record,
    spoilt,
    with_view,
    without,
)


def _row_missing(evidence: Evidence) -> None:
    without(evidence, node=format_id(1), kind="hb", hb_seq=10)


def _change_untold(evidence: Evidence) -> None:
    with_view(evidence, 9.0, ONE, table=(record(ONE), record(TWO, State.SUSPECT)))


def _answer_from_nowhere(log: Log) -> None:
    log.answer(ONE, 5.3, TWO, 77)


def _question_unheard(log: Log) -> None:
    log.rows.remove(next(row for row in log.rows if row["kind"] == "hb" and row["msg"] == "survey"))


SPOILT: list[Spoilt] = [
    log_spoilt(
        "answers_are_traced", _answer_from_nowhere, "broker-1 heard broker-2 answer round 77 at 5.300 s"
    ),
    log_spoilt("answers_are_traced", _question_unheard, "but broker-2 heard no such question"),
    spoilt("logs_are_whole", _row_missing, "the log of broker-1 has no row"),
    spoilt(
        "logs_are_whole", _change_untold, "broker-1 holds broker-2 suspect at 9.0 s, but its log says alive"
    ),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_log_on_a_faulty_disk_is_not_required() -> None:
    evidence = history()
    _row_missing(evidence)
    evidence.faults.append(Span(Fault(3.0, "disk_fault", (ONE,), value=28.0), 3.0, 4.0))
    assert judged(evidence, "logs_are_whole").ok


def test_a_survey_answered_before_its_link_is_up_may_be_in_no_log() -> None:
    """Broker-2, which answers at 5.3 s, may not know yet that it is admitted, if the link is that new."""
    for asker_s, answerer_s, right in ((5.2, 5.4, True), (5.2, 7.4, False), (0.0, 5.4, False)):

        def spoil(log: Log, asker_s: float = asker_s, answerer_s: float = answerer_s) -> None:
            _answer_from_nowhere(log)
            if asker_s:
                log.link(ONE, asker_s, TWO, "up")
            log.link(TWO, answerer_s, ONE, "up")

        assert judged(history(spoil), "answers_are_traced").ok is right


@pytest.mark.parametrize(("paused_until_s", "right"), [(1.5, True), (2.5, False), (None, False)])
def test_a_broker_that_stood_still_before_may_take_longer_to_know_its_link(
    paused_until_s: float | None, right: bool
) -> None:
    """Swarm seed 2713254120 with durable subscriptions: it is patient with its dials, and READY was lost."""

    def spoil(log: Log) -> None:
        _answer_from_nowhere(log)
        log.link(ONE, 2.0, TWO, "up")
        log.link(TWO, 6.0, ONE, "up")

    evidence = history(spoil)
    if paused_until_s is not None:
        evidence.faults.append(Span(Fault(1.0, "pause", (TWO,)), 1.0, paused_until_s))
    assert judged(evidence, "answers_are_traced").ok is right


@pytest.mark.parametrize(
    ("up_s", "replaced_s", "again_s", "ended_s", "right"),
    [
        (5.2, 5.3, 5.3, None, True),
        (5.2, 5.3, 5.3, 7.4, True),
        (5.2, 5.3, 5.3, 7.2, False),
        (5.2, 5.3, 5.4, None, False),
        (5.2, 5.25, 5.25, None, False),
        (5.2, None, None, None, False),
        (5.3005, 5.31, 5.31, None, False),
    ],
)
def test_a_survey_over_a_link_that_is_replaced_may_be_in_no_log(
    up_s: float, replaced_s: float | None, again_s: float | None, ended_s: float | None, right: bool
) -> None:
    """If both dial, broker-2 may have kept the one and broker-1 have asked over the other first.
    forty-on-half-a-core with seed 1.
    """

    def spoil(log: Log) -> None:
        _answer_from_nowhere(log)
        log.link(ONE, 0.6, TWO, "down")
        log.link(ONE, up_s, TWO, "up")
        if replaced_s is not None and again_s is not None:
            log.link(ONE, replaced_s, TWO, "down")
            log.link(ONE, again_s, TWO, "up")
        if ended_s is not None:
            log.link(TWO, ended_s, ONE, "down")

    assert judged(history(spoil), "answers_are_traced").ok is right


def _killed_at_6_s(answered_s: float) -> Evidence:
    """Broker-3 was killed, and its log lacks the question that it answered."""
    evidence = history(lambda log: log.answer(ONE, answered_s, "broker-3", 77))
    evidence.lives = [
        replace(life, ended_s=6.0) if (life.name, life.number) == ("broker-3", 1) else life
        for life in evidence.lives
    ]
    return evidence


@pytest.mark.parametrize("kind", ["pause", "stall"])
def test_a_frozen_broker_that_is_killed_loses_rows_from_before_it_froze(kind: str) -> None:
    """A row may wait for two seconds in which its broker is awake before it is on disk."""
    for from_s, until_s, right in ((4.0, 6.0, True), (1.0, 1.5, False)):
        evidence = _killed_at_6_s(answered_s=3.0)
        stalls = kind == "stall"
        fault = Fault(from_s, kind, ("broker-3",), value=until_s - from_s if stalls else None)
        evidence.faults.append(Span(fault, from_s, from_s if stalls else until_s))
        assert judged(evidence, "answers_are_traced").ok is right


def test_consecutive_short_stalls_delay_a_log_by_their_sum() -> None:
    """Computing two thirds of the time from 3 s on, it is awake for one second only."""
    for answered_s, from_s, right in ((3.0, 3.0, True), (3.0, 5.0, False)):
        evidence = _killed_at_6_s(answered_s)
        for tenth in range(round(10 * from_s), 60):
            stall = Fault(tenth / 10, "stall", ("broker-3",), value=0.2 / 3)
            evidence.faults.append(Span(stall, stall.at_s, stall.at_s))
        assert judged(evidence, "answers_are_traced").ok is right


def test_the_answers_of_a_twin_are_in_its_log() -> None:
    """The twin has the same id."""
    for asked, right in ((True, True), (False, False)):

        def spoil(log: Log, asked: bool = asked) -> None:
            _answer_from_nowhere(log)
            if asked:
                log.survey(TWO, 5.2996, ONE, 77, boot=99)

        evidence = history(spoil)
        evidence.lives.append(Life("twin", 1, "twin", 2.0, None, "", 2, 99))
        assert judged(evidence, "answers_are_traced").ok is right


def test_the_first_row_of_a_lost_log_may_precede_the_first_look() -> None:
    """Broker-2, which answered at 5.3 s, was first seen in its second life at 6 s, or at 7."""
    for seen_s, right in ((6.0, True), (7.0, False)):
        evidence = history(_answer_from_nowhere)
        evidence.lives[1] = replace(evidence.lives[1], started_s=seen_s, log_lost=True)
        evidence.rows = [row for row in evidence.rows if row["at_s"] < 6 or row["kind"] != "hb"]
        assert judged(evidence, "answers_are_traced").ok is right
