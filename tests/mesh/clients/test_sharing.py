"""One `BlockingSubscription` shared by several threads, at the moments when they could collide."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from mesh.clients.blocking_subscription import BlockingSubscription
from mesh.clients.feeds import Feed, Run
from mesh.clients.messages import Delivery
from tests.mesh.clients.brokerless import settled, subscribed


class Intruder:
    """A session that lets another thread's call run first each time its lock is released."""

    closed = False

    def __init__(self) -> None:
        self.conversation = settled()
        self.lock = SimpleNamespace(held=self, notify_all=lambda: None)
        self._lock = threading.RLock()
        self.others: list[BlockingSubscription] = []
        self.got: list[Delivery | None] = []
        self._inside = False

    def __enter__(self) -> Intruder:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if not self._inside:
            self._inside = True
            self.got += [other.receive(0.0) for other in self.others]
            self._inside = False

    def send(self) -> None:
        pass

    def catch_up(self) -> None:
        pass

    def pump(self, until: object, deadline: float | None) -> bool:
        return until()  # type: ignore[operator, no-any-return]


def run_of(feed: Feed, *bodies: bytes) -> Run:
    run = Run(feed.epoch)
    run.topics, run.bodies = ["t"] * len(bodies), list(bodies)
    run.messages, run.size = len(bodies), sum(map(len, bodies))
    return run


def test_a_thread_that_interrupts_another_loses_none_of_its_messages() -> None:
    session = Intruder()
    feed = subscribed(session.conversation)
    feed.runs += [run_of(feed, b"1", b"2"), run_of(feed, b"3", b"4")]
    subscription = BlockingSubscription(session, feed)  # type: ignore[arg-type]
    session.others.append(subscription)
    got = [subscription.receive(0.0) for _ in range(3)]
    bodies = [delivery.body for delivery in [*got, *session.got] if delivery is not None]
    assert sorted(bodies) == [b"1", b"2", b"3", b"4"]
