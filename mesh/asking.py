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

Pure: nothing is sent here.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

PENDING_MAX: Final = 65536
"""Questions, and subscribers asked, that one broker keeps; further ones are refused."""

Asker = TypeVar("Asker")
Subscriber = TypeVar("Subscriber")


class Question(Generic[Asker]):
    """One request or survey. ``silent``: brokers by id; ``waiting``: (broker, responder) to the name."""

    __slots__ = (
        "asked",
        "asker",
        "body",
        "deadline",
        "done",
        "headers",
        "id",
        "missing",
        "silent",
        "survey",
        "timeout_s",
        "token",
        "topic",
        "tried",
        "waiting",
    )

    def __init__(
        self,
        token: int,
        asker: Asker,
        id: int,
        topic: str,
        body: bytes,
        headers: bytes,
        *,
        survey: bool,
        timeout_s: float,
        now: float,
    ) -> None:
        self.token = token
        self.asker = asker
        self.id = id
        self.topic = topic
        self.body = body
        self.headers = headers
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


class Questions(Generic[Asker]):
    """Questions of this broker's own clients."""

    def __init__(self) -> None:
        self._open: dict[int, Question[Asker]] = {}
        self._due: list[tuple[float, int]] = []
        self._token = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self,
        asker: Asker,
        id: int,
        topic: str,
        body: bytes,
        headers: bytes,
        *,
        survey: bool,
        timeout_s: float,
        now: float,
    ) -> Question[Asker]:
        self._token += 1
        question = Question(
            self._token, asker, id, topic, body, headers, survey=survey, timeout_s=timeout_s, now=now
        )
        self._open[question.token] = question
        heapq.heappush(self._due, (question.deadline, question.token))
        return question

    def get(self, token: int) -> Question[Asker] | None:
        return self._open.get(token)

    def end(self, question: Question[Asker], now: float) -> None:
        """The asker has its result. A survey is kept for late answers for one more deadline."""
        question.done = True
        if question.survey and not question.complete:
            question.deadline = now + question.timeout_s
            heapq.heappush(self._due, (question.deadline, question.token))
        else:
            self._open.pop(question.token, None)

    def extend(self, question: Question[Asker], more_s: float) -> None:
        question.deadline += more_s
        heapq.heappush(self._due, (question.deadline, question.token))

    def expired(self, now: float) -> list[Question[Asker]]:
        """Questions whose time is over, each once; those that had ended already are forgotten."""
        over: list[Question[Asker]] = []
        while self._due and self._due[0][0] <= now:
            _, token = heapq.heappop(self._due)
            question = self._open.get(token)
            if question is None or question.deadline > now:
                continue
            if question.done:
                del self._open[token]
            else:
                over.append(question)
        return over

    def of_asker(self, asker: Asker) -> list[Question[Asker]]:
        return [question for question in self._open.values() if question.asker is asker]

    def forget(self, question: Question[Asker]) -> None:
        self._open.pop(question.token, None)

    def concerning(self, broker: int) -> list[Question[Asker]]:
        """Questions that still wait for something from that broker."""
        return [
            question
            for question in self._open.values()
            if broker in question.silent or any(place[0] == broker for place in question.waiting)
        ]

    def next_deadline(self) -> float | None:
        return self._due[0][0] if self._due else None


class Pending(Generic[Subscriber]):
    """One subscriber that was asked: by which broker's question, and as which of its responders."""

    __slots__ = ("broker", "deadline", "responder", "subscriber", "token")

    def __init__(
        self, subscriber: Subscriber, broker: int, token: int, responder: int, deadline: float
    ) -> None:
        self.subscriber = subscriber
        self.broker = broker
        self.token = token
        self.responder = responder
        self.deadline = deadline


class Asked(Generic[Subscriber]):
    """Subscribers of this broker that owe an answer."""

    def __init__(self) -> None:
        self._open: dict[int, Pending[Subscriber]] = {}
        self._due: list[tuple[float, int]] = []
        self._token = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, subscriber: Subscriber, broker: int, token: int, responder: int, deadline: float) -> int:
        """The token that the subscriber's ANSWER will carry."""
        self._token += 1
        self._open[self._token] = Pending(subscriber, broker, token, responder, deadline)
        heapq.heappush(self._due, (deadline, self._token))
        return self._token

    def get(self, token: int) -> Pending[Subscriber] | None:
        return self._open.get(token)

    def pop(self, token: int) -> Pending[Subscriber] | None:
        return self._open.pop(token, None)

    def extend(self, token: int, more_s: float) -> None:
        pending = self._open[token]
        pending.deadline += more_s
        heapq.heappush(self._due, (pending.deadline, token))

    def of_subscriber(self, subscriber: Subscriber) -> list[Pending[Subscriber]]:
        """Take out all that a subscriber owes: it is gone."""
        tokens = [token for token, pending in self._open.items() if pending.subscriber is subscriber]
        return [self._open.pop(token) for token in tokens]

    def expire(self, now: float) -> int:
        """Forget what is over (the asker names who is missing); returns how many."""
        count = 0
        while self._due and self._due[0][0] <= now:
            _, token = heapq.heappop(self._due)
            pending = self._open.get(token)
            if pending is not None and pending.deadline <= now:
                del self._open[token]
                count += 1
        return count

    def next_deadline(self) -> float | None:
        return self._due[0][0] if self._due else None
