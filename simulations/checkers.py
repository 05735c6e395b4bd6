"""What must hold in a mesh, one function each: data in, violations out.

* `converged`: faults over, every live broker sees exactly the live ones alive.
* `at_most_once`: no subscription gets a body twice.
* `genuine`: what arrives was published, unaltered, on that topic, and the subscription asked for it.
* `in_order`: what one publisher publishes on one topic reaches each subscription in that order.
* `complete`: what was accepted in a quiet time reaches every subscription that stood throughout.
* `no_false_deaths`: nobody calls a broker dead that nothing was done to.
* `deaths_noticed`: whoever is gone for long enough is called dead by everyone else in time.
* `sound`: no process failed, no task died unseen, nothing reached for the real world.

None of them may pass because there was nothing to look at: a check of an empty record is a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulations.ledger import Ledger, Outcome, Publication, Receipt
from simulations.world import Failure


@dataclass(frozen=True, slots=True)
class Verdict:
    """One check, what it looked at, and what it found wrong; it passed if that is nothing."""

    check: str
    looked_at: str
    violations: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "ok": self.ok,
            "looked_at": self.looked_at,
            "violations": list(self.violations),
        }


View = Mapping[str, str]
"""A broker's table: member id to state."""


def converged(views: Mapping[str, View], live: Mapping[str, str]) -> Verdict:
    """``views`` are the tables by broker name, ``live`` the ids of the brokers that really live, by name."""
    wrong: list[str] = []
    names = {id: name for name, id in live.items()}
    for name, id in live.items():
        if name not in views:
            wrong.append(f"{name} ({id}) is live and shows no table of members")
            continue
        alive = [member for member, state in views[name].items() if state == "alive"]
        missing = [names[member] for member in live.values() if member not in alive]
        wrong += [f"{name} does not see {other} alive" for other in missing]
        ghosts = [member for member in alive if member not in names]
        wrong += [f"{name} sees {member} alive, which is not" for member in ghosts]
    if not live:
        wrong.append("no broker is live")
    return Verdict("converged", f"{len(live)} live brokers", tuple(wrong))


def at_most_once(ledger: Ledger) -> Verdict:
    seen: dict[tuple[str, int, bytes], Receipt] = {}
    wrong = _nothing(ledger.receipts, "delivery")
    for receipt in ledger.receipts:
        key = (receipt.subscriber, receipt.life, receipt.body)
        if key in seen:
            wrong.append(
                f"{receipt.subscriber} got {_short(receipt.body)} at {seen[key].at_s:.3f} s "
                f"and again at {receipt.at_s:.3f} s"
            )
        else:
            seen[key] = receipt
    return Verdict("at_most_once", f"{len(ledger.receipts)} deliveries", tuple(wrong))


def genuine(ledger: Ledger, matches: Callable[[str, str], bool]) -> Verdict:
    """``matches(pattern, topic)`` is the grammar's own."""
    wrong = _nothing(ledger.receipts, "delivery")
    wanted = {(each.subscriber, each.life): each.patterns for each in ledger.subscriptions}
    for receipt in ledger.receipts:
        publication = ledger.publications.get(receipt.body)
        what = f"{receipt.subscriber} got {_short(receipt.body)} on {receipt.topic}"
        if publication is None:
            wrong.append(f"{what}, which nobody published")
        elif publication.topic != receipt.topic:
            wrong.append(f"{what}, which was published on {publication.topic}")
        elif publication.at_s > receipt.at_s:
            wrong.append(f"{what} before it was published")
        elif not any(
            matches(pattern, receipt.topic) for pattern in wanted.get((receipt.subscriber, receipt.life), ())
        ):
            wrong.append(f"{what}, which it had not subscribed to")
    return Verdict("genuine", f"{len(ledger.receipts)} deliveries", tuple(wrong))


def in_order(ledger: Ledger) -> Verdict:
    last: dict[tuple[str, int, str, int, str], int] = {}
    wrong = _nothing(ledger.receipts, "delivery")
    for receipt in ledger.receipts:
        publication = ledger.publications.get(receipt.body)
        if publication is None:
            continue  # the business of `genuine`
        key = (receipt.subscriber, receipt.life, publication.publisher, publication.life, publication.topic)
        before = last.get(key, -1)
        if publication.number < before:
            wrong.append(
                f"{receipt.subscriber} got number {publication.number} of {publication.publisher} "
                f"on {publication.topic} after number {before}"
            )
        last[key] = max(before, publication.number)
    return Verdict("in_order", f"{len(ledger.receipts)} deliveries", tuple(wrong))


