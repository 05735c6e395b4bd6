"""What must hold of messages, surveys and interest: D1 to D10 of the study.

`D5` judges the broadcast tree, which is not there yet: its coming must fill ``eager`` and the counter
``copies`` of a `View`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from mesh.topics import matches
from simulations.evidence import Evidence, Row, Sample, View
from simulations.invariants.check import Check, Parameter
from simulations.invariants.circumstances import Circumstances, quantile
from simulations.invariants.membership import grace_s, was_whole
from simulations.invariants.verdict import Verdict, verdict
from simulations.ledger import Outcome, Publication, Receipt, Subscribed

WAITING_MAX: Final = 65_536
"""Messages that one link may hold back for a slow receiver (`mesh.delivery`)."""
ROUND_LATE_MAX: Final = 1.5
"""An answer after so many deadlines counts only in a round that is void."""
QUICK_S: Final = 0.005
"""A delivery is never called slow before."""


# --- D1 to D4: messages


def at_most_once(evidence: Evidence) -> Verdict:
    receipts = evidence.ledger.receipts
    seen: dict[tuple[str, int, bytes], Receipt] = {}
    wrong: list[str] = []
    for receipt in receipts:
        key = (receipt.subscriber, receipt.life, receipt.body)
        if key in seen:
            wrong.append(
                f"{receipt.subscriber} got {_short(receipt.body)} at {seen[key].at_s:.3f} s and again at "
                f"{receipt.at_s:.3f} s"
            )
        seen.setdefault(key, receipt)
    return verdict("at_most_once", len(receipts), "deliver(y|ies)", wrong)


def in_order(evidence: Evidence) -> Verdict:
    ledger = evidence.ledger
    last: dict[tuple[str, int, str, int, str], int] = {}
    wrong: list[str] = []
    for receipt in ledger.receipts:
        publication = ledger.publications.get(receipt.body)
        if publication is None:
            continue  # the business of `genuine`
        key = (receipt.subscriber, receipt.life, publication.publisher, publication.life, publication.topic)
        before = last.get(key, -1)
        if publication.number < before:
            wrong.append(
                f"{receipt.subscriber} got number {publication.number} of {publication.publisher} on "
                f"{publication.topic} after number {before}"
            )
        last[key] = max(before, publication.number)
    return verdict("in_order", len(ledger.receipts), "deliver(y|ies)", wrong)


def genuine(evidence: Evidence) -> Verdict:
    ledger = evidence.ledger
    wanted = {(each.subscriber, each.life): each.patterns for each in ledger.subscriptions}
    wrong: list[str] = []
    for receipt in ledger.receipts:
        publication = ledger.publications.get(receipt.body)
        what = f"{receipt.subscriber} got {_short(receipt.body)} on {receipt.topic}"
        if publication is None:
            wrong.append(f"{what}, which nobody published")
        elif publication.topic != receipt.topic:
            wrong.append(f"{what}, which was published on {publication.topic}")
        elif publication.at_s > receipt.at_s:
            wrong.append(f"{what} before it was published")
        elif not _wants(wanted.get((receipt.subscriber, receipt.life), ()), receipt.topic):
            wrong.append(f"{what}, which it had not subscribed to")
    return verdict("genuine", len(ledger.receipts), "deliver(y|ies)", wrong)


def complete(evidence: Evidence, within_s: float = 5.0) -> Verdict:
    """Looks at what was published in the quiet time, and at subscriptions that stood throughout."""
    since_s = evidence.phases.get("quiet_from_s")
    until_s = evidence.phases.get("quiet_until_s")
    if since_s is None or until_s is None:
        return verdict("complete", 0, "deliver(y|ies)", ["there was no quiet time"])
    ledger = evidence.ledger
    quiet = [each for each in ledger.publications.values() if since_s <= each.at_s <= until_s]
    accepted = [each for each in quiet if each.outcome is Outcome.ACCEPTED]
    wrong = [
        f"number {each.number} of {each.publisher} at {each.at_s:.3f} s is {each.outcome} in a time without "
        "faults"
        for each in quiet
        if each.outcome is not Outcome.ACCEPTED
    ]
    arrived = {(each.subscriber, each.life, each.body): each.at_s for each in ledger.receipts}
    expected = 0
    for subscription, publication in _owed(evidence, accepted, since_s, until_s):
        expected += 1
        at_s = arrived.get((subscription.subscriber, subscription.life, publication.body))
        what = (
            f"number {publication.number} of {publication.publisher}, accepted at {publication.at_s:.3f} s "
            "on "
            f"{publication.topic}"
        )
        if at_s is None:
            wrong.append(f"{subscription.subscriber} never got {what}")
        elif at_s - publication.at_s > within_s:
            wrong.append(f"{subscription.subscriber} got {what}, only {at_s - publication.at_s:.2f} s later")
    detail = f"of {len(accepted)} publications from {since_s:.1f} to {until_s:.1f} s"
    return verdict("complete", expected, "deliver(y|ies)", wrong, detail=detail)


def _owed(
    evidence: Evidence, publications: Sequence[Publication], since_s: float, until_s: float
) -> Iterator[tuple[Subscribed, Publication]]:
    """Who should get what, of subscriptions that stood from the one time to the other."""
    for subscription in evidence.ledger.subscriptions:
        if subscription.since_s <= since_s and subscription.until_s >= until_s:
            for publication in publications:
                if _wants(subscription.patterns, publication.topic):
                    yield subscription, publication


def _wants(patterns: Sequence[str], topic: str) -> bool:
    return any(matches(pattern, topic) for pattern in patterns)


# --- D5: the tree


def tree(evidence: Evidence, rmr_max: float = 0.1) -> Verdict:
    """RMR: payloads received for each broker and broadcast, beyond the one that is needed."""
    wrong: list[str] = []
    samples = [
        sample
        for sample in evidence.rest
        if sample.views and all(view.eager is not None for view in sample.views.values())
    ]
    for sample in samples[-1:]:
        ids = {view.id: view.name for view in sample.views.values()}
        edges = dict.fromkeys(
            tuple(sorted((view.id, other)))
            for view in sample.views.values()
            for other in view.eager or ()
            if other in ids
        )
        pieces = _pieces(list(ids), list(edges))
        if pieces > 1:
            wrong.append(f"the eager edges leave {pieces} pieces at {sample.at_s:.1f} s")
        if len(edges) > len(ids) - pieces:
            wrong.append(
                f"{len(edges)} eager edges among {len(ids)} brokers at {sample.at_s:.1f} s make a ring; "
                f"{len(ids) - 1} are a tree"
            )
    if len(samples) > 1:
        wrong += _redundant(evidence, samples, rmr_max)
    return verdict("tree", len(samples), "moment(s) with a tree", wrong)


def _pieces(nodes: list[int], edges: list[tuple[int, ...]]) -> int:
    head = {node: node for node in nodes}

    def of(node: int) -> int:
        while head[node] != node:
            node = head[node]
        return node

    for one, other in edges:
        head[of(one)] = of(other)
    return sum(head[node] == node for node in nodes)


def _redundant(evidence: Evidence, samples: list[Sample], rmr_max: float) -> Iterator[str]:
    first, last = samples[0], samples[-1]
    broadcasts = sum(first.at_s < each.at_s <= last.at_s for each in evidence.ledger.publications.values())
    copies = sum(
        view.counters.get("copies", 0) - first.views[name].counters.get("copies", 0)
        for name, view in last.views.items()
        if name in first.views
    )
    needed = broadcasts * (len(last.views) - 1)
    if needed and copies / needed - 1 > rmr_max:
        allowed = f"{needed} and {rmr_max:.0%} more are allowed"
        yield f"{copies} payloads came for {broadcasts} broadcasts; {allowed}"


# --- D6: interest


def interest_known(evidence: Evidence) -> Verdict:
    """A change of a moment ago may be on its way, so a difference counts at two moments in a row, or at the
    last."""
    wrong: list[str] = []
    looked = 0
    before: dict[tuple[str, str], None] = {}
    for number, sample in enumerate(evidence.rest):
        odd: dict[tuple[str, str], None] = {}
        for view, owner in _pairs(sample):
            looked += 1
            version, patterns = view.held.get(owner.id, (0, ()))
            if version != owner.interest_version or patterns != owner.interest:
                odd[view.name, owner.name] = None
        final = number == len(evidence.rest) - 1
        wrong += [
            f"{name} does not hold what {owner} wants at {sample.at_s:.1f} s"
            for name, owner in odd
            if final or (name, owner) in before
        ]
        before = odd
    return verdict("interest_known", looked, "table(s) of another's interest", wrong)


def _pairs(sample: Sample) -> Iterator[tuple[View, View]]:
    for view in sample.views.values():
        for owner in sample.views.values():
            if owner is not view:
                yield view, owner


# --- D7, D8: who waits for whom


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
    for before, sample in pairwise(evidence.samples_between(*_phase(evidence, "safety"))):
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


# --- D9, D10: surveys


def answers_count_once(evidence: Evidence) -> Verdict:
    """Of heartbeats by the event log, of clients' surveys by the ledger."""
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    seen: dict[tuple[str, str, str, int], None] = {}
    looked = 0
    bound_us = ROUND_LATE_MAX * evidence.deadline_s * 1e6
    for row in evidence.rows:
        if row["kind"] != "hb" or row["msg"] != "answer":
            continue
        looked += 1
        key = (row["node"], row["boot"], row["src"], row["hb_seq"])
        peer = evidence.name_of(int(row["src"], 16))
        what = f"the answer of {peer} to round {row['hb_seq']} of {evidence.writer(row)}"
        if key in seen:
            wrong.append(f"{what} was counted twice, again at {row['at_s']:.3f} s")
        seen[key] = None
        if row["rtt_us"] > bound_us:
            writer, since_s = evidence.writer(row), row["at_s"] - grace_s(evidence)
            # In a round for which its broker was late every answer counts, and nobody is judged.
            late = circumstances.struck(writer, since_s, row["at_s"])
            if not late and not circumstances.away(writer, since_s, row["at_s"]):
                wrong.append(f"{what} was counted after {row['rtt_us'] / 1e6:.3f} s")
    for question in evidence.ledger.questions:
        responders: dict[str, None] = {}
        for answer in question.answers:
            looked += 1
            what = f"{question.asker} counted an answer of {answer.responder} to {question.name}"
            if answer.responder in responders:
                wrong.append(f"{what} twice")
            responders[answer.responder] = None
            if answer.question != question.name:
                wrong.append(f"{what}, which was one to {answer.question}")
            if question.ended_s is not None and answer.at_s > question.ended_s:
                wrong.append(f"{what} after the survey was over")
    return verdict("answers_count_once", looked, "answer(s)", wrong)


