"""The checks find messages that come twice, out of order, altered, late or never."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from simulations.evidence import Evidence
from simulations.evidence.ledger import Outcome, Receipt
from tests.simulations.invariants.histories import (
    Spoilt,
    history,
    judged,
    right_history,
    slower,
    spoilt,
)


def _twice(evidence: Evidence) -> None:
    first = evidence.ledger.receipts[0]
    evidence.ledger.receipts.append(replace(first, at_s=9.0))


def _swapped(evidence: Evidence) -> None:
    receipts = evidence.ledger.receipts
    orders = [index for index, each in enumerate(receipts) if each.topic == "orders"]
    receipts[orders[0]], receipts[orders[1]] = receipts[orders[1]], receipts[orders[0]]


def _receipt(**changes: Any) -> Callable[[Evidence], None]:
    def spoil(evidence: Evidence) -> None:
        evidence.ledger.receipts[0] = replace(evidence.ledger.receipts[0], **changes)

    return spoil


def _in_quiet(evidence: Evidence) -> Receipt:
    return next(each for each in evidence.ledger.receipts if each.at_s > 17)


def _lost(evidence: Evidence) -> None:
    evidence.ledger.receipts.remove(_in_quiet(evidence))


def _later(receipt_of: Callable[[Evidence], Receipt], by_s: float) -> Callable[[Evidence], None]:
    def spoil(evidence: Evidence) -> None:
        receipts, receipt = evidence.ledger.receipts, receipt_of(evidence)
        receipts[receipts.index(receipt)] = replace(receipt, at_s=receipt.at_s + by_s)

    return spoil


def _at_the_publishers_broker(evidence: Evidence) -> Receipt:
    return next(each for each in evidence.ledger.receipts if each.at_s > 17 and each.subscriber == "sub-2")


def _not_accepted(evidence: Evidence) -> None:
    evidence.ledger.publications[_in_quiet(evidence).body].outcome = Outcome.UNKNOWN


def _no_quiet_time(evidence: Evidence) -> None:
    del evidence.phases["quiet_from_s"]


def _lost_around_the_kill(evidence: Evidence) -> None:
    receipts = evidence.ledger.receipts
    evidence.ledger.receipts = [
        each for each in receipts if not (3 < each.at_s < 6 and each.subscriber == "sub-1")
    ]


SPOILT: list[Spoilt] = [
    spoilt("at_most_once", _twice, "and again at 9.000 s"),
    spoilt("in_order", _swapped, "sub-1 got number 0 of pub-1 on orders after number 2"),
    spoilt("genuine", _receipt(body=b"pub-1/1/0/fillex"), "nobody published"),
    spoilt("genuine", _receipt(body=b""), "nobody published"),
    spoilt("genuine", _receipt(topic="news.uk"), "published on orders"),
    spoilt("genuine", _receipt(at_s=0.5), "before it was published"),
    spoilt("genuine", _receipt(subscriber="sub-2"), "had not subscribed"),
    spoilt("genuine", _receipt(life=7), "had not subscribed"),
    spoilt("complete", _lost, "never got number"),
    spoilt("complete", _later(_in_quiet, 7.0), "only 7.00 s later"),
    spoilt("complete", _later(_at_the_publishers_broker, 0.5), "only 0.50 s later"),
    spoilt("complete", _not_accepted, "is unknown in a time without faults"),
    spoilt("complete", _no_quiet_time, "there was no quiet time"),
    spoilt("delivery_delay", lambda evidence: slower(evidence, "sub-1", 0.5), "the slowest of", most_s=0.01),
    spoilt("delivered_share", _lost_around_the_kill, "less than 95.00%", least=0.95),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_repetitions_from_an_outbox_may_come_after_later_messages() -> None:
    """Swarm seed 950074 with durable subscriptions: a subscriber was cut off, and got it with the retry."""
    evidence = right_history()
    _swapped(evidence)
    assert not judged(evidence, "in_order").ok
    for each in evidence.ledger.publications.values():
        each.outbox = each.topic == "orders"
    assert judged(evidence, "in_order").ok


def test_a_batch_that_comes_again_as_a_whole_is_in_order() -> None:
    """Swarm seed 1795500469 with durable subscriptions: a plain socket got a stored batch twice."""
    evidence = right_history()
    evidence.ledger.receipts += [replace(each, at_s=9.0) for each in evidence.ledger.receipts[:5]]
    assert judged(evidence, "in_order").ok
    assert not judged(evidence, "at_most_once").ok


def test_a_subscriber_that_did_not_stand_throughout_is_owed_nothing() -> None:
    evidence = right_history()
    evidence.ledger.subscriptions[0].until_s = 17.0
    evidence.ledger.receipts = [each for each in evidence.ledger.receipts if each.subscriber == "sub-2"]
    assert judged(evidence, "complete").ok


def test_another_life_of_a_subscriber_may_get_a_body_again() -> None:
    evidence = right_history()
    first = evidence.ledger.receipts[0]
    evidence.ledger.receipts.append(replace(first, life=2, at_s=9.0))
    assert judged(evidence, "at_most_once").ok


def test_delays_are_bounded_by_median_and_percentile_in_either_phase() -> None:
    bounds = {"p50_s": 0.01, "p99_s": 0.01, "most_s": 0.01}
    evidence = history()
    slower(evidence, "sub-1", 0.5)
    verdict = judged(evidence, "delivery_delay", **bounds)
    assert [violation.split(" of ")[0] for violation in verdict.violations] == [
        "the median",
        "the 99th percentile",
        "the slowest",
    ]
    assert not judged(evidence, "delivery_delay", **bounds, phase="safety").ok


def test_losses_around_the_loss_of_a_broker_may_be_excused() -> None:
    evidence = history()
    _lost_around_the_kill(evidence)
    assert judged(evidence, "delivered_share", least=0.5).ok
    assert judged(evidence, "delivered_share", least=1.0, except_s=2.0).ok  # all around the kill at 4 s


@pytest.mark.parametrize(
    ("stock", "stored", "right"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_only_a_plain_socket_may_get_repeated_copies_of_a_stored_message(
    stock: bool, stored: bool, right: bool
) -> None:
    """A seed of the swarm treated it as a fault of the broker, which had restarted between the two."""
    evidence = history()
    first = evidence.ledger.receipts[0]
    evidence.ledger.publications[first.body].stored = stored
    evidence.ledger.receipts.append(replace(first, stock=stock, at_s=9.0))
    assert judged(evidence, "at_most_once").ok is right
