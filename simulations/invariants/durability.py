"""Checks that messages acknowledged as `stored` are kept until they are settled, and not delivered after
that.

A durable subscription is named by its queue and its home: after a partition there may be two of one queue. It
exists from the first moment at which a worker was attached to it, or got a message of it in a session that
went on, since its home last lost files. The faults that really struck a home's disk decide what it may lose:
torn or lost files, flipped bits, and a power loss while the disk lied. Then it may lose all that it kept so
far, and the loss shows only at its next start. While two brokers have one id, one of them keeps what both
should.

A home that an operator forgot is owed nothing from then on.

A settled message may be delivered again if the worker's session, or the home, ended before the home had the
settlement on disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from mesh.topics import matches
from mesh.work.options import WorkOptions
from simulations.evidence import Evidence
from simulations.evidence.journals import JournalLeft, Left
from simulations.evidence.ledger import Attached, Job, Outcome, Publication, Said
from simulations.evidence.recorder import POWER_LOSSES, SPOIL_FILES
from simulations.invariants.check import Check, at_end
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.passage import LOOK_S, PASSAGE_S, passed_s
from simulations.invariants.verdict import Verdict, verdict

DISK_TROUBLES: Final = ("slow_disk", "disk_fault", "full_disk", "failing_syncs", "lying_disk")
"""Kinds under which a commit may take long, or fail."""
FAIL_JOURNALS: Final = ("disk_fault", "failing_syncs")
"""Kinds under which a journal may fail: then its home writes nothing more in that life."""
KILLED: Final = ("killed", "power_off")
"""The ends of lives of clients that did not leave."""
SETTLED_S: Final = 0.5
"""Seconds until a worker's answer is on the disk of its home, if no fault affects either."""
SESSION_S: Final = 20.0
"""Seconds within which a broker notices that a client is gone."""
BACK_OFF: Final = WorkOptions()
BUSY_S: Final = 1.0
"""A worker that got a message so shortly before the end was busy until the end."""
BACK_S: Final = 6.0
"""A worker that left its loop so shortly before the end may not be attached again."""
LAST_S: Final = 3.0
"""A message that came to a queue, or is due, so shortly before the end may still wait there."""

Queue = tuple[str, str]
"""A durable subscription: its name and its home."""


