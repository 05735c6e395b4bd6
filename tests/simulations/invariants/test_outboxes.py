"""The checks find messages that an outbox lost, kept back or sent out of order. Messages that no home keeps
may stay in it.
"""

from __future__ import annotations

import pytest

from simulations.evidence import Evidence, Life
from simulations.evidence.journals import JournalLeft
from simulations.evidence.ledger import Outcome
from simulations.evidence.outboxes import OutboxLeft
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from tests.simulations.invariants.histories import IDS, ONE, TWO, Spoilt, judged, spoilt
from tests.simulations.invariants.test_durability import _left, job_of, lose, published, stored

LYING = 40
"""The number of a publication that lies in its outbox at the end; it came after the quiet time."""


def outboxes() -> Evidence:
    """All stored messages came through an outbox, and one message lies there."""
    evidence = stored()
    left = OutboxLeft(ONE, "pub-1")
    for each in evidence.ledger.publications.values():
        if each.outcome is Outcome.STORED:
            each.outcome, each.outbox, each.homes = Outcome.OUTBOX, True, ()
            each.publisher = "pub-1"
    last = evidence.ledger.publish("pub-1", 1, LYING, "orders", "", 21.0)
    last.outcome, last.outbox, last.stored, last.accepted_s = Outcome.OUTBOX, True, True, 21.0
    left.bodies.append(last.body)
    evidence.outboxes.append(left)
    return evidence


def kept_back(evidence: Evidence) -> None:
    body = published(evidence, 10).body
    lose(evidence, 10)
    evidence.outboxes[0].bodies.append(body)


def emptied(evidence: Evidence) -> None:
    evidence.outboxes[0].bodies.clear()


def unreadable(evidence: Evidence) -> None:
    evidence.outboxes[0].why = "it is damaged"


def swapped(evidence: Evidence) -> None:
    """Swap two messages of one topic, told apart only by their numbers."""
    first, second = job_of(evidence, 4), job_of(evidence, 20)
    jobs = evidence.ledger.jobs
    for number in (4, 20):
        published(evidence, number).topic = "orders"
    here, there = jobs.index(first), jobs.index(second)
    jobs[here], jobs[there] = second, first


SPOILT: list[Spoilt] = [
    spoilt("outbox_is_kept", lose, "number 4 of pub-1, taken by its outbox", right=outboxes),
    spoilt("outbox_is_kept", emptied, "and not in queue-1 at broker-2", right=outboxes),
    spoilt("outbox_drained", kept_back, "1 message(s) still lie in the outbox of pub-1", right=outboxes),
    spoilt("outbox_drained", unreadable, "the outbox of pub-1 cannot be read", right=outboxes),
    spoilt("outbox_in_order", swapped, "after number 20", right=outboxes),
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


def test_a_message_in_the_outbox_is_not_lost() -> None:
    evidence = outboxes()
    kept_back(evidence)
    assert judged(evidence, "outbox_is_kept").ok


def test_an_outbox_may_lose_messages_when_its_disk_lied_at_a_power_loss() -> None:
    evidence = outboxes()
    lose(evidence)
    host = evidence.host_of("pub-1")
    evidence.faults.append(Span(Fault(2.0, "lying_disk", (host,)), 2.0, 9.0))
    assert not judged(evidence, "outbox_is_kept").ok
    at_s = published(evidence, 4).at_s
    evidence.faults[-1] = Span(Fault(2.0, "lying_disk", (host,)), 2.0, at_s + 2)
    evidence.faults.append(Span(Fault(at_s + 1, "power_off", (host,)), at_s + 1, None))
    assert judged(evidence, "outbox_is_kept").ok


@pytest.mark.parametrize(
    ("name", "at_s", "right"), [(TWO, 21.0, True), (TWO, 3.0, False), (ONE, 21.0, False)]
)
def test_a_message_that_its_home_lost_later_is_missing(name: str, at_s: float, right: bool) -> None:
    """Swarm seed 940022 with durable subscriptions: dead letters were lost with the files of their home."""
    evidence = outboxes()
    lose(evidence, 10)
    evidence.faults.append(Span(Fault(at_s, "lost_files", (name,)), at_s))
    evidence.lives.append(Life(TWO, 2, TWO, at_s + 0.5, None, "", IDS[TWO], 99))
    assert judged(evidence, "outbox_is_kept").ok is right


@pytest.mark.parametrize(("id", "right"), [(TWO, True), (ONE, False)])
def test_a_home_that_an_operator_forgot_need_not_have_it(id: str, right: bool) -> None:
    """Swarm seed 940040 with durable subscriptions."""
    evidence = outboxes()
    lose(evidence, 10)
    evidence.ledger.forgotten[IDS[id]] = 20.0
    evidence.journals.append(JournalLeft(ONE, waiting={"queue-2": [_left(published(evidence, 10))]}))
    assert judged(evidence, "outbox_is_kept").ok is right


def test_a_message_that_no_home_keeps_may_stay() -> None:
    evidence = outboxes()
    publication = published(evidence, 10)
    publication.topic = "nobody"
    evidence.ledger.attached[0] = type(evidence.ledger.attached[0])(
        "worker-1", 1, "queue-1", ("orders", "news.#", "sensor.#"), TWO, 2.0
    )
    kept_back(evidence)
    assert judged(evidence, "outbox_drained").ok and judged(evidence, "outbox_is_kept").ok
