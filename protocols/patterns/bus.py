"""Bus0: sends each message to every direct peer, best effort.

Nothing is forwarded, and the sender does not receive its own messages. ``put`` never waits: a peer whose
queue is full misses the message, and a full inbox drops the newest. Both are counted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from protocols.options import SocketOptions
from protocols.patterns.base import LossyInbox, Pattern, QueueLane
from protocols.pipe import Pipe
from protocols.wire.handshake import ProtocolNumber


class Bus(Pattern, QueueLane):
    protocol = ProtocolNumber.BUS0

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        Pattern.__init__(self, options, rng)
        QueueLane.__init__(self)
        self.lane = self
        self._pipes: dict[int, Pipe] = {}
        self._intake = LossyInbox(options.recv_queue, prefer_new=False)
        self.inbox = self._intake.inbox

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        self._pipes[pipe.id] = pipe

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        del self._pipes[pipe.id]

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        pass

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        self.count_drop("inbox full", self._intake.add(pipe, frames))
        self.readable(len(frames))

    def origin(self) -> Pipe:
        return self._intake.origins.last()

    def put(self, body: bytes) -> bool:
        for pipe in self._pipes.values():
            if not pipe.send(body):
                self.count_drop("peer slow")
        return True

    def put_many(self, bodies: Sequence[bytes]) -> int:
        for pipe in self._pipes.values():
            self.count_drop("peer slow", len(bodies) - pipe.send_many(bodies))
        return len(bodies)
