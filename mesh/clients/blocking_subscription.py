"""`BlockingSubscription`: messages of some patterns, as `BlockingClient.subscribe` gives them.

It belongs to the session in which it was made, and so to one process: the child of a fork subscribes again.
Messages that arrived before the broker or the program ended it can still be taken. Several threads may take
from one subscription; each message goes to one of them. They share a deque, which is filled with the
session's lock held. Taking from a deque needs no lock.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from mesh.clients.arguments import checked_seconds
from mesh.clients.blocking_copies import belongs_to_this_process
from mesh.clients.blocking_session import BlockingSession
from mesh.clients.feeds import Feed, Run, Token
from mesh.clients.messages import Batch, Delivery, deliveries, keep_sound
from mesh.clients.subscribed import Subscribed
from mesh.errors import Disconnected


class BlockingSubscription(Subscribed):
    """Messages of some patterns: iterate it, or `receive` with a timeout."""

    def __init__(self, session: BlockingSession, feed: Feed) -> None:
        super().__init__(feed)
        self._session = session
        self._pid = os.getpid()
        self._conversation = session.conversation
        self._deliveries: deque[Delivery] = deque()
        belongs_to_this_process(self)

    def __enter__(self) -> BlockingSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        received = self.receive(None)
        if received is None:
            raise StopIteration
        return received

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """Return the next message; None if none came in time, or the subscription was closed."""
        try:
            return self._deliveries.popleft()
        except IndexError:
            limit_s = None if timeout is None else checked_seconds("timeout", timeout)
            return self._await_delivery(None if limit_s is None else time.monotonic() + limit_s)

    def _await_delivery(self, deadline: float | None) -> Delivery | None:
        with self._lock():
            if deadline is not None and not self._feed.closed:
                self._session.catch_up()  # a timeout of 0 also takes what is there
            while True:
                if self._deliveries:  # another thread was here first and left some
                    return self._deliveries.popleft()
                again = None if self._feed.closed else self._again.take(time.monotonic())
                if again is not None:
                    return again
                run = self._next_run()
                if run is not None:
                    self._deliveries.extend(deliveries(run, self))
                    self._session.lock.notify_all()  # there may be some for other threads
                elif self._over() or not self._await_news(deadline):
                    return None

    def _over(self) -> bool:
        """True if nothing more comes once everything that came is taken. Raises the failure of the
        subscription."""
        if self._feed.error is not None:
            raise self._feed.error
        return self._feed.closed

    def batches(self) -> Iterator[Batch]:
        """Iterate the same messages as one `Batch` after the other, each with as many as arrived together,
        until it is closed.

        Messages that `Delivery.retry` brings back come one by one, in the ordinary iteration only.
        """
        while (run := self._await_run()) is not None:
            yield Batch(run, self)

    def _await_run(self) -> Run | None:
        feed = self._feed
        with self._lock():
            while True:
                run = self._next_run()
                if run is not None or self._over():
                    return run
                self._session.pump(lambda: bool(feed.runs or feed.closed), None)

    def _lock(self) -> AbstractContextManager[object]:
        """The session's lock. Raises `Disconnected` in any process but the subscription's own."""
        if os.getpid() != self._pid:
            raise Disconnected("this subscription belongs to the process that made it; subscribe again")
        if self._session.closed:  # ends iteration, also in a thread that was not waiting at that time
            self._feed.closed = True
        return self._session.lock.held

    def _next_run(self) -> Run | None:
        """The next run that arrived; None if there is none now."""
        conversation = self._conversation
        run = conversation.next_run(self._feed, time.monotonic())
        while run is not None and not keep_sound(run, self):
            run = conversation.next_run(self._feed, time.monotonic())
        if conversation.has_output:
            self._session.send()
        return run

    def _await_news(self, deadline: float | None) -> bool:
        """Wait for a run, a redelivery, messages that another thread left, or the close. False at the
        deadline."""
        feed, again = self._feed, self._again
        due_at = again.due_at
        limits = [limit for limit in (deadline, due_at) if limit is not None]
        came = self._session.pump(
            lambda: bool(feed.runs or self._deliveries or feed.closed) or again.due_at != due_at,
            min(limits, default=None),
        )
        return came or deadline is None or time.monotonic() < deadline

    def redeliver(self, delivery: Delivery, after: float) -> None:
        """Bring a message back after that many seconds. After a close it is dropped, since nobody would take
        it."""
        with self._lock():
            if not self._feed.closed:
                self._again.add(delivery, time.monotonic() + after)
                self._session.nudge()

    def answer(self, token: Token, body: bytes, status: int) -> bool:
        told = self._tell(lambda: self._conversation.answer(token, body, status=status))
        self.late += not told
        return told

    def extend(self, token: Token, seconds: float) -> bool:
        return self._tell(lambda: self._conversation.extend(token, seconds))

    def _tell(self, say: Callable[[], bool]) -> bool:
        """Say something about a question, if the connection by which it came is still there."""
        with self._lock():
            self._session.catch_up()
            told = say()
            self._session.send()
            return told and self._conversation.settled

    def close(self) -> None:
        """End the subscription and its iteration; what arrived and was not taken is dropped."""
        session = self._session
        if session.closed or os.getpid() != self._pid:
            self._feed.closed = True
            return
        with session.ours():
            self._again.clear()
            self._deliveries.clear()
            self._feed.runs.clear()
            self._conversation.unsubscribe(self._feed)
            session.nudge()

    def forget_received(self) -> None:
        """Drop the messages that a fork has copied into this child."""
        self._deliveries.clear()
