"""Pub0 and Sub0: every message to every subscriber, filtered by the subscriber.

A publisher never waits. A subscriber that reads too slowly loses its *oldest* queued messages (as in NNG:
fresh messages are worth more); the others lose nothing. A subscriber that sends breaks the rules and loses
its pipe.

A subscription is a prefix of the body, compared byte by byte. The empty prefix matches everything; without
subscriptions nothing matches. The socket and each context have separate subscriptions and inboxes, and each
gets its own copy. A full inbox drops its oldest message, or with ``prefer_new=False`` the arriving one.
Unsubscribing removes queued messages that no subscription matches any more.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from protocols.errors import NotSupported, StateError
from protocols.options import SocketOptions
from protocols.patterns.base import LossyInbox, Pattern, QueueLane
from protocols.pipe import Pipe
from protocols.wire.handshake import ProtocolNumber


class Publisher(Pattern, QueueLane):
    protocol = ProtocolNumber.PUB0

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        Pattern.__init__(self, options, rng)
        QueueLane.__init__(self)
        self.lane = self
        self._pipes: dict[int, Pipe] = {}

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        self._pipes[pipe.id] = pipe

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        del self._pipes[pipe.id]

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        pass

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        self.count_drop("unsolicited", len(frames))
        pipe.reject("a subscriber may not send")

    def take(self) -> bytes | None:
        raise NotSupported("pub0 sockets do not receive")

    def put(self, body: bytes) -> bool:
        for pipe in self._pipes.values():
            if not pipe.send(body):  # the pipe counts the refusal
                self.count_drop("peer slow", pipe.displace((body,)))
        return True

    def put_many(self, bodies: Sequence[bytes]) -> int:
        for pipe in self._pipes.values():
            dropped = pipe.displace(bodies)
            pipe.refused += dropped
            self.count_drop("peer slow", dropped)
        return len(bodies)


class Subscriptions(QueueLane):
    """The topics and the inbox of one reader."""

    def __init__(self, pattern: Subscriber) -> None:
        super().__init__()
        self._pattern = pattern
        self._prefixes: tuple[bytes, ...] = ()
        options = pattern.options
        self._intake = LossyInbox(options.recv_queue, prefer_new=options.prefer_new)
        self.inbox = self._intake.inbox

    @property
    def topics(self) -> tuple[bytes, ...]:
        """The topics in the order of subscription."""
        return self._prefixes

    def subscribe(self, prefix: bytes) -> None:
        """Accept bodies that begin with ``prefix``; a second time changes nothing."""
        if prefix not in self._prefixes:
            self._prefixes += (prefix,)

    def unsubscribe(self, prefix: bytes) -> None:
        """Raises `StateError` for a prefix that was not subscribed."""
        if prefix not in self._prefixes:
            raise StateError(f"{prefix!r} is not subscribed; there are {list(self._prefixes)}")
        self._prefixes = tuple(known for known in self._prefixes if known != prefix)
        unwanted = self._intake.origins.keep(lambda body: body.startswith(self._prefixes))
        self._pattern.count_drop("unsubscribed", unwanted)

    def offer(self, pipe: Pipe, frames: list[bytes]) -> None:
        """Keep the bodies that match."""
        if b"" not in self._prefixes:
            prefixes = self._prefixes
            frames = [frame for frame in frames if frame.startswith(prefixes)]
        if not frames:
            return
        self._pattern.count_drop("inbox full", self._intake.add(pipe, frames))
        self.readable(len(frames))

    def origin(self) -> Pipe:
        return self._intake.origins.last()

    def close(self) -> None:
        self._pattern.forget(self)


class Subscriber(Pattern):
    protocol = ProtocolNumber.SUB0
    lane: Subscriptions

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        super().__init__(options, rng)
        self.lane = Subscriptions(self)
        self._lanes = [self.lane]

    def open_lane(self) -> Subscriptions:
        lane = Subscriptions(self)
        self._lanes.append(lane)
        return lane

    def forget(self, lane: Subscriptions) -> None:
        self._lanes.remove(lane)

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        pass

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        pass

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        pass

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        for lane in self._lanes:
            lane.offer(pipe, frames)
