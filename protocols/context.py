"""Contexts: conversations, and readers with topics of their own, on a shared socket.

Made by ``socket.new_context()``; closed with the socket, or before it by `aclose`.
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
        """It was closed."""

    def channel_dropped(self, channel: Closable) -> None:
        """Its program holds it no more, and has not closed it. Called by whichever thread finds that."""


class Closable(Protocol):
    """What a socket closes with itself."""

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
    """A conversation of its own on a shared socket: its own request, survey or debt of an answer."""

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
    """A conversation of its own on a shared Req0: one request at a time."""

    async def request(self, body: Body, timeout: TimeLimit = DEFAULT) -> bytes:
        """As `protocols.Req0.request`, in this conversation: it replaces a request that is under way."""
        return await request(self, body, timeout, self._options)


class Surveying(Conversation):
    """Runs one survey at a time; iterating yields its answers and ends when it is over."""

    _ends = (Closed, SurveyOver)

    async def __anext__(self) -> bytes:
        """The next answer. The survey's end bounds the wait, so ``recv_timeout_s`` does not."""
        try:
            return await self.recv(None)
        except self._ends:
            raise StopAsyncIteration from None

    async def survey(
        self, body: Body, *, survey_s: float | Default = DEFAULT, early: bool = True
    ) -> SurveyResult:
        """Ask everybody; returns the answers and names who did not give one.

        It ends after ``survey_s`` seconds (by default the socket's or context's), or ``early`` once everybody
        who was asked has answered or left. Who hides several respondents behind one connection (a device)
        answers more than once: pass ``early=False`` to hear them all.

        Cancelled, the survey stays open, and its answers are there for `recv`.

        Raises:
            Closed: as it says.
            StateError: a newer survey has replaced this one.
        """
        if type(body) is not bytes:
            body = as_bytes(body)
        limit_s = survey_seconds(survey_s)
        lane = self._survey_lane()
        tally = lane.collect(body, running_loop().time(), limit_s, early=early)
        self._receivers.wake_all()  # they wait for what has just been replaced
        self._arm()
        try:
            while not tally.over:
                await self._receivers.wait(None)
        except asyncio.CancelledError:
            lane.abandon(tally)
            raise
        result = lane.take_tally(tally)
        if result is None:
            self._survey_lane()  # closed, or:
            raise StateError(REPLACED)
        return result

    def _survey_lane(self) -> SurveyLane:
        lane = self._lane
        if not isinstance(lane, SurveyLane):
            lane.recv(0.0, False)  # raises what is wrong
        assert isinstance(lane, SurveyLane)
        return lane


class SurveyContext(Surveying, Life):
    """A survey of its own on a shared socket, open for ``survey_s`` seconds."""

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
    """Topics and an inbox of its own; it gets its own copy of what it wants."""

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
        """Receive what begins with ``topic`` (a str is encoded as UTF-8); ``""`` is everything."""
        self._open_lane().subscribe(as_topic(topic))

    def unsubscribe(self, topic: str | Body) -> None:
        """Undo it, and drop what is queued and no longer wanted. Raises `StateError` if not subscribed."""
        self._open_lane().unsubscribe(as_topic(topic))

    def _open_lane(self) -> Subscriptions:
        if self.closed:
            self._lane.take()  # raises `Closed`
        return self._subscriptions
