"""The blocking sockets by name, and the calls that each has alone."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from protocols.blocking.socket import Context, Socket
from protocols.channel import REPLACED, Body, as_bytes, as_topic
from protocols.errors import Closed, StateError, SurveyOver, Timeout
from protocols.options import (
    DEFAULT,
    Default,
    OptionKeywords,
    SocketOptions,
    TimeLimit,
    seconds,
    survey_seconds,
)
from protocols.patterns.bus import Bus
from protocols.patterns.pair import Pair, PairWithHops
from protocols.patterns.pipeline import Puller, Pusher
from protocols.patterns.pubsub import Publisher, Subscriber
from protocols.patterns.replier import Replier
from protocols.patterns.reqrep import Requester
from protocols.patterns.star import Star
from protocols.patterns.survey import Respondent, Surveyor, SurveyResult
from protocols.socket import Addresses

log = logging.getLogger("protocols")

Handler = Callable[[bytes], Body]
"""Takes a question, returns its answer."""


class Pair0(Socket):
    """One peer, both ways."""

    _pattern_type = Pair


class Pair1(Socket):
    """One peer, both ways, with a hop count in front."""

    _pattern_type = PairWithHops


class Star0(Socket):
    """What one says all hear, passed on by every node; best effort."""

    _pattern_type = Star


class Bus0(Socket):
    """Everybody to everybody directly connected, best effort."""

    _pattern_type = Bus


class Pub0(Socket):
    """Everything to every subscriber; never waits."""

    _pattern_type = Publisher


class Push0(Socket):
    """Each message to one puller, in turn; waits while none has room."""

    _pattern_type = Pusher


class Pull0(Socket):
    """Receives what pushers deal out."""

    _pattern_type = Puller


class Sub0(Socket):
    """What begins with one of the ``topics``; without topics, nothing."""

    _pattern_type = Subscriber

    def __init__(
        self,
        *,
        topics: Sequence[str | Body] = (),
        dial: Addresses = (),
        listen: Addresses = (),
        options: SocketOptions | None = None,
        rng: random.Random | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        if isinstance(topics, (str, bytes)):
            raise TypeError(f"topics is a list of prefixes, as in topics=[{topics!r}]")
        super().__init__(options=options, rng=rng, **keywords)
        for topic in topics:
            self.subscribe(topic)
        for url in [listen] if isinstance(listen, str) else listen:
            self.listen(url)
        for url in [dial] if isinstance(dial, str) else dial:
            self.dial(url)

    def subscribe(self, topic: str | Body) -> None:
        """Receive what begins with ``topic`` (a str is encoded as UTF-8); ``""`` is everything."""
        with self.call():
            self._check_open()
            self._lane.subscribe(as_topic(topic))

    def unsubscribe(self, topic: str | Body) -> None:
        """Undo it, and drop what is queued and no longer wanted. Raises `StateError` if not subscribed."""
        with self.call():
            self._check_open()
            self._lane.unsubscribe(as_topic(topic))


class Conversing(Socket):
    """A socket of a pattern that speaks in turns."""

    def new_context(self) -> Context:
        """A conversation of its own on this socket."""
        with self.call():
            self._check_open()
            context = Context(self, self._pattern.open_lane())
            self._contexts.append(context)
            return context


class Req0(Conversing):
    """A question to one of the peers, and its answer."""

    _pattern_type = Requester

    def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """Ask, and return the answer. Any number of threads may ask at once.

        ``timeout`` is for both, the wait for room and for the answer; by default each has the socket's own.

        Raises:
            Timeout, Closed: as they say.
            NoPeers, RequestLost: as the options ``fail_without_peers`` and ``resend_s`` have it.
        """
        with self.new_context() as context:
            if timeout is DEFAULT:
                context.send(body)
                return context.recv()
            limit_s = seconds(timeout, None)
            deadline = None if limit_s is None else time.monotonic() + limit_s
            try:
                context.send(body, limit_s)
                return context.recv(None if deadline is None else max(deadline - time.monotonic(), 0.0))
            except Timeout as error:
                raise Timeout(f"no answer in time: {error}") from error


class Answering(Conversing):
    """A socket that answers questions."""

    def serve(self, handler: Handler) -> None:
        """Answer each question with what ``handler(question)`` returns, in this thread, until the socket
        closes. Several threads may serve one socket.

        A handler that raises is logged, and its question stays without an answer.
        """
        with self.new_context() as context:
            while True:
                try:
                    question = context.recv(None)
                except Closed:
                    return
                try:
                    answer = as_bytes(handler(question))
                except Exception:  # a stranger's code; the next question deserves an answer all the same
                    log.exception("the handler %r failed", handler)
                    continue
                try:
                    context.send(answer)
                except Timeout:
                    continue  # who asked reads no answers
                except Closed:
                    return


class Rep0(Answering):
    """Takes a question, gives an answer."""

    _pattern_type = Replier


class Respondent0(Answering):
    """Takes a survey, gives an answer."""

    _pattern_type = Respondent


class Surveyor0(Conversing):
    """A question to everybody; iterating yields the answers and ends when the survey is over."""

    _pattern_type = Surveyor
    _ends = (Closed, SurveyOver)

    def __next__(self) -> bytes:
        try:
            return self.recv(None)
        except self._ends:
            raise StopIteration from None

    def survey(self, body: Body, *, survey_s: float | Default = DEFAULT, early: bool = True) -> SurveyResult:
        """Ask everybody; returns the answers and names who did not give one.

        It ends after ``survey_s`` seconds, or ``early`` once everybody who was asked has answered or left.

        Raises:
            Closed: as it says.
            StateError: a newer survey has replaced this one.
        """
        limit_s = survey_seconds(survey_s)
        question = as_bytes(body)
        with self.call():
            self._check_open()
            lane: Any = self._lane
            tally = lane.collect(question, self.io().time(), limit_s, early=early)
            self.lock.notify_all()  # they wait for what has just been replaced
            self.arm()
            self.io().settle()
            self.wait(lambda: tally.over or None, None)
            self._check_open()
            result: SurveyResult | None = lane.take_tally(tally)
            if result is None:
                raise StateError(REPLACED)
            return result
