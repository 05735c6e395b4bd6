"""The check finds lost brokers that were not noticed in time, and does not blame those that could not
notice.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mesh.broker.identity import format_id
from simulations.evidence import Evidence, Life, Sample
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from simulations.invariants.circumstances import Circumstances
from tests.simulations.invariants.histories import (
    IDS,
    ONE,
    THREE,
    TWO,
    Log,
    Spoilt,
    cut,
    history,
    judged,
    record,
    refused,
    right_history,
    spoilt,
    with_view,
    without,
)


def _not_noticed(evidence: Evidence) -> None:
    without(evidence, node=format_id(1), to_state="dead")


def _noticed_late(evidence: Evidence) -> None:
    for index, row in enumerate(evidence.rows):
        if row.get("to_state") == "dead" and row["node"] == format_id(1):
            evidence.rows[index] = {**row, "at_s": 10.5}


SPOILT: list[Spoilt] = [
    spoilt("detected", _not_noticed, "broker-1 did not call broker-3 dead within 3.75 s"),
    spoilt("detected", _noticed_late, "but only after 6.50 s"),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_remaining_brokers_must_notice_a_loss_even_if_they_are_few() -> None:
    evidence = history()
    without(evidence, node=format_id(1), to_state="dead")
    without(evidence, node=format_id(2), to_state="dead")
    evidence.lives.append(Life("broker-4", 1, "broker-4", 0.1, 3.0, "killed", 4, 14))
    evidence.lives.append(Life("broker-5", 1, "broker-5", 0.1, 3.0, "killed", 5, 15))
    assert len(judged(evidence, "detected").violations) == 2


def test_an_observer_that_was_away_or_cut_off_need_not_notice() -> None:
    evidence = right_history()
    _not_noticed(evidence)
    evidence.faults.append(Span(Fault(3, "pause", (ONE,)), 3.0, 7.0))
    assert judged(evidence, "detected", whom=(THREE,)).ok
    evidence.faults[-1] = Span(Fault(3, "partition", (ONE,), (THREE,)), 3.0, 7.0)
    assert not judged(evidence, "detected").ok  # it reaches all that are left
    evidence.faults[-1] = Span(Fault(3, "partition", (ONE,), (TWO,)), 3.0, 7.0)
    assert judged(evidence, "detected").empty


@pytest.mark.parametrize(
    ("cut_from_s", "dead_s", "excused"), [(3.5, 9.1, True), (3.5, 9.2, False), (4.1, 9.1, False)]
)
def test_news_of_the_lost_one_held_back_by_a_cut_restarts_its_time(
    cut_from_s: float, dead_s: float, excused: bool
) -> None:
    """Broker-3 refuted a suspicion and was killed at 4 s. Broker-1 learned that from broker-2 at 5.4 s."""

    def heard_late(log: Log) -> None:
        log.member(ONE, 5.4, THREE, "suspect>alive", sub_inc=2, via=TWO)

    evidence = history(heard_late)
    for index, row in enumerate(evidence.rows):
        if row.get("to_state") == "dead" and row["node"] == format_id(1):
            evidence.rows[index] = {**row, "at_s": dead_s}
    evidence.faults.append(Span(Fault(cut_from_s, "partition", (ONE,), (THREE,)), cut_from_s, 5.4))
    assert not judged(evidence, "detected").violations if excused else judged(evidence, "detected").violations


def test_a_leaving_broker_need_not_notice_while_it_says_goodbye() -> None:
    for asked_s, excused in ((6.0, True), (8.0, False)):
        evidence = right_history()
        _not_noticed(evidence)
        evidence.faults.append(Span(Fault(asked_s, "stop", (ONE,)), asked_s))
        assert judged(evidence, "detected", whom=(THREE,), within_s=3.75).ok is excused


def test_an_observer_without_a_link_to_the_lost_one_need_not_notice() -> None:
    evidence = right_history()
    _not_noticed(evidence)
    for at_s in (1.0, 2.0, 3.0, 4.0):
        with_view(evidence, at_s, ONE, links=(2,))
    assert judged(evidence, "detected").empty


def test_a_broker_with_a_lost_log_is_judged_by_its_recorded_views() -> None:
    evidence = right_history()
    _not_noticed(evidence)
    evidence.lives = [replace(life, log_lost=True) if life.name == ONE else life for life in evidence.lives]
    assert judged(evidence, "detected").ok
    for sample in evidence.samples_between(5.0, 11.0):
        with_view(evidence, sample.at_s, ONE, table=(record(ONE), record(TWO), record(THREE)))
    assert "broker-1 did not call broker-3 dead within 3.75 s" in judged(evidence, "detected").violations[0]


@pytest.mark.parametrize(("back_s", "excused"), [(8.0, True), (9.0, False)])
def test_a_broker_with_a_lost_log_may_have_declared_a_death_between_two_looks(
    back_s: float, excused: bool
) -> None:
    """Broker-3 is killed at 4 s and must be declared dead by 7.75 s; broker-1 is looked at each second."""
    evidence = right_history()
    _not_noticed(evidence)
    evidence.lives = [replace(life, log_lost=True) if life.name == ONE else life for life in evidence.lives]
    for sample in evidence.samples_between(5.0, 11.0):
        third = record(THREE, incarnation=2 if sample.at_s >= back_s else 1)
        with_view(evidence, sample.at_s, ONE, table=(record(ONE), record(TWO), third))
    assert bool(judged(evidence, "detected").violations) is not excused


@pytest.mark.parametrize(("ended_s", "excused"), [(7.9, True), (8.1, False)])
def test_a_broker_with_a_lost_log_may_have_declared_a_death_before_its_own_end(
    ended_s: float, excused: bool
) -> None:
    """Swarm seed 9840831316: broker-1 lost its power right after 7.75 s, before the look at 8 s."""
    evidence = right_history()
    _not_noticed(evidence)
    for sample in evidence.samples_between(5.0, 8.0):
        with_view(evidence, sample.at_s, ONE, table=(record(ONE), record(TWO), record(THREE)))
    evidence.lives = [
        replace(life, log_lost=True, ended_s=ended_s, how="power_off") if life.name == ONE else life
        for life in evidence.lives
    ]
    evidence.samples = [
        Sample(each.at_s, {name: view for name, view in each.views.items() if name != ONE})
        if each.at_s > ended_s
        else each
        for each in evidence.samples
    ]
    assert judged(evidence, "detected").ok is excused


OLD_ID = 9


def _held_of_old_id(log: Log, at_s: float, states: str) -> None:
    """Broker-1's record of an id that broker-3 had once."""
    log.member(ONE, at_s, THREE, states, sub_boot=99)
    log.rows[-1]["subject"] = format_id(OLD_ID)