class Durability:
    """The durable subscriptions of one run."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.circumstances = Circumstances(evidence)

    # --- the durable subscriptions

    @cached_property
    def patterns(self) -> dict[str, tuple[str, ...]]:
        return {each.queue: each.patterns for each in self.evidence.ledger.attached}

    @cached_property
    def standing(self) -> dict[Queue, float]:
        """For each durable subscription, the second from which it exists."""
        found: dict[Queue, float] = {}
        ledger = self.evidence.ledger
        proofs = [((each.queue, each.home), each.at_s) for each in ledger.attached]
        proofs += [((each.queue, each.home), each.at_s) for each in ledger.jobs if each.told]
        for queue, at_s in proofs:
            if at_s > self._lost_until_s(queue[1]):
                found[queue] = min(found.get(queue, math.inf), at_s)
        return found

    def _lost_until_s(self, home: str) -> float:
        return max((until_s for _, until_s in self.losses(home)), default=-math.inf)

    def losses(self, home: str) -> list[tuple[float, float]]:
        """When files of a home were lost, and when it started again after that."""
        spans = self.evidence.faults
        found = []
        for span in spans:
            if home not in span.fault.a:
                continue
            kind = span.fault.kind
            spoilt = kind in SPOIL_FILES and span.fault.text("files", "state") == "state"
            spoilt |= kind == "restart" and span.fault.text("state", "kept") != "kept"
            lied = kind in POWER_LOSSES and any(
                other.fault.kind == "lying_disk"
                and home in other.fault.a
                and other.start_s <= span.start_s <= (math.inf if other.end_s is None else other.end_s)
                for other in spans
            )
            if spoilt or lied:
                found.append((span.start_s, self._started_s(home, span.start_s)))
        return found

    def _started_s(self, home: str, after_s: float) -> float:
        lives = self.evidence.brokers.get(home, ())
        return min((life.started_s for life in lives if life.started_s > after_s), default=math.inf)

    def owed(self) -> Iterator[tuple[Publication, Queue]]:
        """Acknowledged messages, and the durable subscriptions that must keep them."""
        for publication in self.evidence.ledger.publications.values():
            if publication.outcome is Outcome.STORED:
                by_s = publication.accepted_s or publication.at_s
                for queue in self.owed_to(publication, by_s):
                    yield publication, queue

    def owed_to(self, publication: Publication, by_s: float) -> Iterator[Queue]:
        """Durable subscriptions that must keep a message, if homes were asked until then."""
        here = self.evidence.host_of(publication.publisher)
        for (name, home), since_s in self.standing.items():
            if (
                since_s <= publication.at_s
                and self.wants(name, publication)
                and (name, home, here) not in self._unreached
                and not self.had_twin(
                    home, publication.at_s, by_s
                )  # one of the twins has it, on a separate disk
                and not self.was_forgotten(home, since_s, by_s)
            ):
                yield name, home

    def wants(self, queue: str, publication: Publication) -> bool:
        return any(matches(pattern, publication.topic) for pattern in self.patterns[queue])

    @cached_property
    def _unreached(self) -> set[tuple[str, str, str]]:
        """Durable subscriptions, by name and home, that a broker did not know in time."""
        attached = self.evidence.ledger.attached
        return {(each.queue, each.home, name) for each in attached for name in each.unreached}

    def may_have_been_lost(self, publication: Publication) -> bool:
        """True if a home that may have kept it has lost files since."""
        return any(
            self.wants(each.queue, publication) and self.lost_files(each.home, publication.at_s, math.inf)
            for each in self.evidence.ledger.attached
        )

    # --- the fate of messages

    @cached_property
    def jobs(self) -> dict[tuple[Queue, str], list[Job]]:
        """By durable subscription and id of the message, in the order in which workers got them."""
        found: dict[tuple[Queue, str], list[Job]] = {}
        for job in self.evidence.ledger.jobs:
            found.setdefault(((job.queue, job.home), job.id), []).append(job)
        return found

    @cached_property
    def left(self) -> dict[str, JournalLeft]:
        """Journals by their home."""
        return {each.host: each for each in self.evidence.journals}

    def all_left(self) -> Iterator[tuple[str, str, Left]]:
        """Messages in journals, as home, queue and message."""
        for each in self.evidence.journals:
            for queues in (each.waiting, each.dead):
                for name, messages in queues.items():
                    for message in messages:
                        yield each.host, name, message

    def worked_s(self, queue: Queue) -> float:
        """When a worker last got one of its messages, in seconds."""
        return max((jobs[-1].at_s for (name, _), jobs in self.jobs.items() if name == queue), default=0.0)

    # --- excuses

    def failed_until_s(self, queue: Queue, last: Job) -> float:
        """How long a message may wait after its consumer's session ended.

        The session may be one that nobody saw receive it. Its home notices the end, and then waits for the
        delay of a failed attempt.
        """
        delay_s = min(BACK_OFF.back_off_max_s, BACK_OFF.back_off_s * 2**last.attempt)
        latest = max(last.at_s, last.due_s) + SESSION_S
        return max(
            (
                at_s + SESSION_S + delay_s
                for at_s in self._session_ends.get(queue[0], ())
                if last.at_s <= at_s <= latest
            ),
            default=0.0,
        )

    @cached_property
    def _session_ends(self) -> dict[str, list[float]]:
        """By durable subscription: when sessions of its workers ended, before they were asked to."""
        evidence = self.evidence
        asked_s = evidence.phases.get("drained_s", math.inf)
        queues = {each.worker: each.queue for each in evidence.ledger.attached}
        ends = [
            (life.name, life.ended_s)
            for life in evidence.lives
            if life.how in KILLED and life.ended_s is not None
        ]
        ends += [
            (worker, last_s + LOOK_S)
            for (worker, _), sessions in evidence.sessions.items()
            for _, last_s in sessions
        ]
        found: dict[str, list[float]] = {}
        for worker, at_s in ends:
            if worker in queues and at_s < asked_s:
                found.setdefault(queues[worker], []).append(at_s)
        return found

    def home_ended(self, home: str, from_s: float, until_s: float) -> bool:
        lives = self.evidence.brokers.get(home, ())
        return any(each.ended_s is not None and from_s <= each.ended_s <= until_s for each in lives)

    def session_ended(self, job: Job, until_s: float) -> bool:
        """When the session ended in which the worker got it; looks are exact to the second."""
        evidence = self.evidence
        for life in evidence.lives:
            if (life.name, life.number) == (job.worker, job.life):
                if life.ended_s is not None and life.ended_s <= until_s:
                    return True
        sessions = evidence.sessions.get((job.worker, job.life), [])
        return any(job.at_s - LOOK_S <= last_s <= until_s + LOOK_S for _, last_s in sessions)

    def is_held_up(self, job: Job, until_s: float) -> bool:
        """True if the network may delay the worker's answer.

        Meanwhile its home may give its session up, before the worker knows.
        """
        assert job.said_s is not None
        passed = passed_s(
            self.circumstances, self.evidence.host_of(job.worker), job.home, job.said_s, SETTLED_S
        )
        return job.said_s + SETTLED_S < passed and until_s <= passed

    def had_twin(self, home: str, from_s: float, until_s: float) -> bool:
        lives = self.evidence.brokers.get(home, ())
        return any(self.evidence.twin_between(home, life.id, from_s, until_s) for life in lives)

    def was_forgotten(self, home: str, from_s: float, until_s: float) -> bool:
        """True if an operator said in that time that the home will not come back.

        Its name may now be that of another broker, which has another id.
        """
        life = self.evidence.up(home, from_s, from_s)
        forgotten_s = None if life is None else self.evidence.ledger.forgotten.get(life.id or 0)
        return forgotten_s is not None and from_s <= forgotten_s <= until_s

    def lost_files(self, home: str, from_s: float, until_s: float) -> bool:
        return any(begin_s <= until_s and end_s >= from_s for begin_s, end_s in self.losses(home))

    def on_disk_s(self, job: Job) -> float:
        """When the worker's answer is certainly on the disk of the home, if nothing ended before."""
        assert job.said_s is not None
        here = self.evidence.host_of(job.worker)
        until_s = passed_s(self.circumstances, here, job.home, job.said_s, SETTLED_S)
        for span in self.evidence.faults:
            if span.fault.kind in DISK_TROUBLES and job.home in span.fault.a:
                end_s = math.inf if span.end_s is None else span.end_s
                if span.start_s <= until_s and end_s >= job.said_s:
                    failed = span.fault.kind in FAIL_JOURNALS
                    until_s = math.inf if failed else max(until_s, end_s + SETTLED_S)
        return until_s


