"""The checks find messages that are lost, come again or are kept although refused. They accept the excuses of
disks and of ends of sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from simulations.evidence import Evidence, Life
from simulations.evidence.journals import JournalLeft, Left
from simulations.evidence.ledger import Attached, Job, Outcome, Publication, Said
from simulations.faults import Fault
from simulations.faults.ongoing import Span
from simulations.invariants import Verdict
from tests.simulations.invariants.histories import (
    BACK_S,
    IDS,
    KILLED_S,
    ONE,
    THREE,
    TWO,
    Spoilt,
    history,
    judged,
    spoilt,
)

QUEUE = "queue-1"
DEAD, WAITING, REFUSED = 30, 35, 9
"""Numbers of publications."""


def stored(home: str = TWO) -> Evidence:
    """Every second publication is at level stored, and done, except for some; its home is killed if it is
    broker-3.
    """
    evidence = history()
    ledger = evidence.ledger
    evidence.lives.append(Life("worker-1", 1, TWO, 1.0, 22.0))
    evidence.sessions["worker-1", 1] = [(1.0, 22.0)]
    ledger.attached.append(Attached("worker-1", 1, QUEUE, ("#",), home, 2.0))
    journal = JournalLeft(home, waiting={QUEUE: []}, dead={QUEUE: []})
    for each in ledger.publications.values():
        each.stored, each.outcome, each.homes = True, Outcome.STORED, (home,)
        each.accepted_s = each.at_s + 0.01
        if each.number == DEAD:
            journal.dead[QUEUE].append(_left(each))
        elif each.number == WAITING:
            journal.waiting[QUEUE].append(_left(each))
        elif each.number == REFUSED:
            each.outcome, each.homes = Outcome.REFUSED, ()
        else:
            ledger.jobs.append(_job(each, home))
    evidence.journals.append(journal)
    return evidence


def _id(publication: Publication) -> str:
    return f"0001-2-{publication.number}"


def _left(publication: Publication) -> Left:
    return Left(_id(publication), publication.topic, publication.body, publication.number)


def _job(publication: Publication, home: str) -> Job:
    return Job(
        *("worker-1", 1, QUEUE, home, _id(publication), publication.topic, publication.body),
        *({}, 1, False, publication.at_s + 0.02),
        said=Said.DONE,
        told=True,
        said_s=publication.at_s + 0.03,
    )


def published(evidence: Evidence, number: int) -> Publication:
    return next(each for each in evidence.ledger.publications.values() if each.number == number)


def job_of(evidence: Evidence, number: int) -> Job:
    body = published(evidence, number).body
    return next(each for each in evidence.ledger.jobs if each.body == body)


def lose(evidence: Evidence, number: int = 4) -> None:
    evidence.ledger.jobs.remove(job_of(evidence, number))


def undone(evidence: Evidence) -> None:
    job_of(evidence, 4).said = Said.NOTHING


def untold(evidence: Evidence) -> None:
    job_of(evidence, 4).told = False


def dropped(evidence: Evidence) -> None:
    job_of(evidence, 4).said = Said.DROP


def again(evidence: Evidence, number: int = 20, after_s: float = 1.0, **changes: Any) -> None:
    job = job_of(evidence, number)
    evidence.ledger.jobs.append(replace(job, at_s=job.at_s + after_s, said_s=None, **changes))


def held(evidence: Evidence) -> None:
    job_of(evidence, 20).said_s = None
    again(evidence, worker="worker-2")


def keep_refused(evidence: Evidence) -> None:
    evidence.journals[0].waiting[QUEUE].append(_left(published(evidence, REFUSED)))


def work_on_refused(evidence: Evidence) -> None:
    evidence.ledger.jobs.append(_job(published(evidence, REFUSED), TWO))


def altered(evidence: Evidence, **changes: Any) -> None:
    job = job_of(evidence, 4)
    evidence.ledger.jobs[evidence.ledger.jobs.index(job)] = replace(job, **changes)


def on_time(evidence: Evidence) -> None:
    """It has waited since long before the workers end."""
    evidence.journals[0].waiting[QUEUE].append(_left(published(evidence, 10)))
    lose(evidence, 10)


SPOILT: list[Spoilt] = [
    spoilt("stored_is_kept", lose, "number 4 of pub-1, acknowledged as stored by broker-2", right=stored),
    spoilt("stored_is_kept", undone, "is neither processed nor in queue-1 at broker-2", right=stored),
    spoilt("stored_is_kept", untold, "is neither processed nor in queue-1 at broker-2", right=stored),
    spoilt("stored_is_kept", dropped, "is neither processed nor in queue-1 at broker-2", right=stored),
    spoilt("settled_once", again, "though worker-1 had said done at 12.130 s", right=stored),
    spoilt("held_once", held, "while worker-1 has had it in hand since 12.120 s", right=lambda: _retried()),
    spoilt("refused_is_nowhere", keep_refused, "broker-2 keeps in queue-1 number 9 of pub-1", right=stored),
    spoilt("refused_is_nowhere", work_on_refused, "worker-1 got number 9 of pub-1", right=stored),
    spoilt("work_is_genuine", lambda e: altered(e, body=b"x"), "was published by nobody", right=stored),
    spoilt("work_is_genuine", lambda e: altered(e, id="0001-2-5"), "is of two messages", right=stored),
    spoilt("work_is_genuine", lambda e: altered(e, topic="x"), "on x, published on orders", right=stored),
    spoilt("work_is_genuine", lambda e: altered(e, headers={"a": 1}), "with headers {'a': 1}", right=stored),
    spoilt(
        "work_is_genuine",
        lambda e: setattr(published(e, 4), "stored", False),
        "was not published at level stored",
        right=stored,
    ),
    spoilt(
        "work_is_genuine",
        lambda e: e.ledger.attached.append(Attached("worker-1", 1, QUEUE, ("news.*",), TWO, 2.0)),
        "which queue-1 does not want",
        right=stored,
    ),
    spoilt("drained", on_time, "1 of 2 messages wait in queue-1 at broker-2", right=stored),
]


def _retried() -> Evidence:
    """A worker asked for one message again, and got it."""
    evidence = stored()
    job_of(evidence, 20).said = Said.RETRY
    again(evidence)
    return evidence


@pytest.mark.parametrize("spoilt", SPOILT, ids=str)
def test_a_spoilt_history_is_found(spoilt: Spoilt) -> None:
    spoilt.must_be_found()


# --- losses of a home


def lost(home: str, spoil: Callable[[Evidence], None]) -> Verdict:
    evidence = stored(home)
    lose(evidence, 4)
    spoil(evidence)
    return judged(evidence, "stored_is_kept")


def fault(
    at_s: float, kind: str, *names: str, until_s: float | None = None, **more: Any
) -> Callable[..., None]:
    span = Span(Fault(at_s, kind, names, more=tuple(more.items())), at_s, until_s)
    return lambda evidence: evidence.faults.append(span)


@pytest.mark.parametrize(
    ("spoil", "right"),
    [
        (fault(5.0, "torn_file", THREE), True),
        (fault(5.0, "lost_files", THREE), True),
        (fault(5.0, "flipped_bits", THREE), True),
        (fault(5.0, "restart", THREE, state="lost"), True),
        (fault(5.0, "restart", THREE, state="kept"), False),
        (fault(5.0, "restart", THREE), False),
        (fault(5.0, "torn_file", TWO), False),
        (fault(5.0, "torn_file", THREE, files="log"), False),
        (fault(5.0, "power_off", THREE, until_s=BACK_S), False),
        (fault(3.0, "lying_disk", THREE, until_s=9.0), False),
    ],
)
def test_only_damage_to_the_files_of_a_home_excuses_loss(
    spoil: Callable[[Evidence], None], right: bool
) -> None:
    assert lost(THREE, spoil).ok is right


@pytest.mark.parametrize(("until_s", "right"), [(3.5, False), (9.0, True), (None, True)])
def test_a_power_loss_excuses_loss_while_the_disk_lies(until_s: float | None, right: bool) -> None:
    evidence = stored(THREE)
    lose(evidence, 4)
    fault(3.0, "lying_disk", THREE, until_s=until_s)(evidence)
    fault(KILLED_S, "power_off", THREE, until_s=BACK_S)(evidence)
    assert judged(evidence, "stored_is_kept").ok is right


@pytest.mark.parametrize(
    ("id", "from_s", "until_s", "right"),
    [(THREE, 4.0, 9.0, True), (THREE, 1.0, 4.0, False), (THREE, 5.0, None, False), (TWO, 1.0, None, False)],
)
def test_messages_that_came_while_a_home_had_a_twin_may_be_on_its_disk(
    id: str, from_s: float, until_s: float | None, right: bool
) -> None:
    """Swarm seed 43 with durable subscriptions: a copy of its state folder kept the messages instead."""
    evidence = stored(THREE)
    lose(evidence, 4)  # published at 4.1 s
    evidence.lives.append(Life("twin", 1, "twin", from_s, until_s, "killed", IDS[id], 99))
    assert judged(evidence, "stored_is_kept").ok is right


def test_messages_after_the_damage_are_owed_once_a_worker_is_served_again() -> None:
    evidence = stored(THREE)
    lose(evidence, 4)  # published at 4.1 s, acknowledged before the loss
    fault(5.0, "lost_files", THREE)(evidence)
    verdict = judged(evidence, "stored_is_kept")
    assert verdict.ok and 0 < verdict.count < 34
    lose(evidence, 28)  # published at 16.1 s
    assert not judged(evidence, "stored_is_kept").ok


def test_messages_of_a_publisher_beyond_an_incomplete_barrier_are_not_owed() -> None:
    for unreached, right in (((TWO,), True), ((THREE,), False)):
        evidence = stored()
        lose(evidence)
        evidence.ledger.attached[0] = replace(evidence.ledger.attached[0], unreached=unreached)
        verdict = judged(evidence, "stored_is_kept")
        assert (verdict.ok or verdict.empty) is right


def test_a_subscription_is_owed_nothing_that_came_before_it() -> None:
    evidence = stored()
    lose(evidence, 0)
    evidence.ledger.attached[0] = replace(evidence.ledger.attached[0], at_s=2.2)
    assert judged(evidence, "stored_is_kept").ok


@pytest.mark.parametrize(
    ("id", "forgotten_s", "right"),
    [(TWO, 4.05, True), (TWO, 4.2, False), (TWO, 1.0, False), (THREE, 4.05, False)],
)
def test_a_home_that_an_operator_forgot_is_owed_nothing_from_then_on(
    id: str, forgotten_s: float, right: bool
) -> None:
    """Swarm seed 1675881352 with durable subscriptions: the home was a copy that had been gone for long."""
    evidence = stored(TWO)
    lose(evidence, 4)  # published at 4.1 s, acknowledged at 4.11 s
    evidence.ledger.forgotten[IDS[id]] = forgotten_s
    assert judged(evidence, "stored_is_kept").ok is right


def test_each_home_of_one_name_is_owed_by_itself() -> None:
    evidence = stored()
    evidence.ledger.attached.append(Attached("worker-2", 1, QUEUE, ("#",), ONE, 2.0))
    assert "at broker-1" in judged(evidence, "stored_is_kept").violations[0]


# --- repeated deliveries


@pytest.mark.parametrize(("ended_s", "right"), [(12.3, True), (14.0, False)])
def test_a_session_that_ends_soon_after_a_settlement_excuses_a_second_delivery(
    ended_s: float, right: bool
) -> None:
    evidence = stored()
    again(evidence, after_s=3.0)
    evidence.lives = [
        replace(each, ended_s=ended_s) if each.name == "worker-1" else each for each in evidence.lives
    ]
    assert judged(evidence, "settled_once").ok is right


@pytest.mark.parametrize(("number", "right"), [(3, True), (2, False)])
def test_a_home_that_ends_soon_after_a_settlement_excuses_a_second_delivery(number: int, right: bool) -> None:
    """broker-3 is killed at 4 s; number 3 was done at 3.63 s, number 2 at 3.13 s."""
    evidence = stored(THREE)
    again(evidence, number, 8.0)
    assert judged(evidence, "settled_once").ok is right


def test_a_slow_disk_gives_a_home_more_time_to_write_settlements() -> None:
    evidence = stored(THREE)
    again(evidence, 2, 8.0)
    fault(3.2, "slow_disk", THREE, until_s=4.5)(evidence)
    assert judged(evidence, "settled_once").ok


@pytest.mark.parametrize(
    ("until_s", "other", "right"), [(13.5, THREE, True), (12.1, THREE, False), (13.5, ONE, False)]
)
def test_a_home_may_give_up_a_session_while_the_network_delays_settlements(
    until_s: float, other: str, right: bool
) -> None:
    """Swarm seed 2074150131 with durable subscriptions: its worker did not know of it yet."""
    evidence = stored(THREE)
    again(evidence, 20, 1.5)  # said at 12.13 s
    evidence.faults.append(Span(Fault(12.0, "partition", (TWO,), (other,)), 12.0, until_s))
    assert judged(evidence, "settled_once").ok is right


@pytest.mark.parametrize(
    ("kind", "right"), [("disk_fault", True), ("failing_syncs", True), ("slow_disk", False)]
)
def test_a_journal_that_failed_writes_nothing_until_its_home_starts_again(kind: str, right: bool) -> None:
    """Swarm seed 700058 with durable subscriptions: the home started again long after the fault."""
    evidence = stored(THREE)
    again(evidence, 2, 8.0)
    fault(3.2, kind, THREE, until_s=3.3)(evidence)
    assert judged(evidence, "settled_once").ok is right


def test_a_message_that_a_worker_retried_may_come_again() -> None:
    assert judged(_retried(), "settled_once").ok


@pytest.mark.parametrize("sessions", [[(1.0, 12.4), (12.6, 22.0)], [(1.0, 22.0)]])
def test_messages_in_hand_go_to_another_worker_when_the_connection_ends(
    sessions: list[tuple[float, float]],
) -> None:
    evidence = stored()
    held(evidence)
    evidence.sessions["worker-1", 1] = sessions
    assert judged(evidence, "held_once").ok is (len(sessions) == 2)


# --- waiting messages


@pytest.mark.parametrize(("due_s", "right"), [(25.0, True), (15.0, False)])
def test_a_message_to_be_retried_later_may_wait(due_s: float, right: bool) -> None:
    evidence = stored()
    job = job_of(evidence, 10)
    job.said, job.due_s = Said.RETRY, due_s
    evidence.journals[0].waiting[QUEUE].append(_left(published(evidence, 10)))
    assert judged(evidence, "drained").ok is right


@pytest.mark.parametrize(
    ("killed_s", "how", "right"),
    [(11.0, "killed", True), (11.0, "power_off", True), (5.0, "killed", False), (None, "", False)],
)
def test_messages_of_a_killed_worker_wait_as_after_a_failed_attempt(
    killed_s: float | None, how: str, right: bool
) -> None:
    """Swarm seeds 700178 and, where the worker's host lost power, 1675881456 with durable subscriptions."""
    evidence = stored()
    job = job_of(evidence, 10)
    job.said, job.attempt = Said.RETRY, 12
    job.due_s = job.at_s + 0.1
    evidence.lives.append(Life("worker-2", 1, TWO, 1.0, killed_s, how))
    evidence.ledger.attached.insert(0, Attached("worker-2", 1, QUEUE, ("#",), TWO, 2.0))
    evidence.journals[0].waiting[QUEUE].append(_left(published(evidence, 10)))
    assert judged(evidence, "drained").ok is right