def surveys_return(evidence: Evidence, slack_s: float = 0.1) -> Verdict:
    """Callers whose process was let run until then."""
    circumstances = Circumstances(evidence)
    alive_until = {
        (life.name, life.number): evidence.end_s if life.ended_s is None else life.ended_s
        for life in evidence.lives
    }
    wrong: list[str] = []
    looked = 0
    for question in evidence.ledger.questions:
        due_s = question.asked_s + question.timeout_s + slack_s
        if alive_until.get((question.asker, question.life), evidence.end_s) < due_s:
            continue
        if circumstances.struck(question.asker, question.asked_s, due_s):
            continue
        looked += 1
        if question.ended_s is None or question.ended_s > due_s:
            when = (
                "never" if question.ended_s is None else f"after {question.ended_s - question.asked_s:.3f} s"
            )
            wrong.append(
                f"{question.name} of {question.asker} returned {when}; it had {question.timeout_s:g} s"
            )
    return verdict("surveys_return", looked, "survey(s)", wrong)


# --- what scenarios ask further


def delivery_delay(
    evidence: Evidence, p50_s: float = 0.0, p99_s: float = 0.0, most_s: float = 0.0, phase: str = "quiet"
) -> Verdict:
    since_s, until_s = _phase(evidence, phase)
    delays = [
        receipt.at_s - publication.at_s
        for receipt in evidence.ledger.receipts
        if (publication := evidence.ledger.publications.get(receipt.body)) is not None
        and since_s <= publication.at_s <= until_s
    ]
    wrong = [
        f"the {what} of {len(delays)} deliveries took {quantile(delays, share):.4f} s, more than "
        f"{bound_s:g} s"
        for bound_s, share, what in (
            (p50_s, 0.5, "median"),
            (p99_s, 0.99, "99th percentile"),
            (most_s, 1.0, "slowest"),
        )
        if bound_s and delays and quantile(delays, share) > bound_s
    ]
    detail = (
        f"median {quantile(delays, 0.5):.4f} s, p99 {quantile(delays, 0.99):.4f} s, slowest "
        f"{max(delays):.4f} s"
        if delays
        else ""
    )
    return verdict("delivery_delay", len(delays), "deliver(y|ies)", wrong, detail=detail)


