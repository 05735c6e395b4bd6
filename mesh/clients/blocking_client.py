"""`BlockingClient`: a program's connection to the mesh without an event loop.

This is the public surface. Below it, in `mesh.clients`, ``blocking_session`` does the work in the threads of
the callers, and ``blocking_subscription`` hands out what arrives. Any thread may use a client. After a fork,
the child's client takes a new identity and connects by itself; the parent's connection is untouched.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, overload

from mesh.clients.addresses import Place
from mesh.clients.arguments import (
    by_topic,
    checked_body,
    checked_name,
    checked_pending_max,
    checked_seconds,
    level_number,
    packed,
)
from mesh.clients.blocking_outbox import BlockingOutbox
from mesh.clients.blocking_outbox_soon import BlockingOutboxSoon
from mesh.clients.blocking_publishing_soon import (
    BlockingPending,
    BlockingPendingBatch,
    BlockingSoonPublisher,
)
from mesh.clients.blocking_session import BlockingSession
from mesh.clients.blocking_subscription import BlockingSubscription
from mesh.clients.blocking_work import BlockingWork
from mesh.clients.calls import (
    ANSWERS_DURABLY,
    CONNECT_TIMEOUT_S,
    GRACE_S,
    KEEPALIVE_S,
    NO_OUTBOX,
    PUBLISH_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    SUBSCRIBE_TIMEOUT_S,
    SURVEY_DEADLINE_S,
    joined,
    no_credit,
    unacknowledged,
    unconfirmed,
    unflushed,
)
from mesh.clients.conversation import ConversationStatistics
from mesh.clients.credentials import credential_of
from mesh.clients.feeds import WINDOW, WINDOW_BYTES
from mesh.clients.finding import broker_place
from mesh.clients.outbox import OutboxState, checked_outbox
from mesh.clients.pending import PENDING_MAX
from mesh.clients.questions import Question, SurveyResult
from mesh.clients.tickets import Ticket
from mesh.clients.work_feeds import WORK_WINDOW
from mesh.errors import Unknown
from mesh.outbox.records import MAX_BYTES
from mesh.wire import blocks
from mesh.wire.blocks import HeaderValue
from mesh.wire.session_frames import Receipt, Role
from protocols import TlsConfig, check_dialable


class BlockingClient:
    """A program's connection to the mesh without an event loop; it has the names of `Client`.

    Use it with ``with``, or call `open` and `close`. As for `Client`, ``url`` is an address or a list of
    addresses. ``tls`` is for ``tls+tcp://`` and ``wss://`` addresses; without it the client trusts the
    system's authorities and shows no certificate. A waiting call notices within three times ``keepalive_s``
    that the broker has vanished, and looks for it again; with 0 it does not. The arguments ``key``,
    ``token_file`` and ``outbox`` are as for `Client`; the outbox drains in a thread of its own.

    Raises:
        AddressError: the URL can never be dialled, or cannot be understood.
        ConfigError: the file of the key or token cannot be read, or holds something else.
        TypeError, ValueError: another argument cannot be used.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        tls: TlsConfig | None = None,
        key: str | os.PathLike[str] | None = None,
        token_file: str | os.PathLike[str] | None = None,
        keepalive_s: float = KEEPALIVE_S,
        connect_timeout: float = CONNECT_TIMEOUT_S,
        pending_max: int = PENDING_MAX,
        outbox: str | os.PathLike[str] | None = None,
        outbox_max_bytes: int = MAX_BYTES,
    ) -> None:
        place = broker_place(url)
        self.name = checked_name(name)
        """What brokers call this client in logs and on screens. If it is empty, they show the client's id. It
        need not be unique, and it proves nothing."""
        limit_s = checked_seconds("connect_timeout", connect_timeout)
        interval_s = checked_seconds("keepalive_s", keepalive_s)
        credential = credential_of(key, token_file)
        self._session_with = partial(
            BlockingSession,
            name=self.name,
            tls=tls,
            credential=credential,
            connect_timeout_s=limit_s,
            keepalive_s=interval_s,
            pending_max=checked_pending_max(pending_max),
        )
        self._session = self._session_with(place)
        self._soon = BlockingSoonPublisher(self._session)
        self._works: list[BlockingWork] = []
        path, size = checked_outbox(outbox, outbox_max_bytes)
        self._outbox = None
        if path:
            self._outbox = BlockingOutbox(
                path,
                size,
                place,
                name=self.name,
                tls=tls,
                credential=credential,
                keepalive_s=interval_s,
                connect_timeout_s=limit_s,
            )
            self._outbox_soon = BlockingOutboxSoon(self._outbox, self._session, pending_max)

    # ------------------------------------------------------------------ opening and closing

    @property
    def url(self) -> str:
        """The address of its broker, of the last one, or of the current attempt."""
        return self._session.url

    def __enter__(self) -> BlockingClient:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect. Raises `Disconnected` if no broker answers within ``connect_timeout``. A client with an
        outbox opens the outbox instead; the first call that waits connects."""
        if self._outbox is not None:
            self._outbox.open()
            self._session.begin()
            return
        self._session.open()

    def close(self) -> None:
        """Send what is gathered, wait at most a second until the broker has read it, and say goodbye.
        Messages in the outbox stay there."""
        if self._outbox is not None:
            self._outbox.close()
        self._session.close()
        for work in self._works:
            work.close()

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
        """Publish one message. As `Client.publish`, but a message of level ``sent`` has reached the kernel
        when this returns.

        An interrupt such as Ctrl-C takes the message back if it has not left yet. Otherwise the message may
        be accepted, and a note on the exception says so. A message of level ``sent`` may still go out.
        """
        encoded = packed(headers, key)
        if level == "outbox":
            return self._with_outbox().publish([(topic, [checked_body(body)])], encoded, timeout)
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        return self._publish(topic, [checked_body(body)], level, encoded, time.monotonic() + limit_s, limit_s)

    def publish_nowait(self, topic: str, body: bytes) -> bool:
        """Gather one message of level ``sent``. It leaves with the next full block, waiting call, or `flush`.

        Returns False, and counts the message as dropped, if there is no credit.
        """
        body = checked_body(body)
        session = self._session
        with session.ours():
            conversation = session.conversation
            if conversation.room <= 0:
                session.catch_up()
                conversation.flush()
                session.send()
            if conversation.room <= 0:
                conversation.dropped += 1
                return False
            conversation.add_many(topic, [body], blocks.SENT)
            return True

    def publish_many(
        self,
        messages: str | Sequence[tuple[str, bytes]],
        bodies: Sequence[bytes] | None = None,
        *,
        level: str = "accepted",
        timeout: float | None = None,
    ) -> Receipt:
        """Publish one topic's list of bodies, or a list of (topic, body) pairs, as `Client.publish_many`.
        Topics are published one after the other; ``timeout`` bounds the whole call."""
        given = by_topic(messages, bodies)
        if level == "outbox":
            return self._with_outbox().publish([(topic, found) for topic, found, _ in given], b"", timeout)
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        deadline = time.monotonic() + limit_s
        receipts = [self._publish(topic, found, level, b"", deadline, limit_s) for topic, found, _ in given]
        return joined(receipts, level, self.broker)

    def publish_soon(
        self,
        topic: str,
        body: bytes,
        *,
        level: str = "accepted",
        headers: Mapping[str, HeaderValue] | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> BlockingPending:
        """Publish one message without waiting, as `Client.publish_soon`; ``result()`` waits.

        After a pause it leaves at once. While messages keep coming they leave together. The last ones leave
        with the next waiting call, such as ``result``, `flush` or `close`.
        """
        return self._soon_of(level).publish(topic, checked_body(body), level, packed(headers, key), timeout)

    def ready(self, timeout: float | None = None, *, level: str = "accepted") -> None:
        """Wait until `publish_soon` takes another message of that level; as `Client.ready`."""
        self._soon_of(level).ready(timeout)

    def batch(self, *, level: str = "accepted", timeout: float | None = None) -> BlockingPendingBatch:
        """Collect messages to wait for together, at the end of ``with client.batch() as batch``; as
        `Client.batch`."""
        return BlockingPendingBatch(self._soon_of(level), level, timeout)

    def _soon_of(self, level: str) -> BlockingSoonPublisher | BlockingOutboxSoon:
        if level != "outbox":
            level_number(level)
            return self._soon
        self._with_outbox()
        return self._outbox_soon

    def drained(self, timeout: float | None = None) -> None:
        """Wait until everything in the outbox is stored at its homes; as `Client.drained`."""
        self._with_outbox().drained(timeout)

    @property
    def outbox(self) -> OutboxState | None:
        """The contents of the outbox, and why it does not drain; None without an outbox. Raises
        `Disconnected` if the client is not open."""
        return None if self._outbox is None else self._outbox.state

    def _with_outbox(self) -> BlockingOutbox:
        if self._outbox is None:
            raise ValueError(NO_OUTBOX)
        return self._outbox

    def flush(self, timeout: float | None = None) -> None:
        """Send everything gathered. Raises `MeshTimeout` if credit does not come in time, and `Unknown` if
        the connection ends before the kernel has taken everything."""
        session = self._session
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        with session.ours():
            if not self._await_sent(time.monotonic() + limit_s):
                raise session.unless_closed(unflushed(limit_s, session.why_away))

    def _await_sent(self, deadline: float) -> bool:
        """Wait until the kernel has everything gathered; False at the deadline. Raises `Unknown` if a
        connection ended first: a part is lost with it."""
        session, conversation = self._session, self._session.conversation
        cuts = session.cuts
        sent = session.pump(
            lambda: session.cuts != cuts or (not conversation.gathered and session.all_sent), deadline
        )
        if session.cuts != cuts:
            raise session.unless_closed(
                Unknown(f"a part may be lost, since not all was sent: {session.why_away}")
            )
        return sent

    def _publish(
        self, topic: str, bodies: list[bytes], level: str, headers: bytes, deadline: float, limit_s: float
    ) -> Receipt:
        number = level_number(level)
        session = self._session
        with session.ours():
            session.catch_up()
            conversation = session.conversation
            if conversation.room <= 0:
                conversation.flush()
            if not session.pump(lambda: conversation.room > 0, deadline):
                raise session.unless_closed(no_credit(number, limit_s, session.why_away))
            ticket, index = conversation.add_many(topic, bodies, number, headers)
            if ticket is not None:
                self._await_ticket(ticket, index, len(bodies), deadline, limit_s)
                return ticket.receipt(index, len(bodies))
            if not self._await_sent(deadline):
                raise session.unless_closed(
                    Unknown(f"the message was not sent whole in {limit_s:g} s: {session.why_away}")
                )
            return Receipt("sent", conversation.broker, 0, len(bodies))

    def _await_ticket(self, ticket: Ticket, index: int, count: int, deadline: float, limit_s: float) -> None:
        session = self._session
        try:
            acknowledged = session.pump(lambda: ticket.done, deadline)
        except BaseException as error:  # Ctrl-C: nobody will learn the outcome of the messages
            if not session.conversation.cancel(ticket, index, count):
                error.add_note("the message was on its way to the broker: it may have been accepted")
            raise
        if not acknowledged:
            taken_back = session.conversation.cancel(ticket, index, count)
            session.send()
            why = ticket.why(session.why_away)
            raise session.unless_closed(unacknowledged(taken_back, limit_s, why))

    # ------------------------------------------------------------------ subscribing, asking, answering

    @overload
    def subscribe(
        self,
        *patterns: str,
        answers: bool = False,
        window: int | None = None,
        window_bytes: int = WINDOW_BYTES,
        durable: None = None,
    ) -> BlockingSubscription: ...

    @overload
    def subscribe(
        self, *patterns: str, durable: str, window: int | None = None, window_bytes: int = WINDOW_BYTES
    ) -> BlockingWork: ...

    def subscribe(
        self,
        *patterns: str,
        answers: bool = False,
        window: int | None = None,
        window_bytes: int = WINDOW_BYTES,
        durable: str | None = None,
    ) -> BlockingSubscription | BlockingWork:
        """Subscribe to the patterns; returns once the barrier is passed. Raises as `Client.subscribe`, and
        for a durable subscription as entering its `Work`."""
        session = self._session
        if durable is not None:
            if answers:
                raise ValueError(ANSWERS_DURABLY)
            return self._work(durable, patterns, WORK_WINDOW if window is None else window, window_bytes)
        role = Role.ANSWERS if answers else Role.LISTEN
        messages = WINDOW if window is None else window
        with session.ours():
            feed = session.conversation.subscribe(patterns, role, messages, window_bytes)
            try:
                session.pump(lambda: feed.ready or feed.closed, time.monotonic() + SUBSCRIBE_TIMEOUT_S)
            except BaseException:  # nobody can read from it
                session.conversation.unsubscribe(feed)
                raise
            if feed.error is not None:
                raise feed.error
            if not feed.ready:
                session.conversation.unsubscribe(feed)
                raise session.unless_closed(unconfirmed(patterns, session.why_away))
            return BlockingSubscription(session, feed)

    def _work(self, name: str, patterns: Sequence[str], messages: int, size: int) -> BlockingWork:
        session = self._session
        with session.ours():
            feed = session.conversation.attach(name, patterns, messages, size)
            session.send()
        work = BlockingWork(session, self._session_to, feed)
        self._works = [each for each in self._works if not each.closed] + [work]
        work.open()
        return work

    def _session_to(self, url: str) -> BlockingSession:
        return self._session_with(Place((check_dialable(url),)))

    def request(
        self,
        topic: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """Ask one subscriber that answers; as `Client.request`."""
        question = self._ask(topic, body, headers, False, checked_seconds("timeout", timeout))
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
        question = self._ask(topic, body, headers, True, checked_seconds("deadline", deadline))
        if question.error is not None:
            raise question.error
        return question.result

    def status(self) -> dict[str, Any]:
        """The snapshot of the broker that this client is connected to."""
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
        encoded = packed(headers)
        session = self._session
        with session.ours():
            session.catch_up()
            conversation = session.conversation
            question = conversation.ask(
                topic,
                checked_body(body),
                encoded,
                survey=survey,
                timeout_s=timeout,
                now=time.monotonic(),
            )
            try:
                while not question.done:
                    deadline = question.deadline + GRACE_S
                    if not session.pump(lambda: question.done, deadline) and (
                        question.deadline + GRACE_S <= time.monotonic() or session.closed
                    ):
                        conversation.give_up(question, session.why_away)
            except BaseException:  # nobody waits for the answer any more
                conversation.give_up(question, "interrupted")
                raise
            conversation.forget_late(time.monotonic())
            return question

    @property
    def broker(self) -> str:
        """The name of the broker of the current or last session."""
        return self._session.conversation.broker

    def statistics(self) -> ConversationStatistics:
        with self._session.ours():
            found = self._session.conversation.statistics()
        if self._outbox is None:
            return found
        return replace(found, unheard=found.unheard + self._outbox.soon.pendings.unheard)
