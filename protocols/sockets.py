"""The sockets by name: which pattern and which kind of channel each of them is, and the calls it has alone.

What they have in common is `protocols.socket`; what each pattern does is in ``protocols/patterns``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar, Unpack

from protocols.channel import Body, Broadcast, Channel, Conversation, as_topic
from protocols.context import Context, RequestContext, SubContext, SurveyContext, Surveying
from protocols.core import Admit, Core
from protocols.options import (
    DEFAULT,
    Default,
    OptionKeywords,
    SocketOptions,
    TimeLimit,
    survey_seconds,
)
from protocols.patterns.bus import Bus
from protocols.patterns.pair import Pair, PairWithHops
from protocols.patterns.pipeline import Puller, Pusher
from protocols.patterns.pubsub import Publisher, Subscriber
from protocols.patterns.replier import Replier
from protocols.patterns.reqrep import Requester
from protocols.patterns.star import Star
from protocols.patterns.survey import Respondent, Surveyor
from protocols.serving import Handler, serve
from protocols.socket import Addresses, Socket
from protocols.waiting import Waiters

C = TypeVar("C", bound=Context | SurveyContext)


class Pair0(Channel, Socket):
    """One peer, both ways."""

    _pattern_type = Pair


class Pair1(Channel, Socket):
    """One peer, both ways, with a hop count in front, so that chains and loops of devices end."""

    _pattern_type = PairWithHops


class Star0(Broadcast, Socket):
    """What one says all hear, passed on by every node; best effort."""

    _pattern_type = Star


class Bus0(Broadcast, Socket):
    """Everybody to everybody directly connected, best effort."""

    _pattern_type = Bus


class Pub0(Broadcast, Socket):
    """Everything to every subscriber; never waits."""

    _pattern_type = Publisher


class Sub0(Channel, Socket):
    """What begins with one of the ``topics``; without topics, nothing."""

    _pattern_type = Subscriber

    def __init__(
        self,
        *,
        topics: Sequence[str | Body] = (),
        dial: Addresses = (),
        listen: Addresses = (),
        admit: Admit | None = None,
        options: SocketOptions | None = None,
        rng: random.Random | None = None,
        **keywords: Unpack[OptionKeywords],
    ) -> None:
        super().__init__(dial=dial, listen=listen, admit=admit, options=options, rng=rng, **keywords)
        if isinstance(topics, (str, bytes)):
            raise TypeError(f"topics is a list of prefixes, as in topics=[{topics!r}]")
        for topic in topics:
            self.subscribe(topic)

    def subscribe(self, topic: str | Body) -> None:
        """Receive what begins with ``topic`` (a str is encoded as UTF-8); ``""`` is everything."""
        self._core.check_open()
        self._subscriber().lane.subscribe(as_topic(topic))

    def unsubscribe(self, topic: str | Body) -> None:
        """Undo it, and drop what is queued and no longer wanted. Raises `StateError` if not subscribed."""
        self._core.check_open()
        self._subscriber().lane.unsubscribe(as_topic(topic))

    def new_context(self) -> SubContext:
        """A reader with topics of its own, none at first."""
        self._check_entered()
        core = self._core
        context = SubContext(self._subscriber().open_lane(), core.options, core.senders, Waiters(), core)
        core.channels[context] = None
        return context

    def _subscriber(self) -> Subscriber:
        assert isinstance(self._core.pattern, Subscriber)
        return self._core.pattern


class Push0(Channel, Socket):
    """Each message to one puller, in turn; waits while none has room."""

    _pattern_type = Pusher


class Pull0(Channel, Socket):
    """Receives what pushers deal out."""

    _pattern_type = Puller


def open_context(core: Core, kind: type[C]) -> C:
    """A conversation of its own on a socket, which closes it with itself."""
    lane: Any = core.pattern.open_lane()
    receivers = core.receivers if core.pattern.shared_inbox else Waiters()
    context = kind(lane, core.options, core.senders, receivers, core.arm, core)
    core.channels[context] = None
    return context


class Req0(Conversation, Socket):
    """A question to one of the peers, and its answer."""

    _pattern_type = Requester

    async def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """Ask, and return the answer. Any number of tasks may ask at once.

        ``timeout`` is for both, the wait for room and for the answer. By default ``recv_timeout_s`` is, and
        ``send_timeout_s`` bounds the wait for room besides.

        Raises:
            Timeout, Closed: as they say.
            NoPeers, RequestLost: as the options ``fail_without_peers`` and ``resend_s`` have it.
        """
        async with self.new_context() as context:
            return await context.request(body, timeout)

    def new_context(self) -> RequestContext:
        """A conversation of its own on this socket."""
        self._check_entered()
        return open_context(self._core, RequestContext)


class Rep0(Conversation, Socket):
    """Takes a question, gives an answer."""

    _pattern_type = Replier

    def new_context(self) -> Context:
        """A conversation of its own on this socket."""
        self._check_entered()
        return open_context(self._core, Context)

    async def serve(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Answer each question with what ``handler(question)`` returns or awaits, until the socket closes.

        ``concurrency`` questions are handled at a time. A handler that raises is reported to the loop's
        exception handler, and its question stays without an answer. Cancelled, it gives up what it handles.

        Raises:
            TypeError, ValueError: ``handler`` cannot be called, or ``concurrency`` is no number from 1.
        """
        await serve(self.new_context, handler, concurrency)


class Surveyor0(Surveying, Socket):
    """A question to everybody; iterating yields the answers and ends when the survey is over."""

    _pattern_type = Surveyor

    def new_context(self, *, survey_s: float | Default = DEFAULT) -> SurveyContext:
        """A survey of its own on this socket, open for ``survey_s`` seconds (the socket's by default)."""
        self._check_entered()
        open_s = survey_seconds(survey_s)
        context = open_context(self._core, SurveyContext)
        if open_s is not None:
            context._survey_lane().survey_s = open_s
        return context


class Respondent0(Conversation, Socket):
    """Takes a survey, gives an answer."""

    _pattern_type = Respondent

    def new_context(self) -> Context:
        """A conversation of its own on this socket."""
        self._check_entered()
        return open_context(self._core, Context)

    async def serve(self, handler: Handler, *, concurrency: int = 1) -> None:
        """As `Rep0.serve`, for surveys."""
        await serve(self.new_context, handler, concurrency)
