"""`Client`: the asyncio shell around a `Conversation`.

It owns one raw Req0 (every frame carries the session's one request id), one task that keeps it connected
and one timer for the keepalive. Everything else happens in the caller's own calls and in the loop turn
that read a frame.

When are gathered messages flushed? At the end of the loop turn when the client was idle; while messages
keep coming turn after turn, gathering goes on for at most `DEFER_S`; and whenever a turn's budget of bytes
is full, after which ``publish`` yields to the loop, since nothing is written while one coroutine never
suspends.

Cancelling: a cancelled ``publish`` (level accepted) takes its message back if it was not sealed yet,
otherwise the message may arrive. A cancelled ``request`` drops its answer. A cancelled wait for a delivery
loses nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mesh import blocks
from mesh.blocks import HeaderValue
from mesh.conversation import (
    WINDOW,
    WINDOW_BYTES,
    Conversation,
    ConversationStatistics,
    Feed,
    Question,
    Run,
    SurveyResult,
)
from mesh.environment import DEFAULT_TCP_URL, Environment, default_ipc_url
from mesh.errors import Disconnected, MeshError, MeshTimeout, NotAccepted, PeerError, Unknown
from mesh.messages import Batch, Delivery, checked_bodies, checked_body, deliveries, keep_sound
from mesh.publishing import MESSAGE_COST, Ticket, Waitable
from mesh.session import Receipt, Role
from protocols import HandshakeError, Pipe, Req0, SocketOptions, SPError, TlsConfig, TlsConfigError
from protocols.endpoint import backoff_s

DEFER_S: Final = 0.001
"""Longest time a message waits for others while they keep coming."""
SEALS: Final = 4
"""Blocks sealed by size and written before ``publish`` yields to the loop; one if the kernel is full."""
LONE_S: Final = 0.0003
"""The first message after so long a pause does not wait for the end of its loop turn."""
KEEPALIVE_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 5.0
PUBLISH_TIMEOUT_S: Final = 10.0
SUBSCRIBE_TIMEOUT_S: Final = 10.0
"""The broker itself answers after 5 s at most and names whom it did not reach."""
REQUEST_TIMEOUT_S: Final = 5.0
SURVEY_DEADLINE_S: Final = 1.0
GRACE_S: Final = 1.0
"""How much longer than the broker this side waits for an answer, so that the broker's word is heard."""
LINGER_S: Final = 1.0

OPTIONS: Final = SocketOptions(
    send_queue=1 << 17, recv_size_max=1 << 20, resend_s=None, linger_s=LINGER_S, handshake_timeout_s=5.0
)
"""Queues above what credit allows, so that credit is the bound."""


def default_url() -> str:
    """``MANGROVE_URL``, else the local broker's ipc socket if there is one, else TCP on loopback."""
    given = os.environ.get("MANGROVE_URL", "")
    if given:
        return given
    local = default_ipc_url()
    return local if os.path.exists(local.removeprefix("ipc://")) else DEFAULT_TCP_URL


def why_no_session(url: str, error: Exception) -> str:
    """A failed dial as a sentence: what to do differs if somebody is there and hands could not be shaken."""
    if isinstance(error, (HandshakeError, TlsConfigError)):
        return f"no session at {url}: {error}"
    return f"no broker at {url} ({error}); start one with `mesh broker` or give another url"