@at_end
def stored_is_kept(evidence: Evidence) -> Verdict:
    run = Durability(evidence)
    kept = {(home, queue, left.body) for home, queue, left in run.all_left()}
    kept |= {
        (job.home, job.queue, job.body) for job in evidence.ledger.jobs if job.said is Said.DONE and job.told
    }
    wrong: list[str] = []
    looked = 0
    for publication, (queue, home) in run.owed():
        looked += 1
        if (home, queue, publication.body) not in kept:
            left = run.left.get(home)
            why = f"; {left.why}" if left is not None and left.why else ""
            named = ", ".join(publication.homes) or "nobody"
            wrong.append(
                f"number {publication.number} of {publication.publisher}, acknowledged as stored by {named} "
                f"at {publication.accepted_s:.3f} s, is neither processed nor in {queue} at {home}{why}"
            )
    return verdict("stored_is_kept", looked, "message(s) owed to a durable subscription", wrong)


@at_end
def settled_once(evidence: Evidence) -> Verdict:
    run = Durability(evidence)
    wrong: list[str] = []
    looked = again = 0
    for (queue, _), jobs in run.jobs.items():
        for job, following in zip(jobs, [*jobs[1:], None], strict=True):
            if job.said not in (Said.DONE, Said.DROP) or not job.told:
                continue
            looked += 1
            if following is None:
                continue
            again += 1
            if not _may_come_again(run, job, following):
                wrong.append(
                    f"{following.worker} got {_short(job)} of {queue[0]} at {queue[1]} at "
                    f"{following.at_s:.3f} s, though {job.worker} had said {job.said} at {job.said_s:.3f} s"
                )
    return verdict("settled_once", looked, "settled message(s)", wrong, detail=f"{again} came again")


