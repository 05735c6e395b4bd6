"""The blocking sockets by name, and the calls that each has alone."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from protocols.blocking.socket import Channel, Context, Socket
from protocols.channel import REPLACED, Body, as_bytes, as_topic, check_handler
from protocols.errors import Closed, StateError, SurveyOver, Timeout
from protocols.options import (
    DEFAULT,
    Default,
    OptionKeywords,
    SocketOptions,
    TimeLimit,
    request_limits,
    survey_seconds,
)
from protocols.patterns.bus import Bus
from protocols.patterns.pair import Pair, PairWithHops
from protocols.patterns.pipeline import Puller, Pusher
from protocols.patterns.pubsub import Publisher, Subscriber
from protocols.patterns.replier import Replier
from protocols.patterns.reqrep import Requester
from protocols.patterns.star import Star
from protocols.patterns.survey import Respondent, Surveyor, SurveyResult, Tally
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


class Subscribing(Channel):
    """Topics, and an inbox for what begins with one of them."""

    def subscribe(self, topic: str | Body) -> None:
        """Receive what begins with ``topic`` (a str is encoded as UTF-8); ``""`` is everything."""
        with self._core.lock.held:
            self._check_open()
            self._lane.subscribe(as_topic(topic))

    def unsubscribe(self, topic: str | Body) -> None:
        """Undo it, and drop what is queued and no longer wanted. Raises `StateError` if not subscribed."""
        with self._core.lock.held:
            self._check_open()
            self._lane.unsubscribe(as_topic(topic))


class Sub0(Subscribing, Socket):
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
        self._topics = topics
        super().__init__(dial=dial, listen=listen, options=options, rng=rng, **keywords)

    def _prepare(self) -> None:
        for topic in self._topics:
            self.subscribe(topic)

    def new_context(self) -> SubContext:
        """A reader with topics of its own, none at first."""
        with self._core.lock.held:
            self._check_open()
            return SubContext(self, self._core.pattern.open_lane())


class SubContext(Subscribing, Context):
    """Topics and an inbox of its own; it gets its own copy of what it wants."""


class Conversing(Socket):
    """A socket of a pattern that speaks in turns."""

    def new_context(self) -> Context:
        """A conversation of its own on this socket."""
        with self._core.lock.held:
            self._check_open()
            return Context(self, self._core.pattern.open_lane())


class RequestContext(Context):
    """A conversation of its own on a shared Req0: one request at a time."""

    def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """As `Req0.request`, in this conversation: it replaces a request that is under way."""
        room_s, limit_s = request_limits(timeout, self._core.options)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        try:
            self.send(body, room_s)
            return self.recv(None if deadline is None else max(deadline - time.monotonic(), 0.0))
        except Timeout as error:
            raise Timeout(f"no answer in time: {error}") from error


class Req0(Socket):
    """A question to one of the peers, and its answer."""

    _pattern_type = Requester

    def new_context(self) -> RequestContext:
        """A conversation of its own on this socket."""
        with self._core.lock.held:
            self._check_open()
            return RequestContext(self, self._core.pattern.open_lane())

    def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """Ask, and return the answer. Any number of threads may ask at once.

        ``timeout`` is for both, the wait for room and for the answer. By default ``recv_timeout_s`` is, and
        ``send_timeout_s`` bounds the wait for room besides.

        Raises:
            Timeout, Closed: as they say.
            NoPeers, RequestLost: as the options ``fail_without_peers`` and ``resend_s`` have it.
        """
        with self.new_context() as context:
            return context.request(body, timeout)


class Answering(Conversing):
    """A socket that answers questions."""

    def serve(self, handler: Handler) -> None:
        """Answer each question with what ``handler(question)`` returns, in this thread, until the socket
        closes. Several threads may serve one socket.

        A handler that raises is logged, and its question stays without an answer.
        """
        check_handler(handler)
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


class Surveying(Channel):
    """Runs one survey at a time; iterating yields its answers and ends when it is over."""

    _ends = (Closed, SurveyOver)

    def __next__(self) -> bytes:
        try:
            return self.recv(None)
        except self._ends:
            raise StopIteration from None

    def survey(self, body: Body, *, survey_s: float | Default = DEFAULT, early: bool = True) -> SurveyResult:
        """Ask everybody; returns the answers and names who did not give one.

        It ends after ``survey_s`` seconds, or ``early`` once everybody who was asked has answered or left.
        Interrupted, the survey stays open, and its answers are there for `recv`.

        Raises:
            Closed: as it says.
            StateError: a newer survey has replaced this one.
        """
        limit_s = survey_seconds(survey_s)
        question = as_bytes(body)
        with self._core.lock.held:
            self._check_open()
            core = self._core
            lane: Any = self._lane
            tally: Tally | None = None
            try:
                tally = lane.collect(question, core.now(), limit_s, early=early)
                core.lock.notify_all()  # they wait for what has just been replaced
                core.arm()
                core.settle()
                core.wait(tally.ended, None)
            except BaseException as error:  # Ctrl-C: from now on `recv` gives the answers
                if tally is not None:
                    lane.abandon(tally)
                core.ended_by(error)
                raise
            self._check_open()
            result: SurveyResult | None = lane.take_tally(tally)
            if result is None:
                raise StateError(REPLACED)
            return result


class SurveyContext(Surveying, Context):
    """A survey of its own on a shared socket, open for ``survey_s`` seconds."""


class Surveyor0(Surveying, Socket):
    """A question to everybody; iterating yields the answers and ends when the survey is over."""

    _pattern_type = Surveyor

    def new_context(self, *, survey_s: float | Default = DEFAULT) -> SurveyContext:
        """A survey of its own on this socket, open for ``survey_s`` seconds (the socket's by default)."""
        open_s = survey_seconds(survey_s)
        with self._core.lock.held:
            self._check_open()
            lane: Any = self._core.pattern.open_lane()
            if open_s is not None:
                lane.survey_s = open_s
            return SurveyContext(self, lane)
