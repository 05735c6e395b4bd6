"""The blocking sockets by name, and the calls that are specific to each."""

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
    """Talks to one peer, both ways."""

    _pattern_type = Pair


class Pair1(Socket):
    """Talks to one peer, both ways; each message carries a hop count."""

    _pattern_type = PairWithHops


class Star0(Socket):
    """Sends each message to every node of the mesh; each node passes it on. Best effort."""

    _pattern_type = Star


class Bus0(Socket):
    """Sends each message to every direct peer. Best effort."""

    _pattern_type = Bus


class Pub0(Socket):
    """Sends each message to every subscriber; never waits."""

    _pattern_type = Publisher


class Push0(Socket):
    """Sends each message to one puller, in turn; waits while none has room."""

    _pattern_type = Pusher


class Pull0(Socket):
    """Receives the messages that pushers distribute."""

    _pattern_type = Puller


class Subscribing(Channel):
    """Topics, and an inbox for messages that begin with one of them."""

    def subscribe(self, topic: str | Body) -> None:
        """Receive messages that begin with ``topic`` (a str is encoded as UTF-8); ``""`` matches all."""
        with self._core.lock.held:
            self._check_open()
            self._lane.subscribe(as_topic(topic))

    def unsubscribe(self, topic: str | Body) -> None:
        """End a subscription and drop queued messages that no topic matches any more. Raises `StateError` if
        not subscribed.
        """
        with self._core.lock.held:
            self._check_open()
            self._lane.unsubscribe(as_topic(topic))


class Sub0(Subscribing, Socket):
    """Receives messages that begin with one of the ``topics``; without topics, none."""

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
        """Open a reader with separate topics, at first none."""
        with self._core.lock.held:
            self._check_open()
            return SubContext(self, self._core.pattern.open_lane())


class SubContext(Subscribing, Context):
    """A reader with separate topics and a separate inbox; it gets its own copy of each matching message."""


class Conversing(Socket):
    """A socket whose pattern speaks in turns."""

    def new_context(self) -> Context:
        """Open a separate conversation on this socket."""
        with self._core.lock.held:
            self._check_open()
            return Context(self, self._core.pattern.open_lane())


class RequestContext(Context):
    """A separate conversation on a shared Req0: one request at a time."""

    def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """Like `Req0.request`, in this conversation: it replaces a request that is under way."""
        room_s, limit_s = request_limits(timeout, self._core.options)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        try:
            self.send(body, room_s)
            return self.recv(None if deadline is None else max(deadline - time.monotonic(), 0.0))
        except Timeout as error:
            raise Timeout(f"no answer in time: {error}") from error


class Req0(Socket):
    """Asks one of the peers and receives its answer."""

    _pattern_type = Requester

    def new_context(self) -> RequestContext:
        """Open a separate conversation on this socket."""
        with self._core.lock.held:
            self._check_open()
            return RequestContext(self, self._core.pattern.open_lane())

    def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """Ask, and return the answer. Any number of threads may ask at once.

        ``timeout`` covers both the wait for room and the wait for the answer. By default it is
        ``recv_timeout_s``, and ``send_timeout_s`` also bounds the wait for room.

        Raises:
            Timeout, Closed: see each.
            NoPeers, RequestLost: depending on the options ``fail_without_peers`` and ``resend_s``.
        """
        with self.new_context() as context:
            return context.request(body, timeout)


class Answering(Conversing):
    """A socket that answers questions."""

    def serve(self, handler: Handler) -> None:
        """Answer each question with the result of ``handler(question)``, in this thread, until the socket
        closes.

        Several threads may serve one socket. A handler that raises is logged, and its question gets no
        answer.
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
                except Exception:  # user code; the next question still deserves an answer
                    log.exception("the handler %r failed", handler)
                    continue
                try:
                    context.send(answer)
                except Timeout:
                    continue  # the asking peer reads no answers
                except Closed:
                    return


class Rep0(Answering):
    """Receives questions and answers each."""

    _pattern_type = Replier


class Respondent0(Answering):
    """Receives surveys and answers each."""

    _pattern_type = Respondent


class Surveying(Channel):
    """Runs one survey at a time; iterating yields its answers and ends with the survey."""

    _ends = (Closed, SurveyOver)

    def __next__(self) -> bytes:
        try:
            return self.recv(None)
        except self._ends:
            raise StopIteration from None

    def survey(self, body: Body, *, survey_s: float | Default = DEFAULT, early: bool = True) -> SurveyResult:
        """Ask all peers; return the answers and the peers that gave none.

        The survey ends after ``survey_s`` seconds. With ``early`` it ends once every peer that was asked has
        answered or left. An interrupted survey stays open, and its answers remain available from `recv`.

        Raises:
            Closed: see there.
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
                core.lock.notify_all()  # they wait for the survey that was just replaced
                core.arm()
                core.settle()
                core.wait(tally.ended, None)
            except BaseException as error:  # Ctrl-C: from now on, `recv` returns the answers
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
    """A separate survey on a shared socket, open for ``survey_s`` seconds."""


class Surveyor0(Surveying, Socket):
    """Asks all peers; iterating yields the answers and ends with the survey."""

    _pattern_type = Surveyor

    def new_context(self, *, survey_s: float | Default = DEFAULT) -> SurveyContext:
        """Open a separate survey on this socket for ``survey_s`` seconds (the socket's by default)."""
        open_s = survey_seconds(survey_s)
        with self._core.lock.held:
            self._check_open()
            lane: Any = self._core.pattern.open_lane()
            if open_s is not None:
                lane.survey_s = open_s
            return SurveyContext(self, lane)