def delivered_share(
    evidence: Evidence, least: float = 1.0, phase: str = "safety", except_s: float = 0.0
) -> Verdict:
    """Broadcast reliability: of what was accepted in that phase and owed to subscriptions whose process and
    broker lasted, this share arrived. With ``except_s`` publications so near a loss of any broker do not
    count."""
    since_s, until_s = _phase(evidence, phase)
    circumstances = Circumstances(evidence)
    losses = [outage.from_s for outage in circumstances.outages]
    accepted = [
        each
        for each in evidence.ledger.publications.values()
        if since_s <= each.at_s <= until_s
        and each.outcome is Outcome.ACCEPTED
        and not any(abs(each.at_s - lost_s) <= except_s for lost_s in losses if except_s)
    ]
    arrived = {(each.subscriber, each.life, each.body): None for each in evidence.ledger.receipts}
    owed, got = 0, 0
    for subscription in evidence.ledger.subscriptions:
        for publication in accepted:
            stood = subscription.since_s <= publication.at_s and subscription.until_s >= publication.at_s + 5
            host = evidence.host_of(subscription.subscriber)
            if (
                stood
                and _wants(subscription.patterns, publication.topic)
                and evidence.up(host, publication.at_s, publication.at_s + 5) is not None
            ):
                owed += 1
                got += (subscription.subscriber, subscription.life, publication.body) in arrived
    share = got / owed if owed else 0.0
    wrong = (
        [f"{got} of {owed} deliveries arrived, {share:.2%}, less than {least:.2%}"] if share < least else []
    )
    return verdict("delivered_share", owed, "deliver(y|ies)", wrong, detail=f"{share:.2%} arrived")


