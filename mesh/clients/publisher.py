"""How a `Client` publishes: wait for credit, gather, wait for the acknowledgement.

The conversation's ``room`` counts down credit. At zero or below there is none, or a turn's budget is full and
a flush is due (``publishing``). A `Writer` decides when gathered messages leave.

**Cancelling.** A cancelled call of level accepted takes its messages back if they were not sealed yet;
otherwise they may arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from mesh.clients.arguments import checked_body, checked_seconds, level_number
from mesh.clients.calls import (
    GATHERED,
    PUBLISH_TIMEOUT_S,
    joined,
    no_credit,
    unacknowledged,
    unflushed,
)
from mesh.clients.connection import ClientConnection
from mesh.clients.publishing import MESSAGE_COST
from mesh.clients.tickets import Ticket
from mesh.errors import Disconnected, NotAccepted
from mesh.wire import blocks
from mesh.wire.session_frames import Receipt


class Publisher:
    """Publishes for a `Client`, which gathers most messages of level sent itself and leaves the rest to
    this."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._loop = connection.loop
        self._conversation = connection.conversation
        self._writer = connection.writer

    # ------------------------------------------------------------------ one topic, any level

    async def publish(
        self, topic: str, bodies: list[bytes], level: str, headers: bytes, timeout: float | None
    ) -> Receipt:
        """Publish messages of one topic. ``headers`` are for a single message only."""
        number = level_number(level)
        conversation, writer = self._conversation, self._writer
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        deadline = self._loop.time() + limit_s
        if conversation.room <= 0:
            await self.wait_for_room(timeout, number)
        ticket, index = conversation.add_many(topic, bodies, number, headers)
        if not writer.scheduled:
            writer.schedule()
            if writer.lone:
                writer.flush_lone()
        if conversation.room <= 0:
            writer.flush()
            if ticket is None:
                await asyncio.sleep(0)
        if ticket is None:
            return GATHERED if len(bodies) == 1 else Receipt("sent", conversation.broker, 0, len(bodies))
        try:
            await self._acknowledged(ticket, deadline)
        except asyncio.CancelledError:
            conversation.cancel(ticket, index, len(bodies))
            writer.hand_over()
            raise
        if not ticket.done:
            taken_back = conversation.cancel(ticket, index, len(bodies))
            writer.hand_over()
            raise unacknowledged(taken_back, limit_s, ticket.why(self._connection.why_away))
        return ticket.receipt(index, len(bodies))

    async def _acknowledged(self, ticket: Ticket, deadline: float) -> None:
        """Wait until the ticket is done or the time is over."""
        while not ticket.done:
            left_s = max(0.0, deadline - self._loop.time())
            if not await self._connection.wait(ticket, left_s):
                return

    # ------------------------------------------------------------------ many at once

    def publish_many(
        self, given: list[tuple[str, list[bytes], int]], level: str, timeout: float | None
    ) -> Awaitable[Receipt]:
        """Publish messages of several topics, as `by_topic` gives them. Nearly always there is one topic."""
        if len(given) != 1:
            return self._publish_topics(given, level, timeout)
        ((topic, bodies, size),) = given
        if level == "sent":
            return self._publish_sent(topic, bodies, size, timeout)
        return self.publish(topic, bodies, level, b"", timeout)

    async def _publish_topics(
        self, given: list[tuple[str, list[bytes], int]], level: str, timeout: float | None
    ) -> Receipt:
        """Publish one topic after the other at level sent; wait for all acknowledgements together at other
        levels."""
        receipts: list[Receipt] = []
        if level == "sent":
            limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
            deadline = self._loop.time() + limit_s
            for topic, bodies, size in given:
                left_s = max(0.0, deadline - self._loop.time())
                receipts.append(await self._publish_sent(topic, bodies, size, left_s))
        else:
            receipts += await asyncio.gather(
                *(self.publish(topic, bodies, level, b"", timeout) for topic, bodies, _ in given)
            )
        return joined(receipts, level, self._conversation.broker)

    async def _publish_sent(
        self, topic: str, bodies: list[bytes], size: int, timeout: float | None
    ) -> Receipt:
        """Publish many messages of one topic at level sent, without a look at each."""
        conversation, writer = self._conversation, self._writer
        if conversation.room <= 0:
            await self.wait_for_room(timeout)
        cost = size + MESSAGE_COST * len(bodies)
        if cost > conversation.room and conversation.forming and writer.seal():  # blocks end where calls do
            await asyncio.sleep(0)
        gathered = conversation.forming.get(topic)
        if gathered is None:
            gathered = conversation.open_topic(topic)
            if not writer.scheduled:
                writer.schedule()
        gathered += bodies
        conversation.room -= cost
        if writer.lone:
            writer.flush_lone()
        elif conversation.room <= 0 and writer.seal():
            await asyncio.sleep(0)
        return Receipt("sent", conversation.broker, 0, len(bodies))

    # ------------------------------------------------------------------ one message of level sent

    def open_topic(self, topic: str, body: bytes) -> bool:
        """Gather a topic's first message. True if it came after a pause and is on its way already: it is
        written at once, for its round trip, and what follows gathers."""
        if self._connection.closed:
            raise Disconnected("the client is closed")
        if len(body) > blocks.BODY_MAX:
            checked_body(body)  # raises before anything is changed
        conversation, writer = self._conversation, self._writer
        conversation.open_topic(topic).append(body)
        if writer.scheduled:
            return False
        writer.schedule()
        if not writer.lone or len(body) > blocks.SPLIT:
            return False
        conversation.room -= len(body) + MESSAGE_COST
        writer.flush_lone()
        return True

    def refuse_too_large(self, topic: str, body: bytes) -> None:
        """Take back the message just gathered if it is above the size limit, and raise ValueError."""
        if len(body) <= blocks.BODY_MAX:
            return
        bodies = self._conversation.forming[topic]
        bodies.pop()
        if not bodies:
            del self._conversation.forming[topic]
        self._conversation.room += len(body) + MESSAGE_COST
        checked_body(body)

    # ------------------------------------------------------------------ credit

    def has_room(self) -> bool:
        """True if there is credit after all, once what is gathered has been flushed."""
        self._writer.flush()
        return self._conversation.room > 0

    async def wait_for_room(self, timeout: float | None, number: int = blocks.SENT) -> None:
        """Wait until a message may be gathered. Raises the error for calls of that level when time is
        over."""
        if self.has_room():
            await asyncio.sleep(0)  # there was credit, only the count was old: let the flush be written
            return
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        deadline = self._loop.time() + limit_s
        while self._conversation.room <= 0:
            if self._connection.closed:
                kind = Disconnected if number == blocks.SENT else NotAccepted
                raise kind("the client is closed")
            if not await self._connection.wait(
                self._conversation.gate, max(0.0, deadline - self._loop.time())
            ):
                raise no_credit(number, limit_s, self._connection.why_away)

    async def flush(self, timeout: float | None) -> None:
        """Hand everything gathered to the connection. Raises `MeshTimeout`, `Disconnected`."""
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        conversation, writer = self._conversation, self._writer
        try:
            async with asyncio.timeout(limit_s):
                self._must_be_open()
                writer.flush()
                while conversation.gathered or (conversation.room <= 0 and conversation.settled):
                    await self._connection.wait(conversation.gate, None)
                    self._must_be_open()
                    writer.flush()
                await asyncio.sleep(0)
        except TimeoutError as error:
            raise unflushed(limit_s, self._connection.why_away) from error

    def _must_be_open(self) -> None:
        """Raises `Disconnected` once nothing more is sent. A closing client sends what is gathered first."""
        if self._connection.closed and not self._conversation.settled:
            raise Disconnected("the client is closed")
