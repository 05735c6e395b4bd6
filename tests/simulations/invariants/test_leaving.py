"""A leave that nobody said, that nobody heard or that was taken for a death is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.identity import format_id
from simulations.evidence import Evidence, Life
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
    spoilt,
    without,
)


def _leave_unseen(evidence: Evidence) -> None:
    without(evidence, node=format_id(2), to_state="left", subject=format_id(1))


def _rumoured_leave(log: Log) -> None:
    log.member(ONE, 12.0, TWO, "alive>left", via=THREE)


def _redialled(log: Log) -> None:
    log.link(TWO, 26.0, ONE, "up")


def _leave_taken_for_death(log: Log) -> None:
    log.member(TWO, 25.0, ONE, "left>dead")


def _two_leaves(*, heard_s: float = 13.1) -> Evidence:
    """Two seconds before the heal; broker-1 hears of it then."""

    def leave(log: Log) -> None:
        log.rows[:] = [
            row
            for row in log.rows
            if not (row["at_s"] > 13 and row["kind"] == "mem" and row["subject_name"] == TWO)
        ]
        log.member(TWO, 13.0, TWO, "alive>left")
        log.member(ONE, heard_s, TWO, "alive>left", via=TWO)
        log.member(THREE, 13.1, TWO, "alive>left", boot=SECOND_BOOT, inc=3, via=TWO)

    evidence = history(leave)
    evidence.lives = [replace(life, ended_s=13.05) if life.name == TWO else life for life in evidence.lives]
    return evidence


SPOILT: list[Spoilt] = [
    spoilt("leaves_are_seen", _leave_unseen, "broker-2 holds broker-1 alive 2 s after it left at 24.000 s"),
    log_spoilt(
        "left_by_own_word",
        _rumoured_leave,
        "broker-1 holds that broker-2 left at 12.000 s, which never said so",
    ),
    log_spoilt("left_by_own_word", _redialled, "broker-2 dialled broker-1 at 26.000 s, which had left"),
    log_spoilt(
        "leaves_are_seen", _leave_taken_for_death, "broker-2 called broker-1 dead, which left at 24.000 s"
    ),
    log_spoilt("never_left", _rumoured_leave, "broker-1 holds that broker-2 left at 12.000 s"),
    Spoilt(
        "left_seen",
        _two_leaves,
        lambda: _two_leaves(heard_s=16.0),
        "broker-1 did not hear within 2 s of 13.050 s that broker-2 left",
        {"whom": (TWO,)},
    ),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_what_was_spoilt_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_dial_under_way_when_its_member_left_may_still_bring_a_link() -> None:
    evidence = history(lambda log: log.link(TWO, 25.9, ONE, "up"))
    assert judged(evidence, "left_by_own_word").ok


def test_one_of_two_with_one_id_need_not_hear_of_a_leave() -> None:
    evidence = history()
    _leave_unseen(evidence)
    evidence.lives.append(Life("twin", 1, "twin", 15.0, None, "", 2, 99))
    assert judged(evidence, "leaves_are_seen").ok


def test_a_leave_may_be_heard_only_by_some_or_only_after_the_heal() -> None:
    late = _two_leaves(heard_s=16.0)
    assert judged(late, "left_seen", whom=(TWO,), by=(THREE,)).ok
    assert judged(late, "left_seen", whom=(TWO,), after="heal").ok