def test_an_abandoned_id_is_not_lost_a_second_time_with_the_new_one() -> None:
    """Swarm seed 731504024: broker-3 had come back with a new id. Its old one, by then known only through
    gossip, was declared dead late after the loss of the new one.
    """

    def ghost(log: Log) -> None:
        _held_of_old_id(log, 0.6, "unknown>suspect")
        _held_of_old_id(log, 8.5, "suspect>dead")

    evidence = history(ghost)
    evidence.lives.insert(0, Life(THREE, 0, THREE, 0.01, 0.2, "killed", OLD_ID, 99))
    assert judged(evidence, "detected").ok


@pytest.mark.parametrize(
    ("id", "called_s", "right"), [(IDS[THREE], 10.5, True), (OLD_ID, 7.7, True), (OLD_ID, 7.8, False)]
)
def test_a_broker_back_soon_is_lost_if_it_has_another_id_then(id: int, called_s: float, right: bool) -> None:
    """Broker-3 is killed at 4 s and back at 5 s."""
    evidence = right_history()
    for index, row in enumerate(evidence.rows):
        if row.get("to_state") == "dead":
            evidence.rows[index] = {**row, "at_s": called_s}
    evidence.lives[-1] = replace(evidence.lives[-1], started_s=5.0, id=id)
    verdict = judged(evidence, "detected")
    assert verdict.ok or verdict.empty if right else "only after 3.80 s" in verdict.violations[0]


