"""The sockets by name: no more than which pattern and which kind of channel each of them is.

What they have in common is `protocols.socket`; what each pattern does is in ``protocols/patterns``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from protocols.context import (
    Body,
    BroadcastChannel,
    Context,
    QueueChannel,
    StateChannel,
    SubContext,
    SurveyChannel,
    SurveyContext,
    Waiters,
    as_topic,
)
from protocols.errors import NotSupported
from protocols.options import DEFAULT, Default, SocketOptions
from protocols.patterns.base import StateLane
from protocols.patterns.bus import Bus
from protocols.patterns.pair import Pair, PairWithHops
from protocols.patterns.pipeline import Puller, Pusher
from protocols.patterns.pubsub import Publisher, Subscriber
from protocols.patterns.raw import Raw
from protocols.patterns.replier import Replier
from protocols.patterns.reqrep import Requester
from protocols.patterns.star import Star
from protocols.patterns.survey import Respondent, Surveyor
from protocols.pipe import Pipe
from protocols.socket import Addresses, Admit, Receiver, Socket

C = TypeVar("C", bound=Context)


class Pair0(QueueChannel, Socket):
    """One peer, both ways."""

    _pattern_type = Pair


class Pair1(QueueChannel, Socket):
    """One peer, both ways, with a hop count in front, so that chains and loops of devices end."""

    _pattern_type = PairWithHops


class Star0(BroadcastChannel, Socket):
    """What one says all hear, passed on by every node; best effort."""

    _pattern_type = Star


class Bus0(BroadcastChannel, Socket):
    """Everybody to everybody directly connected, best effort."""

    _pattern_type = Bus

    def send_past(self, pipe: Pipe, bodies: Sequence[bytes]) -> None:
        """Raw: queue messages for every peer but ``pipe``, as who passes on what came from there.

        A peer whose queue is full misses them, counted as ``peer slow``.
        """
        self._check_open()
        if not isinstance(self._pattern, Raw):
            raise NotSupported("send_past is for raw sockets; pass raw=True")
        self._pattern.offer(bodies, past=pipe)


class Pub0(BroadcastChannel, Socket):
    """Everything to every subscriber; never waits."""

    _pattern_type = Publisher


class Sub0(QueueChannel, Socket):
    """What begins with one of the ``topics``; without topics, nothing."""

    _pattern_type = Subscriber

    def __init__(
        self,
        *,
        topics: Sequence[str | Body] = (),
        dial: Addresses = (),
        listen: Addresses = (),
        raw: bool = False,
        receiver: Receiver | None = None,
        admit: Admit | None = None,
        options: SocketOptions | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(
            dial=dial, listen=listen, raw=raw, receiver=receiver, admit=admit, options=options, rng=rng
        )
        if isinstance(topics, (str, bytes)):
            raise TypeError(f"topics is a list of prefixes, as in topics=[{topics!r}]")
        for topic in topics:
            self.subscribe(topic)

    def subscribe(self, topic: str | Body) -> None:
        """Receive what begins with ``topic`` (a str is encoded as UTF-8); ``""`` is everything.

        A raw socket receives everything anyway; asked for less it raises `NotSupported`.
        """
        self._check_open()
        if isinstance(self._pattern, Subscriber):
            self._pattern.lane.subscribe(as_topic(topic))
        elif as_topic(topic):
            raise NotSupported("a raw sub0 does not filter")

    def unsubscribe(self, topic: str | Body) -> None:
        """Undo it, and drop what is queued and no longer wanted. Raises `StateError` if not subscribed."""
        self._check_open()
        if not isinstance(self._pattern, Subscriber):
            raise NotSupported("a raw sub0 does not filter")
        self._pattern.lane.unsubscribe(as_topic(topic))

    def new_context(self) -> SubContext:
        """A reader with topics of its own, none at first."""
        self._check_entered()
        if not isinstance(self._pattern, Subscriber):
            raise NotSupported("raw sockets have no contexts")
        context = SubContext(
            self._pattern.open_lane(),
            self.options,
            senders=self._senders,
            receivers=Waiters(),
            forget=self._forget_context,
        )
        self._contexts.append(context)
        return context


class Push0(QueueChannel, Socket):
    """Each message to one puller, in turn; waits while none has room."""

    _pattern_type = Pusher


class Pull0(QueueChannel, Socket):
    """Receives what pushers deal out."""

    _pattern_type = Puller


class ConversationSocket(StateChannel, Socket):
    """A socket of a pattern that speaks in turns, and has contexts for several conversations at once."""

    _arm = Socket._arm

    def new_context(self) -> Context:
        """A conversation of its own on this socket."""
        return self._add_context(Context)

    def _add_context(self, kind: type[C]) -> C:
        self._check_entered()
        lane = self._pattern.open_lane()
        assert isinstance(lane, StateLane)
        context = kind(
            lane,
            self.options,
            senders=self._senders,
            receivers=self._receivers if self._pattern.shared_inbox else Waiters(),
            arm=self._arm,
            forget=self._forget_context,
        )
        self._contexts.append(context)
        return context


class Req0(ConversationSocket):
    """A question to one of the peers, and its answer."""

    _pattern_type = Requester


class Rep0(ConversationSocket):
    """Takes a question, gives an answer."""

    _pattern_type = Replier


class Surveyor0(SurveyChannel, ConversationSocket):
    """A question to everybody; iterating yields the answers and ends when the survey is over."""

    _pattern_type = Surveyor

    def new_context(self, *, survey_s: float | Default = DEFAULT) -> SurveyContext:
        """A survey of its own on this socket, open for ``survey_s`` seconds (the socket's by default)."""
        context = self._add_context(SurveyContext)
        context.set_time(survey_s)
        return context


class Respondent0(ConversationSocket):
    """Takes a survey, gives an answer."""

    _pattern_type = Respondent
