"""The checks find records that shrink, are raised by others, rise from the dead or break their chain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.broker.identity import format_id
from mesh.cluster.membership import MemberRecord, State
from simulations.evidence import Evidence
from simulations.faults import Fault
from simulations.faults.ongoing import Span
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
    record,
    right_history,
    spoilt,
    with_view,
)


def _older_record(evidence: Evidence) -> None:
    table = (record(ONE), record(TWO), record(THREE, State.ALIVE))
    with_view(evidence, 14.0, ONE, table=table)


def _foreign_incarnation(evidence: Evidence) -> None:
    with_view(evidence, 12.0, ONE, table=(record(ONE), record(TWO, incarnation=2)))


def _older_row(log: Log) -> None:
    log.member(ONE, 12.0, THREE, "alive>dead", sub_inc=2)


def _raised_from_the_dead(log: Log) -> None:
    log.member(ONE, 8.0, THREE, "dead>alive", sub_inc=1)
    log.member(ONE, 8.5, THREE, "alive>dead", sub_inc=1)


def _forgotten_dead(log: Log) -> None:
    log.member(ONE, 8.0, THREE, "unknown>alive", sub_inc=2)


def _broken_chain(log: Log) -> None:
    log.member(ONE, 23.0, TWO, "suspect>alive")


def _joined_twice(log: Log) -> None:
    log.member(ONE, 23.0, TWO, "unknown>alive")


class _FirstCome(MemberRecord):
    """The first of two records of one incarnation and state wins."""

    @property
    def key(self) -> tuple[int, int, int, str, str, str, str]:
        return (0, 0, 0, "", "", "", "")


def _in_order_of_arrival(evidence: Evidence) -> None:
    for at_s, boot in ((8.0, 13), (12.0, SECOND_BOOT)):
        levelled = _FirstCome(3, 99, State.ALIVE, boot, THREE, THREE, "", "")
        with_view(evidence, at_s, ONE, table=(record(ONE), levelled))


SPOILT: list[Spoilt] = [
    spoilt("merge_is_order_free", _in_order_of_arrival, "by the order in which"),
    spoilt(
        "records_only_grow",
        _older_record,
        "broker-1 held broker-3 as alive of incarnation 3 at 13.0 s and as alive",
    ),
    spoilt("only_owners_raise", _foreign_incarnation, "broker-1 holds incarnation 2 of broker-2 at 12.0 s"),
    log_spoilt(
        "records_only_grow", _older_row, "broker-1 went from alive of incarnation 3 of broker-3 back to dead"
    ),
    log_spoilt("no_resurrection", _raised_from_the_dead, "incarnation 1 raised it at 8.000 s"),
    log_spoilt("no_resurrection", _forgotten_dead, "had forgotten it 0.9 s later"),
    log_spoilt(
        "changes_follow", _broken_chain, "broker-2 went from suspect to alive at 23.000 s, when it was alive"
    ),
    log_spoilt("changes_follow", _joined_twice, "told twice that broker-2 joined"),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_forged_incarnation_is_no_raise() -> None:
    evidence = right_history()
    _foreign_incarnation(evidence)
    evidence.faults.append(Span(Fault(11.5, "huge_incarnation", (TWO,)), 11.5))
    assert judged(evidence, "only_owners_raise").ok
    evidence.faults[-1] = Span(Fault(11.5, "huge_incarnation", (THREE,)), 11.5)
    assert not judged(evidence, "only_owners_raise").ok


@pytest.mark.parametrize(("ended_s", "right"), [(11.9, True), (12.0, True), (12.1, False)])
def test_the_last_record_of_a_broker_that_ended_may_be_in_no_log(ended_s: float, right: bool) -> None:
    """Stored swarm, seed 1796000649: it crashed in the very moment of the look."""
    evidence = right_history()
    _foreign_incarnation(evidence)
    life = next(each for each in evidence.lives if each.name == TWO)
    evidence.lives[evidence.lives.index(life)] = replace(life, ended_s=ended_s)
    assert judged(evidence, "only_owners_raise").ok is right


def test_a_record_that_a_broker_sent_before_its_disk_lost_it_counts() -> None:
    """It lost power, and others still have its earlier record."""

    def said(log: Log) -> None:
        log.write(THREE, 3.5, "link", peer=format_id(1), dir="out", state="up", inc=9)

    for spoil, right in ((said, True), (lambda log: None, False)):
        evidence = history(spoil)
        with_view(evidence, 12.0, ONE, table=(record(ONE), record(THREE, incarnation=9)))
        assert judged(evidence, "only_owners_raise").ok is right


def test_a_gap_in_a_log_breaks_no_chain() -> None:
    """A failed disk lost rows."""

    def spoil(log: Log) -> None:
        _broken_chain(log)
        log.rows[-1]["seq"] += 1

    assert judged(right_history(spoil), "changes_follow").ok