@pytest.mark.parametrize(("log_lost", "right"), [(True, True), (False, False)])
def test_a_broker_without_its_log_may_have_been_back_before_it_was_seen(log_lost: bool, right: bool) -> None:
    """Swarm seed 3238971765 with durable subscriptions: it was back after 3 s, and power took its log."""
    evidence = right_history()
    for index, row in enumerate(evidence.rows):
        if row.get("to_state") == "dead":
            evidence.rows[index] = {**row, "at_s": 10.5}
    evidence.lives[-1] = replace(evidence.lives[-1], started_s=8.0, log_lost=log_lost)
    verdict = judged(evidence, "detected")
    assert (verdict.ok or verdict.empty) is right


def test_an_observer_linked_only_to_an_earlier_id_need_not_notice() -> None:
    evidence = history()
    _not_noticed(evidence)
    evidence.lives.insert(0, Life(THREE, 0, THREE, 0.01, 0.2, "killed", OLD_ID, 99))
    for at_s, links, excused in ((3.0, (2, OLD_ID), True), (3.0, (2, 3), False)):
        with_view(evidence, at_s, ONE, links=links)
        assert judged(evidence, "detected").empty is excused


def twin_of(name: str, from_s: float, until_s: float | None) -> Life:
    """Another broker with its id, on a separate host."""
    return Life("twin", 1, "twin", from_s, until_s, "" if until_s is None else "killed", IDS[name], 99)


@pytest.mark.parametrize(
    ("from_s", "until_s", "excused"),
    [(5.0, 6.0, True), (1.0, 4.1, True), (1.0, 3.9, False), (7.7, None, True), (7.8, None, False)],
)
def test_a_broker_whose_id_a_twin_continues_is_not_lost(
    from_s: float, until_s: float | None, excused: bool
) -> None:
    """Broker-3 is killed at 4 s, and must be declared dead within 3.75 s."""
    evidence = history()
    _not_noticed(evidence)
    evidence.lives.append(twin_of(THREE, from_s, until_s))
    verdict = judged(evidence, "detected")
    assert verdict.empty if excused else not verdict.ok


@pytest.mark.parametrize(
    ("from_s", "until_s", "excused"),
    [(5.0, 6.0, True), (1.0, 2.6, True), (1.0, 2.4, False), (7.7, None, True), (7.8, None, False)],
)
def test_one_of_two_with_one_id_need_not_notice_while_there_are_two(
    from_s: float, until_s: float | None, excused: bool
) -> None:
    """From one and a half seconds before the loss, like any other excuse."""
    evidence = history()
    _not_noticed(evidence)
    evidence.lives.append(twin_of(ONE, from_s, until_s))
    verdict = judged(evidence, "detected")
    assert verdict.empty if excused else not verdict.ok


def test_one_twin_that_is_killed_is_no_loss_while_the_other_lives() -> None:
    """The first is gone permanently, and the second goes later."""
    evidence = history()
    first, second = twin_of(THREE, 3.0, 12.0), replace(twin_of(THREE, 8.0, 16.0), name="other")
    evidence.lives = [life for life in evidence.lives if life.name != THREE] + [first, second]
    lost = [(each.broker, each.from_s, each.until_s) for each in Circumstances(evidence).absences]
    assert lost == [("other", 16.0, math.inf)]


def test_an_outage_that_is_too_short_is_not_judged() -> None:
    evidence = right_history()
    assert "no death noticed to look at" in judged(evidence, "detected", within_s=8.0).violations[0]


def test_losses_are_timed_by_median_and_percentile() -> None:
    verdict = judged(history(), "detected", whom=(THREE,), p50_s=3.2, p99_s=3.2, mean_s=3.2)
    assert verdict.ok and "median 3.10 s" in verdict.looked_at
    for bound, word in (("p50_s", "median"), ("p99_s", "99th percentile"), ("mean_s", "mean")):
        refused(judged(history(), "detected", **{bound: 3.0}), f"the {word} of 2 times to notice is 3.10 s")


def test_a_broker_must_be_declared_dead_by_those_it_is_cut_off_from() -> None:
    def notice(log: Log) -> None:
        log.member(ONE, 16.5, TWO, "alive>dead")

    evidence = history(notice)
    cut(evidence, 13.0, 20.0)
    assert judged(evidence, "detected", whom=(TWO,), by=(ONE,)).ok
    silent = history()
    cut(silent, 13.0, 20.0)
    refused(
        judged(silent, "detected", whom=(TWO,), by=(ONE,)), "broker-1 did not call broker-2 dead within 4.5 s"
    )


