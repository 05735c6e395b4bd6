"""Separate conversations and readers on one blocking socket."""

from __future__ import annotations

import threading

import pytest

from protocols import Closed, StateError, SurveyOver, blocking
from tests.protocols.blocking.support import LIMIT_S


def test_a_context_asks_in_one_call_beside_others() -> None:
    with blocking.Rep0(listen="inproc://asks") as rep:
        serving = threading.Thread(target=rep.serve, args=(bytes.upper,))
        serving.start()
        with blocking.Req0(dial="inproc://asks", recv_timeout_s=LIMIT_S) as req:
            with req.new_context() as one, req.new_context() as other:
                one.send(b"one")
                assert other.request(b"other") == b"OTHER"
                assert one.recv() == b"ONE"
            with pytest.raises(Closed, match="context is closed"):
                one.recv()
            assert req.request(b"the socket goes on") == b"THE SOCKET GOES ON"
        rep.close()
        serving.join(LIMIT_S)


def test_each_reader_has_topics_and_an_inbox_of_its_own() -> None:
    """Sub0 had no contexts."""
    with blocking.Pub0(listen="inproc://topics") as pub:
        with blocking.Sub0(dial="inproc://topics", topics=["a"], recv_timeout_s=LIMIT_S) as sub:
            with sub.new_context() as context:
                context.subscribe("b")
                pub.wait_for_peers(1, LIMIT_S)
                pub.send_many([b"a1", b"b1", b"a2", b"b2"])
                assert [sub.recv(), sub.recv()] == [b"a1", b"a2"]
                assert [context.recv(), context.recv()] == [b"b1", b"b2"]
                context.unsubscribe("b")
                with pytest.raises(StateError):
                    context.unsubscribe("b")
            pub.send(b"a3")
            assert sub.recv() == b"a3"
            with pytest.raises(Closed):
                context.subscribe("c")
        with pytest.raises(Closed):
            sub.new_context()


def test_surveys_run_beside_each_other_with_times_of_their_own() -> None:
    """A survey could not run in a context, nor end at another time than its socket's."""
    with blocking.Surveyor0(listen="inproc://surveys", survey_s=1000.0) as surveyor:
        with blocking.Respondent0(dial="inproc://surveys") as respondent:
            surveyor.wait_for_peers(1, LIMIT_S)
            with surveyor.new_context() as long, surveyor.new_context(survey_s=0.01) as short:
                long.send(b"long")
                assert respondent.recv(LIMIT_S) == b"long"
                short.send(b"short")
                assert list(short) == []
                with pytest.raises(SurveyOver):
                    short.recv()
                respondent.send(b"an answer")
                with pytest.raises(StateError):
                    respondent.send(b"only once")
                assert long.recv(LIMIT_S) == b"an answer"
                with pytest.raises(ValueError):
                    surveyor.new_context(survey_s=-1.0)


def test_closing_the_socket_ends_calls_that_wait_in_a_context() -> None:
    req = blocking.Req0(listen="inproc://waits")
    context = req.new_context()
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            context.send(b"nobody", None)
        except Closed as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    req.close()
    waiting.join(LIMIT_S)
    assert len(errors) == 1 and context.closed
    context.close()
    with pytest.raises(Closed):
        context.request(b"late")
