"""The checks find an accusation that is left unanswered."""

from __future__ import annotations

import pytest

from mesh.broker.identity import format_id
from mesh.cluster.membership import State
from simulations.evidence import Evidence, Life
from tests.simulations.invariants.histories import (
    IDS,
    ONE,
    SECOND_BOOT,
    THREE,
    TWO,
    Log,
    Spoilt,
    history,
    judged,
    record,
    spoilt,
    with_view,
)


def _dead_to_itself(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, table=(record(ONE, State.DEAD),))


def _suspects_without_answer(evidence: Evidence) -> None:
    accused = record(THREE, State.SUSPECT, 3, SECOND_BOOT)
    for at_s in (25.0, 26.0):
        with_view(evidence, at_s, TWO, table=(record(TWO), accused))


def _accuse(log: Log, *, answer_s: float = 13.0) -> None:
    log.member(ONE, 12.0, TWO, "alive>suspect")
    log.member(ONE, answer_s, TWO, "suspect>alive", sub_inc=2, via=TWO)


def _answered_late() -> Evidence:
    return history(lambda log: _accuse(log, answer_s=17.0))


SPOILT: list[Spoilt] = [
    spoilt("answers_accusations", _dead_to_itself, "broker-1 holds itself dead at 12.0 s"),
    spoilt("answers_accusations", _suspects_without_answer, "broker-3 left it unanswered that broker-2"),
    Spoilt(
        "refuted",
        lambda: history(_accuse),
        _answered_late,
        "broker-1 held broker-2 suspect at 12.000 s and heard nothing else within 2 s",
        {"whom": (TWO,)},
    ),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_scenario_may_leave_more_time_for_an_answer() -> None:
    assert judged(_answered_late(), "refuted", whom=(TWO,), within_s=6.0).ok


@pytest.mark.parametrize(("id", "excused"), [(9, True), (IDS[TWO], False)])
def test_an_accusation_of_an_abandoned_id_need_not_be_refuted(id: int, excused: bool) -> None:
    """A broker came back with a new id; the check demanded that the old id be alive again, since its broker
    was up.
    """

    def accuse(log: Log) -> None:
        log.member(ONE, 12.0, TWO, "alive>suspect")
        log.rows[-1]["subject"] = format_id(id)

    evidence = history(accuse)
    evidence.lives.insert(0, Life(TWO, 0, TWO, 0.01, 0.1, "killed", 9, 99))
    verdict = judged(evidence, "refuted", whom=(TWO,))
    assert verdict.empty if excused else len(verdict.violations) == 1
