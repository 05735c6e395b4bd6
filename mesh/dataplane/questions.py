"""Open requests and surveys, in two tables keyed by tokens that this broker draws.

* `Questions`: asked by a client, or the program, at this broker. A question waits for *silent* brokers, which
  have not yet reported whom they asked, and for *waiting* responders, which have not answered. A request has
  one of either, a survey any number. It ends when both are empty, or at its deadline.
* `PendingAnswers`: owed by a subscriber of this broker, to a question here or at another broker. It ends with
  the answer, with the subscriber's session, or at its deadline.

An answer to a survey that has ended is late. It is passed on for one more deadline, marked by the question's
``done``. After that it is unknown.

Pure.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from mesh.dataplane.sessions import ClientSubscription, Session

TIMEOUT_MAX_S: Final = 3600.0


class LocalAsker:
    """The asker of a question from the program around the broker. ``callback(status, body)`` is called once
    for a request, and for a survey with each answer that is in time. Then ``over`` is called with the names
    of those that gave none."""

    __slots__ = ("callback", "over")

    def __init__(
        self,
        callback: Callable[[int, bytes], None],
        over: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self.callback = callback
        self.over = over


Asker = Session | LocalAsker


class Query:
    """The content of a question."""

    __slots__ = ("body", "headers", "topic")

    def __init__(self, topic: str, body: bytes, headers: bytes) -> None:
        self.topic = topic
        self.body = body
        self.headers = headers


class Answer:
    """An answer: a `Status`, a body, and the responder."""

    __slots__ = ("body", "headers", "name", "status")

    def __init__(self, status: int, body: bytes, headers: bytes, name: str) -> None:
        self.status = int(status)
        self.body = body
        self.headers = headers
        self.name = name


class Question:
    """One request or survey. ``silent``: brokers by id. ``waiting``: names by (broker, responder)."""

    __slots__ = (
        "asked",
        "asker",
        "deadline",
        "done",
        "id",
        "missing",
        "query",
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
        query: Query,
        *,
        survey: bool,
        timeout_s: float,
        now: float,
    ) -> None:
        self.token = token
        self.asker = asker
        self.id = id
        self.query = query
        self.survey = survey
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s
        self.silent: dict[int, str] = {}
        self.waiting: dict[tuple[int, int], str] = {}
        self.missing: list[str] = []
        """Missing names known so far: brokers that cannot be reached."""
        self.tried: list[int] = []
        self.asked = 0
        self.done = False

    @property
    def complete(self) -> bool:
        return not self.silent and not self.waiting

    def unanswered(self) -> list[str]:
        """Names of all responders that have not answered."""
        return [*self.missing, *self.silent.values(), *self.waiting.values()]


def first_token(boot: int) -> int:
    """The token from which a run of a broker counts, by its random ``boot``.

    A program that was asked by an earlier run, or by another broker, may answer in this run. Its token must
    not fit any question here. Tokens have 63 bits on the wire: runs begin at random multiples of 2^32 below
    2^62.
    """
    return (boot & 0x3FFF_FFFF) << 32


class Questions:
    """Questions of this broker's own clients. `Session.questions` also lists those of a session."""

    def __init__(self, first_token: int) -> None:
        self._table: dict[int, Question] = {}
        self.due: list[tuple[float, int]] = []
        """A heap of (deadline, token). It may still contain questions that have ended."""
        self._token = first_token

    def __len__(self) -> int:
        return len(self._table)

    @property
    def next_token(self) -> int:
        """The token of the next question."""
        return self._token + 1

    def add(
        self,
        asker: Asker,
        id: int,
        query: Query,
        *,
        survey: bool,
        timeout_s: float,
        now: float,
    ) -> Question:
        self._token += 1
        question = Question(self._token, asker, id, query, survey=survey, timeout_s=timeout_s, now=now)
        self._table[question.token] = question
        if isinstance(asker, Session):
            asker.questions[question.token] = len(query.body)
            asker.question_bytes += len(query.body)
        heapq.heappush(self.due, (question.deadline, question.token))
        _compact(self.due, self._table)
        return question

    def get(self, token: int) -> Question | None:
        return self._table.get(token)

    def end(self, question: Question, now: float) -> None:
        """The asker has its result. A survey is kept without its body for one more deadline, for late
        answers."""
        asker = question.asker
        if isinstance(asker, Session):
            asker.question_bytes -= asker.questions.pop(question.token, 0)
        question.done = True
        if question.survey and not question.complete:
            question.query = Query(question.query.topic, b"", b"")
            question.deadline = now + question.timeout_s
            heapq.heappush(self.due, (question.deadline, question.token))  # it left the heap when it was due
            if isinstance(asker, Session):
                asker.late_questions[question.token] = None
        else:
            self._remove(question)

    def extend(self, question: Question, more_s: float, now: float) -> None:
        """Allow more time, but at most `TIMEOUT_MAX_S` from now. Its place in the heap is renewed when
        due."""
        question.deadline = min(question.deadline + more_s, now + TIMEOUT_MAX_S)

    def expired(self, now: float) -> list[Question]:
        """Questions whose time is over, each once. Those that had ended already are forgotten."""
        over: list[Question] = []
        while self.due and self.due[0][0] <= now:
            _, token = heapq.heappop(self.due)
            question = self._table.get(token)
            if question is None:
                continue
            if question.deadline > now:
                heapq.heappush(self.due, (question.deadline, token))
            elif question.done:
                self._remove(question)
            else:
                over.append(question)
        return over

    def forget_all(self, asker: Session) -> None:
        """The session has ended: nobody waits for its answers."""
        for token in (*asker.questions, *asker.late_questions):
            self._table.pop(token, None)
        asker.questions.clear()
        asker.late_questions.clear()
        asker.question_bytes = 0

    def concerning(self, broker: int) -> list[Question]:
        """Questions that still wait for something from that broker."""
        return [
            question
            for question in self._table.values()
            if broker in question.silent or any(place[0] == broker for place in question.waiting)
        ]

    def _remove(self, question: Question) -> None:
        self._table.pop(question.token, None)
        if isinstance(question.asker, Session):
            question.asker.late_questions.pop(question.token, None)


