"""What scenarios may expect holds on a right history, and fails when the history is another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mesh.membership import State
from simulations.evidence import Evidence
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from simulations.invariants import CHECKS
from tests.simulations.invariants.histories import (
    BACK_S,
    SECOND_BOOT,
    Log,
    judged,
    record,
    right_history,
    with_view,
)

ONE, TWO, THREE = "broker-1", "broker-2", "broker-3"
DELAYED = 0.5


def cut(
    evidence: Evidence, from_s: float, until_s: float, *, a: str = ONE, b: tuple[str, ...] = (TWO,)
) -> None:
    evidence.faults.append(Span(Fault(from_s, "partition", (a,), b), from_s, until_s))


def in_order(log: Log) -> None:
    """Number the rows anew by their times, as a broker writes them."""
    numbers: dict[tuple[str, str], int] = {}
    for row in sorted(log.rows, key=lambda row: float(row["at_s"])):
        key = (row["node"], row["boot"])
        row["seq"] = numbers[key] = numbers.get(key, 0) + 1


def history(spoil: Callable[[Log], None] = lambda log: None) -> Evidence:
    def spoilt(log: Log) -> None:
        spoil(log)
        in_order(log)

    return right_history(spoilt)


def refused(verdict: Any, sentence: str) -> None:
    assert any(sentence in violation for violation in verdict.violations), verdict.violations


# --- deaths and suspicions


def test_nobody_is_dead_but_the_one_who_was_killed() -> None:
    assert judged(history(), "nobody_dead", whom=(ONE, TWO)).ok
    refused(judged(history(), "nobody_dead"), "broker-1 called broker-3 dead at 7.100 s")
    assert judged(history(), "nobody_dead", by=(THREE,)).ok


def test_a_member_dies_so_often_at_one_observer_and_no_more() -> None:
    assert judged(history(), "deaths_at_most", most=1).ok
    refused(judged(history(), "deaths_at_most", most=0), "called broker-3 dead 1 times, more than 0")
    assert judged(history(), "deaths_at_most", most=0, whom=(ONE,)).ok


def test_suspicions_are_counted_by_run_observer_and_member() -> None:
    assert judged(history(), "suspicions_at_most", most=2).ok
    refused(judged(history(), "suspicions_at_most", most=1), "there were 2 suspicions in the run")
    assert judged(history(), "suspicions_at_most", most=1, per="observer").ok
    refused(judged(history(), "suspicions_at_most", most=1, per="member"), "2 suspicions of broker-3")
    assert judged(history(), "suspicions_at_most", most=0, whom=(ONE,)).ok


def test_who_accuses_nobody_calls_nobody_dead_or_suspect() -> None:
    assert judged(history(), "accuses_nobody", whom=(THREE,)).ok
    refused(judged(history(), "accuses_nobody", whom=(ONE,)), "broker-1 called broker-3 dead at 7.100 s")

    def suspect(log: Log) -> None:
        log.member(THREE, 12.0, ONE, "alive>suspect", boot=SECOND_BOOT, inc=3)

    assert judged(history(suspect), "accuses_nobody", whom=(THREE,)).ok
    refused(
        judged(history(suspect), "accuses_nobody", whom=(THREE,), of="suspect"), "called broker-1 suspect"
    )


def test_who_never_left_is_not_held_to_have_left_before_the_end() -> None:
    assert judged(history(), "never_left").ok
    left = history(lambda log: log.member(ONE, 12.0, TWO, "alive>left", via=TWO))
    refused(judged(left, "never_left"), "broker-1 holds that broker-2 left at 12.000 s")


def test_who_is_alive_through_it_all_is_in_every_table() -> None:
    assert judged(history(), "alive_through", whom=(ONE, TWO)).ok
    refused(judged(history(), "alive_through", whom=(THREE,)), "holds broker-3 dead at 8.0 s")
    evidence = history()
    with_view(evidence, 12.0, ONE, table=(record(ONE), record(TWO, State.LEFT)))
    refused(judged(evidence, "alive_through", whom=(TWO,)), "broker-1 holds broker-2 left at 12.0 s")


def test_an_accusation_of_a_live_broker_is_refuted_in_time() -> None:
    def accuse(log: Log, *, answer_s: float = 13.0) -> None:
        log.member(ONE, 12.0, TWO, "alive>suspect")
        log.member(ONE, answer_s, TWO, "suspect>alive", sub_inc=2, via=TWO)

    assert judged(history(accuse), "refuted", whom=(TWO,)).ok
    late = history(lambda log: accuse(log, answer_s=17.0))
    refused(judged(late, "refuted", whom=(TWO,)), "broker-1 held broker-2 suspect at 12.000 s")
    assert judged(late, "refuted", whom=(TWO,), within_s=6.0).ok


def test_losses_are_timed_by_median_and_percentile() -> None:
    verdict = judged(history(), "detected", whom=(THREE,), p50_s=3.2, p99_s=3.2, mean_s=3.2)
    assert verdict.ok and "median 3.10 s" in verdict.looked_at
    for bound, word in (("p50_s", "median"), ("p99_s", "99th percentile"), ("mean_s", "mean")):
        refused(judged(history(), "detected", **{bound: 3.0}), f"the {word} of 2 times to notice is 3.10 s")


def test_who_is_cut_off_must_be_called_dead_by_those_it_is_cut_off_from() -> None:
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


# --- being cut off, and coming back


def test_who_is_cut_off_knows_itself_isolated_and_kills_nobody() -> None:
    evidence = history()
    cut(evidence, 12.5, 20.5, b=())
    refused(
        judged(evidence, "isolated", whom=(ONE,)),
        "broker-1 was cut off at 12.500 s and 4.5 s later it was still ready",
    )
    with_view(evidence, 16.0, ONE, state="isolated")
    assert judged(evidence, "isolated", whom=(ONE,)).ok
    angry = history(lambda log: log.member(ONE, 17.0, TWO, "alive>dead"))
    cut(angry, 12.5, 20.5, b=())
    with_view(angry, 16.0, ONE, state="isolated")
    refused(judged(angry, "isolated", whom=(ONE,)), "broker-1 called broker-2 dead at 17.000 s")


def test_a_return_is_timed_in_the_eyes_of_both() -> None:
    verdict = judged(history(), "back_within", whom=(THREE,), within_s=1.0)
    assert verdict.ok and "the last after 0.20 s" in verdict.looked_at
    assert BACK_S in [life.started_s for life in history().lives]
    refused(
        judged(history(), "back_within", whom=(THREE,), within_s=0.1),
        "broker-1 holds broker-3 dead 0.1 s after",
    )
    refused(
        judged(history(), "back_within", whom=(THREE,), within_s=0.1), "broker-3 holds broker-1 for unknown"
    )


def test_a_leave_is_heard_in_time_after_it_or_after_the_heal() -> None:
    def leave(log: Log, *, heard_s: float = 13.1) -> None:
        log.member(TWO, 13.0, TWO, "alive>left")
        for row in [row for row in log.rows if row["at_s"] > 13 and row["kind"] == "mem"]:
            if TWO in (row["subject_name"],):
                log.rows.remove(row)
        log.member(ONE, heard_s, TWO, "alive>left", via=TWO)
        log.member(THREE, 13.1, TWO, "alive>left", boot=SECOND_BOOT, inc=3, via=TWO)

    def gone(spoil: Callable[[Log], None]) -> Evidence:
        evidence = history(spoil)
        evidence.lives = [
            replace(life, ended_s=13.05) if life.name == TWO else life for life in evidence.lives
        ]
        return evidence

    assert judged(gone(leave), "left_seen", whom=(TWO,)).ok
    late = gone(lambda log: leave(log, heard_s=16.0))
    refused(
        judged(late, "left_seen", whom=(TWO,)),
        "broker-1 did not hear within 2 s of 13.050 s that broker-2 left",
    )
    assert judged(late, "left_seen", whom=(TWO,), by=(THREE,)).ok
    assert judged(late, "left_seen", whom=(TWO,), after="heal").ok


def test_all_see_as_many_members_in_time() -> None:
    assert judged(history(), "members_within", within_s=2.0).ok
    assert judged(history(), "members_within", number=3, within_s=2.0).ok
    refused(judged(history(), "members_within", number=4, within_s=2.0), "3 brokers are up, not 4")
    evidence = history()
    for at_s in (1.0, 2.0, 3.0):
        with_view(evidence, at_s, ONE, table=(record(ONE),))
    refused(
        judged(evidence, "members_within", within_s=2.0), "broker-1 sees 1 members 2 s after 0.1 s, not 3"
    )
    assert judged(history(), "members_within", after="crash", within_s=12.0).ok
    refused(judged(history(), "members_within", after="mass_join"), "no fault of kind mass_join")


def test_few_numbers_of_members_are_seen() -> None:
    assert judged(history(), "view_sizes_at_most", most=2).ok
    refused(judged(history(), "view_sizes_at_most", most=1), "2 numbers of members were seen, more than 1")


def test_links_come_back_after_the_network_does() -> None:
    assert judged(history(), "links_back_within", whom=(ONE,), within_s=2.0).ok
    evidence = history()
    with_view(evidence, 16.0, ONE, links=(2,))
    refused(
        judged(evidence, "links_back_within", whom=(ONE,), within_s=2.0),
        "broker-1 has no link to broker-3 2 s after",
    )


def test_a_link_that_brings_nothing_is_given_up() -> None:
    def hang_up(log: Log) -> None:
        log.link(ONE, 15.0, TWO, "down")

    for spoil, good in ((hang_up, True), (lambda log: None, False)):
        evidence = history(spoil)
        cut(evidence, 12.0, 20.0)
        verdict = judged(evidence, "link_given_up", whom=(ONE, TWO))
        assert verdict.ok is good
    refused(verdict, "the link of broker-1 and broker-2 was not given up within 4.5 s of 12.000 s")


def test_counters_rise_as_far_as_expected() -> None:
    evidence = history()
    for at_s in range(12, 24):
        with_view(evidence, float(at_s), ONE, counters={"refused": 2})
    assert judged(evidence, "counted", whom=(ONE,), least=2).ok
    refused(
        judged(evidence, "counted", whom=(TWO,)), "refused of broker-2 rose by 0; at least 1 was expected"
    )
    refused(judged(evidence, "counted", whom=(ONE,), least=0, most=1), "rose by 2; at least 0 and at most 1")


def test_who_is_started_again_has_a_greater_incarnation() -> None:
    assert judged(history(), "greater_incarnation", whom=(THREE,)).ok

    def same(log: Log) -> None:
        for row in log.rows:
            if row["kind"] == "mem" and row["from_state"] == "dead":
                row["subject_inc"] = 1

    refused(
        judged(history(same), "greater_incarnation"),
        "holds broker-3 alive in incarnation 1 5 s after its start",
    )


# --- messages


def slower(evidence: Evidence, subscriber: str, seconds: float) -> None:
    """From the safety phase on."""
    evidence.ledger.receipts = [
        replace(each, at_s=each.at_s + seconds) if each.subscriber == subscriber and each.at_s > 3 else each
        for each in evidence.ledger.receipts
    ]


def test_deliveries_take_no_longer_than_that() -> None:
    bounds = {"p50_s": 0.01, "p99_s": 0.01, "most_s": 0.01}
    assert judged(history(), "delivery_delay", **bounds).ok
    evidence = history()
    slower(evidence, "sub-1", DELAYED)
    verdict = judged(evidence, "delivery_delay", **bounds)
    assert [violation.split(" of ")[0] for violation in verdict.violations] == [
        "the median",
        "the 99th percentile",
        "the slowest",
    ]
    assert not judged(evidence, "delivery_delay", **bounds, phase="safety").ok


def test_a_slow_reader_delays_nobody_else() -> None:
    evidence = history()
    slower(evidence, "sub-1", DELAYED)
    assert judged(evidence, "others_unaffected", whom=("sub-1",)).ok
    refused(
        judged(evidence, "others_unaffected", whom=("sub-2",)),
        "p99 of deliveries among the others is 0.5020 s",
    )
    with_view(evidence, 12.0, ONE, sizes={"queued": 200_000})
    refused(judged(evidence, "others_unaffected", whom=("sub-1",)), "broker-1 holds back 200000 messages")


def test_a_share_of_what_is_owed_arrives() -> None:
    assert judged(history(), "delivered_share", least=1.0).ok
    evidence = history()
    lost = [each for each in evidence.ledger.receipts if 3 < each.at_s < 6 and each.subscriber == "sub-1"]
    evidence.ledger.receipts = [each for each in evidence.ledger.receipts if each not in lost]
    refused(judged(evidence, "delivered_share", least=0.95), "less than 95.00%")
    assert judged(evidence, "delivered_share", least=0.5).ok
    assert judged(evidence, "delivered_share", least=1.0, except_s=2.0).ok  # all around the kill at 4 s


def test_heartbeats_that_wait_or_come_late_are_counted() -> None:
    assert judged(history(), "heartbeats_pass").ok

    def wait(log: Log) -> None:
        log.answer(ONE, 10.9, TWO, 100, rtt_us=700_000)

    refused(judged(history(wait), "heartbeats_pass"), "waited 0.350 s each way, more than 0.25 s")
    assert judged(history(wait), "heartbeats_pass", share=0.9).ok
    evidence = history()
    with_view(evidence, 10.0, ONE, counters={"late_answers": 0})
    with_view(evidence, 11.0, ONE, counters={"late_answers": 3})
    refused(judged(evidence, "heartbeats_pass"), "3 answers came to broker-1 after the deadline")


def test_each_expectation_has_a_test_here() -> None:
    source = Path(__file__).read_text()
    missing = [
        check.name
        for check in CHECKS.values()
        if check.id.startswith("S") and f'"{check.name}"' not in source
    ]
    assert missing == []


@pytest.mark.parametrize("whom", [("sub-2",), (TWO,)])
def test_a_client_stands_for_its_broker(whom: tuple[str, ...]) -> None:
    assert judged(history(), "nobody_dead", whom=whom).ok