def lied_about(evidence: Evidence, name: str) -> None:
    evidence.faults.append(Span(Fault(3.5, "forged_dead", (name,), (THREE,)), 3.5))


def test_a_broker_affected_only_by_lies_must_notice() -> None:
    evidence = history()
    _not_noticed(evidence)
    lied_about(evidence, ONE)
    assert not judged(evidence, "detected").ok


def lone(*cuts: Fault) -> Evidence:
    """No broker is killed; broker-3 is cut off from 14 s on and no other notices."""
    evidence = history()
    evidence.faults = [Span(each, each.at_s, each.at_s + (each.for_s or 0)) for each in cuts]
    evidence.lives = [life for life in evidence.lives if life.how != "killed"]
    evidence.lives = [
        replace(life, started_s=0.3, number=1) if life.name == THREE else life for life in evidence.lives
    ]
    return evidence


def test_a_broker_cut_off_from_a_majority_must_be_declared_dead_by_it() -> None:
    alone = Fault(14.0, "isolate", (THREE,), for_s=5.0)
    violations = judged(lone(alone), "detected").violations
    assert [violation.split(" within")[0] for violation in violations] == [
        "broker-1 did not call broker-3 dead",
        "broker-2 did not call broker-3 dead",
    ]
    assert (
        judged(lone(Fault(14.0, "partition", (), (THREE,), for_s=5.0)), "detected").violations == violations
    )


@pytest.mark.parametrize(
    ("from_s", "until_s", "excused"),
    [(15.0, 16.0, True), (1.0, 14.1, True), (1.0, 13.9, False), (17.7, None, True), (17.8, None, False)],
)
def test_a_broker_whose_twin_others_reach_is_not_cut_off(
    from_s: float, until_s: float | None, excused: bool
) -> None:
    evidence = lone(Fault(14.0, "isolate", (THREE,), for_s=5.0))
    evidence.lives.append(twin_of(THREE, from_s, until_s))
    verdict = judged(evidence, "detected")
    assert verdict.empty if excused else not verdict.ok


@pytest.mark.parametrize(
    ("from_s", "until_s", "vouches"),
    [(14.5, None, True), (13.5, None, False), (17.8, None, False), (1.0, 13.0, False)],
)
def test_a_broker_that_comes_after_the_cut_reaches_both_sides_and_vouches_for_the_lost_one(
    from_s: float, until_s: float | None, vouches: bool
) -> None:
    """Swarm seed 1781: a fault was between the hosts of its beginning, and another came later."""
    evidence = lone(Fault(14.0, "isolate", (THREE,), for_s=5.0))
    evidence.lives.append(Life("broker-4", 1, "broker-4", from_s, until_s, "", 4, 14))
    verdict = judged(evidence, "detected")
    assert verdict.empty if vouches else not verdict.ok


def test_a_broker_vouched_for_over_two_others_is_not_lost() -> None:
    """Swarm seed 972: only broker-4 hears broker-3, and broker-5 hears broker-4, if it is still up then."""
    for ended_s, vouched in ((16.0, True), (13.0, False)):
        evidence = lone(
            Fault(14.0, "partition", (THREE,), (ONE, TWO, "broker-5"), for_s=5.0),
            Fault(14.0, "partition", ("broker-4",), (ONE, TWO), for_s=5.0),
        )
        evidence.lives.append(Life("broker-4", 1, "broker-4", 0.3, 15.0, "left", 4, 14))
        evidence.lives.append(Life("broker-5", 1, "broker-5", 0.3, ended_s, "left", 5, 15))
        found = [violation.split(" within")[0] for violation in judged(evidence, "detected").violations]
        assert ("broker-1 did not call broker-3 dead" in found) is not vouched


def test_a_broker_cut_off_from_one_alone_is_vouched_for_by_the_others() -> None:
    assert judged(lone(Fault(14.0, "partition", (THREE,), (ONE,), for_s=5.0)), "detected").empty
