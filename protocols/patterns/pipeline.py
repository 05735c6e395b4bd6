"""Push0 and Pull0: each message to one of the pullers, with back-pressure all the way.

A pusher distributes messages, and slices of a batch, in turn to the pullers that have room; it waits if none
has. Messages queued for a puller when its pipe ends are lost and counted, as in every SP implementation. A
puller's full inbox stops reading, so its pushers fill up, wait, and use other pullers. A puller that sends is
ignored, and counted. With ``best_effort`` a pusher drops instead of waiting. With ``fail_without_peers`` it
raises if there is no puller.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from protocols.errors import NoPeers, NotSupported
from protocols.options import SocketOptions
from protocols.patterns.base import Intake, Origins, Pattern, QueueLane, Rotation
from protocols.pipe import Pipe
from protocols.wire.handshake import ProtocolNumber


class Pusher(Pattern, QueueLane):
    protocol = ProtocolNumber.PUSH0

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        Pattern.__init__(self, options, rng)
        QueueLane.__init__(self)
        self.lane = self
        self._rotation = Rotation()

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        self._rotation.add(pipe)
        self.writable()

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        self._rotation.discard(pipe)
        if self.options.fail_without_peers:
            self.writable()  # no room will come there: let waiting senders ask again

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        self._rotation.add(pipe)
        self.writable()

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        self.count_drop("unsolicited", len(frames))

    def take(self) -> bytes | None:
        raise NotSupported("push0 sockets do not receive")

    def put(self, body: bytes) -> bool:
        only = self._rotation.only
        if only is not None:  # 80 ns less than through the rotation, out of 400 for the whole message
            return only.send(body) or self._unsent(1) == 1
        return self._rotation.send(body) is not None or self._unsent(1) == 1

    def put_many(self, bodies: Sequence[bytes]) -> int:
        taken = self._rotation.deal(bodies)
        return taken if taken == len(bodies) else taken + self._unsent(len(bodies) - taken)

    def _unsent(self, count: int) -> int:
        """How many of the messages without room are complete anyway: dropped and counted."""
        if self._rotation.deserted and self.options.fail_without_peers:
            raise NoPeers("push0 has no peer")
        return self.give_up(count, "no peer" if self._rotation.deserted else "peer slow")


class Puller(Pattern, QueueLane):
    protocol = ProtocolNumber.PULL0

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        Pattern.__init__(self, options, rng)
        QueueLane.__init__(self)
        self.lane = self
        self._intake: Intake[bytes] = Intake(options.recv_queue)
        self.inbox = self._intake.inbox
        self._origins = Origins(self.inbox)

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        self._intake.admit()

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        self._intake.discard(pipe)

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        pass

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        self._intake.add(pipe, frames, len(frames[0]))
        self._origins.add(pipe, len(frames))
        self.readable(len(frames))

    def take(self) -> bytes | None:
        return self._intake.take()

    def origin(self) -> Pipe:
        return self._origins.last()

    def emptied(self) -> None:
        self._intake.resume()