def complete(
    ledger: Ledger, matches: Callable[[str, str], bool], *, since_s: float, until_s: float
) -> Verdict:
    """Looks at what was published from ``since_s`` to ``until_s``, a time without faults."""
    arrived = {(receipt.subscriber, receipt.life, receipt.body) for receipt in ledger.receipts}
    quiet = [each for each in ledger.publications.values() if since_s <= each.at_s <= until_s]
    accepted = [each for each in quiet if each.outcome is Outcome.ACCEPTED]
    wrong = _nothing(accepted, "accepted publication")
    wrong += [
        f"{_name(each)} of {each.publisher} at {each.at_s:.3f} s is {each.outcome} in a time without faults"
        for each in quiet
        if each.outcome is not Outcome.ACCEPTED
    ]
    expected = 0
    for subscription in ledger.subscriptions:
        if subscription.since_s > since_s or subscription.until_s < until_s:
            continue
        for publication in accepted:
            if any(matches(pattern, publication.topic) for pattern in subscription.patterns):
                expected += 1
                if (subscription.subscriber, subscription.life, publication.body) not in arrived:
                    wrong.append(
                        f"{subscription.subscriber} never got {_name(publication)}, accepted from "
                        f"{publication.publisher} at {publication.at_s:.3f} s on {publication.topic}"
                    )
    wrong += _nothing(range(expected), "expected delivery")
    looked_at = f"{len(accepted)} publications, {expected} deliveries from {since_s:.1f} to {until_s:.1f} s"
    return Verdict("complete", looked_at, tuple(wrong))


def no_false_deaths(rows: Sequence[Mapping[str, Any]], unharmed: Collection[str]) -> Verdict:
    """``rows`` are event log rows; ``unharmed`` the names of brokers to which nothing was done."""
    deaths = [row for row in rows if row.get("kind") == "mem" and row.get("to_state") == "dead"]
    wrong = _nothing(rows, "log row")
    wrong += [
        f"{row['node']} called {row['subject_name']} dead at {row['ts']} ({row['reason']})"
        for row in deaths
        if row.get("subject_name") in unharmed
    ]
    return Verdict("no_false_deaths", f"{len(rows)} log rows, {len(deaths)} of them deaths", tuple(wrong))


@dataclass(frozen=True, slots=True)
class Outage:
    """A broker was dead or stopped for a while."""

    broker: str
    from_s: float
    until_s: float = float("inf")
    log_lost: bool = False
    """With its host's power went what was not synced of its log, so it cannot be asked what it noticed."""


def deaths_noticed(
    rows: Sequence[Mapping[str, Any]], outages: Sequence[Outage], *, within_s: float
) -> Verdict:
    """Looks at outages of at least ``within_s``, and at brokers that were well all that time.

    ``rows`` carry ``at_s``, their time since the run began.
    """
    names = {row["node"]: row["name"] for row in rows if row["kind"] == "meta" and row["op"] == "start"}
    began = {
        row["name"]: row["at_s"] for row in reversed(rows) if row["kind"] == "meta" and row["op"] == "start"
    }
    deaths: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["kind"] == "mem" and row["to_state"] == "dead":
            deaths.setdefault((names[row["node"]], row["subject_name"]), []).append(row["at_s"])
    wrong: list[str] = []
    took_s: list[float] = []
    for outage in outages:
        end_s = outage.from_s + within_s
        if outage.until_s < end_s:
            continue
        for observer, since_s in began.items():
            if since_s > outage.from_s or any(
                each.broker == observer
                and (each.log_lost or (each.from_s < end_s and each.until_s > outage.from_s - within_s))
                for each in outages
            ):
                continue
            noticed = [at_s for at_s in deaths.get((observer, outage.broker), ()) if at_s >= outage.from_s]
            if noticed and min(noticed) <= end_s:
                took_s.append(min(noticed) - outage.from_s)
            else:
                wrong.append(
                    f"{observer} did not call {outage.broker} dead within {within_s:g} s, "
                    f"which was gone from {outage.from_s:.3f} to {outage.until_s:.3f} s"
                )
    wrong += [] if took_s or wrong else ["there is no outage to look at that lasted long enough"]
    spread = f", noticed in {min(took_s):.2f} to {max(took_s):.2f} s" if took_s else ""
    return Verdict("deaths_noticed", f"{len(outages)} outages{spread}", tuple(wrong))


def sound(failures: Iterable[Failure], escapes: Iterable[str]) -> Verdict:
    wrong = [str(failure) for failure in failures]
    wrong += list(dict.fromkeys(escapes))
    return Verdict("sound", "all processes", tuple(wrong))


def _nothing(items: Collection[Any], what: str) -> list[str]:
    return [] if items else [f"there is no {what} to look at"]


def _name(publication: Publication) -> str:
    return f"number {publication.number}"


def _short(body: bytes) -> str:
    text = body[:60].decode(errors="backslashreplace")
    return repr(text if len(body) <= 60 else text + "...")
