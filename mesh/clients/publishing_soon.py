"""`Client.publish_soon` and `Client.batch`: publish now, learn the outcome later (``pending``).

Gathering a message never waits. When there is no room for one, `publish_soon` raises `NotReady`, and
``ready`` waits for room. One timer ends everything that waits for too long.

**Cancelling.** To stop awaiting a `Pending` takes nothing back; the message goes on to its acknowledgement or
its timeout. The same holds for the messages of a batch that ends with an exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from math import inf
from typing import Any, Self

from mesh.clients.arguments import checked_body, checked_seconds, level_number
from mesh.clients.calls import PUBLISH_TIMEOUT_S
from mesh.clients.connection import ClientConnection
from mesh.clients.outbox import ClientOutbox
from mesh.clients.outbox_filling import LEVEL as OUTBOX
from mesh.clients.pending import AnyPending, Group, Pendings
from mesh.clients.pending_batch import BatchOutcome
from mesh.clients.pending_warnings import PendingWarnings
from mesh.clients.publishing import MESSAGE_COST
from mesh.errors import Disconnected, MeshError, MeshTimeout, NotAccepted, NotReady
from mesh.wire.blocks import SPLIT, HeaderValue
from mesh.wire.session_frames import Receipt


class Pending(AnyPending, eq=False):
    """The outcome of a message of ``publish_soon``: await it, now or later, once or several times.

    Awaiting returns the `Receipt`, or raises as `Client.publish` does: `NotAccepted`, `Unknown`. It ends with
    the message's own ``timeout`` at the latest. A failure that nobody looks at is logged.
    """

    def result(self) -> Receipt:
        """The receipt, without waiting. Raises what else became of the message, and `MeshError` while that is
        not known."""
        if not self._group.over:
            self._must_be_done()
        return self._result()

    def __await__(self) -> Generator[Any, None, Receipt]:
        if not self._group.over:
            yield from _over(self._group).__await__()
        return self._result()


async def _over(group: Group) -> None:
    """Wait until a group is over."""
    while not group.over:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = partial(_settle, future)
        group.waiters[waiter] = None
        try:
            await future
        finally:
            group.waiters.pop(waiter, None)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SoonPublisher:
    """Publishes messages of ``publish_soon`` for a `Client`."""

    def __init__(self, connection: ClientConnection, pending_max: int) -> None:
        self._connection = connection
        self._loop = connection.loop
        self._writer = connection.writer
        self._conversation = connection.conversation
        self._pendings = pendings = connection.conversation.pendings
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = inf
        """When it is due: uvloop's handle of one that is due at once cannot tell."""
        warnings = PendingWarnings(self._loop.time)
        pendings.most = pending_max
        pendings.call, pendings.tell = warnings.call, warnings.unheard

    @property
    def pendings(self) -> Pendings:
        """The pending messages."""
        return self._pendings

    def publish_plain(self, topic: str, body: bytes, level: str, timeout: float | None) -> Pending:
        """Gather a message without headers whose batch is forming. This fast way makes no further call."""
        conversation, pendings = self._conversation, self._pendings
        try:
            batch = conversation.waiting[level][topic]
            ticket = batch.ticket
            group = pendings.open[ticket]
        except (KeyError, TypeError):
            return self.publish(topic, checked_body(body), level, b"", timeout)
        bodies = batch.bodies
        index = len(bodies)
        size = len(body)
        if (
            group.first + group.count != index
            or group.limit_s != (PUBLISH_TIMEOUT_S if timeout is None else timeout)
            or batch.headers is not None
            or conversation.room <= 0
            or pendings.count >= pendings.most
            or size > SPLIT
            or not self._writer.scheduled
        ):
            return self.publish(topic, checked_body(body), level, b"", timeout)
        bodies.append(body)
        group.count += 1
        pendings.count += 1
        assert ticket is not None, "there is a group of it"
        ticket.waited += 1
        conversation.room = room = conversation.room - size - MESSAGE_COST
        if room <= 0:
            self._writer.seal()
        return Pending(group, index)

    def publish(self, topic: str, body: bytes, level: str, headers: bytes, timeout: float | None) -> Pending:
        """Gather a message. Raises `NotReady` and what `Client.publish` raises at once."""
        number = level_number(level)
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        conversation, writer, pendings = self._conversation, self._writer, self._pendings
        if conversation.room <= 0 or pendings.count >= pendings.most:
            self._must_be_ready()
        ticket, index = conversation.add_many(topic, [body], number, headers)
        if not writer.scheduled:
            pendings.new_turn()
            writer.schedule()
            if writer.lone:
                writer.flush_lone()
        if conversation.room <= 0:
            writer.seal()
        if ticket is None:
            return Pending(pendings.sent, 0)
        group = pendings.add(ticket, index, limit_s, self._loop.time())
        self._plan_for(group)
        return Pending(group, index)

    def publish_into(
        self, outbox: ClientOutbox, topic: str, body: bytes, headers: bytes, timeout: float | None
    ) -> Pending:
        """Gather a message of level outbox. Raises `NotReady` and what `ClientOutbox.gather` raises."""
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        if self._pendings.full:
            raise self._not_ready()
        return Pending(*self.gather_into(outbox, topic, body, headers, limit_s))

    def gather_into(
        self, outbox: ClientOutbox, topic: str, body: bytes, headers: bytes, limit_s: float
    ) -> tuple[Group, int]:
        """Gather a message of level outbox, even if there is no room for one."""
        parcel, index = outbox.gather(topic, body, headers, limit_s)
        group = self._pendings.add(parcel, index, limit_s, self._loop.time(), outbox.give_up)
        self._plan_for(group)
        return group, index

    def _not_ready(self) -> NotReady:
        return NotReady(f"{self._pendings.why_full(0.0, self._connection.why_away)}; wait for ready()")

    def _must_be_ready(self) -> None:
        if self._connection.closed:
            raise NotAccepted("the client is closed")
        self._writer.flush()
        if self._conversation.room <= 0 or self._pendings.full:
            raise self._not_ready()

    async def ready(self, timeout: float | None, level: str, kind: type[MeshError] = MeshTimeout) -> None:
        """Wait until there is room for a message of that level. Raises `Disconnected`, and ``kind`` when that
        takes too long."""
        sends = level != OUTBOX
        pendings, conversation = self._pendings, self._conversation
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        deadline = self._loop.time() + limit_s
        while True:
            if self._connection.closed:
                raise Disconnected("the client is closed")
            if sends and conversation.room <= 0:
                self._writer.flush()
            if pendings.full:
                gate = pendings.gate
            elif sends and conversation.room <= 0:
                gate = conversation.gate
            else:
                return
            if not await self._connection.wait(gate, max(0.0, deadline - self._loop.time())):
                raise kind(pendings.why_full(limit_s, self._connection.why_away))

    def _plan_for(self, group: Group) -> None:
        if self._timer is not None:
            if self._timer_due <= group.deadline:
                return
            self._timer.cancel()
        self._plan()

    def _plan(self) -> None:
        if self._pendings.due < inf and not self._connection.closed:
            self._timer_due = self._pendings.due
            self._timer = self._loop.call_at(self._timer_due, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._pendings.expire(self._loop.time(), self._connection.why_away)
        self._plan()

    def close(self) -> None:
        """End everything pending: the client is closed."""
        if self._timer is not None:
            self._timer.cancel()


class PendingBatch:
    """Messages to wait for together: ``async with client.batch() as batch: await batch.publish(...)``.

    Its end waits for the outcome of each message, and raises `BatchFailed` if not all have succeeded. If the
    block raises an exception, its end does not wait; the messages are not taken back.
    """

    def __init__(
        self,
        publish_soon: Callable[..., Pending],
        ready: Callable[[float | None, str, type[MeshError]], Awaitable[None]],
        level: str,
        timeout: float | None,
    ) -> None:
        if level != OUTBOX:
            level_number(level)
        self._publish_soon = publish_soon
        self._ready = ready
        self._level = level
        self._timeout = None if timeout is None else checked_seconds("timeout", timeout)
        self._outcome = BatchOutcome(level)

    def __len__(self) -> int:
        """Number of messages so far."""
        return self._outcome.count

    @property
    def receipt(self) -> Receipt:
        """One receipt for all of its messages, once the block has ended and all have succeeded."""
        return self._outcome.receipt()

    async def publish(
        self,
        topic: str,
        body: bytes,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        key: str | None = None,
    ) -> Pending:
        """Publish one message, and wait only while there is no room for it. Raises `NotReady` if there is
        none in time, and what `Client.publish_soon` raises."""
        while True:
            try:
                pending = self._publish_soon(
                    topic, body, level=self._level, headers=headers, key=key, timeout=self._timeout
                )
                break
            except NotReady:
                await self._ready(self._timeout, self._level, NotReady)
        self._outcome.add(*pending.place)
        return pending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            for group in self._outcome.open():
                await _over(group)
            self._outcome.end()
