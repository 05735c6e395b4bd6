"""Waiting: ``send`` and ``recv`` as coroutines over a pattern's lanes.

A `Channel` is one lane with its waiters: a socket is one, and so is each of its contexts. Nothing is handed
to a waiter: it is woken, asks its lane again and takes what is there in that same loop turn. So a cancelled
``recv`` has taken nothing, and a wake-up that a cancelled waiter did not use goes to the next.

A ``timeout`` is in seconds; `DEFAULT` is the socket's own (`SocketOptions`), None is no limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ClassVar, Final, NoReturn, Self, TypeVar

from protocols.errors import (
    Closed,
    NoPeers,
    NotSupported,
    SPError,
    StateError,
    SurveyOver,
    Timeout,
    WouldBlock,
)
from protocols.options import DEFAULT, Default, SocketOptions, TimeLimit, seconds, survey_seconds
from protocols.patterns.base import Lane, QueueLane, StateLane
from protocols.patterns.pubsub import Subscriptions
from protocols.patterns.survey import SurveyLane, SurveyResult
from protocols.transports.loops import loop_state
from protocols.waking import Wakes, Wakeup

T = TypeVar("T")
Body = bytes | bytearray | memoryview


def as_bytes(body: Body) -> bytes:
    """What the wire takes. Raises `TypeError` here and not, later, in the event loop."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise TypeError(f"a body is bytes, not {type(body).__name__}; encode it first")


OTHER_LOOP: Final = (
    "this socket belongs to another event loop; each loop, and each process after a fork, makes its own"
)


class Waiters:
    """Tasks that wait for a lane, first come, first woken; all of one event loop."""

    __slots__ = ("_wakes", "_wakeups", "loop")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._wakes: Wakes | None = None
        self._wakeups: deque[Wakeup] = deque()

    def settle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to this loop. Raises `StateError` if it has been another."""
        if self.loop is not None and self.loop is not loop:
            raise StateError(OTHER_LOOP)
        self.loop = loop
        self._wakes = loop_state().wakes

    def __len__(self) -> int:
        return len(self._wakeups)

    def wake(self, count: int) -> None:
        wakeups, wakes = self._wakeups, self._wakes
        while wakeups and count > 0:
            wakeup = wakeups.popleft()
            if not wakeup.done():
                assert wakes is not None
                wakes.wake(wakeup)
                count -= 1

    def wake_all(self) -> None:
        if self._wakeups:
            self.wake(len(self._wakeups))

    async def wait(self, deadline: float | None) -> bool:
        """Wait to be woken; False when the loop's time has reached ``deadline`` before."""
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            self.settle(loop)
        return await self.wait_on(loop, deadline)

    async def wait_on(self, loop: asyncio.AbstractEventLoop, deadline: float | None) -> bool:
        """As `wait`, in the running loop, which these have been settled on."""
        wakeup = Wakeup(loop=loop)
        self._wakeups.append(wakeup)
        timer = loop.call_at(deadline, self._expire, wakeup) if deadline is not None else None
        try:
            return await wakeup
        except asyncio.CancelledError:
            if wakeup.cancelled():
                if wakeup in self._wakeups:
                    self._wakeups.remove(wakeup)
            else:
                self.wake(1)  # we were woken and will not look
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _expire(self, wakeup: Wakeup) -> None:
        if not wakeup.done():
            self._wakeups.remove(wakeup)
            wakeup.set_result(False)
            wakeup.resume_soon()


class RefusingLane(QueueLane, StateLane):
    """What stands for the lane of a socket or context that is closed, or was not entered yet."""

    def __init__(self, kind: type[SPError], sentence: str) -> None:
        super().__init__()
        self._kind = kind
        self._sentence = sentence

    def take(self) -> NoReturn:
        raise self._kind(self._sentence)

    def put(self, body: bytes) -> NoReturn:
        self.take()

    def put_many(self, bodies: Sequence[bytes]) -> NoReturn:
        self.take()

    def send(self, body: bytes, now: float, epoch: int | None = None) -> NoReturn:
        self.take()

    def recv(self, now: float, waited: bool) -> NoReturn:
        self.take()


