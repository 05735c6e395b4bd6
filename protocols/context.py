"""Contexts: separate conversations, or readers with separate topics, on a shared socket.

``socket.new_context()`` makes them. They close with the socket, or earlier by `aclose`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from protocols.channel import REPLACED, Body, Channel, Conversation, as_bytes, as_topic
from protocols.errors import Closed, StateError, SurveyOver
from protocols.options import DEFAULT, Default, SocketOptions, TimeLimit, survey_seconds
from protocols.patterns.base import StateLane
from protocols.patterns.pubsub import Subscriptions
from protocols.patterns.survey import SurveyLane, SurveyResult
from protocols.serving import request
from protocols.waiting import Waiters, running_loop


class Keeper(Protocol):
    """The socket's core, as its contexts see it."""

    def forget_channel(self, channel: Closable) -> None:
        """The channel was closed."""

    def channel_dropped(self, channel: Closable) -> None:
        """The program dropped the channel without closing it. Any thread may call this."""


class Closable(Protocol):
    """An object that a socket closes with itself."""

    closed: bool

    def _shut(self, sentence: str) -> None: ...


class Life:
    """The end of a context: `aclose`, and ``async with``."""

    closed: bool
    _keeper: Keeper

    def __del__(self) -> None:
        keeper = getattr(self, "_keeper", None)
        if keeper is not None and not self.closed:
            keeper.channel_dropped(self)

    def _shut(self, sentence: str) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Give up what is under way; calls that wait here raise `Closed`."""
        if not self.closed:
            self._shut("the context is closed")
            self._keeper.forget_channel(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Context(Conversation, Life):
    """A separate conversation on a shared socket: its own request, survey or owed answer."""

    def __init__(
        self,
        lane: StateLane,
        options: SocketOptions,
        senders: Waiters,
        receivers: Waiters,
        arm: Callable[[], None],
        keeper: Keeper,
    ) -> None:
        self._keeper = keeper
        self._open(lane, options, senders, receivers, arm)


class RequestContext(Context):
    """A separate conversation on a shared Req0: one request at a time."""

    async def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """Like `protocols.Req0.request`, in this conversation: it replaces a request that is under way."""
        return await request(self, body, timeout, self._options)


class Surveying(Conversation):
    """Runs one survey at a time; iterating yields its answers and ends with the survey."""

    _ends = (Closed, SurveyOver)

    async def __anext__(self) -> bytes:
        """Return the next answer. The survey's end bounds the wait, so ``recv_timeout_s`` does not."""
        try:
            return await self.recv(None)
        except self._ends:
            raise StopAsyncIteration from None

    async def survey(
        self, body: Body, *, survey_s: float | Default = DEFAULT, early: bool = True
    ) -> SurveyResult:
        """Ask all peers; return the answers and the peers that gave none.

        The survey ends after ``survey_s`` seconds (by default the socket's or context's). With ``early`` it
        ends once every peer that was asked has answered or left. A device stands for several respondents
        behind one connection, so it answers more than once: pass ``early=False`` to get all its answers.

        A cancelled survey stays open, and its answers remain available from `recv`.

        Raises:
            Closed: see there.
            StateError: a newer survey has replaced this one.
        """
        if type(body) is not bytes:
            body = as_bytes(body)
        limit_s = survey_seconds(survey_s)
        lane = self._survey_lane()
        tally = lane.collect(body, running_loop().time(), limit_s, early=early)
        self._receivers.wake_all()  # they wait for the survey that was just replaced
        self._arm()
        try:
            while not tally.over:
                await self._receivers.wait(None)
        except asyncio.CancelledError:
            lane.abandon(tally)
            raise
        result = lane.take_tally(tally)
        if result is None:
            self._survey_lane()  # raises if the survey is closed; otherwise:
            raise StateError(REPLACED)
        return result

    def _survey_lane(self) -> SurveyLane:
        lane = self._lane
        if not isinstance(lane, SurveyLane):
            lane.recv(0.0, False)  # raises the reason
        assert isinstance(lane, SurveyLane)
        return lane


class SurveyContext(Surveying, Life):
    """A separate survey on a shared socket, open for ``survey_s`` seconds."""

    def __init__(
        self,
        lane: SurveyLane,
        options: SocketOptions,
        senders: Waiters,
        receivers: Waiters,
        arm: Callable[[], None],
        keeper: Keeper,
    ) -> None:
        self._keeper = keeper
        self._open(lane, options, senders, receivers, arm)


class SubContext(Channel, Life):
    """A reader with separate topics and a separate inbox; it gets its own copy of each matching message."""

    def __init__(
        self,
        lane: Subscriptions,
        options: SocketOptions,
        senders: Waiters,
        receivers: Waiters,
        keeper: Keeper,
    ) -> None:
        self._keeper = keeper
        self._subscriptions = lane
        self._open(lane, options, senders, receivers)

    def subscribe(self, topic: str | Body) -> None:
        """Receive messages that begin with ``topic`` (a str is encoded as UTF-8); ``""`` matches all."""
        self._open_lane().subscribe(as_topic(topic))

    def unsubscribe(self, topic: str | Body) -> None:
        """End a subscription and drop queued messages that no topic matches any more. Raises `StateError` if
        not subscribed.
        """
        self._open_lane().unsubscribe(as_topic(topic))

    def _open_lane(self) -> Subscriptions:
        if self.closed:
            self._lane.take()  # raises `Closed`
        return self._subscriptions
