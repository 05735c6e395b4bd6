"""The check finds a message that vanishes without a counter, and ignores one that may vanish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mesh.broker.identity import format_id
from mesh.dataplane.counters import LinkLoss
from simulations.evidence import Evidence, Life
from simulations.evidence.ledger import Outcome
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from simulations.invariants import Verdict
from simulations.invariants.circumstances import Belief, Circumstances
from tests.simulations.invariants.histories import (
    IDS,
    ONE,
    THREE,
    TWO,
    Log,
    Spoilt,
    history,
    judged,
    with_views,
)

NUMBER = 16
"""Published by pub-1 at broker-2 at 10.1 s, and lost to sub-1 at broker-1."""


def lost(spoil: Callable[[Log], None] = lambda log: None) -> Evidence:
    evidence = history(spoil)
    body = publication(evidence).body
    evidence.ledger.receipts = [
        each for each in evidence.ledger.receipts if (each.subscriber, each.body) != ("sub-1", body)
    ]
    return evidence


def publication(evidence: Evidence) -> Any:
    return next(each for each in evidence.ledger.publications.values() if each.number == NUMBER)


def verdict(evidence: Evidence) -> Verdict:
    return judged(evidence, "conserved")


SPOILT = [
    Spoilt(
        "conserved",
        history,
        lost,
        "sub-1 lacks 1 messages from broker-2, which counted 0 as dropped for broker-1; that counted 0 as "
        "dropped for its subscribers; the first is number 16 of pub-1, accepted at 10.100 s",
    )
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_everything_delivered_is_conserved() -> None:
    found = verdict(history())
    assert found.ok and found.count > 40


@pytest.mark.parametrize(
    ("by", "losses", "right"),
    [
        (TWO, {IDS[ONE]: LinkLoss(1, 0)}, True),
        (TWO, {IDS[ONE]: LinkLoss(0, 1)}, True),
        (TWO, {IDS[THREE]: LinkLoss(1, 0)}, False),
        (THREE, {IDS[ONE]: LinkLoss(1, 0)}, False),
        (ONE, {IDS[TWO]: LinkLoss(1, 0)}, False),
    ],
)
def test_only_drops_from_the_publishers_broker_to_the_subscribers_cover_a_loss(
    by: str, losses: dict[int, LinkLoss], right: bool
) -> None:
    """The drops of all brokers together did, so those on one link hid a silent loss on another."""
    evidence = lost()
    with_views(evidence, (by,), losses=losses)
    assert verdict(evidence).ok is right


@pytest.mark.parametrize(("by", "right"), [(ONE, True), (TWO, False), (THREE, False)])
def test_drops_of_the_subscribers_own_broker_cover_a_loss(by: str, right: bool) -> None:
    evidence = lost()
    with_views(evidence, (by,), counters={"dropped": 1})
    assert verdict(evidence).ok is right


def test_each_drop_covers_one_message() -> None:
    evidence = lost()
    further = next(each for each in evidence.ledger.publications.values() if each.number == NUMBER + 2)
    evidence.ledger.receipts = [
        each for each in evidence.ledger.receipts if (each.subscriber, each.body) != ("sub-1", further.body)
    ]
    with_views(evidence, (TWO,), losses={IDS[ONE]: LinkLoss(1, 0)})
    assert not verdict(evidence).ok
    with_views(evidence, (ONE,), counters={"dropped": 1})
    assert verdict(evidence).ok


def test_drops_of_another_run_of_the_broker_do_not_cover_a_loss() -> None:
    evidence = lost()
    with_views(evidence, (TWO,), life=0, losses={IDS[ONE]: LinkLoss(1, 0)})
    assert not verdict(evidence).ok


def test_messages_not_accepted_or_published_before_the_subscription_are_not_owed() -> None:
    for outcome in (Outcome.SENT, Outcome.UNKNOWN, Outcome.REFUSED, Outcome.PENDING):
        evidence = lost()
        publication(evidence).outcome = outcome
        assert verdict(evidence).ok
    evidence = lost()
    evidence.ledger.subscriptions[0].since_s = 10.2
    assert verdict(evidence).ok


def test_a_broker_that_the_receipt_names_is_owed_nothing() -> None:
    for absent, right in ((("broker-1",), True), (("broker-3",), False)):
        evidence = lost()
        publication(evidence).absent = absent
        assert verdict(evidence).ok is right


def test_a_broker_that_the_barrier_did_not_reach_owes_nothing() -> None:
    for unreached, right in ((("broker-2",), True), (("broker-3",), False)):
        evidence = lost()
        evidence.ledger.subscriptions[0].unreached = unreached
        assert verdict(evidence).ok is right


@pytest.mark.parametrize(
    ("fault", "until_s", "right"),
    [
        (Fault(12.0, "stop", (ONE,)), None, True),
        (Fault(12.0, "stop", (TWO,)), None, True),
        (Fault(12.0, "stop", ("broker-3",)), None, False),
        (Fault(14.0, "stop", (ONE,)), None, False),
        (Fault(12.0, "restart", (ONE,), more=(("how", "stop"),)), None, True),
        (Fault(14.0, "restart", (ONE,), more=(("how", "stop"),)), None, False),
        (Fault(12.0, "restart", (ONE,)), None, False),
        (Fault(12.0, "config_skew", (ONE,)), None, True),
        (Fault(14.0, "config_skew", (ONE,)), None, False),
        (Fault(0.05, "config_skew", (ONE,)), 12.0, True),
        (Fault(0.05, "config_skew", (ONE,)), 14.0, False),
    ],
    ids=str,
)
def test_a_broker_that_ends_with_the_message_in_its_memory_counts_nothing(
    fault: Fault, until_s: float | None, right: bool
) -> None:
    """A crash shows in its lives. Swarm seed 9272168229: an order to restart was not counted as one to
    end.
    """
    evidence = lost()
    evidence.faults.append(Span(fault, fault.at_s, until_s))
    assert verdict(evidence).ok is right


@pytest.mark.parametrize(("accepted_s", "right"), [(11.1, True), (10.9, False)])
def test_a_message_is_routed_only_after_its_broker_had_joined(accepted_s: float, right: bool) -> None:
    """Swarm seed 9272170500: a broker that started held a message for 3.7 s, and the subscriber's broker had
    left when it was accepted. It was published at 10.1 s here, and the order to leave comes at 14 s."""
    evidence = lost()
    publication(evidence).accepted_s = accepted_s
    evidence.faults.append(Span(Fault(14.0, "stop", (TWO,)), 14.0))
    assert verdict(evidence).ok is right


def test_a_cut_may_delay_a_message_by_twice_its_length() -> None:
    for stop_s, right in ((19.0, True), (24.0, False)):
        evidence = lost()
        evidence.faults += [
            Span(Fault(11.0, "isolate", (ONE,)), 11.0, 14.0),
            Span(Fault(stop_s, "stop", (ONE,)), stop_s),
        ]
        assert verdict(evidence).ok is right


@pytest.mark.parametrize(
    ("who", "stop_s", "right"), [(ONE, 16.0, True), (ONE, 19.0, False), (THREE, 16.0, False)]
)
def test_a_slow_reader_may_delay_a_message_until_it_reads(who: str, stop_s: float, right: bool) -> None:
    """Swarm seed 9272168229, shifted: a broker that ended had ten messages for one that read little."""
    evidence = lost()
    evidence.faults += [
        Span(Fault(9.0, "slow_reader", (who,), value=400.0), 9.0, 15.0),
        Span(Fault(stop_s, "stop", (TWO,)), stop_s),
    ]
    assert verdict(evidence).ok is right


def test_a_stored_message_that_a_live_subscriber_lacks_is_found() -> None:
    """Only level accepted was asked for."""
    evidence = lost()
    publication(evidence).outcome = Outcome.STORED
    assert not verdict(evidence).ok


def test_messages_between_two_sessions_are_not_owed() -> None:
    for sessions, right in (
        ([(1.0, 10.0), (11.0, 22.0)], True),
        ([(1.0, 22.0)], False),
        ([(1.0, 4.0), (5.0, 22.0)], False),
        ([(1.0, 18.0), (19.0, 22.0)], False),
    ):
        evidence = lost()
        evidence.sessions = {("sub-1", 1): sessions}
        assert verdict(evidence).ok is right


@pytest.mark.parametrize(("accepted_s", "right"), [(11.8, True), (10.2, False)])
def test_a_message_accepted_by_its_own_broker_during_the_session_is_owed(
    accepted_s: float, right: bool
) -> None:
    """All messages published within seconds of a session's end were excused: nobody saw that brokers did not
    count those in flight.
    """
    evidence = lost()
    evidence.sessions = {("near", 1): [(1.0, 12.0), (13.0, 22.0)]}
    ledger = evidence.ledger
    ledger.subscriptions[0] = replace(ledger.subscriptions[0], subscriber="near")
    ledger.receipts += [
        replace(each, subscriber="near") for each in ledger.receipts if each.subscriber == "sub-1"
    ]
    evidence._hosts["near"] = evidence.host_of("pub-1")
    publication(evidence).accepted_s = accepted_s
    assert verdict(evidence).ok is right
    with_views(evidence, (TWO,), counters={"dropped": 0, "unresolved": 1})
    assert verdict(evidence).ok


@pytest.mark.parametrize(("at_s", "right"), [(9.0, True), (11.0, True), (16.0, False)])
def test_a_broker_seen_as_dead_is_sent_nothing(at_s: float, right: bool) -> None:
    assert verdict(lost(lambda log: log.member(TWO, at_s, ONE, "alive>dead"))).ok is right


@pytest.mark.parametrize(
    ("observer", "dead_s", "back_s", "links", "right"),
    [
        (ONE, 1.5, None, (), True),
        (ONE, 2.05, None, (), True),
        (ONE, 2.2, None, (), False),
        (THREE, 1.5, None, (), False),
        (ONE, 1.5, 1.9, (), False),
        (ONE, 1.5, 9.0, (), True),
        (ONE, 1.5, None, ((ONE, 10.05, TWO),), True),
        (ONE, 1.5, None, ((ONE, 9.95, TWO),), False),
        (ONE, 1.5, None, ((TWO, 9.95, ONE),), False),
        (ONE, 1.5, None, ((ONE, 1.9, TWO),), True),
        (ONE, 1.5, None, ((ONE, 9.95, THREE), (TWO, 9.95, THREE)), True),
    ],
)
def test_a_broker_that_was_dead_to_the_barrier_learns_of_the_subscription_by_the_next_link(
    observer: str,
    dead_s: float,
    back_s: float | None,
    links: tuple[tuple[str, float, str], ...],
    right: bool,
) -> None:
    """Cut off, it saw the subscriber's broker as alive for another 0.7 s, and accepted two messages. Swarm
    seed 5295754555.
    """

    def left_out(log: Log) -> None:
        log.member(observer, dead_s, TWO, "alive>dead")
        if back_s is not None:
            log.member(observer, back_s, TWO, "dead>alive", sub_inc=2)
        for name, at_s, peer in links:
            log.link(name, at_s, peer, "up")

    assert verdict(lost(left_out)).ok is right


@pytest.mark.parametrize(("back_s", "right"), [(8.9, False), (9.5, True), (10.0, True)])
def test_a_broker_with_a_lost_log_may_have_seen_it_as_dead_until_the_next_look(
    back_s: float, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change dates from the look before it; the message came before the receiver was back."""
    evidence = lost()
    number, life = next((n, each) for n, each in enumerate(evidence.lives) if each.name == TWO)
    evidence.lives[number] = replace(life, log_lost=True)
    boot = format_id(next(each.boot for each in evidence.lives if each.name == ONE) or 0)
    held = [Belief(7.0, "dead", 1, boot), Belief(back_s, "alive", 2, boot)]
    monkeypatch.setattr(Circumstances, "_seen_beliefs", {(TWO, life.boot): {IDS[ONE]: held}})
    assert verdict(evidence).ok is right


