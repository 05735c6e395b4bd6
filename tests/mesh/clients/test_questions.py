"""The outcomes of requests and surveys; the test plays the broker."""

from __future__ import annotations

import pytest

from mesh.clients.questions import Answer, Question, Questions
from mesh.errors import Disconnected, MeshTimeout, NoResponders, NotAccepted, TopicError, Unknown
from mesh.wire.session_frames import BODY_MAX, Kind, Status, decode


def asked(questions: Questions, *, survey: bool = False, timeout_s: float = 1.0) -> Question:
    """A question that was put to the broker at second 0."""
    question = questions.add("add", b"1 2", b"", survey=survey, timeout_s=timeout_s, now=0.0)
    question.frame(0.0)
    return question


def reply(question: Question, status: Status, body: bytes = b"", responder: str = "adder") -> list[object]:
    return [Kind.REPLY, question.id, int(status), body, b"", "alpha", responder]


def test_a_request_frame_carries_the_remaining_time() -> None:
    questions = Questions()
    for survey, kind in ((False, Kind.REQUEST), (True, Kind.SURVEY)):
        question = questions.add("add", b"1 2", b"", survey=survey, timeout_s=2.0, now=10.0)
        assert not question.sent
        assert decode(question.frame(10.5)) == [kind, question.id, "add", b"1 2", b"", 1500]
        assert question.sent


def test_a_question_that_cannot_be_asked_is_not_kept() -> None:
    questions = Questions()
    for topic, body, timeout_s, kind in (
        ("add", b"", 0.0, ValueError),
        ("add", b"", float("nan"), ValueError),
        ("a.*", b"", 1.0, TopicError),
        ("add", bytes(BODY_MAX + 1), 1.0, ValueError),
    ):
        with pytest.raises(kind):
            questions.add(topic, body, b"", survey=False, timeout_s=timeout_s, now=0.0)
    assert list(questions) == []


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (Status.NO_RESPONDERS, NoResponders, "no subscriber of 'add' answers requests"),
        (Status.DROPPED, NotAccepted, "adder at alpha refused to answer: why not"),
        (Status.GONE, Unknown, "adder was asked and disappeared before it answered"),
        (Status.TIMEOUT, MeshTimeout, "no answer on 'add' in 1 s"),
    ],
)
def test_each_end_of_a_request_has_its_error(status: Status, kind: type, sentence: str) -> None:
    questions = Questions()
    question = asked(questions)
    assert questions.replied(reply(question, status, b"why not")) == [question]
    assert type(question.error) is kind and str(question.error) == sentence
    assert question.done and list(questions) == []
    assert questions.replied(reply(question, Status.OK)) == [], "it is over: nobody is woken twice"


def test_a_reply_ends_a_request() -> None:
    questions = Questions()
    question = asked(questions)
    questions.replied(reply(question, Status.OK, b"3"))
    assert (question.done, question.error, question.reply) == (True, None, b"3")


def test_a_survey_gathers_answers_refusals_and_late_answers() -> None:
    questions = Questions()
    question = asked(questions, survey=True)
    assert questions.replied(reply(question, Status.OK, b"3")) == []
    questions.replied(reply(question, Status.DROPPED, b"no", "other"))
    assert not question.done
    assert questions.surveyed(question.id, 3, ["third"]) == [question]
    assert questions.surveyed(question.id, 3, []) == [], "once"
    questions.replied(reply(question, Status.OK, b"3!", "third"))
    result = question.result
    assert (result.asked, result.missing, result.refused) == (3, ["third"], ["other: no"])
    assert result.answers == [Answer("alpha", "adder", b"3", None)]
    assert result.late == [Answer("alpha", "third", b"3!", None)]
    questions.forget_late(2.0)
    assert list(questions) == [question], "a deadline of a second, and one more for late answers"
    questions.forget_late(2.1)
    assert list(questions) == []


def test_a_survey_with_all_answers_is_forgotten_at_once() -> None:
    questions = Questions()
    questions.surveyed(asked(questions, survey=True).id, 1, [])
    assert list(questions) == []


def test_a_responder_may_extend_the_time() -> None:
    questions = Questions()
    question = asked(questions)
    questions.prolonged(question.id, 5.0)
    questions.prolonged(question.id + 1, 5.0)
    assert question.deadline == 6.0


def test_sent_questions_end_with_the_connection_and_unsent_ones_stay() -> None:
    questions = Questions()
    question, survey = asked(questions), asked(questions, survey=True)
    questions.surveyed(survey.id, 1, ["late"])
    waiting = questions.add("add", b"", b"", survey=False, timeout_s=1.0, now=0.0)
    assert questions.disconnected() == [question], "the survey has its result"
    assert type(question.error) is Unknown and survey.error is None
    assert list(questions) == [waiting] and not waiting.done


def test_replies_to_a_finished_or_unknown_question_are_ignored() -> None:
    questions = Questions()
    over = asked(questions)
    over.fail(Disconnected("over"))
    unknown = asked(questions)
    questions.give_up(unknown, "alpha", "")
    for question in (over, unknown):
        assert questions.replied(reply(question, Status.OK)) == []
        assert questions.surveyed(question.id, 1, []) == []
        assert question.reply == b"" and question.result.asked == 0


def test_giving_up_says_whether_there_was_a_broker() -> None:
    questions = Questions()
    question = asked(questions)
    waiting = questions.add("add", b"", b"", survey=False, timeout_s=1.0, now=0.0)
    for given_up in (question, waiting):
        questions.give_up(given_up, "alpha", "nobody listens at tcp://a:1")
    assert str(question.error) == "no answer on 'add' in 1 s: broker alpha did not answer"
    assert str(waiting.error) == "no answer on 'add' in 1 s: nobody listens at tcp://a:1"
    assert list(questions) == []
    answered = asked(questions)
    questions.replied(reply(answered, Status.OK))
    questions.give_up(answered, "alpha", "")
    assert answered.error is None


def test_closing_ends_all_that_is_not_done() -> None:
    questions = Questions()
    question = asked(questions)
    survey = asked(questions, survey=True)
    questions.surveyed(survey.id, 1, ["late"])
    assert questions.close() == [question] and type(question.error) is Disconnected
    assert list(questions) == []


def test_a_refusal_shows_a_short_part_of_a_long_reason() -> None:
    questions = Questions()
    question = questions.add("t", b"", b"", survey=False, timeout_s=1.0, now=0.0)
    reply = [Kind.REPLY, question.id, Status.DROPPED, b"no" * 400_000, b"", "alpha", "me"]
    assert questions.replied(reply) == [question]
    assert isinstance(question.error, NotAccepted) and len(str(question.error)) < 320