class Subscription:
    """Messages of some patterns: await it or enter it to pass the barrier, then iterate.

    Iterating passes the barrier first, too. ``unreached`` names the brokers that had not acknowledged this
    interest when the barrier ended: what is published there may be missed for a moment.
    """

    def __init__(self, client: Client, feed: Feed) -> None:
        self._client = client
        self._feed = feed
        self._deliveries: Iterator[Delivery] = iter(())
        self._again: list[Delivery] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._passed = False
        self.dropped = 0
        """Messages this program refused by `Delivery.drop`."""
        self.malformed = 0
        """Messages and questions dropped here because nobody can read their headers."""

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(self._feed.patterns)

    @property
    def unreached(self) -> tuple[str, ...]:
        return self._feed.unreached

    @property
    def lost(self) -> int:
        """Blocks the broker dropped because this program was slow to take them."""
        return self._feed.lost_blocks

    def __await__(self) -> Generator[Any, None, Subscription]:
        return self._ready().__await__()

    async def __aenter__(self) -> Subscription:
        return await self._ready()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _ready(self) -> Subscription:
        feed, client = self._feed, self._client
        while not feed.ready and not feed.closed:
            waited = await client._wait(feed, SUBSCRIBE_TIMEOUT_S)
            if not waited:
                await self.aclose()
                raise MeshTimeout(
                    f"no broker confirmed the subscription to {', '.join(feed.patterns)} "
                    f"in {SUBSCRIBE_TIMEOUT_S:g} s: {client._why_away()}"
                )
        if feed.closed:
            raise Disconnected(f"the subscription to {', '.join(feed.patterns)} is closed")
        self._passed = True
        return self

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        for delivery in self._deliveries:
            return delivery
        while True:
            if self._again:
                return self._again.pop(0)
            run = await self._next_run()
            if run is not None:
                self._deliveries = deliveries(run, self)
                for delivery in self._deliveries:
                    return delivery

    def batches(self) -> Batches:
        """The same messages as `Batch` after `Batch`: as many as arrived together, at a fifth of the cost
        each.

        What `Delivery.retry` brings back comes one by one in the ordinary iteration only.
        """
        return Batches(self)

    async def _next_run(self) -> Run | None:
        """The next run, waited for; None when a redelivery is due instead. Raises StopAsyncIteration at
        the end."""
        if not self._passed:
            await self._ready()
        client, feed = self._client, self._feed
        while True:
            run = client._talk.next_run(feed, client._loop.time())
            if client._talk.has_output:
                client._hand_over()
            if run is not None:
                if keep_sound(run, self):
                    return run
                continue  # all of it was duplicates, malformed or pieces of a body still to come
            if self._again:
                return None
            if feed.closed:
                raise StopAsyncIteration
            await client._wait(feed, None)

    def redeliver(self, delivery: Delivery, after: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[id(delivery)] = loop.call_later(after, self._come_back, delivery)

    def answer(self, token: int, body: bytes, status: int) -> None:
        self._client._talk.answer(token, body, status=status)
        self._client._hand_over()
        self._client._write_now()

    def extend(self, token: int, seconds: float) -> None:
        self._client._talk.extend(token, seconds)
        self._client._hand_over()

    def _come_back(self, delivery: Delivery) -> None:
        self._timers.pop(id(delivery), None)
        self._again.append(delivery)
        self._feed.wake()

    async def aclose(self) -> None:
        """Want no more. What has arrived and was not taken is dropped; iteration ends."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._feed.runs.clear()
        self._client._talk.unsubscribe(self._feed)
        self._client._hand_over()
        self._feed.wake()


class Batches:
    """Async iterator over the batches of a subscription."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Batches:
        return self

    async def __anext__(self) -> Batch:
        while True:
            run = await self._subscription._next_run()
            if run is not None:
                return Batch(run, self._subscription)
            again = self._subscription._again
            while again:
                self._subscription._deliveries = iter([*self._subscription._deliveries, again.pop(0)])


class Client:
    """A program's connection to the mesh, through one broker.

    Enter it with ``async with``; that waits for the first session and raises `Disconnected` with a
    sentence if there is no broker. Afterwards a lost broker is dialled again for ever, subscriptions are
    announced again, and unacknowledged messages are sent again, which the brokers recognise.

    ``tls`` is for ``tls+tcp://`` and ``wss://`` addresses; without it the system's authorities are trusted
    and no certificate is shown.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        tls: TlsConfig | None = None,
        keepalive_s: float = KEEPALIVE_S,
        connect_timeout: float = CONNECT_TIMEOUT_S,
        environment: Environment | None = None,
    ) -> None:
        self.url = url or default_url()
        self.name = name or ""
        self._tls = tls
        self._keepalive_s = keepalive_s
        self._connect_timeout = connect_timeout
        self._environment = environment
        self._closed = False
        self._opened = False

    # ------------------------------------------------------------------ opening and closing

    async def __aenter__(self) -> Client:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect. Raises `Disconnected` if no session was to be had within ``connect_timeout``."""
        if self._opened or self._closed:
            raise MeshError("a Client is opened once; make another one")
        self._loop = asyncio.get_running_loop()
        environment = self._environment or Environment.real()
        rng = self._rng = environment.rng
        prefix = (0x80000000 | rng.getrandbits(31)).to_bytes(4, "big")
        self._talk = Conversation(
            client=rng.getrandbits(62) + 1,
            boot=rng.getrandbits(62) + 1,
            name=self.name,
            prefix=prefix,
            keepalive_s=self._keepalive_s,
            now=self._loop.time(),
        )
        self._socket = Req0(raw=True, receiver=self, options=replace(OPTIONS, tls=self._tls), rng=rng)
        self._pipe: Pipe | None = None
        self._stuck: list[bytes] = []
        self._scheduled = False
        self._seals = 0
        self._lone = False
        self._idle = True
        self._deferred_at = 0.0
        self._sent_receipt = Receipt("sent", "", 0)
        self._lost = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._opened = True
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._socket.dial_once(self.url, self._connect_timeout)
                while not self._talk.settled:
                    await self._wait(self._talk.opened, None)
                    if self._pipe is None and not self._talk.settled:
                        raise Disconnected(f"no session with a broker at {self.url}: {self._why_away()}")
        except BaseException as error:
            self._closed = True
            await self._socket.aclose()
            if isinstance(error, TimeoutError):
                raise Disconnected(
                    f"no answer from a broker at {self.url} in {self._connect_timeout:g} s"
                ) from error
            if isinstance(error, (SPError, OSError)):
                raise Disconnected(why_no_session(self.url, error)) from error
            raise
        self._connector = self._loop.create_task(self._keep_connected(), name=f"mesh client {self.url}")
        if self._keepalive_s:
            self._timer = self._loop.call_later(self._keepalive_s, self._tick, self._loop.time())

    async def aclose(self) -> None:
        """Send what is gathered, say goodbye, close. Publishes that nobody acknowledged end as `Unknown`."""
        if self._closed or not self._opened:
            self._closed = True
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            async with asyncio.timeout(LINGER_S):
                await self._drained()
        except TimeoutError:
            pass
        finally:  # a cancelled close closes all the same
            self._connector.cancel()
            woken = self._talk.close("closed")
            self._hand_over()
            for item in woken:
                item.wake()
            try:
                await asyncio.gather(self._connector, return_exceptions=True)
            finally:
                await self._socket.aclose()

    async def _drained(self) -> None:
        """Until everything gathered has been sent, which needs a session and credit, and read by the broker.

        A connection closed with unread bytes on this side is reset, and what was on the way is lost: so the
        broker is asked for a sign first.
        """
        talk = self._talk
        self._flush()
        while talk.gathered and talk.attached:
            await self._wait(talk.gate, None)
            self._flush()
        stamp = talk.sync()
        self._hand_over()
        while talk.settled and talk.synced < stamp:
            await self._wait(talk.heard, None)

    async def _keep_connected(self) -> None:
        """Dial again whenever the connection is gone. The pauses grow until a session outlives its pause,
        so that a broker that accepts and ends this session is not dialled without pause for ever."""
        attempt = 0
        pause_s = 0.0
        began = self._loop.time()
        while True:
            await self._lost.wait()
            self._lost.clear()
            attempt = attempt + 1 if self._loop.time() - began <= pause_s else 0
            while self._pipe is None:
                pause_s = backoff_s(attempt, 0.05, 2.0, self._rng)
                await asyncio.sleep(pause_s)
                try:
                    await self._socket.dial_once(self.url, self._connect_timeout)
                except (SPError, OSError) as error:
                    attempt += 1
                    self._talk.last_error = str(error)
            if not self._talk.settled:
                await self._wait(self._talk.opened, self._connect_timeout)
            began = self._loop.time()
            if not self._talk.settled and self._pipe is not None:
                self._pipe.close("no WELCOME from the broker")

    def _why_away(self) -> str:
        if self._talk.settled:
            return f"connected to {self._talk.broker}"
        return self._talk.last_error or f"no connection to {self.url}"

    # ------------------------------------------------------------------ what the socket calls

    def pipe_attached(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._talk.connected(self._loop.time())
        self._hand_over()

    def pipe_detached(self, pipe: Pipe, reason: str) -> None:
        if pipe is not self._pipe:
            return
        self._pipe = None
        self._stuck = []
        if not self._talk.last_error:
            self._talk.last_error = f"the connection to {self.url} was lost: {reason}"
        for item in self._talk.disconnected(self._loop.time()):
            item.wake()
        self._lost.set()

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        talk = self._talk
        try:
            woken = talk.received(frames, self._loop.time())
        except PeerError as error:
            talk.last_error = str(error)
            pipe.close(str(error))
            return
        if talk.has_output:
            self._hand_over()
        for item in woken:
            item.wake()
        if not self._scheduled and talk.gathered and not talk.blocked:
            self._schedule()
            self._lone = False

    def pipe_writable(self, pipe: Pipe) -> None:
        self._hand_over()

    def _hand_over(self) -> None:
        """Frames of the conversation to the pipe; what does not fit waits for `pipe_writable`."""
        pipe, talk = self._pipe, self._talk
        if pipe is None:
            return
        for frame in talk.take_control():
            pipe.send_control(frame)
        frames = talk.take_frames()
        if self._stuck:
            frames = self._stuck + frames
        if frames:
            taken = pipe.send_many(frames)
            self._stuck = frames[taken:] if taken < len(frames) else []

    def _write_now(self) -> None:
        """Somebody waits for what was just handed over: do not let it wait for the end of the loop turn."""
        if self._pipe is not None:
            self._pipe.flush()

    def _tick(self, due: float) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(self._keepalive_s, self._tick, now + self._keepalive_s)
        if self._talk.tick(now, now - due) and self._pipe is not None:
            self._pipe.close(f"nothing heard from {self.url} for {3 * self._keepalive_s:g} s")
        self._talk.forget_late(now)
        self._hand_over()

    async def _wait(self, item: Waitable, timeout: float | None) -> bool:
        """Until ``item`` is woken; False when the time is over."""
        future: asyncio.Future[None] = self._loop.create_future()
        waiter = partial(_settle, future)
        item.waiters.append(waiter)
        try:
            if timeout is None:
                await future
                return True
            async with asyncio.timeout(timeout):
                await future
                return True
        except TimeoutError:
            return False
        finally:
            if waiter in item.waiters:
                item.waiters.remove(waiter)

    # ------------------------------------------------------------------ publishing

    async def publish(
        self,
        topic: str,
        body: bytes,
        *,
        level: str = "accepted",
        headers: Mapping[str, HeaderValue] | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Publish one message.

        Level ``sent`` returns once the message is gathered for sending (waiting only for credit);
        ``accepted`` once the broker has it in memory and has routed it. ``key`` is the program's own id
        for the message; it travels as the header of that name. ``timeout`` (10 s) bounds the whole call.

        Raises:
            TopicError, TypeError, ValueError: the message cannot be sent as it is.
            NotAccepted: certainly not accepted (refused, or never sent in time).
            Unknown: it may have been accepted; no word came in time, or the client was closed.
            MeshTimeout: level ``sent``: no credit, or no connection, in time; the message was not taken.
        """
        if level == "sent" and headers is None and key is None and type(body) is bytes:
            talk = self._talk
            if talk.room <= 0:
                await self._wait_for_room(timeout)
            try:
                talk.forming[topic].append(body)
            except KeyError:
                if self._open_topic(topic, body):
                    return self._sent_receipt
            talk.room = room = talk.room - len(body) - 8  # MESSAGE_COST, without looking it up
            if room <= 0:
                if len(body) > blocks.BODY_MAX:
                    self._take_back(topic)
                if self._seal():
                    await asyncio.sleep(0)
            return self._sent_receipt
        packed = blocks.pack_headers(with_key(headers, key))
        return await self._publish(topic, [checked_body(body)], level, packed, timeout)

    def publish_nowait(self, topic: str, body: bytes) -> bool:
        """Level ``sent`` without waiting: False, and counted as dropped, when there is no credit now."""
        talk = self._talk
        if talk.room <= 0:
            self._flush()
            if talk.room <= 0:
                talk.dropped += 1
                return False
        if type(body) is not bytes:
            body = checked_body(body)
        try:
            talk.forming[topic].append(body)
        except KeyError:
            if self._open_topic(topic, body):
                return True
        talk.room = room = talk.room - len(body) - MESSAGE_COST
        if room <= 0:
            if len(body) > blocks.BODY_MAX:
                self._take_back(topic)
            self._flush()
        return True

    async def publish_many(
        self,
        messages: str | Sequence[tuple[str, bytes]],
        bodies: Sequence[bytes] | None = None,
        *,
        level: str = "accepted",
        timeout: float | None = None,
    ) -> Receipt:
        """Publish many messages in one call: a topic and a list of bodies, or a list of (topic, body) pairs.

        The receipt speaks for all of them, its ``seq`` for the first. Raises as `publish`; with level
        ``accepted`` some of several topics may have been accepted when it raises.
        """
        if isinstance(messages, str):
            if bodies is None:
                raise TypeError("publish_many('topic', bodies) needs the list of bodies")
            checked, size = checked_bodies(bodies)
            if not checked:
                return Receipt(level, self._talk.broker, 0, 0)
            if level == "sent":
                return await self._publish_sent(messages, checked, size, timeout)
            return await self._publish(messages, checked, level, b"", timeout)
        if bodies is not None:
            raise TypeError("publish_many takes a topic and bodies, or pairs of both, not pairs and bodies")
        return await self._publish_pairs(messages, level, timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """Hand everything gathered to the connection. Raises `MeshTimeout` when credit does not come in
        time."""
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_S if timeout is None else timeout):
                self._flush()
                while self._talk.gathered or self._talk.room <= 0:
                    await self._wait(self._talk.gate, None)
                    self._flush()
                await asyncio.sleep(0)
        except TimeoutError as error:
            raise MeshTimeout(f"messages could not be sent in time: {self._why_away()}") from error

    async def _publish(
        self, topic: str, bodies: list[bytes], level: str, headers: bytes, timeout: float | None
    ) -> Receipt:
        number = level_number(level)
        talk = self._talk
        start = self._loop.time()
        if talk.room <= 0:
            await self._wait_for_room(timeout, NotAccepted if number else MeshTimeout)
        ticket, index = talk.add_many(topic, bodies, number, headers)
        if not self._scheduled:
            self._schedule()
            if self._lone:
                self._flush_lone()
        if talk.room <= 0:
            self._flush()
            if ticket is None:
                await asyncio.sleep(0)
        if ticket is None:
            return self._sent_receipt if len(bodies) == 1 else Receipt("sent", talk.broker, 0, len(bodies))
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else timeout
        await self._acknowledged(ticket, index, len(bodies), max(0.0, limit_s - (self._loop.time() - start)))
        return ticket.receipt(index, len(bodies))

    async def _publish_sent(
        self, topic: str, bodies: list[bytes], size: int, timeout: float | None
    ) -> Receipt:
        """Many messages of level sent, one topic, without a look at each."""
        talk = self._talk
        if talk.room <= 0:
            await self._wait_for_room(timeout)
        cost = size + MESSAGE_COST * len(bodies)
        if cost > talk.room and talk.forming and self._seal():  # blocks end where calls do
            await asyncio.sleep(0)
        gathered = talk.forming.get(topic)
        if gathered is None:
            gathered = talk.open_topic(topic)
            if not self._scheduled:
                self._schedule()
        gathered += bodies
        talk.room -= cost
        if self._lone:
            self._flush_lone()
        elif talk.room <= 0 and self._seal():
            await asyncio.sleep(0)
        return Receipt("sent", talk.broker, 0, len(bodies))

    def _seal(self) -> bool:
        """A turn's budget is full: flush and write. True when it is time to yield to the loop, too."""
        self._flush()
        self._write_now()
        self._seals += 1
        if self._seals < SEALS and self._pipe is not None and not self._pipe.queued:
            return False
        self._seals = 0
        return True

    async def _publish_pairs(
        self, messages: Sequence[tuple[str, bytes]], level: str, timeout: float | None
    ) -> Receipt:
        by_topic: dict[str, list[bytes]] = {}
        for topic, body in messages:
            by_topic.setdefault(topic, []).append(checked_body(body))
        if level == "sent":
            for topic, bodies in by_topic.items():
                await self._publish_sent(topic, bodies, sum(map(len, bodies)), timeout)
            return Receipt("sent", self._talk.broker, 0, len(messages))
        receipts = await asyncio.gather(
            *(self._publish(topic, bodies, level, b"", timeout) for topic, bodies in by_topic.items())
        )
        absent = tuple(dict.fromkeys(name for receipt in receipts for name in receipt.absent))
        first = min((receipt.seq for receipt in receipts), default=0)
        return Receipt(level, self._talk.broker, first, len(messages), absent)

    async def _acknowledged(self, ticket: Ticket, index: int, count: int, timeout: float) -> None:
        """Until the ticket is done. What was not sealed yet is taken back when that does not come."""
        try:
            while not ticket.done:
                if not await self._wait(ticket, timeout):
                    break
        except asyncio.CancelledError:
            self._talk.cancel(ticket, index, count)
            raise
        if ticket.done:
            return
        if self._talk.cancel(ticket, index, count):
            raise NotAccepted(f"the message could not be sent in {timeout:.3g} s: {self._why_away()}")
        raise Unknown(f"no acknowledgement in {timeout:.3g} s: {self._why_away()}")

    async def _wait_for_room(self, timeout: float | None, error: type[MeshError] = MeshTimeout) -> None:
        self._flush()
        if self._talk.room > 0:
            await asyncio.sleep(0)  # credit was there, only the count was old: let the flush be written
            return
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else timeout
        deadline = self._loop.time() + limit_s
        while self._talk.room <= 0:
            if self._closed:
                raise (NotAccepted if error is NotAccepted else Disconnected)("the client is closed")
            if not await self._wait(self._talk.gate, max(0.0, deadline - self._loop.time())):
                raise error(f"no credit to publish in {limit_s:g} s: {self._why_away()}")

    def _open_topic(self, topic: str, body: bytes) -> bool:
        """Gather a topic's first message. True if it came after a pause and is on its way already: that
        one is written at once, for its round trip, and what follows gathers."""
        if self._closed:
            raise Disconnected("the client is closed")
        if len(body) > blocks.BODY_MAX:
            checked_body(body)  # raises, before anything is changed
        self._talk.open_topic(topic).append(body)
        if self._scheduled:
            return False
        self._schedule()
        if not self._lone or len(body) > blocks.SPLIT:
            return False
        self._talk.room -= len(body) + MESSAGE_COST
        self._flush_lone()
        return True

    def _take_back(self, topic: str) -> None:
        """The message just gathered is larger than any may be. Raises ValueError."""
        bodies = self._talk.forming[topic]
        body = bodies.pop()
        if not bodies:
            del self._talk.forming[topic]
        self._talk.room += len(body) + MESSAGE_COST
        checked_body(body)

    def _flush_lone(self) -> None:
        self._lone = self._idle = False
        self._flush()
        self._write_now()

    def _schedule(self) -> None:
        now = self._loop.time()
        self._lone = now - self._deferred_at > LONE_S and self._talk.room > 0
        self._scheduled = True
        self._deferred_at = now
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Once a loop turn while messages come: flush if they waited long enough or nobody was here
        before."""
        self._scheduled = False
        if not self._talk.gathered:
            self._idle = True
            return
        now = self._loop.time()
        if self._idle or now - self._deferred_at >= DEFER_S:
            lone, self._idle = self._idle, False
            self._deferred_at = now
            self._flush()
            if lone:
                self._write_now()
            if self._talk.gathered:
                return  # no credit: the next CREDIT flushes
        self._scheduled = True
        self._loop.call_soon(self._turn)

    def _flush(self) -> None:
        self._talk.flush()
        self._hand_over()

    # ------------------------------------------------------------------ subscribing, asking, answering

    def subscribe(
        self,
        *patterns: str,
        answers: bool = False,
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
    ) -> Subscription:
        """Messages whose topics match any of the patterns. Await it, enter it or iterate it.

        ``answers`` subscriptions also get requests and surveys. ``window`` messages and ``window_bytes``
        bound what may be under way to this program before it takes it.

        Raises:
            TopicError, ValueError: a pattern or a window cannot be used.
        """
        self._must_be_open()
        role = Role.ANSWERS if answers else Role.LISTEN
        feed = self._talk.subscribe(patterns, role, window, window_bytes)
        self._hand_over()
        return Subscription(self, feed)

    async def request(
        self,
        topic: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """Ask one subscriber that answers, the nearest first; returns what it gave to ``done``.

        Raises:
            NoResponders: at once, when there is none.
            NotAccepted: it refused, with its reason.
            Unknown: it, or the way to it, was lost: it may have acted.
            MeshTimeout: no answer in time.
        """
        question = await self._ask(topic, body, headers, False, timeout)
        if question.error is not None:
            raise question.error
        return question.reply

    async def survey(
        self,
        topic: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        deadline: float = SURVEY_DEADLINE_S,
    ) -> SurveyResult:
        """Ask every subscriber that answers, on all brokers; back when all have answered, or at the deadline.

        Raises:
            Unknown, MeshTimeout: the connection to this client's own broker was lost meanwhile.
        """
        question = await self._ask(topic, body, headers, True, deadline)
        if question.error is not None:
            raise question.error
        return question.result

    async def status(self) -> dict[str, Any]:
        """The snapshot of the broker this client is connected to."""
        snapshot: dict[str, Any] = json.loads(await self.request("$sys.status"))
        return snapshot

    async def _ask(
        self,
        topic: str,
        body: bytes,
        headers: Mapping[str, HeaderValue] | None,
        survey: bool,
        timeout: float,
    ) -> Question:
        self._must_be_open()
        packed = blocks.pack_headers(headers)
        question = self._talk.ask(
            topic, checked_body(body), packed, survey=survey, timeout_s=timeout, now=self._loop.time()
        )
        self._hand_over()
        self._write_now()
        while not question.done:
            left_s = question.deadline + GRACE_S - self._loop.time()
            if left_s <= 0 or not await self._wait(question, left_s):
                if question.deadline + GRACE_S <= self._loop.time():
                    self._talk.give_up(question, self._loop.time())
        return question

    # ------------------------------------------------------------------ state

    @property
    def connected(self) -> bool:
        """True while there is a session."""
        return self._opened and self._talk.settled

    @property
    def broker(self) -> str:
        """Name of the broker of the current, or last, session."""
        return self._talk.broker if self._opened else ""

    def statistics(self) -> ConversationStatistics:
        self._must_be_open()
        return self._talk.statistics()

    def _must_be_open(self) -> None:
        if self._closed or not self._opened:
            raise Disconnected("the client is not open; use it inside `async with Client() as mesh:`")


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def with_key(headers: Mapping[str, HeaderValue] | None, key: str | None) -> Mapping[str, HeaderValue] | None:
    return headers if key is None else {**(headers or {}), "key": key}


def level_number(level: str) -> int:
    try:
        return blocks.LEVELS.index(level)
    except ValueError:
        known = ", ".join(repr(name) for name in blocks.LEVELS)
        raise ValueError(f"level {level!r} is not known; levels are {known}") from None