@pytest.mark.parametrize(
    ("name", "from_s", "until_s", "right"),
    [(ONE, 9.0, 12.0, True), (ONE, 4.0, 9.0, False), (ONE, 16.0, None, False), (TWO, 9.0, 12.0, False)],
)
def test_a_twin_of_the_subscribers_broker_may_get_its_messages(
    name: str, from_s: float, until_s: float | None, right: bool
) -> None:
    evidence = lost()
    evidence.lives.append(Life("twin", 1, "twin", from_s, until_s, "killed", IDS[name], 99))
    assert verdict(evidence).ok is right


@pytest.mark.parametrize(("name", "right"), [(ONE, True), (TWO, False)])
def test_a_receipt_may_name_the_broker_as_its_copy_which_was_there_before(name: str, right: bool) -> None:
    """Swarm seed 2269265772: the message came between the end of the copy and the link to the other one."""
    evidence = lost()
    evidence.lives.append(Life("twin", 1, "twin", 4.0, 9.0, "killed", IDS[name], 99))
    publication(evidence).absent = ("twin",)
    assert verdict(evidence).ok is right


def test_a_subscriber_back_in_time_is_owed_the_message() -> None:
    def back(log: Log) -> None:
        log.member(TWO, 7.5, ONE, "alive>dead")
        log.member(TWO, 9.0, ONE, "dead>alive", sub_inc=2)

    assert not verdict(lost(back)).ok


def test_messages_in_flight_on_a_lost_link_must_be_counted() -> None:
    assert not verdict(lost(lambda log: log.link(TWO, 10.5, ONE, "down"))).ok


def test_a_plain_socket_is_owed_nothing() -> None:
    evidence = lost()
    evidence.ledger.subscriptions[0] = replace(evidence.ledger.subscriptions[0], stock=True)
    assert verdict(evidence).ok
