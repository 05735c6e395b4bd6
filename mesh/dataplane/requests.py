"""Requests and surveys: which subscribers are asked, and which frames go where.

A client or the program sends its question to its broker. That broker asks its own subscribers that answer,
and forwards the question to other brokers that have some (FORWARD). These report which subscribers they asked
(ASKED) and send each answer back (RETURN). A request goes to one subscriber: to one of this broker in turn,
or to one of the nearest broker. A survey goes to all of them, and its result names those that did not answer.

A reply travels by its address (broker, token), never by topic.

**Bounds.** A session has a bounded number of open questions and of bytes in them (`ExchangeOptions`); one
more is refused, and its asker is told. At most `PENDING_MAX` subscribers may owe this broker an answer:
`OWED_MAX` on behalf of one client, `OWED_TO_BROKER_MAX` on behalf of another broker. A question beyond these
reaches nobody here, and this broker answers it with a sentence. A link has room for as many bytes of
questions and answers as of blocks. A question beyond them is not sent to that broker, and its asker is told;
an answer is dropped and counted. Names in one frame are bounded by `NAMES_MAX` and cut to `NAME_SHOWN`
characters, so that the frame stays below the receive limit of a socket. An answer that is too large for a
frame is replaced with a sentence.

Pure.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Final

from mesh.dataplane import gate as gates
from mesh.dataplane.gate import Gate, Part
from mesh.dataplane.members import Member, Members
from mesh.dataplane.options import ExchangeOptions
from mesh.dataplane.questions import (
    TIMEOUT_MAX_S,
    Answer,
    Asker,
    LocalAsker,
    PendingAnswers,
    Query,
    Question,
    Questions,
    first_token,
)
from mesh.dataplane.sessions import ClientSubscription, LocalTaker, Responder, Session
from mesh.errors import NotAccepted
from mesh.topics import check_topic, is_system
from mesh.topics.routing import Route, Router
from mesh.wire.session_frames import BODY_MAX, Kind, Status, encode

PENDING_MAX: Final = 65536
"""Subscribers that may owe one broker an answer."""
OWED_MAX: Final = 4096
"""Answers owed on behalf of one client. One survey may take them all."""
OWED_TO_BROKER_MAX: Final = PENDING_MAX // 4
"""Answers owed here to the clients of another broker."""
NAMES_MAX: Final = 4096
"""Subscribers of one broker that receive one question. Those beyond are not asked, which is counted. Also the
bound of the missing names in one survey's result."""
NAME_SHOWN: Final = 100