@pytest.mark.parametrize(("last_s", "right"), [(10.0, True), (5.0, False), (21.5, False)])
def test_messages_of_an_ended_session_wait_as_after_a_failed_attempt(last_s: float, right: bool) -> None:
    """Swarm seed 940047 with durable subscriptions: a worker's answer was lost with its connection. The end
    of all sessions after the run is no excuse.
    """
    evidence = stored()
    job = job_of(evidence, 10)
    job.said, job.attempt, job.due_s = Said.RETRY, 12, job.at_s + 0.1
    evidence.sessions["worker-1", 1] = [(1.0, last_s), (last_s, 22.0)]
    evidence.journals[0].waiting[QUEUE].append(_left(published(evidence, 10)))
    assert judged(evidence, "drained").ok is right


def test_a_queue_need_not_drain_when_its_workers_are_busy_until_the_end() -> None:
    """Swarm seed 2074150064 with durable subscriptions: its one worker is slow."""
    evidence = stored()
    evidence.journals[0].waiting[QUEUE].append(_left(published(evidence, 10)))
    assert not judged(evidence, "drained").ok
    again(evidence, 20, evidence.phases["drained_s"] - 0.5 - job_of(evidence, 20).at_s)
    assert judged(evidence, "drained").ok


@pytest.mark.parametrize(
    ("said", "drained_s", "right"),
    [(Said.FAILED, 24.0, True), (Said.FAILED, 28.0, False), (Said.DONE, 24.0, False)],
)
def test_a_worker_that_left_its_loop_just_now_need_not_be_back(
    said: Said, drained_s: float, right: bool
) -> None:
    """Swarm seed 940046 with durable subscriptions: a broker whose state folder is gone cannot say that it
    knows of the subscription, so that each attaching takes 5 s."""
    evidence = stored()
    evidence.journals[0].waiting[QUEUE].append(_left(published(evidence, 10)))
    evidence.ledger.jobs.append(replace(job_of(evidence, 20), at_s=21.0, said=said, said_s=21.0))
    evidence.phases["drained_s"] = drained_s
    verdict = judged(evidence, "drained")
    assert (verdict.ok or verdict.empty) is right


