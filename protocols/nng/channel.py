"""``send`` and ``recv`` over pynng's coroutines, for sockets and their contexts.

pynng itself is the bridge between NNG's threads and the event loop: an operation that has to wait is a task
around one of its coroutines. Such a task for ``recv`` outlives its caller, for two reasons: cancelling it
would end a request or a survey, and pynng swallows a cancellation that comes too late. Operations that need
not wait cost no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

from protocols.channel import Body, as_bytes
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
from protocols.nng.binding import pynng
from protocols.nng.errors import REPLACED, translated
from protocols.options import DEFAULT, SocketOptions, TimeLimit, seconds
from protocols.waiting import deadline_of

BEST_EFFORT_S: Final = 0.05
"""Seconds for NNG to take a message where it cannot be asked without waiting; its threads need a moment."""


class Counters:
    """The counters of one socket and its contexts."""

    def __init__(self) -> None:
        self.frames_in = 0
        self.bytes_in = 0
        self.frames_out = 0
        self.bytes_out = 0
        self.drops: dict[str, int] = {}


class Channel:
    """The common part of sockets and contexts: ``send`` and ``recv`` over pynng's coroutines."""

    _turns: ClassVar[bool] = False
    _asks: ClassVar[bool] = False
    """True if sending gives up the previous question, its unread answers and the calls that wait for them."""
    _may_peek: ClassVar[bool] = True
    """True if asking NNG for a message without waiting does no harm."""
    _may_try: ClassVar[bool] = True
    """True if giving NNG a message without waiting does no harm."""
    _answers: ClassVar[bool] = False
    """True if receiving creates a debt: a ``recv`` that was given up must not create one unnoticed."""
    _exclusive: ClassVar[bool] = False
    _waits_for_room: ClassVar[bool] = True
    _needs_peer: ClassVar[bool] = False
    _iteration_ends: ClassVar[tuple[type[SPError], ...]] = (Closed,)

    options: SocketOptions

    def _open(self, nng: Any, options: SocketOptions, counters: Counters) -> None:
        self._nng = nng
        self.options = options
        self._counters = counters
        self.closed = False
        self._receiving: asyncio.Task[bytes] | None = None
        self._readers = 0
        self._epoch = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- sending

    async def send(self, body: Body, timeout: TimeLimit = DEFAULT) -> None:
        """Like `protocols.Socket.send`. A cancelled call has sent nothing, unless NNG took the message in
        that moment.
        """
        frame = self._ready(body)
        if self._answers:
            await self._end_given_up()
        if not self._put(frame):
            limit_s = seconds(timeout, self.options.send_timeout_s)
            drops = self.options.best_effort and self._waits_for_room
            if drops:
                limit_s = 0.0 if self._may_try else BEST_EFFORT_S
            try:
                await self._put_later(frame, limit_s)
            except Timeout:
                if not drops:
                    raise
                self._counters.drops["no room"] = self._counters.drops.get("no room", 0) + 1
                return
        self._count_out(frame)

    def send_nowait(self, body: Body) -> None:
        """Like `send`, but raises `WouldBlock` instead of waiting. Not for answers and contexts."""
        if not self._may_try:
            raise NotSupported("NNG cannot send here without waiting; use send(timeout=...)")
        frame = self._ready(body)
        if not self._put(frame):
            raise WouldBlock("no peer has room for the message")
        self._count_out(frame)

    async def send_many(self, bodies: Sequence[Body], timeout: TimeLimit = DEFAULT) -> None:
        """Send in order. If time runs out, the `PartlySent` error says how many were sent."""
        if self._turns:
            raise NotSupported("this pattern speaks in turns: send and recv take one message at a time")
        frames = [as_bytes(body) for body in bodies]
        deadline = deadline_of(seconds(timeout, self.options.send_timeout_s))
        for sent, frame in enumerate(frames):
            left = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0)
            try:
                await self.send(frame, left)
            except Timeout as error:
                raise PartlySent(sent, len(frames)) from error
            except (Closed, NoPeers) as error:
                error.sent = sent
                raise

    def _ready(self, body: Body) -> bytes:
        frame = as_bytes(body)
        self._check_open()
        if self._needs_peer and self.options.fail_without_peers and not self._has_peers():
            raise NoPeers("there is no peer to send to")
        if self._asks:
            self._epoch += 1
            self._let_go()
        return frame

    def _put(self, frame: bytes) -> bool:
        if not self._may_try:
            return False
        try:
            self._nng.send(frame, block=False)
        except pynng.TryAgain:
            return False
        except pynng.NNGException as error:
            raise translated(error) from error
        return True

    async def _put_later(self, frame: bytes, limit_s: float | None) -> None:
        task = self._task(self._nng.asend(frame))
        try:
            await asyncio.wait((task,), timeout=limit_s)
            late = not task.done()
            if late:
                task.cancel()
                await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.cancelled():
            self._result(task)  # NNG took it, if only at the last moment
        elif self.closed:
            raise Closed("the socket is closed")
        elif late:
            raise Timeout(f"no peer took the message within {limit_s:g} s")
        else:
            raise StateError(REPLACED)

    def _count_out(self, frame: bytes) -> None:
        self._counters.frames_out += 1
        self._counters.bytes_out += len(frame)

    # --- receiving

    async def recv(self, timeout: TimeLimit = DEFAULT) -> bytes:
        """Like `protocols.Socket.recv`. If cancelled or late, the next call gets what NNG delivers
        meanwhile.
        """
        self._check_open()
        if self._exclusive and self._readers:
            raise StateError("another recv waits here already; concurrent calls take a context each")
        limit_s = seconds(timeout, self.options.recv_timeout_s)
        deadline = deadline_of(limit_s)
        epoch = self._epoch
        self._readers += 1
        try:
            while (body := self._take()) is None:
                await self._wait(deadline, limit_s)
                if self._epoch != epoch:
                    raise StateError(REPLACED)
        finally:
            self._readers -= 1
            if self._answers and not self._readers and self._receiving is not None:
                self._receiving.cancel()
        self._counters.frames_in += 1
        self._counters.bytes_in += len(body)
        return body

    def recv_nowait(self) -> bytes:
        """Like `recv`, but raises `WouldBlock` instead of waiting. Not for surveys and contexts."""
        self._check_open()
        if not self._may_peek:
            raise NotSupported("NNG cannot look here without waiting; use recv(timeout=...)")
        body = self._take()
        if body is None:
            raise WouldBlock("nothing has been received")
        self._counters.frames_in += 1
        self._counters.bytes_in += len(body)
        return body

    async def recv_many(self, timeout: TimeLimit = DEFAULT) -> list[bytes]:
        """Return all messages that have arrived, at least one and at most ``recv_queue``."""
        if self._turns:
            raise NotSupported("this pattern speaks in turns: send and recv take one message at a time")
        bodies = [await self.recv(timeout)]
        while len(bodies) < self.options.recv_queue:
            try:
                bodies.append(self.recv_nowait())
            except WouldBlock:
                break
        return bodies

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except self._iteration_ends:
            raise StopAsyncIteration from None

    def _take(self) -> bytes | None:
        """Return an available message: first from the operation under way, else from NNG itself."""
        task = self._receiving
        if task is None:
            return self._take_now()
        if not task.done():
            return None
        self._receiving = None
        if task.cancelled():
            if self.closed:
                raise Closed("the socket is closed")
            return self._take_now()
        body: bytes = self._result(task)
        return body

    def _take_now(self) -> bytes | None:
        self._check_open()
        if not self._may_peek:
            return None
        try:
            body: bytes = self._nng.recv_msg(block=False).bytes
        except pynng.TryAgain:
            return None
        except pynng.NNGException as error:
            raise translated(error) from error
        return body

    async def _wait(self, deadline: float | None, limit_s: float | None) -> None:
        """Return when the operation under way has ended. Raises `Timeout`."""
        if self._receiving is None:
            self._receiving = self._task(self._receive())
        left = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0)
        done, _ = await asyncio.wait((self._receiving,), timeout=left)
        if not done:
            raise Timeout(f"nothing received within {limit_s:g} s")

    async def _receive(self) -> bytes:
        # `recv_msg` and not `recv`, which cannot take an empty body (pynng 0.9)
        message = await self._nng.arecv_msg()
        body: bytes = message.bytes
        return body

    def _let_go(self) -> None:
        """Drop the operation under way, which belongs to the former request or survey.

        If it began too late, it would take the answer to the new one.
        """
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    async def _end_given_up(self) -> None:
        """Before an answer goes out, check whether a ``recv`` that was given up has taken another
        question.
        """
        task = self._receiving
        if task is None or self._readers:
            return
        await asyncio.wait((task,))
        if task.cancelled():
            self._receiving = None
        elif task.exception() is None:
            raise StateError("a newer question came as recv was given up; recv() gives it")

    # ---

    def _task(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieve it: perhaps nobody waits for it any more

    def _result(self, task: asyncio.Task[Any]) -> Any:
        try:
            return task.result()
        except pynng.NNGException as error:
            raise translated(error) from error

    def _has_peers(self) -> bool:
        raise NotImplementedError

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("the socket is closed")

    async def _shut(self) -> None:
        """Cancel what callers wait for; their calls raise `Closed`."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
        self._nng.close()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
