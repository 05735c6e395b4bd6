"""Operators' questions about clients and topics of one broker (``$sys.look``), and their answers. Pure.

A question is a JSON object: ``look`` and its arguments. An answer is a JSON object too; its ``error`` is a
sentence that says why there is nothing else. Both are documented in ``docs/reference/status.md``.

======== ================ ==================================================================================
look     needs            answer
======== ================ ==================================================================================
clients                   ``clients``: sessions and stock sockets: of ``count`` at most `CLIENTS_MAX`, those
                          for which most messages are dropped or wait
topics                    ``topics``: patterns that clients of this broker want: of ``count`` at most
                          `PATTERNS_MAX`, those that most clients want, with the messages and bytes sent
                          to these clients; null if a client wants other patterns by the same subscription
way      topic            ``takers`` here, and the ``next`` brokers of a message, `TAKERS_MAX` each
message  publisher, boot, ``heard``: whether it arrived here; null if this broker does not know the publisher
         sequence
======== ================ ==================================================================================

Looking changes nothing but the cache of routes. Its cost grows with the number of sessions and subscriptions,
like that of the status.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import Any, Final

from mesh.dataplane.deduplication import Publishers
from mesh.dataplane.durable_routes import DurableRoutes
from mesh.dataplane.foreign_subscribers import ForeignSubscribers
from mesh.dataplane.gate import Gate
from mesh.dataplane.local_interest import LocalInterest
from mesh.dataplane.members import Member
from mesh.dataplane.session_control import SessionControl
from mesh.dataplane.sessions import ClientSubscription, LocalTaker, Responder, Session, Subscriber
from mesh.errors import TopicError
from mesh.topics.grammar import check_topic, is_system, matches
from mesh.topics.routing import Router

LOOK: Final = "$sys.look"
CLIENTS_MAX: Final = 500
PATTERNS_MAX: Final = 1000
TAKERS_MAX: Final = 200
SHOWN_MAX: Final = 8
"""Patterns shown for one client."""
TEXT_MAX: Final = 200
"""Characters of one pattern or name."""
QUESTION_MAX: Final = 4096


class _Refused(Exception):
    """The sentence of an ``error``."""


class Looking:
    """See the module."""

    def __init__(
        self,
        *,
        id: int,
        name: str,
        sessions: SessionControl,
        subscribers: ForeignSubscribers,
        interest: LocalInterest,
        router: Router[LocalTaker, Member],
        publishers: Publishers,
        durables: DurableRoutes,
        gate: Gate,
    ) -> None:
        self._id = id
        self._name = name
        self._sessions = sessions
        self._subscribers = subscribers
        self._interest = interest
        self._router = router
        self._publishers = publishers
        self._durables = durables
        self._gate = gate

    def answer(self, body: bytes) -> bytes:
        """The answer to a question."""
        try:
            found = self._answer(_question(body))
        except (_Refused, TopicError) as error:
            found = {"error": str(error)}
        about = {"schema": 1, "broker": self._name, "id": f"{self._id:016x}"}
        return json.dumps({**about, **found}, separators=(",", ":")).encode()

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        match question.get("look"):
            case "clients":
                return self._clients()
            case "topics":
                return self._topics()
            case "way":
                return self._way(question.get("topic"))
            case "message":
                return {
                    "heard": self._heard(*(question.get(key) for key in ("publisher", "boot", "sequence")))
                }
            case other:
                raise _Refused(f"'look' is {str(other)[:40]!r}, which this broker does not know")

    def _clients(self) -> dict[str, Any]:
        found = [_of_session(session) for session in self._sessions.all()]
        found += [_of_stock(subscriber) for subscriber in self._subscribers.by_pipe.values()]
        count = len(found)
        if count > CLIENTS_MAX:
            found = nlargest(CLIENTS_MAX, found, key=_trouble)
        return {"clients": found, "count": count}

    def _topics(self) -> dict[str, Any]:
        wanted = self._interest.counted()
        count = len(wanted)
        if count > PATTERNS_MAX:
            wanted = nlargest(PATTERNS_MAX, wanted, key=lambda each: each[1] + each[2])
        sent = self._sent_by_pattern()
        return {
            "topics": [
                {
                    "pattern": pattern[:TEXT_MAX],
                    "listen": listen,
                    "answer": answers,
                    **_traffic(sent.get(pattern)),
                }
                for pattern, listen, answers in wanted
            ],
            "count": count,
        }

    def _sent_by_pattern(self) -> dict[str, tuple[int, int] | None]:
        """Messages and bytes sent by the subscriptions to each pattern. None: one of these subscriptions has
        several patterns, and does not know which of them its messages matched."""
        subscriptions: list[ClientSubscription | Subscriber] = [
            each for session in self._sessions.all() for each in session.subscriptions.values()
        ]
        subscriptions += self._subscribers.by_pipe.values()
        found: dict[str, tuple[int, int] | None] = {}
        for each in subscriptions:
            if len(each.patterns) == 1:
                (pattern,) = each.patterns
                messages, size = each.sent
                before = found.get(pattern, (0, 0))
                found[pattern] = None if before is None else (before[0] + messages, before[1] + size)
            else:
                found.update(dict.fromkeys(each.patterns))
        return found

    def _way(self, topic: object) -> dict[str, Any]:
        if not isinstance(topic, str):
            raise _Refused("'topic' must be a string")
        encoded = check_topic(topic)
        route = self._router.route(encoded)
        takers = [taker for taker in route.local if not isinstance(taker, Responder)]
        homes = [] if is_system(topic) else self._durables.wanting(encoded)
        return {
            "topic": topic,
            "held": self._gate.closed,
            "takers": [_taker(taker, topic) for taker in takers[:TAKERS_MAX]],
            "takers_count": len(takers),
            "answers": [_taker(taker, topic)["name"] for taker in route.local_answers[:TAKERS_MAX]],
            "next": [_hop(member) for member in route.remote[:TAKERS_MAX]],
            "next_count": len(route.remote),
            "durable": [
                {
                    "home": home.name,
                    "names": [
                        name
                        for name, patterns in home.subscriptions.items()
                        if any(matches(pattern, topic) for pattern in patterns)
                    ][:TAKERS_MAX],
                }
                for home in homes
            ],
        }

    def _heard(self, publisher: object, boot: object, sequence: object) -> bool | None:
        if not (isinstance(publisher, int) and isinstance(boot, int) and isinstance(sequence, int)):
            raise _Refused("'publisher', 'boot' and 'sequence' must be whole numbers")
        record = self._publishers.find(publisher, boot)
        return None if record is None else record.knows(sequence, 1)


def _of_session(session: Session) -> dict[str, Any]:
    subscriptions = session.subscriptions.values()
    return {
        "kind": "session",
        "name": session.name[:TEXT_MAX],
        "client": f"{session.client:016x}",
        "principal": session.standing.name,
        "proof": session.guest.method or None,
        "address": session.port.pipe.remote_address,
        "published": session.messages_in,
        "bytes_in": session.bytes_in,
        "subscriptions": len(subscriptions),
        **_patterns(pattern for subscription in subscriptions for pattern in subscription.patterns),
        "durable": [each.durable.name for each in session.work.values() if each.durable is not None][
            :SHOWN_MAX
        ],
        "waiting": sum(subscription.backlog.messages for subscription in subscriptions),
        "under_way": sum(subscription.under_way for subscription in subscriptions),
        "dropped": sum(subscription.dropped for subscription in subscriptions),
    }


def _of_stock(subscriber: Subscriber) -> dict[str, Any]:
    return {
        "kind": "stock",
        "name": "",
        "client": None,
        "principal": None,
        "proof": None,
        "address": subscriber.port.pipe.remote_address,
        "published": None,
        "bytes_in": None,
        "subscriptions": 1,
        **_patterns(subscriber.patterns),
        "durable": [],
        "waiting": subscriber.backlog.messages,
        "under_way": 0,
        "dropped": subscriber.dropped,
    }


def _patterns(patterns: Iterable[str]) -> dict[str, Any]:
    """The first patterns, and how many there are."""
    shown: list[str] = []
    count = 0
    for pattern in patterns:
        if count < SHOWN_MAX:
            shown.append(pattern[:TEXT_MAX])
        count += 1
    return {"patterns": shown, "patterns_count": count}


def _traffic(sent: tuple[int, int] | None) -> dict[str, int | None]:
    messages, size = (None, None) if sent is None else sent
    return {"messages": messages, "bytes": size}


def _trouble(client: Mapping[str, Any]) -> tuple[int, int, int]:
    return client["dropped"], client["waiting"], client["published"] or 0


def _taker(taker: LocalTaker, topic: str) -> dict[str, Any]:
    """A taker of this broker that gets messages of a topic."""
    pattern = next((each for each in taker.patterns if matches(each, topic)), "")
    if isinstance(taker, Responder):
        return {"kind": "broker", "name": "the broker itself", "pattern": pattern}
    ours = isinstance(taker, ClientSubscription)
    return {
        "kind": "session" if ours else "stock",
        "name": taker.session.name[:TEXT_MAX] if isinstance(taker, ClientSubscription) else "",
        "address": taker.port.pipe.remote_address,
        "pattern": pattern[:TEXT_MAX],
        "behind": taker.behind,
        "waiting": taker.backlog.messages,
        "under_way": taker.under_way,
        "dropped": taker.dropped,
    }


def _hop(member: Member) -> dict[str, Any]:
    """Another broker that wants a topic, and the link that takes the messages there."""
    hop, counts = member.next_hop, member.statistics()
    return {
        "id": f"{member.id:016x}",
        "broker": member.name,
        "via": None if hop is None else hop.member.name,
        "waiting": counts.queued,
        "dropped": counts.dropped,
        "lost": counts.lost,
    }


def _question(body: bytes) -> dict[str, Any]:
    if len(body) > QUESTION_MAX:
        raise _Refused(f"a question of {len(body)} bytes is above the limit of {QUESTION_MAX}")
    try:
        question = json.loads(body)
    except (ValueError, RecursionError):
        question = None
    if not isinstance(question, dict):
        raise _Refused('a question is a JSON object such as {"look": "clients"}')
    return question
