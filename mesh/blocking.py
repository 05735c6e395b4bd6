"""`BlockingClient`: the same session on a plain blocking socket, for programs without an event loop.

No thread works in the background. Whoever calls does the work: one thread at a time reads the socket, the
others wait until what they want has come or it is their turn to read. A client may be used from any
thread; after a fork the child has a client of its own identity that connects again by itself, and the
parent's connection is untouched.

Since nobody is there to answer, HELLO says keepalive 0. What a lost connection left unacknowledged is sent
again by the next call that waits.
"""

from __future__ import annotations

import json
import os
import random
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from mesh import blocks
from mesh.blocking_connection import BlockingConnection, Dialling
from mesh.blocks import HeaderValue
from mesh.client import (
    CONNECT_TIMEOUT_S,
    GRACE_S,
    LINGER_S,
    PUBLISH_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    SUBSCRIBE_TIMEOUT_S,
    SURVEY_DEADLINE_S,
    default_url,
    level_number,
    why_no_session,
    with_key,
)
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
from mesh.errors import Disconnected, MeshError, MeshTimeout, NotAccepted, PeerError, Unknown
from mesh.messages import Batch, Delivery, checked_bodies, checked_body, deliveries, keep_sound
from mesh.publishing import Ticket
from mesh.session import Receipt, Role
from protocols import TlsConfig
from protocols.errors import SPError

RETRY_S: Final = (0.05, 2.0)
"""First and longest pause between attempts to connect."""
WAIT_S: Final = 3600.0
"""Longest single wait: a longer one, or one without an end, is several. The kernel's clocks have bounds."""


