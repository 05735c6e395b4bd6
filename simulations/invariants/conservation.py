"""No message is lost silently: it was delivered, or one of the two brokers concerned counted it as dropped.

A message is owed to each subscription that existed when its publisher was told `accepted` or `stored`, unless
the receipt named the subscriber's broker as absent. Level stored promises delivery to durable subscriptions
only, but no broker may lose the message silently either. The check covers the whole run, including the time
of the faults. The real events decide, message by message, which may vanish without a counter:

* a broker that had the message in its memory was killed or left;
* the subscriber had no session at that time, since it was reconnecting;
* the publisher's broker saw the subscriber's broker as dead or gone;
* the subscriber's broker saw the publisher's as dead when the subscription passed its barrier, and has had no
  link to it since: the publisher's broker never learned of the subscription;
* another broker had the id of the subscriber's broker, so that it received the messages instead.

Messages under way on a lost link or session must be counted, if only as an upper bound (``unresolved``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from mesh.broker.identity import format_id
from mesh.topics import matches
from simulations.evidence import VIEW_STATES, Evidence, Life, Sample, View
from simulations.evidence.ledger import Outcome, Publication, Subscribed
from simulations.invariants.check import Check, Judge
from simulations.invariants.circumstances import Circumstances
from simulations.invariants.passage import LOOK_S, PASSAGE_S, passed_s
from simulations.invariants.verdict import Verdict, verdict

NOTICE_S: Final = 0.1
"""Seconds between what a log says of a member and what its broker acts on."""

Missing = dict[Life, dict[Life, list[Publication]]]
"""By the run of the subscriber's broker, then by that of the publisher's."""


class Conserved(Judge):
    """Compares missing messages with the drops of the two brokers concerned.

    The publisher's broker counts drops on the way to the subscriber's, and the subscriber's counts drops for
    its own subscribers. A drop may concern several subscriptions and is counted once. A message that may be
    lost with a session counts as dropped. There is no other broker on the way (`mesh.cluster.full_mesh`).
    """

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._drops = _Drops()

    def on_look(self, sample: Sample) -> None:
        self._drops.look(sample)

    def finish(self) -> Verdict:
        evidence, drops = self.evidence, self._drops
        passage = _Passage(evidence)
        arrived = {(each.subscriber, each.life, each.body) for each in evidence.ledger.receipts}
        wrong: list[str] = []
        looked = 0
        for subscription in evidence.ledger.subscriptions:
            if subscription.stock:
                continue
            missing: Missing = {}
            for publication in _owed(evidence, subscription):
                looked += 1
                if (subscription.subscriber, subscription.life, publication.body) not in arrived:
                    if not passage.may_vanish(subscription, publication):
                        here, there = passage.ends(subscription, publication)
                        missing.setdefault(there, {}).setdefault(here, []).append(publication)
            wrong += drops.uncounted(subscription, missing)
        detail = f"{drops.total} drops counted"
        return verdict("conserved", looked, "deliver(y|ies) owed", wrong, detail=detail)


class _Drops:
    """The drops that brokers counted, for each life as it was seen last."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], View] = {}

    def look(self, sample: Sample) -> None:
        self._seen |= {(view.name, view.life): view for view in sample.views.values()}

    @property
    def total(self) -> int:
        views = self._seen.values()
        return sum(self._local(view) + sum(loss.dropped for loss in view.losses.values()) for view in views)

    def uncounted(self, subscription: Subscribed, missing: Missing) -> Iterator[str]:
        for there, by_sender in missing.items():
            local = self._local(self._seen.get((there.name, there.number)))
            excess = {here: len(found) - self._on_link(here, there) for here, found in by_sender.items()}
            if sum(max(0, each) for each in excess.values()) <= local:
                continue
            here = max(excess, key=lambda each: excess[each])
            first = by_sender[here][0]
            yield (
                f"{subscription.subscriber} lacks {len(by_sender[here])} messages from {here.name}, which "
                f"counted {self._on_link(here, there)} as dropped for {there.name}; that counted {local} as "
                f"dropped for its subscribers; the first is number {first.number} of {first.publisher}, "
                f"accepted at {first.at_s:.3f} s on {first.topic}"
            )

    def _on_link(self, here: Life, there: Life) -> int:
        """Include messages under way when the sender ended, before it knew what had arrived."""
        view = self._seen.get((here.name, here.number))
        return 0 if view is None or there.id is None else sum(view.losses.get(there.id, ()))

    @staticmethod
    def _local(view: View | None) -> int:
        return 0 if view is None else sum(view.counters.get(name, 0) for name in ("dropped", "unresolved"))


def _owed(evidence: Evidence, subscription: Subscribed) -> Iterator[Publication]:
    for publication in evidence.ledger.publications.values():
        if (
            publication.outcome in (Outcome.ACCEPTED, Outcome.STORED)
            and subscription.since_s <= publication.at_s < subscription.until_s
            and any(matches(pattern, publication.topic) for pattern in subscription.patterns)
        ):
            yield publication


