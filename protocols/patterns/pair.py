"""Pair0: one peer, both ways, nothing dropped while the peer lives.

A second peer is refused while the first is there. Both directions push back: ``put`` says no when the
peer's pipe is full or nobody is there, and a full inbox stops reading.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from protocols.errors import PipeRefused
from protocols.options import SocketOptions
from protocols.patterns.base import Intake, OutputPipe, Pattern, QueueLane
from protocols.wire.handshake import ProtocolNumber


class Pair(Pattern, QueueLane):
    protocol = ProtocolNumber.PAIR0

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        Pattern.__init__(self, options, rng)
        QueueLane.__init__(self)
        self.lane = self
        self._intake: Intake[bytes] = Intake(options.recv_queue)
        self.inbox = self._intake.inbox
        self._partner: OutputPipe | None = None

    def pipe_attached(self, pipe: OutputPipe, now: float) -> None:
        if self._partner is not None:
            raise PipeRefused(f"pair0 is already paired with {self._partner.remote_address}")
        self._partner = pipe
        self.writable()

    def pipe_detached(self, pipe: OutputPipe, now: float) -> None:
        self._partner = None

    def pipe_writable(self, pipe: OutputPipe, now: float) -> None:
        self.writable()

    def received(self, pipe: OutputPipe, frames: list[bytes], now: float) -> None:
        self._intake.add(pipe, frames, len(frames[0]))
        self.readable(len(frames))

    def take(self) -> bytes | None:
        if self.inbox:
            return self.inbox.popleft()
        self._intake.resume()
        return None

    def put(self, body: bytes) -> bool:
        partner = self._partner
        return partner is not None and partner.send(body)

    def put_many(self, bodies: Sequence[bytes]) -> int:
        partner = self._partner
        return partner.send_many(bodies) if partner is not None else 0
