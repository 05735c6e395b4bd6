"""Pair0 and Pair1: one peer, both ways, nothing dropped while the peer is connected.

A second peer is refused while the first is there. Both directions push back: ``put`` returns False if the
peer's pipe is full or there is no peer, and a full inbox stops reading. ``best_effort`` drops instead, and
``fail_without_peers`` raises if there is no peer.

Pair1 writes a hop count in front (`protocols.wire.hops`). A message with more than ``ttl`` hops is dropped.
One without the word, or with reserved bits in it, costs the peer its pipe, as in NNG.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from protocols.errors import NoPeers, PipeRefused
from protocols.options import SocketOptions
from protocols.patterns.base import Intake, Origins, Pattern, QueueLane
from protocols.pipe import Pipe
from protocols.wire.handshake import ProtocolNumber
from protocols.wire.hops import HOP_WORDS, WORD_SIZE, sift

FIRST_HOP = HOP_WORDS[1]


class Pair(Pattern, QueueLane):
    """Pair0."""

    protocol = ProtocolNumber.PAIR0

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        Pattern.__init__(self, options, rng)
        QueueLane.__init__(self)
        self.lane = self
        self._intake: Intake[bytes] = Intake(options.recv_queue)
        self.inbox = self._intake.inbox
        self._origins = Origins(self.inbox)
        self._partner: Pipe | None = None

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        if self._partner is not None:
            raise PipeRefused(f"{self.name} is already paired with {self._partner.remote_address}")
        self._intake.admit()
        self._partner = pipe
        self.writable()

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        self._partner = None
        self._intake.discard(pipe)
        if self.options.fail_without_peers:
            self.writable()  # no room will come there: let waiting senders ask again

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        self.writable()

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

    def put(self, body: bytes) -> bool:
        partner = self._partner
        return (partner is not None and partner.send(body)) or self._unsent(1) == 1

    def put_many(self, bodies: Sequence[bytes]) -> int:
        partner = self._partner
        taken = partner.send_many(bodies) if partner is not None else 0
        return taken if taken == len(bodies) else taken + self._unsent(len(bodies) - taken)

    def _unsent(self, count: int) -> int:
        """How many of the messages without room are complete anyway: dropped and counted."""
        if self._partner is None and self.options.fail_without_peers:
            raise NoPeers(f"{self.name} has no peer")
        return self.give_up(count, "no peer" if self._partner is None else "peer slow")


class PairWithHops(Pair):
    """Pair1."""

    protocol = ProtocolNumber.PAIR1

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        malformed = False
        if not all(frame.startswith(FIRST_HOP) for frame in frames):
            frames, over_ttl, malformed = self._sifted(frames)
            self.count_drop("over ttl", over_ttl)
        if frames:
            super().received(pipe, [frame[WORD_SIZE:] for frame in frames], now)
        if malformed:
            self.count_drop("malformed")
            pipe.reject("a message without a hop count")

    def _sifted(self, frames: list[bytes]) -> tuple[list[bytes], int, bool]:
        good, over_ttl, malformed = sift(frames, self.options.ttl, stop=True)
        return good, over_ttl, malformed > 0

    def put(self, body: bytes) -> bool:
        return super().put(FIRST_HOP + body)

    def put_many(self, bodies: Sequence[bytes]) -> int:
        return super().put_many([FIRST_HOP + body for body in bodies])