class BlockingClient:
    """A program's connection to the mesh without an event loop; the names are those of `Client`.

    Use it with ``with``, or `open` and `close`. ``tls`` is for ``tls+tcp://`` and ``wss://`` addresses;
    without it the system's authorities are trusted and no certificate is shown.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        tls: TlsConfig | None = None,
        connect_timeout: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self.url = url or default_url()
        self.name = name or ""
        self._connect_timeout = connect_timeout
        self._way = Dialling(self.url, tls, time.monotonic)
        self._closed = False
        self._opened = False
        self._begin()

    def _begin(self) -> None:
        """A fresh identity and session: at the start, and in a child after a fork."""
        rng = random.Random(os.urandom(32))
        self._pid = os.getpid()
        self._rng = rng
        self._changed = threading.Condition()
        self._reading = False
        self._writing = False
        self._dialling = False
        self._wire: BlockingConnection | None = None
        self._attempts = 0
        self._retry_at = 0.0
        self._talk = Conversation(
            client=rng.getrandbits(62) + 1,
            boot=rng.getrandbits(62) + 1,
            name=self.name,
            prefix=(0x80000000 | rng.getrandbits(31)).to_bytes(4, "big"),
            keepalive_s=0.0,
            now=time.monotonic(),
        )

    # ------------------------------------------------------------------ opening and closing

    def __enter__(self) -> BlockingClient:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect. Raises `Disconnected` if there is no broker, or no answer within ``connect_timeout``."""
        if self._opened:
            raise MeshError("a BlockingClient is opened once; make another one")
        self._opened = True
        deadline = time.monotonic() + self._connect_timeout
        with self._ours():
            try:
                self._dial(deadline)
                settled = self._pump(lambda: self._talk.settled, deadline, reconnect=False)
            except BaseException:
                self._closed = True
                self._drop("")
                raise
            if not settled:
                self._closed = True
                self._drop("")
                why = self._talk.last_error or f"no answer in {self._connect_timeout:g} s"
                raise Disconnected(f"no session with a broker at {self.url}: {why}")

    def close(self) -> None:
        """Send what is gathered, wait until the broker has read it (a second at most), say goodbye."""
        if self._closed or not self._opened:
            self._closed = True
            return
        if os.getpid() != self._pid:
            self._forked()
            self._closed = True
            return
        with self._changed:
            if self._closed:
                return
            deadline = time.monotonic() + LINGER_S
            talk = self._talk
            if self._wire is not None and talk.settled:
                talk.flush()
                self._pump(lambda: not talk.gathered, deadline, reconnect=False)
                stamp = talk.sync()
                self._pump(lambda: talk.synced >= stamp, deadline, reconnect=False)
            self._closed = True
            talk.close("closed")
            if self._wire is not None:
                self._send(self._wire)
            self._drop("closed")
            self._changed.notify_all()

    def _ours(self) -> threading.Condition:
        """The lock, of this process; checks that the client may be used."""
        if os.getpid() != self._pid:
            self._forked()
        if self._closed:
            raise Disconnected("the client is closed")
        if not self._opened:
            raise Disconnected("the client is not open; use it inside `with BlockingClient() as mesh:`")
        return self._changed

    def _forked(self) -> None:
        """This is a child: leave the parent's session alone and begin an own one."""
        inherited = self._wire
        self._begin()
        if inherited is not None:
            inherited.leave()

    # ------------------------------------------------------------------ the connection

    def _dial(self, deadline: float) -> None:
        """One attempt, by one thread at a time and without the lock, so that all others can be used and
        closed. Raises `Disconnected`."""
        timeout = min(self._connect_timeout, max(0.01, deadline - time.monotonic()))
        self._dialling = True
        self._changed.release()
        try:
            wire = self._way.connect(timeout)
        except (OSError, SPError) as error:
            raise Disconnected(why_no_session(self.url, error)) from error
        finally:
            self._changed.acquire()
            self._dialling = False
            self._changed.notify_all()
        if self._closed:
            wire.close()
            raise Disconnected("the client was closed")
        if self._wire is not None:  # a call of another thread was there before `open`
            wire.close()
            return
        self._wire = wire
        self._talk.connected(time.monotonic())
        self._send(wire)

    def _redial(self, deadline: float) -> bool:
        """A step on the way to a connection: an attempt if it is time for one and nobody else makes it, else
        a wait for news. False when the time is over."""
        now = time.monotonic()
        if not self._dialling and now >= self._retry_at:
            try:
                self._dial(deadline)
            except Disconnected as error:
                self._talk.last_error = str(error)
                first_s, longest_s = RETRY_S
                pause_s = min(longest_s, first_s * 2**self._attempts) * (0.5 + self._rng.random() / 2)
                self._attempts = min(self._attempts + 1, 16)
                self._retry_at = time.monotonic() + pause_s
            else:
                self._attempts = 0
        elif now >= deadline:
            return False
        else:
            until = deadline if self._dialling else min(deadline, self._retry_at)
            self._changed.wait(min(until - now, WAIT_S))
        return True

    def _drop(self, reason: str) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
        if reason and not self._talk.last_error:
            self._talk.last_error = reason
        for item in self._talk.disconnected(time.monotonic()):
            item.wake()
        self._changed.notify_all()

    def _send(self, wire: BlockingConnection) -> None:
        frames = self._talk.take_control() + self._talk.take_frames()
        try:
            wire.send(frames)
        except OSError as error:
            self._drop(f"the connection to {self.url} was lost: {error}")

    def _read(self, wire: BlockingConnection) -> None:
        try:
            frames = wire.receive()
            if frames:
                self._talk.received(frames, time.monotonic())
        except (OSError, SPError, PeerError) as error:
            if wire is self._wire:
                self._drop(f"the connection to {self.url} was lost: {error}")
            return
        if self._talk.has_output:
            self._send(wire)

    def _pump(self, until: Callable[[], bool], deadline: float | None, *, reconnect: bool = True) -> bool:
        """Send and read, taking turns with other threads, until ``until()``; False at the deadline.

        Called with the lock held; it is released while waiting. Closing the client ends it.
        """
        limit = float("inf") if deadline is None else deadline
        while True:
            wire = self._wire
            if wire is not None and (self._talk.has_output or wire.unsent):
                self._send(wire)
                if wire is not self._wire:
                    continue
            if until():
                return True
            if self._closed or (wire is None and not reconnect):
                return False
            if wire is None:
                if not self._redial(limit):
                    return False
                continue
            left_s = limit - time.monotonic()
            if left_s <= 0:
                return False
            self._await_events(wire, min(left_s, WAIT_S))

    def _await_events(self, wire: BlockingConnection, left_s: float) -> None:
        """Wait for the socket if that is nobody else's job just now, else for somebody's news."""
        events = 0
        if not self._reading:
            events |= select.POLLIN
        if wire.unsent and not self._writing:
            events |= select.POLLOUT
        if not events:
            self._changed.wait(left_s)
            return
        reads, writes = bool(events & select.POLLIN), bool(events & select.POLLOUT)
        self._reading |= reads
        self._writing |= writes
        poll = wire.watch(events)
        self._changed.release()
        try:
            found = poll.poll(left_s * 1000)
        finally:
            self._changed.acquire()
            wire.unwatch()
            if reads:
                self._reading = False
            if writes:
                self._writing = False
            self._changed.notify_all()
        if found and reads and wire is self._wire:
            self._read(wire)

    def _catch_up(self) -> None:
        """Read what is there already: credit, or the news that the connection is gone."""
        wire = self._wire
        if wire is not None and not self._reading and wire.ready():
            self._read(wire)

    def _unless_closed(self, error: MeshError) -> MeshError:
        """The error of a wait that ended without success: its time was over, or the client was closed."""
        if not self._closed:
            return error
        kind = type(error) if isinstance(error, (NotAccepted, Unknown)) else Disconnected
        return kind("the client was closed meanwhile")

    def _why_away(self) -> str:
        if self._talk.settled:
            return f"connected to {self._talk.broker}"
        return self._talk.last_error or f"no connection to {self.url}"

    # ------------------------------------------------------------------ publishing

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        level: str = "accepted",
        headers: Mapping[str, HeaderValue] | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Publish one message; as `Client.publish`, but level ``sent`` has reached the kernel when it
        returns."""
        packed = blocks.pack_headers(with_key(headers, key))
        return self._publish(topic, [checked_body(body)], level, packed, timeout)

    def publish_nowait(self, topic: str, body: bytes) -> bool:
        """Gather one message of level ``sent``; it goes with the next full block, call that waits, or
        `flush`.

        False, and counted as dropped, when there is no credit now.
        """
        body = checked_body(body)
        with self._ours():
            talk = self._talk
            if talk.room <= 0:
                self._catch_up()
                talk.flush()
                if self._wire is not None:
                    self._send(self._wire)
            if talk.room <= 0:
                talk.dropped += 1
                return False
            talk.add_many(topic, [body], blocks.SENT)
            return True

    def publish_many(
        self,
        messages: str | Sequence[tuple[str, bytes]],
        bodies: Sequence[bytes] | None = None,
        *,
        level: str = "accepted",
        timeout: float | None = None,
    ) -> Receipt:
        """Publish a topic's list of bodies, or a list of (topic, body) pairs; as `Client.publish_many`."""
        if isinstance(messages, str):
            if bodies is None:
                raise TypeError("publish_many('topic', bodies) needs the list of bodies")
            checked, _ = checked_bodies(bodies)
            if not checked:
                return Receipt(level, self._talk.broker, 0, 0)
            return self._publish(messages, checked, level, b"", timeout)
        if bodies is not None:
            raise TypeError("publish_many takes a topic and bodies, or pairs of both, not pairs and bodies")
        by_topic: dict[str, list[bytes]] = {}
        for topic, body in messages:
            by_topic.setdefault(topic, []).append(checked_body(body))
        receipts = [
            self._publish(topic, topic_bodies, level, b"", timeout)
            for topic, topic_bodies in by_topic.items()
        ]
        absent = tuple(dict.fromkeys(name for receipt in receipts for name in receipt.absent))
        first = min((receipt.seq for receipt in receipts), default=0)
        return Receipt(level, self._talk.broker, first, len(messages), absent)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything gathered. Raises `MeshTimeout` when credit does not come in time."""
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else timeout
        with self._ours():
            if not self._pump(self._flushed, time.monotonic() + limit_s):
                raise self._unless_closed(
                    MeshTimeout(f"messages could not be sent in {limit_s:g} s: {self._why_away()}")
                )

    def _flushed(self) -> bool:
        """Whether everything gathered is with the kernel; flushes what can be."""
        talk = self._talk
        if talk.gathered:
            talk.flush()
            if self._wire is not None and talk.has_output:
                self._send(self._wire)
        return not talk.gathered and self._wire is not None and not self._wire.unsent

    def _publish(
        self, topic: str, bodies: list[bytes], level: str, headers: bytes, timeout: float | None
    ) -> Receipt:
        number = level_number(level)
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else timeout
        deadline = time.monotonic() + limit_s
        with self._ours():
            self._catch_up()
            talk = self._talk
            if not self._pump(self._has_room, deadline):
                error = NotAccepted if number else MeshTimeout
                raise self._unless_closed(error(f"no credit to publish in {limit_s:g} s: {self._why_away()}"))
            ticket, index = talk.add_many(topic, bodies, number, headers)
            if ticket is None:
                if not self._pump(self._flushed, deadline):
                    raise self._unless_closed(
                        Unknown(f"the message was not sent whole in {limit_s:g} s: {self._why_away()}")
                    )
                return Receipt("sent", talk.broker, 0, len(bodies))
            self._await_ticket(ticket, index, len(bodies), deadline, limit_s)
            return ticket.receipt(index, len(bodies))

    def _has_room(self) -> bool:
        talk = self._talk
        if talk.room <= 0 and talk.settled:
            talk.flush()
        return talk.room > 0

    def _await_ticket(self, ticket: Ticket, index: int, count: int, deadline: float, limit_s: float) -> None:
        def accepted() -> bool:
            if not ticket.sealed:
                self._flushed()
            return ticket.done

        if self._pump(accepted, deadline):
            return
        if self._talk.cancel(ticket, index, count):
            raise self._unless_closed(
                NotAccepted(f"the message could not be sent in {limit_s:g} s: {self._why_away()}")
            )
        raise self._unless_closed(Unknown(f"no acknowledgement in {limit_s:g} s: {self._why_away()}"))

    # ------------------------------------------------------------------ subscribing, asking, answering

    def subscribe(
        self,
        *patterns: str,
        answers: bool = False,
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
    ) -> BlockingSubscription:
        """Messages of these patterns; returns once the barrier is passed. Raises as `Client.subscribe`."""
        with self._ours():
            role = Role.ANSWERS if answers else Role.LISTEN
            feed = self._talk.subscribe(patterns, role, window, window_bytes)
            if not self._pump(lambda: feed.ready, time.monotonic() + SUBSCRIBE_TIMEOUT_S):
                self._talk.unsubscribe(feed)
                raise self._unless_closed(
                    MeshTimeout(
                        f"no broker confirmed the subscription to {', '.join(patterns)} "
                        f"in {SUBSCRIBE_TIMEOUT_S:g} s: {self._why_away()}"
                    )
                )
            return BlockingSubscription(self, feed)

    def request(
        self,
        topic: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """Ask one subscriber that answers; as `Client.request`."""
        question = self._ask(topic, body, headers, False, timeout)
        if question.error is not None:
            raise question.error
        return question.reply

    def survey(
        self,
        topic: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        deadline: float = SURVEY_DEADLINE_S,
    ) -> SurveyResult:
        """Ask every subscriber that answers; as `Client.survey`."""
        question = self._ask(topic, body, headers, True, deadline)
        if question.error is not None:
            raise question.error
        return question.result

    def status(self) -> dict[str, Any]:
        """The snapshot of the broker this client is connected to."""
        snapshot: dict[str, Any] = json.loads(self.request("$sys.status"))
        return snapshot

    def _ask(
        self,
        topic: str,
        body: bytes,
        headers: Mapping[str, HeaderValue] | None,
        survey: bool,
        timeout: float,
    ) -> Question:
        packed = blocks.pack_headers(headers)
        with self._ours():
            self._catch_up()
            question = self._talk.ask(
                topic,
                checked_body(body),
                packed,
                survey=survey,
                timeout_s=timeout,
                now=time.monotonic(),
            )
            while not question.done:
                deadline = question.deadline + GRACE_S
                if not self._pump(lambda: question.done, deadline) and (
                    question.deadline + GRACE_S <= time.monotonic() or self._closed
                ):
                    self._talk.give_up(question, time.monotonic())
            self._talk.forget_late(time.monotonic())
            return question

    @property
    def broker(self) -> str:
        """Name of the broker of the current, or last, session."""
        return self._talk.broker

    def statistics(self) -> ConversationStatistics:
        with self._ours():
            return self._talk.statistics()


class BlockingSubscription:
    """Messages of some patterns: iterate it, or `receive` with a timeout."""

    def __init__(self, client: BlockingClient, feed: Feed) -> None:
        self._client = client
        self._talk = client._talk
        self._feed = feed
        self._deliveries: Iterator[Delivery] = iter(())
        self._again: list[tuple[float, Delivery]] = []
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

    def __enter__(self) -> BlockingSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        for delivery in self._deliveries:
            return delivery
        received = self.receive(None)
        if received is None:
            raise StopIteration
        return received

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """The next message; None when none came in time, or the subscription was closed."""
        for delivery in self._deliveries:
            return delivery
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            due = self._redelivery()
            if due is not None:
                return due
            run = self._next_run(deadline)
            if run is not None:
                self._deliveries = deliveries(run, self)
                return next(self._deliveries)
            if self._feed.closed or (deadline is not None and time.monotonic() >= deadline):
                return None

    def batches(self) -> Iterator[Batch]:
        """The same messages as `Batch` after `Batch`, until it is closed: as many as arrived together.

        What `Delivery.retry` brings back comes one by one in the ordinary iteration only.
        """
        while (run := self._next_run(None, redeliveries=False)) is not None:
            yield Batch(run, self)

    def _next_run(self, deadline: float | None, *, redeliveries: bool = True) -> Run | None:
        """The next run; None at the deadline, when a redelivery is due, or at the end."""
        client, feed, talk = self._client, self._feed, self._talk
        try:
            lock = client._ours()
        except Disconnected:  # closed: that ends iteration, also of a thread that was not waiting just then
            feed.closed = True
            return None
        with lock:
            if client._talk is not talk:
                raise Disconnected("this subscription belongs to the process that made it; subscribe again")
            while not feed.closed:
                run = talk.next_run(feed, time.monotonic())
                if run is not None:
                    if keep_sound(run, self):
                        if talk.has_output and client._wire is not None:
                            client._send(client._wire)
                        return run
                    continue
                again = self._again if redeliveries else ()
                wake_at = min((due for due, _ in again), default=None)
                limit = deadline if wake_at is None else min(wake_at, deadline or wake_at)
                if not client._pump(lambda: bool(feed.runs) or feed.closed, limit):
                    return None
        return None

    def _redelivery(self) -> Delivery | None:
        now = time.monotonic()
        for index, (due, delivery) in enumerate(self._again):
            if due <= now:
                del self._again[index]
                return delivery
        return None

    def redeliver(self, delivery: Delivery, after: float) -> None:
        self._again.append((time.monotonic() + after, delivery))

    def answer(self, token: int, body: bytes, status: int) -> None:
        with self._client._ours():
            self._talk.answer(token, body, status=status)
            if self._client._wire is not None:
                self._client._send(self._client._wire)

    def extend(self, token: int, seconds: float) -> None:
        with self._client._ours():
            self._talk.extend(token, seconds)
            if self._client._wire is not None:
                self._client._send(self._client._wire)

    def close(self) -> None:
        """Want no more; what arrived and was not taken is dropped, iteration ends."""
        client = self._client
        if client._closed or client._talk is not self._talk:
            self._feed.closed = True
            return
        with client._ours():
            self._feed.runs.clear()
            self._talk.unsubscribe(self._feed)
            if client._wire is not None:
                client._send(client._wire)
            client._changed.notify_all()