def test_a_queue_to_which_no_worker_came_back_need_not_drain() -> None:
    evidence = stored()
    on_time(evidence)
    evidence.ledger.attached.append(Attached("worker-1", 1, QUEUE, ("#",), ONE, 21.5))
    assert not judged(evidence, "drained").count


def test_a_home_need_not_drain_when_its_worker_went_to_another() -> None:
    """Swarm seed 2074150211 with durable subscriptions: the other has the same id and outlived this one."""
    evidence = stored()
    evidence.journals[0].waiting[QUEUE].append(_left(published(evidence, 10)))
    assert not judged(evidence, "drained").ok
    evidence.ledger.jobs.append(replace(job_of(evidence, 20), home=ONE, at_s=21.5))
    assert not judged(evidence, "drained").count


@pytest.mark.parametrize(("attempt", "right"), [(2, True), (1, False)])
def test_a_delivery_that_the_network_delayed_may_come_after_a_later_one(attempt: int, right: bool) -> None:
    """Swarm seed 2074150305 with durable subscriptions: its home had closed that connection."""
    evidence = stored()
    again(evidence, after_s=1.5, attempt=1)
    job_of(evidence, 20).attempt = attempt
    assert judged(evidence, "settled_once").ok is right


def test_a_message_in_hand_may_be_overtaken_by_an_older_delayed_delivery() -> None:
    """Swarm seed 1675881227 with durable subscriptions."""
    evidence = stored()
    job = job_of(evidence, 20)
    again(evidence, after_s=0.005)
    job.said_s = job.at_s + 1.0
    assert not judged(evidence, "held_once").ok
    job.redelivered = True
    assert judged(evidence, "held_once").ok


