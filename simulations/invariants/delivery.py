"""Delivery of messages: once, in order, unaltered, wherever they are wanted, and in time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mesh.topics import matches
from simulations.evidence import PHASES, Evidence
from simulations.evidence.ledger import Outcome, Publication, Receipt, Subscribed
from simulations.invariants.check import Check, Parameter, at_end
from simulations.invariants.circumstances import Circumstances, quantile
from simulations.invariants.verdict import Verdict, verdict

TAKEN: Final = (Outcome.ACCEPTED, Outcome.STORED, Outcome.SENT)


@at_end
def at_most_once(evidence: Evidence) -> Verdict:
    receipts = evidence.ledger.receipts
    seen: dict[tuple[str, int, bytes], Receipt] = {}
    wrong: list[str] = []
    published = evidence.ledger.publications
    for receipt in receipts:
        key = (receipt.subscriber, receipt.life, receipt.body)
        if key in seen and not _may_repeat(published.get(receipt.body), receipt):
            wrong.append(
                f"{receipt.subscriber} got {_short(receipt.body)} at {seen[key].at_s:.3f} s and again at "
                f"{receipt.at_s:.3f} s"
            )
        seen.setdefault(key, receipt)
    return verdict("at_most_once", len(receipts), "deliver(y|ies)", wrong)


def _may_repeat(publication: Publication | None, receipt: Receipt) -> bool:
    """True for a message that may come twice: one not acknowledged as stored is sent again, perhaps to a
    restarted broker.

    Clients recognise the repetition by its number; plain sockets know no numbers.
    """
    return publication is not None and (publication.may_repeat or (publication.stored and receipt.stock))


@at_end
def in_order(evidence: Evidence) -> Verdict:
    ledger = evidence.ledger
    last: dict[tuple[str, int, str, int, str], int] = {}
    seen: set[tuple[str, int, bytes]] = set()
    wrong: list[str] = []
    for receipt in ledger.receipts:
        publication = ledger.publications.get(receipt.body)
        if publication is None:
            continue  # `genuine` judges it
        delivered = (receipt.subscriber, receipt.life, receipt.body)
        if delivered in seen:
            continue  # `at_most_once` judges it
        seen.add(delivered)
        if publication.outbox:
            continue  # a subscriber that missed one may get the repetition after later messages
        sent = (publication.publisher, publication.life, publication.topic)
        key = (receipt.subscriber, receipt.life, *sent)
        before = last.get(key, -1)
        if publication.number < before:
            wrong.append(
                f"{receipt.subscriber} got number {publication.number} of {publication.publisher} on "
                f"{publication.topic} after number {before}"
            )
        last[key] = max(before, publication.number)
    return verdict("in_order", len(ledger.receipts), "deliver(y|ies)", wrong)


@at_end
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
        elif publication.outcome is Outcome.REFUSED and not publication.stored:
            wrong.append(f"{what}, although its publisher was told that it was not accepted")
        elif publication.headers != receipt.headers and not receipt.stock:
            wrong.append(f"{what} with headers {receipt.headers} instead of {publication.headers}")
        elif not _wants(wanted.get((receipt.subscriber, receipt.life), ()), receipt.topic):
            wrong.append(f"{what}, which it had not subscribed to")
    return verdict("genuine", len(ledger.receipts), "deliver(y|ies)", wrong)


@at_end
def complete(evidence: Evidence, within_s: float = 5.0, here_s: float = 0.25) -> Verdict:
    """Considers messages published in the quiet time, and subscriptions that existed throughout.

    In that time messages at level sent arrive as well. A broker delivers to its own subscribers before it
    acknowledges, so ``here_s`` is for them.
    """
    since_s = evidence.phases.get("quiet_from_s")
    until_s = evidence.phases.get("quiet_until_s")
    if since_s is None or until_s is None:
        return verdict("complete", 0, "deliver(y|ies)", ["there was no quiet time"])
    ledger = evidence.ledger
    quiet = [each for each in ledger.publications.values() if since_s <= each.at_s <= until_s]
    accepted = [each for each in quiet if each.outcome in TAKEN]
    wrong = [
        f"number {each.number} of {each.publisher} at {each.at_s:.3f} s is {each.outcome} in a time without "
        "faults"
        for each in quiet
        if each.outcome not in TAKEN and each.outcome is not Outcome.OUTBOX  # it drains when it can
    ]
    arrived = {(each.subscriber, each.life, each.body): each.at_s for each in ledger.receipts}
    expected = 0
    for subscription, publication in _owed(evidence, accepted, since_s, until_s):
        expected += 1
        at_s = arrived.get((subscription.subscriber, subscription.life, publication.body))
        what = (
            f"number {publication.number} of {publication.publisher}, accepted at {publication.at_s:.3f} s "
            f"on {publication.topic}"
        )
        if at_s is None:
            wrong.append(f"{subscription.subscriber} never got {what}")
        elif at_s - publication.at_s > (
            here_s
            if evidence.host_of(subscription.subscriber) == evidence.host_of(publication.publisher)
            else within_s
        ):
            wrong.append(f"{subscription.subscriber} got {what}, only {at_s - publication.at_s:.2f} s later")
    detail = f"of {len(accepted)} publications from {since_s:.1f} to {until_s:.1f} s"
    return verdict("complete", expected, "deliver(y|ies)", wrong, detail=detail)


def _owed(
    evidence: Evidence, publications: Sequence[Publication], since_s: float, until_s: float
) -> Iterator[tuple[Subscribed, Publication]]:
    """The owed deliveries, for subscriptions that lasted from the first time to the second."""
    for subscription in evidence.ledger.subscriptions:
        stands = subscription.since_s <= since_s and subscription.until_s >= until_s
        if stands and not subscription.stock:
            for publication in publications:
                if _wants(subscription.patterns, publication.topic):
                    yield subscription, publication


def _wants(patterns: Sequence[str], topic: str) -> bool:
    return any(matches(pattern, topic) for pattern in patterns)


@at_end
def delivery_delay(
    evidence: Evidence, p50_s: float = 0.0, p99_s: float = 0.0, most_s: float = 0.0, phase: str = "quiet"
) -> Verdict:
    since_s, until_s = evidence.phase(phase)
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


@at_end
def delivered_share(
    evidence: Evidence, least: float = 1.0, phase: str = "safety", except_s: float = 0.0
) -> Verdict:
    """Broadcast reliability: this share of the owed messages of that phase arrived.

    Owed are accepted messages, to subscriptions whose process and broker lasted. With ``except_s``,
    publications so close to the loss of any broker do not count.
    """
    since_s, until_s = evidence.phase(phase)
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
            stood = (
                not subscription.stock
                and subscription.since_s <= publication.at_s
                and subscription.until_s >= publication.at_s + 5
            )
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


def _short(body: bytes) -> str:
    text = body[:60].decode(errors="backslashreplace")
    return repr(text if len(body) <= 60 else text + "...")


def _has_clients(evidence: Evidence) -> bool:
    workload = evidence.scenario.workload
    return workload.publishers > 0 and workload.subscribers > 0


def _phase_parameter(default: str) -> Parameter:
    return Parameter("phase", "text", default, "which phase is looked at", tuple(sorted(PHASES)))


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
        "Messages of one publisher on one topic arrive in order, except those that an outbox sends again.",
        in_order,
        default=True,
        needs=_has_clients,
    ),
    Check(
        "D3",
        "genuine",
        "always",
        "Each message that arrives was published, unaltered, on that topic, and was subscribed to.",
        genuine,
        default=True,
        needs=_has_clients,
    ),
    Check(
        "D4",
        "complete",
        "eventually",
        "Every message published in the quiet time is accepted and reaches every subscription.",
        complete,
        (
            Parameter("within_s", "number", 5.0, "seconds from publication to delivery"),
            Parameter("here_s", "number", 0.25, "the same for subscribers of the publisher's broker"),
        ),
        default=True,
        needs=_has_clients,
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
        "At least this share of the owed messages is delivered, whatever faults occurred.",
        delivered_share,
        (
            Parameter("least", "number", 1.0, "share of deliveries"),
            _phase_parameter("safety"),
            Parameter("except_s", "number", 0.0, "seconds around each loss of a broker that do not count"),
        ),
    ),
)
