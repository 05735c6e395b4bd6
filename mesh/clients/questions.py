"""A client's requests and surveys: the questions and their outcomes. Pure.

A question is *unsent* until there is a session, then *asked*, and finally *done* with a reply, a result or an
error. A question that was asked is never repeated: if the connection is lost, it ends as `Unknown`, since
somebody may have acted. A finished survey is remembered for one more deadline, for late answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mesh.clients.tickets import Waitable
from mesh.errors import (
    BlockError,
    Disconnected,
    MeshError,
    MeshTimeout,
    NoResponders,
    NotAccepted,
    Unknown,
)
from mesh.printable import shortened
from mesh.topics import check_topic
from mesh.wire import blocks
from mesh.wire.session_frames import BODY_MAX, Kind, Status, encode, milliseconds


@dataclass(slots=True)
class Answer:
    """One answer to a survey."""

    broker: str
    responder: str
    body: bytes
    headers: dict[str, blocks.HeaderValue] | None


@dataclass(slots=True)
class SurveyResult:
    """The result of a survey. ``late`` goes on growing for one more deadline after the result was
    returned."""

    answers: list[Answer] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Programs that were asked and did not answer, and brokers that were silent."""
    late: list[Answer] = field(default_factory=list)
    asked: int = 0
    refused: list[str] = field(default_factory=list)
    """Programs that refused to answer, as ``name: reason``."""


class Question(Waitable):
    """A request or a survey of this client."""

    __slots__ = (
        "body",
        "deadline",
        "done",
        "error",
        "headers",
        "id",
        "reply",
        "reply_headers",
        "result",
        "sent",
        "survey",
        "timeout_s",
        "topic",
    )

    def __init__(
        self, id: int, topic: str, body: bytes, headers: bytes, survey: bool, timeout_s: float, now: float
    ) -> None:
        super().__init__()
        self.id = id
        self.topic = topic
        self.body = body
        self.headers = headers
        self.survey = survey
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s
        self.sent = False
        self.done = False
        self.error: MeshError | None = None
        self.reply = b""
        self.reply_headers = b""
        self.result = SurveyResult()

    def fail(self, error: MeshError) -> None:
        self.done = True
        self.error = error

    def frame(self, now: float) -> bytes:
        """The frame that asks it. It counts as asked from now on."""
        self.sent = True
        kind = Kind.SURVEY if self.survey else Kind.REQUEST
        left_ms = milliseconds(self.deadline - now)
        return encode(kind, self.id, self.topic, self.body, self.headers, left_ms)


class Questions:
    """All questions of one client that may still get an answer, by number."""

    def __init__(self) -> None:
        self._questions: dict[int, Question] = {}
        self._number = 0

    def __iter__(self) -> Iterator[Question]:
        return iter(self._questions.values())

    def add(
        self, topic: str, body: bytes, headers: bytes, *, survey: bool, timeout_s: float, now: float
    ) -> Question:
        """Add a question, unsent. Raises `TopicError`, ValueError."""
        if not timeout_s > 0:
            raise ValueError(f"a timeout of {timeout_s:g} s is not above zero")
        check_topic(topic)
        if len(body) > BODY_MAX:
            raise ValueError(f"a body of {len(body)} bytes is above the {BODY_MAX} of requests and surveys")
        self._number += 1
        question = Question(self._number, topic, body, headers, survey, timeout_s, now)
        self._questions[question.id] = question
        return question

    # ------------------------------------------------------------------ what the broker says

    def replied(self, frame: list[Any]) -> list[Waitable]:
        """Read REPLY: the answer to a request, or one answer to a survey."""
        _, id, status, body, headers, broker, responder = frame
        question = self._questions.get(id)
        if question is None:
            return []
        if question.survey:
            _add_answer(question, status, body, headers, broker, responder)
            return []
        del self._questions[id]
        if question.done:
            return []
        match status:
            case Status.OK:
                question.done = True
                question.reply, question.reply_headers = body, headers
            case Status.NO_RESPONDERS:
                question.fail(NoResponders(f"no subscriber of {question.topic!r} answers requests"))
            case Status.DROPPED:
                reason = shortened(body.decode("utf-8", "replace"))
                question.fail(NotAccepted(f"{responder} at {broker} refused to answer: {reason}"))
            case Status.GONE:
                who = responder or broker
                question.fail(Unknown(f"{who} was asked and disappeared before it answered"))
            case _:
                question.fail(MeshTimeout(f"no answer on {question.topic!r} in {question.timeout_s:g} s"))
        return [question]

    def surveyed(self, id: int, asked: int, missing: list[str]) -> list[Waitable]:
        """Read SURVEYED: all have answered, or the deadline is over."""
        question = self._questions.get(id)
        if question is None or question.done:
            return []
        question.done = True
        question.result.asked = asked
        question.result.missing = missing
        if not missing:
            del self._questions[id]
        return [question]

    def prolonged(self, id: int, more_s: float) -> None:
        """Read LONGER: the program that was asked needs more time."""
        if id in self._questions:
            self._questions[id].deadline += more_s

    # ------------------------------------------------------------------ what ends them

    def give_up(self, question: Question, broker: str, why: str) -> None:
        """Time out a question on this side; an answer that still comes is dropped. ``why`` it was not asked,
        if it was not."""
        if question.done:
            return
        self._questions.pop(question.id, None)
        where = f"broker {broker} did not answer" if question.sent else why
        question.fail(MeshTimeout(f"no answer on {question.topic!r} in {question.timeout_s:g} s: {where}"))

    def disconnected(self) -> list[Waitable]:
        """End the questions that were asked as `Unknown`: the connection is gone. Those not asked yet wait
        for the next one."""
        woken: list[Waitable] = []
        for question in [question for question in self if question.sent]:
            if not question.done:
                question.fail(Unknown("the connection to the broker was lost before an answer came"))
                woken.append(question)
            del self._questions[question.id]
        return woken

    def close(self) -> list[Waitable]:
        """End all questions: the program is done."""
        woken: list[Waitable] = []
        for question in self:
            if not question.done:
                question.fail(Disconnected("the client was closed"))
                woken.append(question)
        self._questions.clear()
        return woken

    def forget_late(self, now: float) -> None:
        """Forget surveys whose late answers are no longer waited for."""
        for question in list(self):
            if question.done and now > question.deadline + question.timeout_s:
                del self._questions[question.id]


def _add_answer(
    question: Question, status: int, body: bytes, headers: bytes, broker: str, responder: str
) -> None:
    if status == Status.OK:
        try:
            unpacked = blocks.unpack_headers(headers)
        except BlockError:
            unpacked = None
        answer = Answer(broker, responder, body, unpacked)
        (question.result.late if question.done else question.result.answers).append(answer)
    elif not question.done:
        question.result.refused.append(f"{responder}: {body.decode('utf-8', 'replace')}")
