"""Messages that an outbox took: each is still there, or at every home that wants it, and arrives in order.

An outbox may lose what its disk loses: one that lied when power was lost. `simulations.invariants.durability`
says what its homes may lose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mesh.topics import matches
from simulations.evidence import Evidence
from simulations.evidence.ledger import Outcome, Publication, Said
from simulations.evidence.outboxes import OutboxLeft
from simulations.invariants.check import Check, at_end
from simulations.invariants.durability import LAST_S, Durability, Queue
from simulations.invariants.verdict import Verdict, verdict


def _taken(evidence: Evidence) -> list[Publication]:
    return [each for each in evidence.ledger.publications.values() if each.outcome is Outcome.OUTBOX]


def _left(evidence: Evidence) -> dict[str, OutboxLeft]:
    return {each.publisher: each for each in evidence.outboxes}


def _kept(run: Durability) -> set[tuple[Queue, bytes]]:
    """The messages in journals, and those processed."""
    kept = {((queue, home), left.body) for home, queue, left in run.all_left()}
    return kept | {
        ((job.queue, job.home), job.body)
        for job in run.evidence.ledger.jobs
        if job.said is Said.DONE and job.told
    }


@at_end
def outbox_is_kept(evidence: Evidence) -> Verdict:
    run = Durability(evidence)
    left, kept = _left(evidence), _kept(run)
    bodies = {body for _, body in kept}
    lying = {publisher: set(each.bodies) for publisher, each in left.items()}
    wrong: list[str] = []
    taken = _taken(evidence)
    for publication in taken:
        if publication.body in lying.get(publication.publisher, ()):
            continue
        host = evidence.host_of(publication.publisher)
        if run.lost_files(host, publication.at_s, math.inf):
            continue
        missing = [
            f"{queue[0]} at {queue[1]}"
            for queue in run.owed_to(publication, math.inf)
            if (queue, publication.body) not in kept
        ]
        nowhere = publication.body not in bodies and not run.may_have_been_lost(publication)
        if missing or nowhere:
            of = left.get(publication.publisher)
            why = f"; {of.why}" if of is not None and of.why else ""
            wrong.append(
                f"number {publication.number} of {publication.publisher}, taken by its outbox at "
                f"{publication.accepted_s:.3f} s, is not there any more, and not in "
                f"{', '.join(missing) or 'any home'}{why}"
            )
    return verdict("outbox_is_kept", len(taken), "message(s) taken by an outbox", wrong)


@at_end
def outbox_drained(evidence: Evidence) -> Verdict:
    """A message that no home keeps stays, and the last ones may."""
    run = Durability(evidence)
    until_s = evidence.phases.get("quiet_until_s")
    taken = {each.body: each for each in _taken(evidence)}
    if until_s is None or not evidence.was_whole():
        return verdict("outbox_drained", 0, "outbox(es)", [])
    wrong: list[str] = []
    for left in evidence.outboxes:
        overdue = [
            publication
            for body in left.bodies
            if (publication := taken.get(body)) is not None
            and publication.at_s < until_s - LAST_S
            and any(matches(pattern, publication.topic) for each in run.patterns.values() for pattern in each)
        ]
        if overdue:
            wrong.append(
                f"{len(overdue)} message(s) still lie in the outbox of {left.publisher}; the first is number "
                f"{overdue[0].number}, taken at {overdue[0].at_s:.3f} s"
            )
        elif left.why:
            wrong.append(f"the outbox of {left.publisher} cannot be read: {left.why}")
    return verdict("outbox_drained", len(evidence.outboxes), "outbox(es)", wrong)


@at_end
def outbox_in_order(evidence: Evidence) -> Verdict:
    """By first deliveries, where no worker is killed: messages of one publisher and topic to one worker."""
    publications = evidence.ledger.publications
    last: dict[tuple[str, str, str, str], Publication] = {}
    seen: set[tuple[str, str, bytes]] = set()
    wrong: list[str] = []
    looked = 0
    for job in evidence.ledger.jobs:
        publication = publications.get(job.body)
        came = (job.queue, job.home, job.body)
        if publication is None or publication.outcome is not Outcome.OUTBOX or came in seen:
            continue
        seen.add(came)
        line = (job.worker, job.queue, publication.publisher, publication.topic)
        before = last.get(line)
        last[line] = publication
        looked += 1
        if before is not None and (before.life, before.number) > (publication.life, publication.number):
            wrong.append(
                f"{job.worker} got number {publication.number} of {publication.publisher} on {job.topic} at "
                f"{job.at_s:.3f} s, after number {before.number}"
            )
    return verdict("outbox_in_order", looked, "message(s) that came from an outbox", wrong)


def _has_outboxes(evidence: Evidence) -> bool:
    return evidence.scenario.workload.outbox_share > 0


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D18",
        "outbox_is_kept",
        "always",
        "A message that an outbox took is there, or is done, waits or is a dead letter at every home that "
        "wanted it.",
        outbox_is_kept,
        default=True,
        occasional=True,
        needs=_has_outboxes,
    ),
    Check(
        "D19",
        "outbox_drained",
        "eventually",
        "After the quiet time no outbox holds a message that a home wants.",
        outbox_drained,
        default=True,
        occasional=True,
        needs=_has_outboxes,
    ),
    Check(
        "D20",
        "outbox_in_order",
        "always",
        "Each worker first gets messages of one outbox and topic in the order in which the outbox took them.",
        outbox_in_order,
    ),
)