class PartlySent(Timeout):
    """`send_many` ran out of time; ``sent`` leading messages are on their way, the rest is not."""

    def __init__(self, sent: int, count: int) -> None:
        super().__init__(f"only {sent} of {count} messages found room in time")
        self.sent = sent


def deadline_of(timeout: float | None) -> float | None:
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


class Channel:
    """A lane, its waiters and the coroutines that use both.

    Of its two kinds, `QueueChannel` and `StateChannel`, each pattern has the one that fits its lane.
    """

    _iteration_ends: ClassVar[tuple[type[SPError], ...]] = (Closed,)
    _closed = False

    def _open(self, lane: Lane, options: SocketOptions, *, senders: Waiters, receivers: Waiters) -> None:
        self._options = options
        self._senders = senders
        self._receivers = receivers
        lane.readable = receivers.wake
        lane.writable = senders.wake_all
        self._use(lane)

    def _use(self, lane: Lane) -> None:
        self._any_lane = lane

    def _shut(self, sentence: str) -> None:
        """Every call raises `Closed` from now on, those that wait included."""
        self._any_lane.close()
        self._closed = True
        self._use(RefusingLane(Closed, sentence))
        self._senders.wake_all()
        self._receivers.wake_all()

    @property
    def closed(self) -> bool:
        return self._closed

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        """Hand one message to the pattern; where that may wait, and for what, is the pattern's choice.

        Cancelled or late, the message was not taken.

        Raises:
            Timeout, Closed: as they say.
            StateError: not this channel's turn to speak.
            NotSupported: the pattern only receives.
        """
        raise NotImplementedError

    async def recv(self, timeout: TimeLimit = DEFAULT) -> bytes:
        """The next message. Cancelled or late, none was taken.

        Raises:
            Timeout, Closed: as they say.
            StateError: nothing can come now.
            NotSupported: the pattern only sends.
        """
        raise NotImplementedError

    def send_nowait(self, body: Body) -> None:
        """As `send`, but raises `WouldBlock` instead of waiting."""
        raise NotImplementedError

    def recv_nowait(self) -> bytes:
        """As `recv`, but raises `WouldBlock` instead of waiting."""
        raise NotImplementedError

    async def send_many(self, bodies: Sequence[Body], timeout: TimeLimit = DEFAULT) -> None:
        """Send in order, waiting for room as often as needed.

        Late, some leading messages have been sent: the `PartlySent` (a `Timeout`) says how many, as do
        `Closed` and `NoPeers`, in ``sent``.
        """
        ready = [body if type(body) is bytes else as_bytes(body) for body in bodies]
        limit_s = seconds(timeout, self._options.send_timeout_s)
        deadline = deadline_of(limit_s)
        sent = 0
        while sent < len(ready):
            piece = ready[sent : sent + self._options.send_queue]
            taken = self._put_piece(piece, sent)
            sent += taken
            # Only a refusal brings a wake-up: a piece that was taken whole is followed by the next at once.
            if taken < len(piece) and not await self._senders.wait(deadline):
                raise PartlySent(sent, len(ready))

    async def recv_many(self, timeout: TimeLimit = DEFAULT) -> list[bytes]:
        """All messages that are there, at least one (raw sockets: see `Socket.recv_run`)."""
        bodies = [await self._taken(lambda: self._queue().take(), timeout)]
        inbox = self._queue().inbox
        if inbox:
            bodies += inbox
            inbox.clear()
            self._queue().emptied()
        return bodies

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except self._iteration_ends:
            raise StopAsyncIteration from None

    def _put_piece(self, piece: Sequence[bytes], sent: int) -> int:
        """Hand over a piece of a batch of which ``sent`` messages are on their way."""
        try:
            return self._queue().put_many(piece)
        except (Closed, NoPeers) as error:
            error.sent = sent
            raise

    def _queue(self) -> QueueLane:
        if isinstance(self._any_lane, QueueLane):
            return self._any_lane
        raise NotSupported("this pattern speaks in turns: send and recv take one message at a time")

    async def _taken(self, take: Callable[[], T | None], timeout: TimeLimit) -> T:
        """What ``take`` gives, as soon as it gives something."""
        limit_s = seconds(timeout, self._options.recv_timeout_s)
        deadline = deadline_of(limit_s)
        while (taken := take()) is None:
            if not await self._receivers.wait(deadline):
                raise Timeout(f"nothing received within {limit_s:g} s")
        return taken

    async def _room(self, send: Callable[[], bool], timeout: TimeLimit) -> None:
        """Call ``send`` each time there may be room, until it succeeds."""
        limit_s = seconds(timeout, self._options.send_timeout_s)
        deadline = deadline_of(limit_s)
        while True:
            if not await self._senders.wait(deadline):
                raise Timeout(f"no peer took the message within {limit_s:g} s")
            if send():
                return


