"""The checks find one id that is two members, or a member that comes back as another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.cluster.membership import State
from simulations.evidence import Evidence, Life
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from tests.simulations.invariants.histories import (
    BOOTS,
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
    spoilt,
    with_view,
)


def _returned_without_incarnation(evidence: Evidence) -> None:
    for sample in list(evidence.rest):
        table = (record(ONE), record(TWO), record(THREE, boot=SECOND_BOOT))
        with_view(evidence, sample.at_s, ONE, table=table)


def _returned_as_two(evidence: Evidence) -> None:
    for sample in list(evidence.rest):
        table = (
            record(ONE),
            record(TWO),
            record(THREE, State.ALIVE, 3, SECOND_BOOT),
            replace(record(THREE), id=9),
        )
        with_view(evidence, sample.at_s, ONE, table=table)


def _welcomed_twice(log: Log) -> None:
    log.member(ONE, 11.4, THREE, "alive>alive", sub_inc=2, sub_boot=13)
    log.member(ONE, 11.6, THREE, "alive>alive", sub_inc=4, sub_boot=SECOND_BOOT)


def _twins(*, until_s: float = 99.0) -> Evidence:
    """The twin of broker-2, from 5 s on."""
    evidence = history()
    evidence.lives.append(Life("twin", 1, "twin", 5.0, None, "", 2, 99))
    for index, sample in enumerate(evidence.samples):
        if TWO in sample.views and 5 <= sample.at_s <= until_s:
            twin = replace(sample.views[TWO], name="twin", boot=99)
            evidence.samples[index] = replace(sample, views={**sample.views, "twin": twin})
    return evidence


def _returned_the_same(log: Log) -> None:
    for row in log.rows:
        if row["kind"] == "mem" and row["from_state"] == "dead":
            row["subject_inc"] = 1


SPOILT: list[Spoilt] = [
    spoilt(
        "restarts_are_one_member",
        _returned_without_incarnation,
        "broker-1 holds incarnation 1 of broker-3, known by 1 before it was started again",
    ),
    spoilt(
        "restarts_are_one_member",
        _returned_as_two,
        "broker-1 holds alive of incarnation 3, alive of incarnation 1 of",
    ),
    log_spoilt(
        "restarts_are_one_member", _welcomed_twice, "broker-1 welcomed broker-3 2 times in one run of it"
    ),
    Spoilt(
        "one_of_each_id",
        lambda: _twins(until_s=14.0),
        _twins,
        "broker-2 and twin are both 0000000000000002 for more than 10 s since 5.0 s",
        {"within_s": 10.0},
    ),
    log_spoilt(
        "greater_incarnation",
        _returned_the_same,
        "holds broker-3 alive in incarnation 1 5 s after its start",
        whom=(THREE,),
    ),
]


@pytest.mark.parametrize(("again_s", "excused"), [(10.0, True), (9.0, False)])
def test_a_twin_that_is_started_again_between_two_looks_has_its_own_time(
    again_s: float, excused: bool
) -> None:
    evidence = _twins(until_s=20.0)
    for at_s in range(int(again_s), 21):
        with_view(evidence, float(at_s), "twin", life=2)
    assert judged(evidence, "one_of_each_id", within_s=11.0).ok is excused


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


@pytest.mark.parametrize(
    ("from_s", "until_s", "excused"),
    [(5.0, 10.9, False), (5.0, 11.1, True), (14.0, 15.0, True), (5.0, None, True)],
)
def test_a_broker_with_a_twin_in_its_last_run_takes_turns_with_it(
    from_s: float, until_s: float | None, excused: bool
) -> None:
    """Broker-3 came back at 11 s, and each of two is welcomed again as often as the other goes."""
    evidence = history(_welcomed_twice)
    evidence.lives.append(Life("twin", 1, "twin", from_s, until_s, "killed", 3, 99))
    verdict = judged(evidence, "restarts_are_one_member")
    assert verdict.empty if excused else not verdict.ok


@pytest.mark.parametrize(("raised_s", "excused"), [(1.0, False), (3.0, True)])
def test_a_broker_that_ended_before_its_incarnation_was_saved_is_remembered_in_two_runs(
    raised_s: float, excused: bool
) -> None:
    """Broker-3 announced incarnation 3, was killed at 4 s and came back in incarnation 3. Broker-1 learns of
    the earlier run again, until broker-3 refutes that. Two seconds before its end it had saved everything.
    """

    def heard_again(log: Log) -> None:
        log.member(ONE, 11.4, THREE, "alive>suspect", sub_inc=3, sub_boot=13)
        log.member(ONE, 11.6, THREE, "suspect>alive", sub_inc=4, sub_boot=SECOND_BOOT)

    evidence = history(heard_again)
    with_view(evidence, raised_s, THREE, table=(record(THREE, incarnation=3), record(ONE), record(TWO)))
    for sample in evidence.rest:
        with_view(
            evidence,
            sample.at_s,
            TWO,
            table=(record(TWO), record(ONE), record(THREE, incarnation=4, boot=SECOND_BOOT)),
        )
    assert judged(evidence, "restarts_are_one_member").ok is excused


@pytest.mark.parametrize(
    ("told", "raised_s", "right"),
    [(False, 3.0, True), (True, 3.0, True), (False, 1.0, True), (True, 1.0, False)],
)
def test_an_incarnation_that_was_not_sent_or_not_saved_may_come_again(
    told: bool, raised_s: float, right: bool
) -> None:
    """Swarm seed 770000021 with durable subscriptions: the power was lost within a second of a refutation."""

    def tell(log: Log) -> None:
        if told:
            log.member(ONE, 3.9, THREE, "suspect>alive", sub_inc=3)

    evidence = history(tell)
    with_view(evidence, raised_s, THREE, table=(record(THREE, incarnation=3), record(ONE), record(TWO)))
    assert judged(evidence, "restarts_are_one_member").ok is right


@pytest.mark.parametrize(("disk_lies", "holder_lives"), [(True, False), (True, True), (False, False)])
def test_an_incarnation_lost_by_the_disk_may_come_again_when_no_live_broker_held_it(
    disk_lies: bool, holder_lives: bool
) -> None:
    """Broker-3 had incarnation 4 and lost it with its power. Only an earlier run of broker-1 had held it."""

    def tell(log: Log) -> None:
        log.member(ONE, 3.9, THREE, "suspect>alive", sub_inc=4, boot=BOOTS[ONE] if holder_lives else 91)

    evidence = history(tell)
    if disk_lies:
        fault = Fault(3.0, "lying_disk", a=(THREE,), for_s=6.0)
        evidence.faults.append(Span(fault, 3.0, 9.0))
    assert judged(evidence, "restarts_are_one_member").ok is (disk_lies and not holder_lives)


@pytest.mark.parametrize("disk_lies", [True, False])
@pytest.mark.parametrize("boot", [BOOTS[THREE], SECOND_BOOT])
def test_an_incarnation_lost_by_the_disk_may_come_again_with_another_boot(disk_lies: bool, boot: int) -> None:
    """Broker-1 holds the later run in the incarnation in which it held the earlier one."""
    evidence = history(lambda log: log.member(ONE, 1.0, THREE, "suspect>alive", sub_inc=2))
    for sample in evidence.rest:
        table = (record(ONE), record(TWO), record(THREE, State.ALIVE, 2, boot))
        with_view(evidence, sample.at_s, ONE, table=table)
    if disk_lies:
        evidence.faults.append(Span(Fault(3.0, "slow_disk", a=(THREE,), for_s=6.0), 3.0, 9.0))
    assert judged(evidence, "restarts_are_one_member").ok is (disk_lies and boot == SECOND_BOOT)
