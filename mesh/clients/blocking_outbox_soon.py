"""`BlockingClient.publish_soon` at level outbox. The outbox's thread makes every decision.

A publishing thread puts its message in a line and goes on. The outbox's loop takes the whole line at once, so
that a thread's burst shares parcels. It binds each `BlockingPending` to its group, which belongs to that
loop. The loop wakes the threads that wait.

The outbox's thread makes no callbacks, since one that waits would block it. Callbacks join those of the
session, and all of them run one after the other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Final

from mesh.clients.arguments import checked_seconds
from mesh.clients.blocking_outbox import CLOSED, BlockingOutbox
from mesh.clients.blocking_publishing_soon import UNBOUND, BlockingPending
from mesh.clients.blocking_session import BlockingSession
from mesh.clients.calls import PUBLISH_TIMEOUT_S
from mesh.clients.outbox_filling import check_topic
from mesh.clients.pending import AnyPending
from mesh.clients.tickets import Waitable
from mesh.errors import Disconnected, MeshError, MeshTimeout, NotAccepted, NotReady, Unknown

LOOK_S: Final = 1.0
"""Longest wait before a thread checks that the outbox's thread is still there."""


class BlockingOutboxSoon:
    """The line between publishing threads and the loop of the outbox."""

    def __init__(self, outbox: BlockingOutbox, session: BlockingSession, most: int) -> None:
        self._outbox = outbox
        self._session = session
        self._most = most
        self._line: deque[tuple[BlockingPending, str, bytes, bytes, float]] = deque()
        self._called = False
        """True if the loop has been asked to take the line."""
        outbox.soon_ends = self._refuse_line

    # --- in the program's threads

    def publish(
        self, topic: str, body: bytes, level: str, headers: bytes, timeout: float | None
    ) -> BlockingPending:
        """Put a message in the line. Raises `NotReady`, `NotAccepted`, `TopicError`."""
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        why = self._outbox.why_not()
        if why:
            raise NotAccepted(why)
        check_topic(topic)
        if self._full:
            raise NotReady(f"no room for a message now: {self._why_full()}; wait for ready()")
        pending = BlockingPending(UNBOUND, 0, self)
        self._line.append((pending, topic, body, headers, limit_s))
        if not self._called:
            self._called = True
            self._outbox.in_loop(self._take)
        if self._outbox.ended:
            self._refuse_line()
        self._call_back()
        return pending

    def publish_when_ready(
        self, topic: str, body: bytes, level: str, headers: bytes, limit_s: float
    ) -> BlockingPending:
        """Put a message in the line once there is room."""
        while True:
            self.ready(limit_s, NotReady)
            with suppress(NotReady):  # another thread was first
                return self.publish(topic, body, level, headers, limit_s)

    def ready(self, timeout: float | None, kind: type[MeshError] = MeshTimeout) -> None:
        """Wait until there is room for a message. Raises `Disconnected`, and ``kind`` when that takes too
        long."""
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        deadline = time.monotonic() + limit_s
        while True:
            if self._outbox.why_not():
                raise Disconnected(self._outbox.why_not())
            if not self._full:
                return
            if not self._await(self._gate, deadline):
                raise kind(f"no room for a message in {limit_s:g} s: {self._why_full()}")

    def wait(self, pending: BlockingPending, limit_s: float | None) -> bool:
        """Wait until the outcome of a message's group is known; False when the time is over."""
        deadline = inf if limit_s is None else time.monotonic() + limit_s
        if self._outbox.is_fork:
            raise Unknown("only the process that published the message learns its outcome, not a fork")
        while not pending.done():
            if not self._await(lambda: None if pending.done() else pending.place[0], deadline):
                break
        self._call_back()
        return pending.done()

    def on_done(self, pending: BlockingPending, callback: Callable[[Any], object]) -> None:
        if not pending.done() and self._outbox.is_fork:
            raise Unknown("only the process that published the message learns its outcome, not a fork")
        if not self._outbox.in_loop(self._register, pending, callback):
            self._post(callback, pending)  # the thread has ended, and the outcome of every message is known
        self._call_back()

    def _await(self, item: Callable[[], Waitable | None], deadline: float) -> bool:
        """Wait until the `Waitable` that ``item`` returns in the loop is woken, or until it returns None;
        False when the time is over."""
        news = threading.Lock()
        news.acquire()
        if not self._outbox.in_loop(self._listen, item, news):
            return item() is None
        while (left_s := deadline - time.monotonic()) > 0:
            if news.acquire(timeout=min(left_s, LOOK_S)):
                return True
            if self._outbox.ended:
                return item() is None
        return False

    @property
    def _full(self) -> bool:
        return len(self._line) + self._outbox.soon.pendings.count >= self._most

    def _why_full(self) -> str:
        return f"{self._most} are pending, the most there may be"

    def _call_back(self) -> None:
        session = self._session
        if session.conversation.pendings.calls and not session.lock.foreign:
            with session.lock.held:
                session.call_back()

    # --- in the outbox's loop

    def _take(self) -> None:
        self._called = False
        soon, outbox = self._outbox.soon, self._outbox.outbox
        soon.pendings.most = self._most
        soon.pendings.call = self._post
        while self._line:
            pending, topic, body, headers, limit_s = self._line.popleft()
            try:
                pending.bind(*soon.gather_into(outbox, topic, body, headers, limit_s))
            except MeshError as error:
                pending.bind(soon.pendings.failed(error), 0)

    def _listen(self, item: Callable[[], Waitable | None], news: threading.Lock) -> None:
        self._take()  # the message asked for may still be in the line
        waitable = item()
        if waitable is None:
            news.release()
        else:
            waitable.waiters[news.release] = None

    def _gate(self) -> Waitable | None:
        pendings = self._outbox.soon.pendings
        return pendings.gate if pendings.full else None

    def _refuse_line(self) -> None:
        """End the messages in the line: nobody takes it any more."""
        while self._line:
            pending, *_ = self._line.popleft()
            pending.bind(self._outbox.soon.pendings.failed(NotAccepted(CLOSED)), 0)

    def _register(self, pending: BlockingPending, callback: Callable[[Any], object]) -> None:
        self._take()
        if pending.done():
            self._post(callback, pending)
        else:
            pending.place[0].callbacks.append((callback, pending))

    def _post(self, callback: Callable[[Any], object], outcome: AnyPending) -> None:
        self._session.conversation.pendings.calls.append((callback, outcome))