class _Passage:
    """The possible fates of a message between its publisher and a subscriber."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._circumstances = Circumstances(evidence)

    def may_vanish(self, subscription: Subscribed, publication: Publication) -> bool:
        """True if the message may vanish without a counter."""
        evidence = self._evidence
        here = evidence.host_of(publication.publisher)
        there = evidence.host_of(subscription.subscriber)
        from_s = publication.at_s
        # A broker that has not joined yet holds published messages, hands them out later, and then accepts
        # them.
        until_s = passed_s(self._circumstances, here, there, publication.accepted_s or from_s)
        if self._is_absent(there, publication) or (here in subscription.unreached and here != there):
            return True
        if subscription.until_s < until_s or not self._lasts(here, from_s, until_s):
            return True
        if not self._lasts(there, from_s, until_s):
            return True
        # Its own broker handed an accepted message to the session that existed then.
        handed_s = publication.accepted_s if here == there else None
        if self._had_no_session(subscription, from_s, until_s if handed_s is None else handed_s):
            return True
        if here == there:
            return False
        return (
            self._has_twin(there, from_s, until_s)
            or self._is_given_up(here, there, from_s, until_s)
            or self._was_left_out(subscription, here, there, from_s)
        )

    def ends(self, subscription: Subscribed, publication: Publication) -> tuple[Life, Life]:
        """For a message that may not vanish: the runs of the publisher's broker and of the subscriber's."""
        hosts = (publication.publisher, subscription.subscriber)
        here, there = (self._life(self._evidence.host_of(name), publication.at_s) for name in hosts)
        assert here is not None and there is not None
        return here, there

    def _is_absent(self, name: str, publication: Publication) -> bool:
        """True if its receipt names that broker as absent, perhaps through the twin by which it was known
        last.
        """
        life = self._life(name, publication.at_s)
        names = {name}
        if life is not None:
            names |= set(self._evidence.holders(life.id, 0.0, publication.at_s))
        return not names.isdisjoint(publication.absent)

    def _has_twin(self, name: str, from_s: float, until_s: float) -> bool:
        """True if another broker took the messages for this one: the sender knows only the id that both
        have.
        """
        life = self._life(name, from_s)
        return life is not None and self._evidence.twin_between(name, life.id, from_s, until_s)

    def _life(self, name: str, at_s: float) -> Life | None:
        return self._evidence.up(name, at_s, at_s)

    def _lasts(self, name: str, from_s: float, until_s: float) -> bool:
        """A run of that broker that was not asked to end."""
        life = self._evidence.up(name, from_s, until_s)
        return life is not None and self._circumstances.asked_to_end_s(life) > until_s

    def _had_no_session(self, subscription: Subscribed, from_s: float, until_s: float) -> bool:
        """True if the subscriber's connection was down when the message came to its broker; looks are exact
        to the second.
        """
        sessions = self._evidence.sessions.get((subscription.subscriber, subscription.life), [])
        for (_, last_s), (first_s, _) in pairwise(sessions):
            if last_s <= until_s + LOOK_S and from_s <= first_s + LOOK_S + PASSAGE_S:
                return True
        return False

    def _is_given_up(self, here: str, there: str, from_s: float, until_s: float) -> bool:
        """True if the first broker saw the second as dead, gone or unknown at some moment of that time."""
        observer, subject = self._life(here, from_s), self._life(there, from_s)
        if observer is None or subject is None or subject.id is None:
            return True
        # Without its log there are only looks, and a change is somewhere between the last one and the next.
        begin_s = from_s - NOTICE_S - (LOOK_S if observer.log_lost else 0.0)
        held = self._circumstances.belief(observer, subject.id, begin_s)
        if held is None or held.state not in VIEW_STATES or held.boot != format_id(subject.boot or 0):
            return True
        return any(
            begin_s <= belief.at_s <= until_s and belief.state not in VIEW_STATES
            for belief in self._circumstances.beliefs(observer, subject.id)
        )

    def _was_left_out(self, subscription: Subscribed, here: str, there: str, at_s: float) -> bool:
        """True if the barrier did not wait for the publisher's broker, which the subscriber's saw as dead.

        No link of the two has told it of the subscription since, and it may behave as if all were well.
        """
        since_s = subscription.since_s
        observer, subject = self._evidence.up(there, since_s, at_s), self._life(here, since_s)
        if observer is None or subject is None or subject.id is None:
            return False
        held = self._circumstances.belief(observer, subject.id, since_s + NOTICE_S)
        if held is None or held.state in VIEW_STATES:
            return False
        return not self._circumstances.were_linked(here, there, since_s, at_s - NOTICE_S)


def _has_clients(evidence: Evidence) -> bool:
    workload = evidence.scenario.workload
    return workload.publishers + workload.stock_publishers > 0 and workload.subscribers > 0


CHECKS: Final[Sequence[Check]] = (
    Check(
        "D11",
        "conserved",
        "always",
        "Each message owed to a subscription was delivered, or one of the two brokers counted the drop.",
        Conserved,
        default=True,
        occasional=True,
        needs=_has_clients,
    ),
)
