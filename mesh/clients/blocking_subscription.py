"""`BlockingSubscription`: messages of some patterns, as `BlockingClient.subscribe` gives them.

It belongs to the session it was made in, and so to one process: a child of a fork subscribes again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from mesh.clients.blocking_session import BlockingSession
from mesh.clients.feeds import Feed, Run
from mesh.clients.messages import Batch, Delivery, deliveries, keep_sound
from mesh.errors import Disconnected


class BlockingSubscription:
    """Messages of some patterns: iterate it, or `receive` with a timeout."""

    def __init__(self, session: BlockingSession, feed: Feed) -> None:
        self._session = session
        self._talk = session.talk
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
        session, feed, talk = self._session, self._feed, self._talk
        try:
            lock = session.ours()
        except Disconnected:  # closed: that ends iteration, also of a thread that was not waiting just then
            feed.closed = True
            return None
        with lock:
            if session.talk is not talk:
                raise Disconnected("this subscription belongs to the process that made it; subscribe again")
            while not feed.closed:
                run = talk.next_run(feed, time.monotonic())
                if run is not None:
                    if keep_sound(run, self):
                        if talk.has_output:
                            session.send()
                        return run
                    continue
                again = self._again if redeliveries else ()
                wake_at = min((due for due, _ in again), default=None)
                limit = deadline if wake_at is None else min(wake_at, deadline or wake_at)
                if not session.pump(lambda: bool(feed.runs) or feed.closed, limit):
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
        with self._session.ours():
            self._talk.answer(token, body, status=status)
            self._session.send()

    def extend(self, token: int, seconds: float) -> None:
        with self._session.ours():
            self._talk.extend(token, seconds)
            self._session.send()

    def close(self) -> None:
        """Want no more; what arrived and was not taken is dropped, iteration ends."""
        session = self._session
        if session.closed or session.talk is not self._talk:
            self._feed.closed = True
            return
        with session.ours():
            self._feed.runs.clear()
            self._talk.unsubscribe(self._feed)
            session.send()
            session.changed.notify_all()
