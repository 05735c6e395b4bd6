"""Requests and surveys on their way: what this broker's clients asked, and what its clients were asked.

Two tables, both keyed by tokens this broker draws:

* `Questions`: asked by a client (or the program) at this broker. A question waits for *silent* brokers,
which have not said
  yet whom they asked, and for *waiting* responders, which were asked and have not answered. A request has
  one of either, a survey any number. It ends when both are empty, or at its deadline.
* `Asked`: put to a subscriber of this broker, on behalf of a question here or at another broker. It ends
with the answer, with
  the subscriber's session, or at its deadline.

A reply travels by address (broker, token), never by topic. What arrives for a question that has ended is
late: it is passed on for one more deadline, marked by the question's ``done``, and then unknown.

`Asking` joins the tables: it decides who is asked and sends what follows. Pure, like everything here.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from functools import partial
from typing import Final

from mesh.dataplane import gate
from mesh.dataplane.gate import Gate
from mesh.dataplane.ports import LocalAsker, Peer, Responder, Session, Subscription, Tap
from mesh.errors import SessionError
from mesh.topics import check_topic, is_system
from mesh.topics.routing import Route, Router
from mesh.wire.session_frames import LIST_MAX, Kind, Status, encode

PENDING_MAX: Final = 65536
"""Subscribers that owe one broker an answer; one more is not asked, and the asker told so."""

QUESTIONS_MAX: Final = 4096
"""Open questions of one session."""
TIMEOUT_MAX_S: Final = 3600.0

Local = Subscription | Tap | Responder
Asker = Session | LocalAsker


class Matter:
    """What is asked."""

    __slots__ = ("body", "headers", "topic")

    def __init__(self, topic: str, body: bytes, headers: bytes) -> None:
        self.topic = topic
        self.body = body
        self.headers = headers


class Said:
    """What came of it: a `Status`, an answer, and who gave it."""

    __slots__ = ("body", "headers", "name", "status")

    def __init__(self, status: int, body: bytes, headers: bytes, name: str) -> None:
        self.status = int(status)
        self.body = body
        self.headers = headers
        self.name = name


class Question:
    """One request or survey. ``silent``: brokers by id; ``waiting``: (broker, responder) to the name."""

    __slots__ = (
        "asked",
        "asker",
        "deadline",
        "done",
        "id",
        "matter",
        "missing",
        "silent",
        "survey",
        "timeout_s",
        "token",
        "tried",
        "waiting",
    )

    def __init__(
        self,
        token: int,
        asker: Asker,
        id: int,
        matter: Matter,
        *,
        survey: bool,
        timeout_s: float,
        now: float,
    ) -> None:
        self.token = token
        self.asker = asker
        self.id = id
        self.matter = matter
        self.survey = survey
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s
        self.silent: dict[int, str] = {}
        self.waiting: dict[tuple[int, int], str] = {}
        self.missing: list[str] = []
        """Named already: brokers that cannot be reached."""
        self.tried: list[int] = []
        self.asked = 0
        self.done = False

    @property
    def complete(self) -> bool:
        return not self.silent and not self.waiting

    def unanswered(self) -> list[str]:
        """Names of everybody who was to answer and has not."""
        return [*self.missing, *self.silent.values(), *self.waiting.values()]


class Questions:
    """Questions of this broker's own clients."""

    def __init__(self) -> None:
        self._open: dict[int, Question] = {}
        self.due: list[tuple[float, int]] = []
        """A heap of (when, token); what has ended may still be in it."""
        self._token = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def next_token(self) -> int:
        """Of the question that is added next."""
        return self._token + 1

    def add(
        self,
        asker: Asker,
        id: int,
        matter: Matter,
        *,
        survey: bool,
        timeout_s: float,
        now: float,
    ) -> Question:
        self._token += 1
        question = Question(self._token, asker, id, matter, survey=survey, timeout_s=timeout_s, now=now)
        self._open[question.token] = question
        heapq.heappush(self.due, (question.deadline, question.token))
        _compact(self.due, self._open)
        return question

    def get(self, token: int) -> Question | None:
        return self._open.get(token)

    def end(self, question: Question, now: float) -> None:
        """The asker has its result. A survey is kept for late answers for one more deadline."""
        question.done = True
        if question.survey and not question.complete:
            question.deadline = now + question.timeout_s  # its place in the heap is renewed when due
        else:
            self._open.pop(question.token, None)

    def extend(self, question: Question, more_s: float, now: float) -> None:
        """More time, but never later than `TIMEOUT_MAX_S` from now; its place in the heap is renewed when
        due."""
        question.deadline = min(question.deadline + more_s, now + TIMEOUT_MAX_S)

    def expired(self, now: float) -> list[Question]:
        """Questions whose time is over, each once; those that had ended already are forgotten."""
        over: list[Question] = []
        while self.due and self.due[0][0] <= now:
            _, token = heapq.heappop(self.due)
            question = self._open.get(token)
            if question is None:
                continue
            if question.deadline > now:
                heapq.heappush(self.due, (question.deadline, token))
            elif question.done:
                del self._open[token]
            else:
                over.append(question)
        return over

    def of_asker(self, asker: Asker) -> list[Question]:
        return [question for question in self._open.values() if question.asker is asker]

    def forget(self, question: Question) -> None:
        self._open.pop(question.token, None)

    def concerning(self, broker: int) -> list[Question]:
        """Questions that still wait for something from that broker."""
        return [
            question
            for question in self._open.values()
            if broker in question.silent or any(place[0] == broker for place in question.waiting)
        ]


