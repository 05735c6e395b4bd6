"""`BlockingClient.publish_soon` and ``batch``: publish now, learn the outcome later (``pending``).

No thread works in the background, but for a move to another broker. After a pause a message leaves at once.
While messages keep coming they leave once a millisecond, or with each full block. The last ones leave with
the next call that publishes or waits. The threads that call also read acknowledgements, end what has waited
too long, and make callbacks. Callbacks run one after the other, without the lock, in whichever thread is
using the client.

A forked child learns nothing about what its parent published.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, Protocol, Self

from mesh.clients.arguments import checked_body, checked_seconds, level_number, packed
from mesh.clients.blocking_session import BlockingSession
from mesh.clients.calls import PUBLISH_TIMEOUT_S
from mesh.clients.pending import AnyPending, Group, Pendings
from mesh.clients.pending_batch import BatchOutcome
from mesh.clients.tickets import Ticket
from mesh.errors import MeshError, MeshTimeout, NotReady, Unknown
from mesh.wire.blocks import SENT, HeaderValue
from mesh.wire.session_frames import Receipt

DEFER_S: Final = 0.001
"""Longest time that a message waits for others while they keep coming."""


class BlockingPending(AnyPending, eq=False):
    """The outcome of a message of ``publish_soon``; `result` waits for it.

    It is known when the message's own ``timeout`` is over, at the latest. A failure that nobody looks at is
    logged.
    """

    _by: Keeper

    def result(self, timeout: float | None = None) -> Receipt:
        """Return the `Receipt`, and wait for it if necessary. Raises as ``publish``. Raises `MeshTimeout` if
        the outcome is still unknown after ``timeout``; the message stays pending."""
        if not self._group.over:
            limit_s = None if timeout is None else checked_seconds("timeout", timeout)
            if not self._by.wait(self, limit_s):
                raise MeshTimeout(f"the outcome of the message is not known after {limit_s:g} s")
        return self._result()

    def on_done(self, callback: Callable[[Self], object]) -> None:
        """Have ``callback(pending)`` called once the outcome is known; at once if it is known now. The call
        happens in a thread that uses the client at that time."""
        self._by.on_done(self, callback)

    @property
    def is_bound(self) -> bool:
        """True if it belongs to a group."""
        return self._group is not UNBOUND

    def bind(self, group: Group, index: int) -> None:
        """Make it part of a group."""
        self._index = index
        self._group = group  # last: a thread that sees the group must find the index


class Keeper(Protocol):
    """Learns the outcome of messages."""

    def wait(self, pending: BlockingPending, limit_s: float | None) -> bool:
        """Wait until the outcome is known; False when the time is over."""

    def on_done(self, pending: BlockingPending, callback: Callable[[Any], object]) -> None: ...


class Publishes(Keeper, Protocol):
    """Publishes without waiting."""

    def publish(
        self, topic: str, body: bytes, level: str, headers: bytes, timeout: float | None
    ) -> BlockingPending: ...

    def publish_when_ready(
        self, topic: str, body: bytes, level: str, headers: bytes, limit_s: float
    ) -> BlockingPending: ...


UNBOUND: Final = Group(Pendings(lambda *_: False), 0, Ticket(SENT), 0, 0.0, 0.0)
"""The group of messages that another thread has not gathered yet."""


class BlockingSoonPublisher:
    """Publishes messages of ``publish_soon`` in the threads of the callers."""

    def __init__(self, session: BlockingSession) -> None:
        self._session = session
        self._turn_at = -inf

    def publish(
        self, topic: str, body: bytes, level: str, headers: bytes, timeout: float | None
    ) -> BlockingPending:
        """Gather a message. Raises `NotReady`, and what ``publish`` raises at once."""
        number = level_number(level)
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        session = self._session
        with session.ours():
            conversation, pendings = session.conversation, session.conversation.pendings
            now = time.monotonic()
            if conversation.room <= 0 or pendings.full:
                self._turn(now)
                session.expire()
                if conversation.room <= 0 or pendings.full:
                    why = pendings.why_full(0.0, session.why_away)
                    raise NotReady(f"{why}; wait for ready()")
            ticket, index = conversation.add_many(topic, [body], number, headers)
            group = pendings.sent if ticket is None else pendings.add(ticket, index, limit_s, now)
            if conversation.room <= 0 or now - self._turn_at >= DEFER_S:
                self._turn(now)
            if pendings.calls:
                session.call_back()
            return BlockingPending(group, index, self)

    def _turn(self, now: float) -> None:
        """Send what is gathered, and read what has arrived."""
        session = self._session
        self._turn_at = now
        session.conversation.pendings.new_turn()
        session.conversation.flush()
        session.send()
        session.catch_up()

    def ready(self, timeout: float | None, kind: type[MeshError] = MeshTimeout) -> None:
        """Wait until there is room for a message. Raises `Disconnected`, and ``kind`` when that takes too
        long."""
        session = self._session
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        with session.ours():
            session.catch_up()
            conversation, pendings = session.conversation, session.conversation.pendings
            ready = session.pump(
                lambda: conversation.room > 0 and not pendings.full, time.monotonic() + limit_s
            )
            if not ready:
                raise session.unless_closed(kind(pendings.why_full(limit_s, session.why_away)))

    def publish_when_ready(
        self, topic: str, body: bytes, level: str, headers: bytes, limit_s: float
    ) -> BlockingPending:
        """Gather a message once there is room, before another thread can take it."""
        with self._session.ours():
            self.ready(limit_s, NotReady)
            return self.publish(topic, body, level, headers, limit_s)

    def wait(self, pending: BlockingPending, limit_s: float | None) -> bool:
        session, (group, _) = self._session, pending.place
        self._must_be_ours(group)
        deadline = None if limit_s is None else time.monotonic() + limit_s
        with session.ours():
            session.catch_up()
            session.pump(lambda: group.over, deadline)
            return group.over

    def on_done(self, pending: BlockingPending, callback: Callable[[Any], object]) -> None:
        session, (group, _) = self._session, pending.place
        if not group.over:
            self._must_be_ours(group)
        with session.lock.held:
            AnyPending.on_done(pending, callback)
            session.call_back()

    def _must_be_ours(self, group: Group) -> None:
        """Raises `Unknown` if the process that forked this one published the messages."""
        session = self._session
        if session.lock.foreign or group.owner is not session.conversation.pendings:
            raise Unknown("only the process that published the message learns its outcome, not a fork")


class BlockingPendingBatch:
    """Messages to wait for together: ``with client.batch() as batch: batch.publish(topic, body)``.

    It has the methods of `PendingBatch`, without ``await``.
    """

    def __init__(self, soon: Publishes, level: str, timeout: float | None) -> None:
        self._soon = soon
        self._level = level
        self._limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        self._outcome = BatchOutcome(level)
        self._unbound: deque[BlockingPending] = deque()

    def __len__(self) -> int:
        """Number of messages so far."""
        return self._outcome.count + len(self._unbound)

    @property
    def receipt(self) -> Receipt:
        """One receipt for all of its messages, once the block has ended and all have succeeded."""
        return self._outcome.receipt()

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        key: str | None = None,
    ) -> BlockingPending:
        """Publish one message, and wait only while there is no room for it. Raises `NotReady` if there is
        none in time, and what ``publish_soon`` raises."""
        soon, checked, encoded = self._soon, checked_body(body), packed(headers, key)
        try:
            pending = soon.publish(topic, checked, self._level, encoded, self._limit_s)
        except NotReady:
            pending = soon.publish_when_ready(topic, checked, self._level, encoded, self._limit_s)
        self._unbound.append(pending)
        self._note()
        return pending

    def _note(self) -> None:
        unbound = self._unbound
        while unbound and unbound[0].is_bound:
            self._outcome.add(*unbound.popleft().place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            while self._unbound:
                self._soon.wait(self._unbound[0], None)
                self._note()
            for group in self._outcome.open():
                self._soon.wait(BlockingPending(group, 0, self._soon), None)
            self._outcome.end()