def _may_come_again(run: Durability, job: Job, following: Job) -> bool:
    assert job.said_s is not None
    until_s = min(run.on_disk_s(job), following.at_s)
    return (
        run.home_ended(job.home, job.said_s, until_s)
        or run.session_ended(job, until_s)
        or run.is_held_up(job, following.at_s)
        or _was_sent_before(run, job, following)
        or run.lost_files(job.home, job.said_s, following.at_s)
        or run.had_twin(job.home, job.at_s, following.at_s)
    )


def _was_sent_before(run: Durability, job: Job, following: Job) -> bool:
    """True if the later delivery was sent earlier: the network held it up, and its session is over.

    A home that starts again does not remember what it sent, so the delivery after that says nothing of the
    one before.
    """
    if (following.attempt, following.redelivered) < (job.attempt, job.redelivered):
        return True
    publication = run.evidence.ledger.publications.get(job.body)
    stored_s = publication.at_s if publication is not None else job.at_s
    return not following.told and run.home_ended(job.home, stored_s, job.at_s)


@at_end
def held_once(evidence: Evidence) -> Verdict:
    run = Durability(evidence)
    wrong: list[str] = []
    looked = 0
    for (queue, _), jobs in run.jobs.items():
        for job, following in pairwise(jobs):
            looked += 1
            in_hand = job.said_s is None or job.said_s > following.at_s
            if in_hand and not (
                run.session_ended(job, following.at_s)
                or run.home_ended(job.home, job.at_s - PASSAGE_S, following.at_s)
                or _was_sent_before(run, job, following)
                or run.had_twin(job.home, job.at_s, following.at_s)
            ):
                wrong.append(
                    f"{following.worker} got {_short(job)} of {queue[0]} at {queue[1]} at "
                    f"{following.at_s:.3f} s, while {job.worker} has had it in hand since {job.at_s:.3f} s"
                )
    return verdict("held_once", looked, "deliver(y|ies) again", wrong)


@at_end
def refused_is_nowhere(evidence: Evidence) -> Verdict:
    run = Durability(evidence)
    refused = {
        each.body: each
        for each in evidence.ledger.publications.values()
        if each.stored and each.outcome is Outcome.REFUSED
    }
    wrong = [
        f"{home} keeps in {queue} number {each.number} of {each.publisher}, which was refused"
        for home, queue, left in run.all_left()
        if (each := refused.get(left.body)) is not None
    ]
    wrong += [
        f"{job.worker} got number {each.number} of {each.publisher}, which was refused, from {job.home}"
        for job in evidence.ledger.jobs
        if (each := refused.get(job.body)) is not None
    ]
    return verdict("refused_is_nowhere", len(refused), "refused message(s)", wrong)


@at_end
def work_is_genuine(evidence: Evidence) -> Verdict:
    run = Durability(evidence)
    ledger = evidence.ledger
    wrong: list[str] = []
    bodies: dict[str, bytes] = {}
    ids: dict[bytes, str] = {}
    seen = [(each.id, each.body, f"{each.worker} got it") for each in ledger.jobs]
    seen += [(left.id, left.body, f"{home} keeps it") for home, _, left in run.all_left()]
    for id, body, where in seen:
        if bodies.setdefault(id, body) != body or ids.setdefault(body, id) != id:
            wrong.append(
                f"id {id} is of two messages, or one message has two ids, of which one is {id}: {where}"
            )
        publication = ledger.publications.get(body)
        if publication is None:
            wrong.append(f"message {id} was published by nobody: {where}")
        elif not publication.stored:
            wrong.append(f"message {id} was not published at level stored: {where}")
    for job in ledger.jobs:
        publication = ledger.publications.get(job.body)
        if publication is None:
            continue
        if publication.topic != job.topic:
            wrong.append(f"{job.worker} got {_short(job)} on {job.topic}, published on {publication.topic}")
        elif publication.headers != job.headers:
            wrong.append(f"{job.worker} got {_short(job)} with headers {job.headers}")
        elif not any(matches(pattern, job.topic) for pattern in run.patterns.get(job.queue, ())):
            wrong.append(f"{job.worker} got {_short(job)}, which {job.queue} does not want")
    return verdict("work_is_genuine", len(seen), "message(s) of durable subscriptions", wrong)