class Pending:
    """One subscriber that was asked: by which broker's question, and as which of its responders."""

    __slots__ = ("broker", "deadline", "responder", "subscriber", "token")

    def __init__(
        self, subscriber: Subscription, broker: int, token: int, responder: int, deadline: float
    ) -> None:
        self.subscriber = subscriber
        self.broker = broker
        self.token = token
        self.responder = responder
        self.deadline = deadline


class Asked:
    """Subscribers of this broker that owe an answer."""

    def __init__(self) -> None:
        self._open: dict[int, Pending] = {}
        self.due: list[tuple[float, int]] = []
        """A heap of (when, token); what has ended may still be in it."""
        self._token = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, subscriber: Subscription, broker: int, token: int, responder: int, deadline: float) -> int:
        """The token that the subscriber's ANSWER will carry."""
        self._token += 1
        self._open[self._token] = Pending(subscriber, broker, token, responder, deadline)
        heapq.heappush(self.due, (deadline, self._token))
        _compact(self.due, self._open)
        return self._token

    def get(self, token: int) -> Pending | None:
        return self._open.get(token)

    def pop(self, token: int) -> Pending | None:
        return self._open.pop(token, None)

    def extend(self, token: int, more_s: float, now: float) -> None:
        pending = self._open[token]
        pending.deadline = min(pending.deadline + more_s, now + TIMEOUT_MAX_S)

    def of_subscriber(self, subscriber: Subscription) -> list[Pending]:
        """Take out all that a subscriber owes: it is gone."""
        tokens = [token for token, pending in self._open.items() if pending.subscriber is subscriber]
        return [self._open.pop(token) for token in tokens]

    def expire(self, now: float) -> int:
        """Forget what is over (the asker names who is missing); returns how many."""
        count = 0
        while self.due and self.due[0][0] <= now:
            _, token = heapq.heappop(self.due)
            pending = self._open.get(token)
            if pending is None:
                continue
            if pending.deadline > now:
                heapq.heappush(self.due, (pending.deadline, token))
            else:
                del self._open[token]
                count += 1
        return count


def _compact(due: list[tuple[float, int]], still_open: Mapping[int, object]) -> None:
    """Forget the places of what has ended, once they are the most."""
    if len(due) > 64 + 2 * len(still_open):
        due[:] = [entry for entry in due if entry[1] in still_open]
        heapq.heapify(due)