@pytest.mark.parametrize(
    ("told", "home", "right"), [(False, THREE, True), (True, THREE, False), (False, TWO, False)]
)
@pytest.mark.parametrize("check", ["settled_once", "held_once"])
def test_a_delivery_of_the_homes_last_life_may_come_after_one_of_this_life(
    check: str, told: bool, home: str, right: bool
) -> None:
    """Swarm seed 2713254232 with durable subscriptions: the home does not remember what it sent before."""
    evidence = stored(home)
    job = job_of(evidence, 2)
    assert job.at_s < KILLED_S
    job.at_s = BACK_S + 1.0
    job.said_s = BACK_S + 1.01 if check == "settled_once" else None
    again(evidence, 2, told=told)
    assert judged(evidence, check).ok is right


@pytest.mark.parametrize(("told", "right"), [(False, True), (True, False)])
def test_a_message_of_a_session_that_is_over_does_not_prove_that_a_subscription_stands(
    told: bool, right: bool
) -> None:
    """Swarm seed 1675881092 with durable subscriptions: it had come before its home lost everything."""
    evidence = stored(THREE)
    fault(4.0, "lost_files", THREE)(evidence)
    for job in evidence.ledger.jobs:
        job.told = told and job.at_s > BACK_S
    lose(evidence, 28)  # published at 16.1 s
    verdict = judged(evidence, "stored_is_kept")
    assert (verdict.ok or verdict.empty) is right
