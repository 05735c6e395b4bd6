"""The sockets by name: the pattern and the kind of channel of each, and the calls that are specific to it.

The common part is `protocols.socket`; the patterns are in ``protocols/patterns``.
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
    """Talks to one peer, both ways."""

    _pattern_type = Pair


class Pair1(Channel, Socket):
    """Talks to one peer, both ways; each message carries a hop count, which ends loops of devices."""

    _pattern_type = PairWithHops


class Star0(Broadcast, Socket):
    """Sends each message to every node of the mesh; each node passes it on. Best effort."""

    _pattern_type = Star


class Bus0(Broadcast, Socket):
    """Sends each message to every direct peer. Best effort."""

    _pattern_type = Bus


class Pub0(Broadcast, Socket):
    """Sends each message to every subscriber; never waits."""

    _pattern_type = Publisher


class Sub0(Channel, Socket):
    """Receives messages that begin with one of the ``topics``; without topics, none."""

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
        """Receive messages that begin with ``topic`` (a str is encoded as UTF-8); ``""`` matches all."""
        self._core.check_open()
        self._subscriber().lane.subscribe(as_topic(topic))

    def unsubscribe(self, topic: str | Body) -> None:
        """End a subscription and drop queued messages that no topic matches any more. Raises `StateError` if
        not subscribed.
        """
        self._core.check_open()
        self._subscriber().lane.unsubscribe(as_topic(topic))

    def new_context(self) -> SubContext:
        """Open a reader with separate topics, at first none."""
        self._check_entered()
        core = self._core
        context = SubContext(self._subscriber().open_lane(), core.options, core.senders, Waiters(), core)
        core.channels[context] = None
        return context

    def _subscriber(self) -> Subscriber:
        assert isinstance(self._core.pattern, Subscriber)
        return self._core.pattern


class Push0(Channel, Socket):
    """Sends each message to one puller, in turn; waits while none has room."""

    _pattern_type = Pusher


class Pull0(Channel, Socket):
    """Receives the messages that pushers distribute."""

    _pattern_type = Puller


def open_context(core: Core, kind: type[C]) -> C:
    """Open a separate conversation on a socket, which closes it with itself."""
    lane: Any = core.pattern.open_lane()
    receivers = core.receivers if core.pattern.shared_inbox else Waiters()
    context = kind(lane, core.options, core.senders, receivers, core.arm, core)
    core.channels[context] = None
    return context


class Req0(Conversation, Socket):
    """Asks one of the peers and receives its answer."""

    _pattern_type = Requester

    async def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """Ask, and return the answer. Any number of tasks may ask at once.

        ``timeout`` covers both the wait for room and the wait for the answer. By default it is
        ``recv_timeout_s``, and ``send_timeout_s`` also bounds the wait for room.

        Raises:
            Timeout, Closed: see each.
            NoPeers, RequestLost: depending on the options ``fail_without_peers`` and ``resend_s``.
        """
        async with self.new_context() as context:
            return await context.request(body, timeout)

    def new_context(self) -> RequestContext:
        """Open a separate conversation on this socket."""
        self._check_entered()
        return open_context(self._core, RequestContext)


class Rep0(Conversation, Socket):
    """Receives questions and answers each."""

    _pattern_type = Replier

    def new_context(self) -> Context:
        """Open a separate conversation on this socket."""
        self._check_entered()
        return open_context(self._core, Context)

    async def serve(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Answer each question with the result of ``handler(question)``, awaited if needed, until the socket
        closes.

        ``concurrency`` questions are handled at a time. A handler that raises is reported to the loop's
        exception handler, and its question gets no answer. A cancelled call gives up the questions it is
        handling.

        Raises:
            TypeError, ValueError: ``handler`` cannot be called, or ``concurrency`` is no number from 1.
        """
        await serve(self.new_context, handler, concurrency)


class Surveyor0(Surveying, Socket):
    """Asks all peers; iterating yields the answers and ends with the survey."""

    _pattern_type = Surveyor

    def new_context(self, *, survey_s: float | Default = DEFAULT) -> SurveyContext:
        """Open a separate survey on this socket for ``survey_s`` seconds (the socket's by default)."""
        self._check_entered()
        open_s = survey_seconds(survey_s)
        context = open_context(self._core, SurveyContext)
        if open_s is not None:
            context._survey_lane().survey_s = open_s
        return context


class Respondent0(Conversation, Socket):
    """Receives surveys and answers each."""

    _pattern_type = Respondent

    def new_context(self) -> Context:
        """Open a separate conversation on this socket."""
        self._check_entered()
        return open_context(self._core, Context)

    async def serve(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Like `Rep0.serve`, for surveys."""
        await serve(self.new_context, handler, concurrency)
