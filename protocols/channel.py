"""``send`` and ``recv`` as coroutines over a pattern's lane.

A `Channel` is for patterns without turns, a `Conversation` for those that speak in turns. A socket is one of
the two, and so is each context. Both ask their lane and, if it has nothing, wait until it does.

A ``timeout`` is in seconds; `DEFAULT` is the socket's own (`SocketOptions`), None is no limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self

from protocols.errors import (
    Closed,
    NoPeers,
    NotSupported,
    PartlySent,
    SPError,
    StateError,
    Timeout,
    WouldBlock,
)
from protocols.message import Message
from protocols.options import DEFAULT, SocketOptions, TimeLimit, seconds
from protocols.patterns.base import QueueLane, StateLane
from protocols.pipe_view import PipeView, view_of
from protocols.waiting import NO_LOOP, Waiters, deadline_of

if TYPE_CHECKING:
    from protocols.core import Core

Body = bytes | bytearray | memoryview

REPLACED: Final = "replaced by a newer request or survey"


def as_bytes(body: Body) -> bytes:
    """Return a body as bytes. Raises `TypeError` here, so that a wrong type does not fail later in the event
    loop.
    """
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise TypeError(f"a body is bytes, not {type(body).__name__}; encode it first")


def as_topic(topic: str | Body) -> bytes:
    if isinstance(topic, str):
        return topic.encode()
    if isinstance(topic, (bytes, bytearray, memoryview)):
        return bytes(topic)
    raise TypeError(f"a topic is a str or bytes, not {type(topic).__name__}")


def check_handler(handler: object) -> None:
    """Check that a handler can be called. Raises `TypeError`."""
    if not callable(handler):
        raise TypeError(f"a handler takes a question and returns its answer; {handler!r} cannot be called")


class RefusingLane(QueueLane, StateLane):
    """Stands in for the lane of a socket or context that is closed or was not entered yet."""

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


def _shut(channel: Channel | Conversation, sentence: str) -> None:
    """Make every call raise `Closed`, including calls that already wait."""
    channel.closed = True
    channel._lane.close()
    channel._refuse(Closed, sentence)
    channel._senders.wake_all()
    channel._receivers.wake_all()


class Channel:
    """A lane without turns. Its fast paths set the cost of a message: one coroutine, one call."""

    closed = False
    _lane: QueueLane

    def _open_on(self, core: Core) -> None:
        """Become the channel of a socket itself."""
        lane: Any = core.pattern.lane
        self._open(lane, core.options, core.senders, core.receivers)

    def _open(self, lane: QueueLane, options: SocketOptions, senders: Waiters, receivers: Waiters) -> None:
        self._options = options
        self._senders = senders
        self._receivers = receivers
        lane.readable = receivers.wake
        lane.writable = senders.wake_all
        self._use(lane)

    def _use(self, lane: QueueLane) -> None:
        self._lane = lane
        self._put = lane.put
        self._inbox = lane.inbox

    def _refuse(self, kind: type[SPError], sentence: str) -> None:
        """Make every further call raise this error."""
        self._use(RefusingLane(kind, sentence))

    def _shut(self, sentence: str) -> None:
        _shut(self, sentence)

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        """Hand one message to the pattern, which decides whether the call may wait, and for what.

        A call that is cancelled or times out has not taken the message.

        Raises:
            Timeout, Closed: see each.
            NoPeers: with ``fail_without_peers``.
            NotSupported: the pattern only receives.
        """
        if type(body) is not bytes:
            body = as_bytes(body)
        if not self._put(body):
            await self._senders.room(lambda: self._put(body), timeout, self._options.send_timeout_s)

    async def recv(self, timeout: TimeLimit = DEFAULT) -> bytes:
        """Return the next message. A call that is cancelled or times out takes none.

        Raises:
            Timeout, Closed: see each.
            NotSupported: the pattern only sends.
        """
        inbox = self._inbox
        if inbox:
            if timeout is not DEFAULT:
                seconds(timeout, None)  # report a wrong timeout even when there is no need to wait
            body = inbox.popleft()
            if not inbox:
                self._lane.emptied()
            return body
        return await self._receivers.taken(lambda: self._lane.take(), timeout, self._options.recv_timeout_s)

    async def recv_message(self, timeout: TimeLimit = DEFAULT) -> Message[PipeView]:
        """Like `recv`, with the peer that sent the message."""
        body = await self.recv(timeout)
        return Message(view_of(self._lane.origin()), b"", body)

    def send_nowait(self, body: Body) -> None:
        """Like `send`, but raises `WouldBlock` instead of waiting."""
        if not self._put(body if type(body) is bytes else as_bytes(body)):
            raise WouldBlock("no peer has room for the message")

    def recv_nowait(self) -> bytes:
        """Like `recv`, but raises `WouldBlock` instead of waiting."""
        body = self._lane.take()
        if body is None:
            raise WouldBlock("nothing has been received")
        return body

    async def send_many(self, bodies: Sequence[Body], timeout: TimeLimit = DEFAULT) -> None:
        """Send in order, waiting for room as often as needed.

        A call that times out may have sent some leading messages. `PartlySent` (a `Timeout`) has their number
        in ``sent``, as do `Closed` and `NoPeers`.
        """
        ready = [body if type(body) is bytes else as_bytes(body) for body in bodies]
        deadline = deadline_of(seconds(timeout, self._options.send_timeout_s))
        sent = 0
        while sent < len(ready):
            piece = ready[sent : sent + self._options.send_queue]
            taken = self._put_piece(piece, sent)
            sent += taken
            # Only a refusal leads to a wake-up, so a piece that was taken whole is followed by the next at
            # once.
            if taken < len(piece) and not await self._senders.wait(deadline):
                raise PartlySent(sent, len(ready))

    async def recv_many(self, timeout: TimeLimit = DEFAULT) -> list[bytes]:
        """Return all messages that have arrived, at least one."""
        take = lambda: self._lane.take()  # noqa: E731  the lane may be another after the wait
        bodies = [await self._receivers.taken(take, timeout, self._options.recv_timeout_s)]
        inbox = self._inbox
        if inbox:
            bodies += inbox
            inbox.clear()
            self._lane.emptied()
        return bodies

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        inbox = self._inbox
        if inbox:
            body = inbox.popleft()
            if not inbox:
                self._lane.emptied()
            return body
        try:
            return await self.recv()
        except Closed:
            raise StopAsyncIteration from None

    def _put_piece(self, piece: Sequence[bytes], sent: int) -> int:
        """Hand over one piece of a batch; ``sent`` messages of the batch went before it."""
        try:
            return self._lane.put_many(piece)
        except (Closed, NoPeers) as error:
            error.sent = sent
            raise


class Broadcast(Channel):
    """A channel whose pattern never makes a sender wait: it drops for peers whose queue is full.

    Queues are emptied once a loop turn, so a sender that never suspends would fill them all by itself. After
    every half queue of messages it gives the event loop a turn, *before* it hands over the next one.
    """

    _since_turn = 0

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        """Hand one message to every peer. A peer whose queue is full misses it, which is counted."""
        if type(body) is not bytes:
            body = as_bytes(body)
        if self._since_turn >= self._options.send_queue // 2:
            await self._give_turn()
        self._since_turn += 1
        self._put(body)

    async def send_many(self, bodies: Sequence[Body], timeout: TimeLimit = DEFAULT) -> None:
        ready = [body if type(body) is bytes else as_bytes(body) for body in bodies]
        seconds(timeout, None)
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


class Conversation:
    """A lane that follows the turns of a conversation and is given the time."""

    closed = False
    _lane: StateLane
    _ends: ClassVar[tuple[type[SPError], ...]] = (Closed,)
    """The exceptions that end an iteration."""
    _receiving = False

    def _open_on(self, core: Core) -> None:
        """Become the channel of a socket itself."""
        lane: Any = core.pattern.lane
        self._open(lane, core.options, core.senders, core.receivers, core.arm)

    def _open(
        self,
        lane: StateLane,
        options: SocketOptions,
        senders: Waiters,
        receivers: Waiters,
        arm: Callable[[], None],
    ) -> None:
        self._options = options
        self._senders = senders
        self._receivers = receivers
        self._arm = arm
        """Set the socket's timer to the pattern's next deadline."""
        lane.readable = receivers.wake
        lane.writable = senders.wake_all
        self._lane = lane

    def _use(self, lane: Any) -> None:
        self._lane = lane

    def _refuse(self, kind: type[SPError], sentence: str) -> None:
        """Make every further call raise this error."""
        self._use(RefusingLane(kind, sentence))

    def _shut(self, sentence: str) -> None:
        _shut(self, sentence)

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        """Send a message to the peers that the pattern chooses.

        A call that is cancelled or times out has not taken the message.

        Raises:
            Timeout, Closed: see each.
            StateError: it is not this side's turn, or the conversation went on while this waited for room.
            NoPeers: with ``fail_without_peers``.
        """
        body = body if type(body) is bytes else as_bytes(body)
        if timeout is not DEFAULT:
            seconds(timeout, None)
        if not self._say(body):
            epoch = self._lane.epoch
            await self._senders.room(lambda: self._say(body, epoch), timeout, self._options.send_timeout_s)

    async def recv(self, timeout: TimeLimit = DEFAULT) -> bytes:
        """Return the next message of this conversation. A call that is cancelled or times out takes none.

        Raises:
            Timeout, Closed: see each.
            StateError: no message can come now.
        """
        limit_s = seconds(timeout, self._options.recv_timeout_s)
        body = self._hear()
        if body is not None:
            return body
        epoch = self._lane.epoch
        receivers = self._receivers
        loop = receivers.loop
        assert loop is not None  # `_hear` has ensured that
        deadline = None if limit_s is None else loop.time() + limit_s
        self._receiving = True
        try:
            while body is None:
                if not await receivers.wait_on(loop, deadline):
                    raise Timeout(f"nothing received within {limit_s:g} s")
                lane = self._lane
                if lane.epoch != epoch and not self.closed:
                    raise StateError(REPLACED)
                body = lane.recv(loop.time(), True)
        finally:
            self._receiving = False
        return body

    async def recv_message(self, timeout: TimeLimit = DEFAULT) -> Message[PipeView]:
        """Like `recv`, with the peer that sent the message."""
        body = await self.recv(timeout)
        return Message(view_of(self._lane.origin()), b"", body)

    def send_nowait(self, body: Body) -> None:
        """Like `send`, but raises `WouldBlock` instead of waiting."""
        if not self._say(body if type(body) is bytes else as_bytes(body)):
            raise WouldBlock("no peer has room for the message")

    def recv_nowait(self) -> bytes:
        """Like `recv`, but raises `WouldBlock` instead of waiting."""
        body = self._hear()
        if body is None:
            raise WouldBlock("nothing has been received")
        return body

    async def send_many(self, bodies: Sequence[Body], timeout: TimeLimit = DEFAULT) -> NoReturn:
        """Raises `NotSupported`."""
        if self.closed:
            self._lane.recv(0.0, False)  # raises `Closed`
        raise NotSupported("this pattern speaks in turns: send and recv take one message at a time")

    async def recv_many(self, timeout: TimeLimit = DEFAULT) -> NoReturn:
        """Raises `NotSupported`."""
        if self.closed:
            self._lane.recv(0.0, False)  # raises `Closed`
        raise NotSupported("this pattern speaks in turns: send and recv take one message at a time")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except self._ends:
            raise StopAsyncIteration from None

    def _say(self, body: bytes, waited_in: int | None = None) -> bool:
        lane = self._lane
        epoch = lane.epoch
        try:
            loop = asyncio.get_running_loop()  # not `running_loop`: saves a call for each message
        except RuntimeError:
            raise StateError(NO_LOOP) from None
        if self._senders.loop is not loop:
            self._senders.settle(loop)
        said = lane.send(body, loop.time(), waited_in)
        if lane.epoch != epoch:
            self._receivers.wake_all()  # they wait for the request or survey that was just replaced
        if said and lane.timed:
            self._arm()
        return said

    def _hear(self) -> bytes | None:
        if self._receiving and self._lane.exclusive:
            raise StateError("another recv waits here already; concurrent calls take a context each")
        try:
            loop = asyncio.get_running_loop()  # as above
        except RuntimeError:
            raise StateError(NO_LOOP) from None
        if self._receivers.loop is not loop:
            self._receivers.settle(loop)
        return self._lane.recv(loop.time(), False)
