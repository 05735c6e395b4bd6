"""Conversations of blocking sockets: an answer goes to its requester, and a survey ends when it is over."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from protocols import StateError, Timeout, blocking
from protocols.wire.handshake import PEER_OF, ProtocolNumber, encode_header
from tests.protocols.blocking.support import LIMIT_S, raw_peer, until


class Asker:
    """A plain connection that asks, and reads nothing until it is told to."""

    def __init__(self, url: str, protocol: ProtocolNumber) -> None:
        self.sock = raw_peer(url)
        self.sock.sendall(encode_header(PEER_OF[protocol]))
        self._read(8)

    def ask(self, number: int) -> None:
        frame = (0x80000000 | number).to_bytes(4, "big") + b"?"
        self.sock.sendall(len(frame).to_bytes(8, "big") + frame)

    def answer(self) -> tuple[int, bytes]:
        """The next answer: the question it belongs to, and its body."""
        frame = self._read(int.from_bytes(self._read(8), "big"))
        return int.from_bytes(frame[:4], "big") & 0x7FFFFFFF, frame[4:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += (chunk := self.sock.recv(size - len(data)))
            assert chunk, "the connection was closed"
        return data


@pytest.mark.parametrize("kind", ["Rep0", "Respondent0"])
@pytest.mark.parametrize("with_context", [False, True])
def test_an_answer_that_waits_for_room_never_goes_to_the_next_requester(
    kind: str, with_context: bool
) -> None:
    """While the answer waited, another thread took the next question, and the answer went to that
    requester.
    """
    with ExitStack() as stack:
        replier: Any = stack.enter_context(getattr(blocking, kind)(listen="tcp://127.0.0.1:0", send_queue=1))
        conversation = stack.enter_context(replier.new_context()) if with_context else replier
        url, protocol = replier.listeners[0].url, ProtocolNumber[kind.upper()]
        one, other = Asker(url, protocol), Asker(url, protocol)
        stack.enter_context(one.sock)
        stack.enter_context(other.sock)
        asked = 0
        try:
            while True:
                asked += 1
                one.ask(asked)
                assert conversation.recv(LIMIT_S) == b"?"
                conversation.send(bytes(1 << 19), 0.2)
        except Timeout:
            pass  # it has room for no more
        errors: list[BaseException] = []

        def answer_one() -> None:
            try:
                conversation.send(b"for one", None)
            except StateError as error:
                errors.append(error)

        waiting = threading.Thread(target=answer_one)
        waiting.start()
        until(lambda: replier._core.lock._waiters)
        other.ask(1000)
        assert conversation.recv(LIMIT_S) == b"?"
        waiting.join(LIMIT_S)
        assert [str(error) for error in errors] == [
            "replaced: this conversation went on while send waited for room"
        ]
        conversation.send(b"for the other", LIMIT_S)
        assert other.answer() == (1000, b"for the other")
        with pytest.raises(StateError, match="nothing to answer"):
            conversation.send(b"once more")
        assert [one.answer()[0] for _ in range(asked - 1)] == list(range(1, asked))


@pytest.mark.parametrize("with_context", [False, True])
def test_iterating_a_survey_waits_longer_than_the_time_to_receive(with_context: bool) -> None:
    """It ended at ``recv_timeout_s`` as if the survey were over."""
    with ExitStack() as stack:
        surveyor: Any = blocking.Surveyor0(listen="inproc://patient", recv_timeout_s=0.001, survey_s=1000.0)
        stack.enter_context(surveyor)
        respondent = stack.enter_context(blocking.Respondent0(dial="inproc://patient"))
        surveyor.wait_for_peers(1, LIMIT_S)
        conversation = stack.enter_context(surveyor.new_context()) if with_context else surveyor
        conversation.send(b"who?")
        assert respondent.recv(LIMIT_S) == b"who?"
        with pytest.raises(Timeout):
            conversation.recv()
        got: list[bytes] = []
        iterating = threading.Thread(target=lambda: got.extend(conversation))
        iterating.start()
        until(lambda: surveyor._core.lock._waiters)
        late = time.monotonic() + 0.02
        until(lambda: time.monotonic() > late)
        assert iterating.is_alive(), "the survey is open"
        respondent.send(b"me", LIMIT_S)
        until(lambda: got)
        conversation.close()
        iterating.join(LIMIT_S)
        assert got == [b"me"] and not iterating.is_alive()


def test_iterating_a_survey_yields_answers_in_time_and_ends_with_it() -> None:
    with blocking.Surveyor0(listen="inproc://ends", recv_timeout_s=1000.0) as surveyor:
        with blocking.Respondent0(dial="inproc://ends") as respondent:
            surveyor.wait_for_peers(1, LIMIT_S)
            with surveyor.new_context(survey_s=1000.0) as context:
                context.send(b"who?")
                respondent.recv(LIMIT_S)
                respondent.send(b"me", LIMIT_S)
                until(lambda: context._lane._answers)
                with surveyor._core.lock.held:
                    context._lane.deadline = 0.0
                    surveyor._core.pattern.deadline_reached(surveyor._core.now())
                assert list(context) == [b"me"]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_answers_to_a_survey_that_is_interrupted_can_be_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """``recv`` kept saying that ``survey`` collects them."""
    with blocking.Surveyor0(listen="inproc://interrupted", survey_s=1000.0) as surveyor:
        with blocking.Respondent0(dial="inproc://interrupted") as respondent:
            surveyor.wait_for_peers(1, LIMIT_S)
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(surveyor._core.lock, "wait", interrupted)
                surveyor.survey(b"who?")
            assert respondent.recv(LIMIT_S) == b"who?"
            respondent.send(b"me", LIMIT_S)
            assert surveyor.recv(LIMIT_S) == b"me"