class Requests:
    """See the module."""

    def __init__(
        self,
        id: int,
        boot: int,
        name: str,
        router: Router[LocalTaker, Member],
        members: Members,
        gate: Gate,
        options: ExchangeOptions,
    ) -> None:
        self.unknown = 0
        """Answers that fit no question: too late, or never asked for."""
        self.not_asked = 0
        """Subscribers that answer but were left out because there were more than `NAMES_MAX`."""
        self.not_returned = 0
        """Answers for other brokers that were dropped because too much was unwritten on the link."""
        self._id = id
        self._name = name
        self._router = router
        self._members = members
        self._gate = gate
        self._held = Part(gate)
        self._options = options
        self._questions = Questions(first_token(boot))
        self._pending = PendingAnswers(first_token(boot))
        self._turn = 0
        self._now = 0.0
        """The approximate time, for answers that this broker itself gives later."""

    @property
    def open_questions(self) -> int:
        """Requests and surveys of this broker's clients that have no result yet."""
        return len(self._questions)

    # --- at the broker of the asker

    def ask(self, asker: Asker, id: int, query: Query, timeout_s: float, survey: bool, now: float) -> None:
        """Ask a request or survey of a client or of the program. While the gate is closed it waits until its
        deadline, which ends it like any other. Raises `TopicError`, and `NotAccepted` to the program."""
        check_topic(query.topic)
        held = self._gate.closed and not is_system(query.topic)  # this broker may answer those itself
        sentence = self._beyond_bounds(asker, query) if isinstance(asker, Session) else ""
        if not sentence and held:
            size = len(query.topic) + len(query.body) + len(query.headers)
            if not self._held.hold(asker, size, partial(self._route, self._questions.next_token)):
                sentence = f"broker {self._name} {gates.REASON}"
        if sentence:
            if not isinstance(asker, Session):
                raise NotAccepted(sentence)
            self.refuse(asker, id, survey, sentence)
            return
        question = self._questions.add(
            asker, id, query, survey=survey, timeout_s=min(timeout_s, TIMEOUT_MAX_S), now=now
        )
        if held:
            question.missing.append(self._name)
        else:
            self._route(question.token, now)

    def _route(self, token: int, now: float) -> None:
        """Forward a question of this broker, unless its time is over or its asker has left."""
        question = self._questions.get(token)
        if question is None or question.done:
            return
        question.missing.clear()
        route = self._router.route(question.query.topic.encode())
        if question.survey:
            self._survey(question, route, now)
        else:
            self._request(question, route, now)

    def _beyond_bounds(self, session: Session, query: Query) -> str:
        """Why a session may not ask this now. Empty if it may."""
        options, count, size = self._options, len(session.questions), session.question_bytes
        if count >= options.questions_max:
            return f"{count} requests and surveys without a result are as many as one client may have"
        if size and size + len(query.body) > options.question_bytes_max:
            return (
                f"requests and surveys of {size} bytes have no result yet; {len(query.body)} more exceed"
                f" the limit of {options.question_bytes_max}"
            )
        return ""

    def refuse(self, session: Session, id: int, survey: bool, sentence: str) -> None:
        """Tell a client that its question was refused, and why."""
        session.send(encode(Kind.REPLY, id, Status.DROPPED, sentence.encode(), b"", self._name, self._name))
        if survey:
            session.send(encode(Kind.SURVEYED, id, 0, []))

    def _request(self, question: Question, route: Route[LocalTaker, Member], now: float) -> None:
        """Ask one subscriber: one of this broker in turn, or one of the nearest broker not tried yet."""
        if route.local_answers and self._id not in question.tried:
            question.tried.append(self._id)
            self._ask_local(question, [self._next_of(route.local_answers)], now)
            return
        near = [m for m in route.remote_answers if m.neighbour is not None and m.id not in question.tried]
        if not near:
            self._reply(question, Answer(Status.NO_RESPONDERS, b"", b"", ""), self._name)
            self._end(question, now)
            return
        member = min(near, key=lambda m: (m.neighbour.rtt_s if m.neighbour else 0.0, m.id))
        question.tried.append(member.id)
        question.silent[member.id] = member.name
        if not self._forward(question, member, now):
            del question.silent[member.id]
            sentence = f"too many questions wait on the link to broker {member.name}"
            self._reply(question, Answer(Status.DROPPED, sentence.encode(), b"", self._name), self._name)
            self._end(question, now)

    def _survey(self, question: Question, route: Route[LocalTaker, Member], now: float) -> None:
        """Ask all subscribers that answer, here and at every broker with such interest. Name the missing
        ones."""
        members = self._members
        for member in route.remote_answers:
            if member.neighbour is None:
                question.missing.append(member.name)
            else:
                question.silent[member.id] = member.name
        for id, name in members.live.items():
            if id not in members.table or not members.table[id].interest_known:
                question.missing.append(name)
        for id in list(question.silent):
            if not self._forward(question, members.table[id], now):
                question.missing.append(question.silent.pop(id))
        if route.local_answers:
            self._ask_local(question, self._bounded(route.local_answers), now)
        self._finish_if_complete(question, now)

    def _next_of(self, takers: tuple[LocalTaker, ...]) -> LocalTaker:
        self._turn += 1
        return takers[self._turn % len(takers)]

    def _forward(self, question: Question, member: Member, now: float) -> bool:
        """Send a question over the member's own link, since questions have no address on the wire. False if
        the link has no room."""
        query = question.query
        left_ms = max(1, int((question.deadline - now) * 1000))
        survey = int(question.survey)
        return self._send(
            member,
            encode(Kind.FORWARD, question.token, survey, query.topic, query.body, query.headers, left_ms),
        )

    @staticmethod
    def _send(member: Member | None, frame: bytes) -> bool:
        """Send a frame to a broker. False without a link or without room on it."""
        return member is not None and member.neighbour is not None and member.neighbour.ask(frame)

    def _ask_local(self, question: Question, takers: list[LocalTaker], now: float) -> None:
        """Ask this broker's subscribers a question of its own client."""
        busy = self._busy(question.asker, OWED_MAX, takers)
        names = [self._name] if busy else list(map(self._name_of, takers))
        question.asked += len(names)
        for index, name in enumerate(names):
            question.waiting[(self._id, index)] = name
        if busy:
            self.arrived(self._id, question.token, 0, busy, now)
            return
        left_s = question.deadline - now
        self._put(
            question.asker, self._id, question.token, takers, question.survey, question.query, left_s, now
        )

    def _busy(self, asker: Hashable, most: int, takers: list[LocalTaker]) -> Answer | None:
        """The answer to give instead if too many answers are owed already."""
        count, owed, pending = len(takers), self._pending.owed_to(asker), len(self._pending)
        if (not owed or owed + count <= most) and pending + count <= PENDING_MAX:
            return None
        if not any(isinstance(taker, ClientSubscription) for taker in takers):
            return None  # this broker itself answers at once
        if owed and owed + count > most:
            sentence = (
                f"{owed} subscribers of broker {self._name} have not answered earlier questions;"
                f" {count} more exceed the limit of {most}"
            )
        else:
            sentence = f"{pending} questions wait for an answer at broker {self._name}"
        return Answer(Status.DROPPED, sentence.encode(), b"", self._name)

    def peer_asked(self, member: Member, token: int, names: list[str], now: float) -> None:
        """ASKED: another broker reports which subscribers it asked."""
        question = self._questions.get(token)
        if question is None or question.silent.pop(member.id, None) is None:
            return  # it came after the question had ended
        question.asked += len(names)
        for index, name in enumerate(names):
            question.waiting[(member.id, index)] = (
                f"{name[:NAME_SHOWN]}@{member.name[:NAME_SHOWN]}" if name != member.name else name
            )
        if question.survey:
            self._finish_if_complete(question, now)
        elif not names:  # that broker's interest had ended before we asked: ask the next one
            self._request(question, self._router.route(question.query.topic.encode()), now)

    def arrived(self, broker: int, token: int, responder: int, answer: Answer, now: float) -> None:
        """An answer to one of our questions, from this broker or by RETURN."""
        question = self._questions.get(token)
        if question is None or (broker, responder) not in question.waiting:
            self.unknown += 1
            return
        name = question.waiting.pop((broker, responder))
        if question.survey and answer.status == Status.GONE:
            question.missing.append(name)
        else:
            self._reply(question, answer, self._name_of_broker(broker))
        if question.survey:
            self._finish_if_complete(question, now)
        else:
            self._end(question, now)

    def longer(self, token: int, more_ms: int, now: float) -> None:
        """LONGER: a responder needs more time."""
        question = self._questions.get(token)
        if question is None or question.done:
            return
        self._questions.extend(question, more_ms / 1000, now)
        if isinstance(question.asker, Session):
            question.asker.send(encode(Kind.LONGER, question.id, more_ms))

    def broker_gone(self, member: Member, now: float) -> None:
        """The link to a broker has ended: it will not answer."""
        for question in self._questions.concerning(member.id):
            places = [place for place in question.waiting if place[0] == member.id]
            names = [question.waiting.pop(place) for place in places]
            if question.silent.pop(member.id, None) is not None:
                names.append(member.name)
            question.missing += names
            if question.survey:
                self._finish_if_complete(question, now)
            elif not question.done:
                self._reply(question, Answer(Status.GONE, b"", b"", names[0]), member.name)
                self._end(question, now)

    def asker_gone(self, session: Session) -> None:
        """The session has ended: nobody waits for its answers."""
        self._questions.forget_all(session)

    def _name_of_broker(self, id: int) -> str:
        return self._name if id == self._id else self._members.get(id).name

    def _reply(self, question: Question, answer: Answer, broker: str) -> None:
        asker = question.asker
        if isinstance(asker, Session):
            asker.send(
                encode(
                    Kind.REPLY, question.id, answer.status, answer.body, answer.headers, broker, answer.name
                )
            )
        elif not question.done:
            asker.callback(answer.status, answer.body)

    def _finish_if_complete(self, question: Question, now: float) -> None:
        if question.complete and not question.done:
            self._finish(question, now)

    def _finish(self, question: Question, now: float) -> None:
        asker, missing = question.asker, question.unanswered()[:NAMES_MAX]
        if isinstance(asker, Session):
            asker.send(encode(Kind.SURVEYED, question.id, question.asked, missing))
        self._end(question, now)
        if isinstance(asker, LocalAsker) and asker.over is not None:
            asker.over(missing)

    def _end(self, question: Question, now: float) -> None:
        self._questions.end(question, now)

    # --- at the broker of the responders

    def forwarded(
        self, member: Member, token: int, survey: bool, query: Query, timeout_s: float, now: float
    ) -> None:
        """FORWARD: another broker's question. Report which subscribers are asked, then ask them. Raises
        `TopicError`."""
        route = self._router.route(check_topic(query.topic))
        takers = self._bounded(route.local_answers)
        if takers and not survey:
            takers = [self._next_of(route.local_answers)]
        busy = self._busy(member.id, OWED_TO_BROKER_MAX, takers)
        names = [self._name] if busy else list(map(self._name_of, takers))
        self._send(member, encode(Kind.ASKED, token, [name[:NAME_SHOWN] for name in names]))
        if busy:
            self._return(member.id, token, 0, busy, now)
        else:
            self._put(member.id, member.id, token, takers, survey, query, timeout_s, now)

    def _put(
        self,
        asker: Hashable,
        broker: int,
        token: int,
        takers: list[LocalTaker],
        survey: bool,
        query: Query,
        timeout_s: float,
        now: float,
    ) -> None:
        """Hand a question to subscribers here. The place of each in ``takers`` is its responder number.
        ``asker``: they owe the answer on its behalf."""
        topic, body, headers = query.topic, query.body, query.headers
        timeout_ms = max(1, int(timeout_s * 1000))
        for place, taker in enumerate(takers):
            if isinstance(taker, Responder):
                self._now = now
                taker.ask(topic, body, partial(self._answered_here, broker, token, place), asker)
            elif isinstance(taker, ClientSubscription):
                keep_s = timeout_s * 2 if survey else timeout_s  # late answers to surveys are passed on
                mine = self._pending.add(taker, asker, broker, token, place, now + keep_s)
                ask = encode(Kind.ASK, taker.number, mine, int(survey), topic, body, headers, timeout_ms)
                taker.offer_frame(ask, now)

    def answer(self, session: Session, token: int, answer: Answer, now: float) -> None:
        """ANSWER from a client that was asked."""
        pending = self._pending.get(token)
        if pending is None or pending.subscriber.session is not session:
            self.unknown += 1
            return
        self._pending.pop(token)
        self._return(pending.broker, pending.token, pending.responder, answer, now)

    def extend(self, session: Session, token: int, more_ms: int, now: float) -> None:
        """EXTEND from a client that was asked."""
        pending = self._pending.get(token)
        if pending is None or pending.subscriber.session is not session:
            return
        more_ms = min(more_ms, int(TIMEOUT_MAX_S * 1000))
        self._pending.extend(token, more_ms / 1000, now)
        if pending.broker == self._id:
            self.longer(pending.token, more_ms, now)
        else:
            self._send(self._members.table.get(pending.broker), encode(Kind.LONGER, pending.token, more_ms))

    def subscriber_gone(self, subscription: ClientSubscription, now: float) -> None:
        """A subscriber that left will not answer. Its askers are told."""
        answer = Answer(Status.GONE, b"", b"", subscription.session.name)
        for pending in self._pending.take_all(subscription):
            self._return(pending.broker, pending.token, pending.responder, answer, now)

    def _return(self, broker: int, token: int, responder: int, answer: Answer, now: float) -> None:
        """Send an answer of this broker to the broker that asked."""
        if broker == self._id:
            self.arrived(broker, token, responder, answer, now)
            return
        member = self._members.table.get(broker)
        frame = encode(Kind.RETURN, token, responder, answer.status, answer.body, answer.headers, answer.name)
        if not self._send(member, frame) and member is not None and member.neighbour is not None:
            self.not_returned += 1

    def _answered_here(self, broker: int, token: int, place: int, body: bytes) -> None:
        """An answer of the broker itself, perhaps some turns later."""
        answer = Answer(Status.OK, body, b"", self._name)
        if len(body) > BODY_MAX:
            sentence = f"the answer of {len(body)} bytes is above the {BODY_MAX} of requests and surveys"
            answer = Answer(Status.DROPPED, sentence.encode(), b"", self._name)
        self._return(broker, token, place, answer, self._now)

    def _bounded(self, takers: tuple[LocalTaker, ...]) -> list[LocalTaker]:
        """As many takers as one frame can name. The others are not asked, which is counted."""
        self.not_asked += max(0, len(takers) - NAMES_MAX)
        return list(takers[:NAMES_MAX])

    def _name_of(self, taker: LocalTaker) -> str:
        return taker.session.name if isinstance(taker, ClientSubscription) else self._name

    # --- time

    def expire(self, now: float) -> float | None:
        """End questions whose time is over. Returns when the next one ends."""
        self._now = now
        due = self._questions.due
        if due and due[0][0] <= now:
            for question in self._questions.expired(now):
                if question.survey:
                    self._finish(question, now)
                else:
                    self._reply(question, Answer(Status.TIMEOUT, b"", b"", ""), self._name)
                    self._end(question, now)
        if self._pending.due and self._pending.due[0][0] <= now:
            self._pending.expire(now)
        return due[0][0] if due else None
