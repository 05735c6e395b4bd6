"""Who waits behind whom: heartbeats behind data, everybody behind a slow reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from simulations.evidence import Evidence, Row
from simulations.invariants.bounds import (
    QUICK_S,
    WAITING_MAX,
)
from simulations.invariants.check import Check, Parameter
from simulations.invariants.circumstances import quantile
from simulations.invariants.verdict import Verdict, verdict


def heartbeats_pass(evidence: Evidence, within_s: float = 0.0, share: float = 1.0) -> Verdict:
    """In the safety phase. Half of what a round trip takes beyond the fastest is queueing; answers that came
    after the deadline are only counted by who got them.
    """
    within_s = within_s or evidence.deadline_s / 2
    trips: dict[tuple[str, str], list[float]] = {}
    for row in _answers(evidence):
        trips.setdefault((evidence.writer(row), row["src"]), []).append(row["rtt_us"] / 1e6)
    slow = [
        f"a heartbeat from {writer} to {evidence.name_of(int(peer, 16))} and back waited "
        f"{(trip - min(times)) / 2:.3f} s each way, more than {within_s:g} s"
        for (writer, peer), times in trips.items()
        for trip in times
        if (trip - min(times)) / 2 > within_s
    ]
    late = _late_answers(evidence)
    count = sum(map(len, trips.values())) + sum(late.values())
    in_time = (count - len(slow) - sum(late.values())) / count if count else 0.0
    slow += [f"{times} answers came to {name} after the deadline" for name, times in late.items() if times]
    detail = f"{in_time:.2%} of them in time"
    return verdict("heartbeats_pass", count, "heartbeat(s)", slow if in_time < share else [], detail=detail)


def _late_answers(evidence: Evidence) -> dict[str, int]:
    """How many came to each broker in the safety phase."""
    late: dict[str, int] = {}
    for before, sample in pairwise(evidence.samples_between(*evidence.phase("safety"))):
        for name, view in sample.views.items():
            earlier = before.views.get(name)
            if earlier is not None and earlier.boot == view.boot:
                risen = view.counters.get("late_answers", 0) - earlier.counters.get("late_answers", 0)
                late[name] = late.get(name, 0) + max(0, risen)
    return late


def _answers(evidence: Evidence) -> Iterator[Row]:
    since_s, until_s = evidence.phases.get("safety_s", 0.0), evidence.phases.get("healed_s", evidence.end_s)
    for row in evidence.rows:
        if row["kind"] == "hb" and row["msg"] == "answer" and since_s <= row["at_s"] <= until_s:
            yield row


def others_unaffected(evidence: Evidence, whom: tuple[str, ...] = (), factor: float = 2.0) -> Verdict:
    """``whom`` are slow: deliveries between all others, in the safety phase against the time before it."""
    safety_s = evidence.phases.get("safety_s", 0.0)
    healed_s = evidence.phases.get("healed_s", evidence.end_s)
    slow = dict.fromkeys((*whom, *(life.name for life in evidence.lives if life.host in whom)))
    before: list[float] = []
    during: list[float] = []
    for receipt in evidence.ledger.receipts:
        publication = evidence.ledger.publications.get(receipt.body)
        if publication is None or receipt.subscriber in slow or publication.publisher in slow:
            continue
        if publication.at_s < safety_s:
            before.append(receipt.at_s - publication.at_s)
        elif publication.at_s < healed_s:
            during.append(receipt.at_s - publication.at_s)
    wrong: list[str] = []
    if before and during:
        usual, now = quantile(before, 0.99), quantile(during, 0.99)
        if now > max(QUICK_S, factor * usual):
            wrong.append(f"p99 of deliveries among the others is {now:.4f} s, and was {usual:.4f} s before")
    for sample in evidence.samples:
        for view in sample.views.values():
            most = WAITING_MAX * max(1, len(view.links))
            if view.sizes.get("queued", 0) > most:
                wrong.append(f"{view.name} holds back {view.sizes['queued']} messages, more than {most}")
    count = len(during) if before else 0
    return verdict("others_unaffected", count, "deliver(y|ies) among others", wrong)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D7",
        "heartbeats_pass",
        "always",
        "Heartbeats do not wait behind data for more than half a deadline.",
        heartbeats_pass,
        (
            Parameter("within_s", "number", 0.0, "seconds of queueing one way; 0 is half the deadline"),
            Parameter("share", "number", 1.0, "of all heartbeats that must be in time"),
        ),
    ),
    Check(
        "D8",
        "others_unaffected",
        "always",
        "Who reads slowly delays nobody else, and what waits for it is bounded.",
        others_unaffected,
        (
            Parameter("whom", "names", (), "who is slow: clients, or brokers with theirs"),
            Parameter("factor", "number", 2.0, "how much slower p99 may become"),
        ),
    ),
)