class QueueChannel(Channel):
    """A channel without turns. Its fast paths decide what a message costs: one coroutine, one call."""

    def _use(self, lane: Lane) -> None:
        assert isinstance(lane, QueueLane)
        super()._use(lane)
        self._lane = lane
        self._put = lane.put
        self._inbox = lane.inbox

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        if type(body) is not bytes:
            body = as_bytes(body)
        if not self._put(body):
            await self._room(lambda: self._put(body), timeout)

    async def recv(self, timeout: TimeLimit = DEFAULT) -> bytes:
        inbox = self._inbox
        if inbox:
            if timeout is not DEFAULT:
                seconds(timeout, None)  # a wrong one is told also where there is nothing to wait for
            body = inbox.popleft()
            if not inbox:
                self._lane.emptied()
            return body
        return await self._taken(lambda: self._lane.take(), timeout)

    async def __anext__(self) -> bytes:
        inbox = self._inbox
        if inbox:
            body = inbox.popleft()
            if not inbox:
                self._lane.emptied()
            return body
        return await super().__anext__()

    def send_nowait(self, body: Body) -> None:
        if not self._put(body if type(body) is bytes else as_bytes(body)):
            raise WouldBlock("no peer has room for the message")

    def recv_nowait(self) -> bytes:
        body = self._lane.take()
        if body is None:
            raise WouldBlock("nothing has been received")
        return body