class Asking:
    """Who is asked, and what is sent where; see the module. ``peers`` and ``live`` are the exchange's own
    tables."""

    def __init__(
        self,
        id: int,
        name: str,
        router: Router[Local, Peer],
        peers: dict[int, Peer],
        live: dict[int, str],
        gate: Gate,
    ) -> None:
        self.unknown = 0
        """Answers that came for no question: too late, or never asked."""
        self.not_asked = 0
        """Subscribers that answer and were passed over, there being more than `LIST_MAX`."""
        self._id = id
        self._name = name
        self._router = router
        self._peers = peers
        self._live = live
        self._gate = gate
        self._questions = Questions()
        self._asked = Asked()
        self._turn = 0

    @property
    def open_questions(self) -> int:
        """Requests and surveys of this broker's clients that have no result yet."""
        return len(self._questions)

    # --- at the broker of the asker

    def ask(self, asker: Asker, id: int, matter: Matter, timeout_s: float, survey: bool, now: float) -> None:
        """A client's, or the program's, request or survey. One that comes while the gate is closed waits
        behind it until its deadline, which ends it like any other. Raises `TopicError`, `SessionError`."""
        check_topic(matter.topic)
        if isinstance(asker, Session) and asker.questions >= QUESTIONS_MAX:
            raise SessionError(f"more than {QUESTIONS_MAX} questions at once")
        held = self._gate.closed and not is_system(matter.topic)  # this broker may answer those by itself
        size = len(matter.topic) + len(matter.body) + len(matter.headers)
        if held and not self._gate.hold(size, partial(self._route, self._questions.next_token)):
            raise SessionError(f"broker {self._name} {gate.REASON}")
        if isinstance(asker, Session):
            asker.questions += 1
        question = self._questions.add(
            asker, id, matter, survey=survey, timeout_s=min(timeout_s, TIMEOUT_MAX_S), now=now
        )
        if held:
            question.missing.append(self._name)
        else:
            self._route(question.token, now)

    def _route(self, token: int, now: float) -> None:
        """Ask others what was asked here, unless its time is over or its asker gone."""
        question = self._questions.get(token)
        if question is None or question.done:
            return
        question.missing.clear()
        route = self._router.route(question.matter.topic.encode())
        if question.survey:
            self._survey(question, route, now)
        else:
            self._request(question, route, now)

    def _request(self, question: Question, route: Route[Local, Peer], now: float) -> None:
        """Ask one subscriber: of this broker in turn, else of the nearest broker not tried yet."""
        if route.local_answers and self._id not in question.tried:
            question.tried.append(self._id)
            self._ask_local(question, [self._next_of(route.local_answers)], now)
            return
        near = [
            peer for peer in route.remote_answers if peer.pipe is not None and peer.id not in question.tried
        ]
        if not near:
            self._reply(question, Said(Status.NO_RESPONDERS, b"", b"", ""), self._name)
            self._end(question, now)
            return
        peer = min(near, key=lambda peer: (peer.rtt_s, peer.id))
        question.tried.append(peer.id)
        question.silent[peer.id] = peer.name
        self._forward(question, peer, now)

    def _survey(self, question: Question, route: Route[Local, Peer], now: float) -> None:
        """Ask everybody who answers, here and at every broker with such interest; name the others."""
        for peer in route.remote_answers:
            if peer.pipe is None:
                question.missing.append(peer.name)
            else:
                question.silent[peer.id] = peer.name
        for member, name in self._live.items():
            if member not in self._peers or not self._peers[member].interest_known:
                question.missing.append(name)
        for member in question.silent:
            self._forward(question, self._peers[member], now)
        if route.local_answers:
            self._ask_local(question, self._bounded(route.local_answers), now)
        self._finish_if_complete(question, now)

    def _next_of(self, takers: tuple[Local, ...]) -> Local:
        self._turn += 1
        return takers[self._turn % len(takers)]

    def _forward(self, question: Question, peer: Peer, now: float) -> None:
        matter = question.matter
        left_ms = max(1, int((question.deadline - now) * 1000))
        survey = int(question.survey)
        peer.send(
            encode(Kind.FORWARD, question.token, survey, matter.topic, matter.body, matter.headers, left_ms)
        )

    def _ask_local(self, question: Question, takers: list[Local], now: float) -> None:
        """A question of our own to our own subscribers."""
        question.asked += len(takers)
        for index, taker in enumerate(takers):
            question.waiting[(self._id, index)] = self._name_of(taker)
        left_s = question.deadline - now
        self._put(self._id, question.token, takers, question.survey, question.matter, left_s, now)

    def peer_asked(self, peer: Peer, token: int, names: list[str], now: float) -> None:
        """ASKED: another broker says to whom it put our question."""
        question = self._questions.get(token)
        if question is None or question.silent.pop(peer.id, None) is None:
            return  # it came after the question's time
        question.asked += len(names)
        for index, name in enumerate(names):
            question.waiting[(peer.id, index)] = (
                f"{name[:100]}@{peer.name[:100]}" if name != peer.name else name
            )
        if question.survey:
            self._finish_if_complete(question, now)
        elif not names:  # its interest had gone by the time we asked: the next one
            self._request(question, self._router.route(question.matter.topic.encode()), now)

    def arrived(self, broker: int, token: int, responder: int, said: Said, now: float) -> None:
        """An answer to one of our questions, from here or by RETURN."""
        question = self._questions.get(token)
        if question is None or (broker, responder) not in question.waiting:
            self.unknown += 1
            return
        name = question.waiting.pop((broker, responder))
        if question.survey and said.status == Status.GONE:
            question.missing.append(name)
        else:
            self._reply(question, said, self._name if broker == self._id else self._peers[broker].name)
        if question.survey:
            self._finish_if_complete(question, now)
        else:
            self._end(question, now)

    def longer(self, token: int, more_ms: int, now: float) -> None:
        """LONGER: whoever answers one of our questions needs more time."""
        question = self._questions.get(token)
        if question is None or question.done:
            return
        self._questions.extend(question, more_ms / 1000, now)
        if isinstance(question.asker, Session):
            question.asker.send(encode(Kind.LONGER, question.id, more_ms))

    def broker_gone(self, peer: Peer, now: float) -> None:
        """The link to a broker is over: it will not answer."""
        for question in self._questions.concerning(peer.id):
            places = [place for place in question.waiting if place[0] == peer.id]
            names = [question.waiting.pop(place) for place in places]
            if question.silent.pop(peer.id, None) is not None:
                names.append(peer.name)
            question.missing += names
            if question.survey:
                self._finish_if_complete(question, now)
            elif not question.done:
                self._reply(question, Said(Status.GONE, b"", b"", names[0]), peer.name)
                self._end(question, now)

    def asker_gone(self, asker: Asker) -> None:
        for question in self._questions.of_asker(asker):
            self._questions.forget(question)

    def _reply(self, question: Question, said: Said, broker: str) -> None:
        asker = question.asker
        if isinstance(asker, Session):
            asker.send(
                encode(Kind.REPLY, question.id, said.status, said.body, said.headers, broker, said.name)
            )
        else:
            asker.callback(said.status, said.body)

    def _finish_if_complete(self, question: Question, now: float) -> None:
        if question.complete and not question.done:
            self._finish(question, now)

    def _finish(self, question: Question, now: float) -> None:
        if isinstance(question.asker, Session):
            question.asker.send(
                encode(Kind.SURVEYED, question.id, question.asked, question.unanswered()[:LIST_MAX])
            )
        self._end(question, now)

    def _end(self, question: Question, now: float) -> None:
        if not question.done and isinstance(question.asker, Session):
            question.asker.questions -= 1
        self._questions.end(question, now)

    # --- at the broker of those asked

    def forwarded(
        self, peer: Peer, token: int, survey: bool, matter: Matter, timeout_s: float, now: float
    ) -> None:
        """FORWARD: another broker's question. Say whom it is put to, then put it. Raises `TopicError`."""
        route = self._router.route(check_topic(matter.topic))
        takers = self._bounded(route.local_answers)
        if takers and not survey:
            takers = [self._next_of(route.local_answers)]
        peer.send(encode(Kind.ASKED, token, [self._name_of(taker) for taker in takers]))
        self._put(peer.id, token, takers, survey, matter, timeout_s, now)

    def _put(
        self,
        broker: int,
        token: int,
        takers: list[Local],
        survey: bool,
        matter: Matter,
        timeout_s: float,
        now: float,
    ) -> None:
        """Hand a question to subscribers here; each one's place in ``takers`` is its responder number."""
        topic, body, headers = matter.topic, matter.body, matter.headers
        timeout_ms = max(1, int(timeout_s * 1000))
        for place, taker in enumerate(takers):
            if isinstance(taker, Responder):
                said = Said(Status.OK, taker.handler(topic, body), b"", self._name)
                self._home(broker, token, place, said, now)
            elif len(self._asked) >= PENDING_MAX:
                busy = f"{PENDING_MAX} questions wait for an answer at broker {self._name}"
                self._home(broker, token, place, Said(Status.DROPPED, busy.encode(), b"", self._name), now)
            elif isinstance(taker, Subscription):
                keep_s = timeout_s * 2 if survey else timeout_s  # late answers to surveys are passed on
                mine = self._asked.add(taker, broker, token, place, now + keep_s)
                ask = encode(Kind.ASK, taker.number, mine, int(survey), topic, body, headers, timeout_ms)
                taker.offer_frame(ask, now)

    def answer(self, session: Session, token: int, said: Said, now: float) -> None:
        """ANSWER of a client that was asked."""
        pending = self._asked.get(token)
        if pending is None or pending.subscriber.session is not session:
            self.unknown += 1
            return
        self._asked.pop(token)
        self._home(pending.broker, pending.token, pending.responder, said, now)

    def extend(self, session: Session, token: int, more_ms: int, now: float) -> None:
        """EXTEND of a client that was asked."""
        pending = self._asked.get(token)
        if pending is None or pending.subscriber.session is not session:
            return
        more_ms = min(more_ms, int(TIMEOUT_MAX_S * 1000))
        self._asked.extend(token, more_ms / 1000, now)
        if pending.broker == self._id:
            self.longer(pending.token, more_ms, now)
        elif pending.broker in self._peers:
            self._peers[pending.broker].send(encode(Kind.LONGER, pending.token, more_ms))

    def subscriber_gone(self, subscription: Subscription, now: float) -> None:
        """It will not answer what it was asked: whoever asked is told."""
        said = Said(Status.GONE, b"", b"", subscription.session.name)
        for pending in self._asked.of_subscriber(subscription):
            self._home(pending.broker, pending.token, pending.responder, said, now)

    def _home(self, broker: int, token: int, responder: int, said: Said, now: float) -> None:
        """What was said here goes to the broker whose question it was."""
        if broker == self._id:
            self.arrived(broker, token, responder, said, now)
        elif broker in self._peers:
            self._peers[broker].send(
                encode(Kind.RETURN, token, responder, said.status, said.body, said.headers, said.name)
            )

    def _bounded(self, takers: tuple[Local, ...]) -> list[Local]:
        """As many as one frame can name; the others are not asked, which is counted."""
        self.not_asked += max(0, len(takers) - LIST_MAX)
        return list(takers[:LIST_MAX])

    def _name_of(self, taker: Local) -> str:
        return taker.session.name if isinstance(taker, Subscription) else self._name

    # --- time

    def expire(self, now: float) -> float | None:
        """End what is over; returns when a question is over next."""
        due = self._questions.due
        if due and due[0][0] <= now:
            for question in self._questions.expired(now):
                if question.survey:
                    self._finish(question, now)
                else:
                    self._reply(question, Said(Status.TIMEOUT, b"", b"", ""), self._name)
                    self._end(question, now)
        if self._asked.due and self._asked.due[0][0] <= now:
            self._asked.expire(now)
        return due[0][0] if due else None