class PendingAnswer:
    """One subscriber that was asked: on whose behalf, for which broker's question, and as which of its
    responders."""

    __slots__ = ("asker", "broker", "deadline", "responder", "subscriber", "token")

    def __init__(
        self,
        subscriber: ClientSubscription,
        asker: Hashable,
        broker: int,
        token: int,
        responder: int,
        deadline: float,
    ) -> None:
        self.subscriber = subscriber
        self.asker = asker
        self.broker = broker
        self.token = token
        self.responder = responder
        self.deadline = deadline


class PendingAnswers:
    """Subscribers of this broker that owe an answer. `ClientSubscription.owes` also lists those of a
    subscription."""

    def __init__(self, first_token: int) -> None:
        self._table: dict[int, PendingAnswer] = {}
        self._owed: Counter[Hashable] = Counter()
        self.due: list[tuple[float, int]] = []
        """A heap of (deadline, token). It may still contain answers that are no longer owed."""
        self._token = first_token

    def __len__(self) -> int:
        return len(self._table)

    def owed_to(self, asker: Hashable) -> int:
        """Number of answers owed on behalf of one asker."""
        return self._owed[asker]

    def add(
        self,
        subscriber: ClientSubscription,
        asker: Hashable,
        broker: int,
        token: int,
        responder: int,
        deadline: float,
    ) -> int:
        """Returns the token that the subscriber's ANSWER will carry."""
        self._token += 1
        self._table[self._token] = PendingAnswer(subscriber, asker, broker, token, responder, deadline)
        self._owed[asker] += 1
        subscriber.owes[self._token] = None
        heapq.heappush(self.due, (deadline, self._token))
        _compact(self.due, self._table)
        return self._token

    def get(self, token: int) -> PendingAnswer | None:
        return self._table.get(token)

    def pop(self, token: int) -> PendingAnswer | None:
        pending = self._table.pop(token, None)
        if pending is not None:
            pending.subscriber.owes.pop(token, None)
            self._settle(pending)
        return pending

    def extend(self, token: int, more_s: float, now: float) -> None:
        pending = self._table[token]
        pending.deadline = min(pending.deadline + more_s, now + TIMEOUT_MAX_S)

    def take_all(self, subscriber: ClientSubscription) -> list[PendingAnswer]:
        """Take out everything that a subscriber owes, since it has left."""
        owed = [self._table.pop(token) for token in subscriber.owes]
        subscriber.owes.clear()
        for pending in owed:
            self._settle(pending)
        return owed

    def expire(self, now: float) -> int:
        """Forget answers whose time is over; the asker names the missing responders. Returns how many."""
        count = 0
        while self.due and self.due[0][0] <= now:
            _, token = heapq.heappop(self.due)
            pending = self._table.get(token)
            if pending is None:
                continue
            if pending.deadline > now:
                heapq.heappush(self.due, (pending.deadline, token))
            else:
                self.pop(token)
                count += 1
        return count

    def _settle(self, pending: PendingAnswer) -> None:
        self._owed[pending.asker] -= 1
        if not self._owed[pending.asker]:
            del self._owed[pending.asker]


def _compact(due: list[tuple[float, int]], still_open: Mapping[int, object]) -> None:
    """Remove ended entries from a heap once they are the majority."""
    if len(due) > 64 + 2 * len(still_open):
        due[:] = [entry for entry in due if entry[1] in still_open]
        heapq.heapify(due)