@at_end
def drained(evidence: Evidence) -> Verdict:
    """Considers queues with an attached worker.

    A message that a worker asked to get again later may wait, and so may one that came last. Workers that are
    busy until the end had too much work.
    """
    run = Durability(evidence)
    end_s = evidence.phases.get("drained_s")
    if end_s is None or not evidence.was_whole():
        return verdict("drained", 0, "queue(s)", [])
    # A worker whose connection was lost may go on at another home, as its messages show.
    seen: list[Attached | Job] = [*evidence.ledger.attached, *evidence.ledger.jobs]
    seen.sort(key=lambda each: each.at_s)
    latest = {each.worker: each for each in seen}.values()
    attended = {(each.queue, each.home) for each in latest if not _is_on_its_way_back(each, end_s)}
    wrong: list[str] = []
    looked = 0
    for home, journal in run.left.items():
        for name, messages in journal.waiting.items():
            if (name, home) not in attended:
                continue
            looked += 1
            if run.worked_s((name, home)) >= end_s - BUSY_S:
                continue
            overdue = [each for each in messages if _is_overdue(run, (name, home), each, end_s - LAST_S)]
            if overdue:
                wrong.append(
                    f"{len(overdue)} of {len(messages)} messages wait in {name} at {home} that workers could "
                    f"have processed; the first is {overdue[0].id}"
                )
    return verdict("drained", looked, "queue(s)", wrong)


def _is_on_its_way_back(latest: Attached | Job, end_s: float) -> bool:
    """True if a worker left its loop: it waits until brokers know the subscription when it comes again."""
    return isinstance(latest, Job) and latest.said is Said.FAILED and (latest.said_s or 0.0) >= end_s - BACK_S


def _is_overdue(run: Durability, queue: Queue, left: Left, by_s: float) -> bool:
    jobs = run.jobs.get((queue, left.id), [])
    publication = run.evidence.ledger.publications.get(left.body)
    if publication is not None and max(publication.at_s, publication.accepted_s or 0.0) > by_s:
        return False
    due_s = max([jobs[-1].at_s, jobs[-1].due_s, run.failed_until_s(queue, jobs[-1])] if jobs else [0.0])
    return due_s <= by_s


def _short(job: Job) -> str:
    return repr(job.body[:40].decode(errors="backslashreplace"))


def _has_queues(evidence: Evidence) -> bool:
    return evidence.scenario.workload.durable_subscriptions > 0


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D12",
        "stored_is_kept",
        "always",
        "A message acknowledged as stored is done, waits or is a dead letter at every home that wanted it.",
        stored_is_kept,
        default=True,
        occasional=True,
        needs=_has_queues,
    ),
    Check(
        "D13",
        "settled_once",
        "always",
        "A settled message comes again only if its home or session ended before that was on disk.",
        settled_once,
        default=True,
        occasional=True,
        needs=_has_queues,
    ),
    Check(
        "D14",
        "held_once",
        "always",
        "Nobody gets a message that another worker has in hand, unless that worker's session is over.",
        held_once,
        default=True,
        occasional=True,
        needs=_has_queues,
    ),
    Check(
        "D15",
        "refused_is_nowhere",
        "always",
        "A message refused at level stored is in no journal, and no worker gets it.",
        refused_is_nowhere,
        default=True,
        occasional=True,
        needs=_has_queues,
    ),
    Check(
        "D16",
        "work_is_genuine",
        "always",
        "What homes keep and workers get was published at level stored, unaltered, with a unique id.",
        work_is_genuine,
        default=True,
        occasional=True,
        needs=_has_queues,
    ),
    Check(
        "D17",
        "drained",
        "eventually",
        "After the quiet time no message waits that a worker could have processed.",
        drained,
        default=True,
        occasional=True,
        needs=_has_queues,
    ),
)