def _phase(evidence: Evidence, phase: str) -> tuple[float, float]:
    names = {"quiet": ("quiet_from_s", "quiet_until_s"), "safety": ("safety_s", "healed_s")}[phase]
    return evidence.phases.get(names[0], 0.0), evidence.phases.get(names[1], evidence.end_s)


def _short(body: bytes) -> str:
    text = body[:60].decode(errors="backslashreplace")
    return repr(text if len(body) <= 60 else text + "...")


def _has_clients(evidence: Evidence) -> bool:
    workload = evidence.scenario.workload
    return workload.publishers > 0 and workload.subscribers > 0


def _has_several(evidence: Evidence) -> bool:
    return len(evidence.brokers) > 1


def _had_several_at_rest(evidence: Evidence) -> bool:
    return _has_several(evidence) and was_whole(evidence)


_PHASES: Final = ("quiet", "safety")


def _phase_parameter(default: str) -> Parameter:
    return Parameter("phase", "text", default, "which phase is looked at", _PHASES)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D1",
        "at_most_once",
        "always",
        "No subscription gets a message twice.",
        at_most_once,
        default=True,
        needs=_has_clients,
    ),
    Check(
        "D2",
        "in_order",
        "always",
        "What one publisher publishes on one topic arrives in that order.",
        in_order,
        default=True,
        needs=_has_clients,
    ),
    Check(
        "D3",
        "genuine",
        "always",
        "What arrives was published, unaltered, on that topic, and was asked for.",
        genuine,
        default=True,
        needs=_has_clients,
    ),
    Check(
        "D4",
        "complete",
        "eventually",
        "What is published in the quiet time is accepted and reaches every subscription.",
        complete,
        (Parameter("within_s", "number", 5.0, "seconds from publication to delivery"),),
        default=True,
        needs=_has_clients,
    ),
    Check(
        "D5",
        "tree",
        "eventually",
        "The eager edges make one tree, and few payloads come twice.",
        tree,
        (Parameter("rmr_max", "number", 0.1, "payloads beyond those needed, as a share"),),
        dormant="a broadcast tree",
    ),
    Check(
        "D6",
        "interest_known",
        "eventually",
        "At rest every broker holds exactly what each other one wants.",
        interest_known,
        default=True,
        needs=_had_several_at_rest,
    ),
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
    Check(
        "D9",
        "answers_count_once",
        "always",
        "No answer counts twice, after its time, or for another question.",
        answers_count_once,
        default=True,
        needs=_has_several,
    ),
    Check(
        "D10",
        "surveys_return",
        "always",
        "Who asks has the result by the deadline.",
        surveys_return,
        (Parameter("slack_s", "number", 0.1, "seconds beyond the deadline"),),
        default=True,
        occasional=True,
    ),
    Check(
        "S1",
        "delivery_delay",
        "always",
        "Deliveries take no longer than that.",
        delivery_delay,
        (
            Parameter("p50_s", "number", 0.0, "bound of the median; 0 is none"),
            Parameter("p99_s", "number", 0.0, "bound of the 99th percentile; 0 is none"),
            Parameter("most_s", "number", 0.0, "bound of the slowest; 0 is none"),
            _phase_parameter("quiet"),
        ),
    ),
    Check(
        "S2",
        "delivered_share",
        "always",
        "So large a share of what is owed is delivered, whatever was done.",
        delivered_share,
        (
            Parameter("least", "number", 1.0, "share of deliveries"),
            _phase_parameter("safety"),
            Parameter("except_s", "number", 0.0, "seconds around each loss of a broker that do not count"),
        ),
    ),
)