class BroadcastChannel(QueueChannel):
    """A channel whose pattern never makes a sender wait, but drops for peers whose queue is full.

    Queues are emptied once a loop turn, so a sender that never suspends would fill them all by itself: every
    half queue of messages it gives the event loop a turn, *before* it hands over the next one.
    """

    _since_turn = 0

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        if type(body) is not bytes:
            body = as_bytes(body)
        if self._since_turn >= self._options.send_queue // 2:
            await self._give_turn()
        self._since_turn += 1
        self._put(body)

    async def send_many(self, bodies: Sequence[Body], timeout: TimeLimit = DEFAULT) -> None:
        ready = [body if type(body) is bytes else as_bytes(body) for body in bodies]
        share = max(self._options.send_queue // 2, 1)
        for start in range(0, len(ready), share):
            piece = ready[start : start + share]
            if self._since_turn + len(piece) > share:
                await self._give_turn()
            self._since_turn += len(piece)
            self._put_piece(piece, start)

    async def _give_turn(self) -> None:
        self._since_turn = 0
        await asyncio.sleep(0)


class StateChannel(Channel):
    """A channel that follows the turns of a conversation, and tells its lane the time."""

    _receiving = False

    def _arm(self) -> None:
        """Set the socket's timer to the pattern's next deadline."""
        raise NotImplementedError

    def _use(self, lane: Lane) -> None:
        assert isinstance(lane, StateLane)
        super()._use(lane)
        self._lane = lane

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        body = body if type(body) is bytes else as_bytes(body)
        if not self._say(body):
            epoch = self._lane.epoch
            await self._room(lambda: self._say(body, epoch), timeout)

    async def recv(self, timeout: TimeLimit = DEFAULT) -> bytes:
        body = self._hear()
        if body is not None:
            return body
        epoch = self._lane.epoch
        limit_s = seconds(timeout, self._options.recv_timeout_s)
        receivers = self._receivers
        loop = receivers.loop
        assert loop is not None  # `_hear` has settled that
        deadline = None if limit_s is None else loop.time() + limit_s
        self._receiving = True
        try:
            while body is None:
                if not await receivers.wait_on(loop, deadline):
                    raise Timeout(f"nothing received within {limit_s:g} s")
                lane = self._lane
                if lane.epoch != epoch and not self.closed:
                    raise StateError("replaced by a newer request or survey")
                body = lane.recv(loop.time(), True)
        finally:
            self._receiving = False
        return body

    def send_nowait(self, body: Body) -> None:
        if not self._say(body if type(body) is bytes else as_bytes(body)):
            raise WouldBlock("no peer has room for the message")

    def recv_nowait(self) -> bytes:
        body = self._hear()
        if body is None:
            raise WouldBlock("nothing has been received")
        return body

    def _say(self, body: bytes, waited_in: int | None = None) -> bool:
        lane = self._lane
        epoch = lane.epoch
        loop = asyncio.get_running_loop()
        if self._senders.loop is not loop:
            self._senders.settle(loop)
        said = lane.send(body, loop.time(), waited_in)
        if lane.epoch != epoch:
            self._receivers.wake_all()  # they wait for what has just been replaced
        if said and lane.timed:
            self._arm()
        return said

    def _hear(self) -> bytes | None:
        if self._receiving and self._lane.exclusive:
            raise StateError("another recv waits here already; concurrent calls take a context each")
        loop = asyncio.get_running_loop()
        if self._receivers.loop is not loop:
            self._receivers.settle(loop)
        return self._lane.recv(loop.time(), False)


class SurveyChannel(StateChannel):
    """Runs one survey at a time; iterating yields its answers and ends when it is over."""

    _iteration_ends = (Closed, SurveyOver)

    async def __anext__(self) -> bytes:
        """The next answer. The survey's end bounds the wait, so ``recv_timeout_s`` does not."""
        try:
            return await self.recv(None)
        except self._iteration_ends:
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
            NotSupported: the socket is raw.
            StateError: a newer survey has replaced this one.
        """
        if type(body) is not bytes:
            body = as_bytes(body)
        lane = self._survey_lane()
        tally = lane.collect(body, asyncio.get_running_loop().time(), survey_seconds(survey_s), early=early)
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
            raise StateError("replaced by a newer request or survey")
        return result

    def _survey_lane(self) -> SurveyLane:
        lane = self._any_lane
        if isinstance(lane, RefusingLane):
            lane.take()
        if not isinstance(lane, SurveyLane):
            raise NotSupported("a raw surveyor0 keeps no surveys: send, and match the ids of what comes back")
        return lane


class ContextLife(Channel):
    """What contexts of both kinds have: an end of their own."""

    _forget: Callable[[Channel], None]

    async def aclose(self) -> None:
        """Give up what is under way; calls that wait here raise `Closed`."""
        if not self.closed:
            self._shut("the context is closed")
            self._forget(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Context(StateChannel, ContextLife):
    """A conversation of its own on a shared socket: its own request, survey or debt of an answer.

    Made by ``socket.new_context()``, closed with it or by `aclose`.
    """

    def __init__(
        self,
        lane: StateLane,
        options: SocketOptions,
        *,
        senders: Waiters,
        receivers: Waiters,
        arm: Callable[[], None],
        forget: Callable[[Channel], None],
    ) -> None:
        self._forget = forget
        self._arm_socket = arm
        self._open(lane, options, senders=senders, receivers=receivers)

    def _arm(self) -> None:
        self._arm_socket()


class SurveyContext(SurveyChannel, Context):
    """A survey of its own on a shared socket."""

    def set_time(self, survey_s: float | Default) -> None:
        """Let surveys sent from now on be open for ``survey_s`` seconds."""
        open_s = survey_seconds(survey_s)
        if open_s is not None and isinstance(self._any_lane, SurveyLane):
            self._any_lane.survey_s = open_s


class SubContext(QueueChannel, ContextLife):
    """Topics and an inbox of its own; it gets its own copy of what it wants."""

    def __init__(
        self,
        lane: Subscriptions,
        options: SocketOptions,
        *,
        senders: Waiters,
        receivers: Waiters,
        forget: Callable[[Channel], None],
    ) -> None:
        self._forget = forget
        self._subscriptions = lane
        self._open(lane, options, senders=senders, receivers=receivers)

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


def as_topic(topic: str | Body) -> bytes:
    return topic.encode() if isinstance(topic, str) else as_bytes(topic)
