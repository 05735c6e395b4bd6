"""Raw sockets: every pattern without its state machine, for relays and for builders of patterns of their own.

Frames pass as they are on the wire, header words in front, and the pipe they came by is told. What is left
of the pattern is whom it may hear and how ``send`` spreads: Req0, Push0 and Pair0 give each frame to one
peer and wait, Surveyor0, Pub0 and Bus0 to all without waiting, Rep0 and Respondent0 only by ``send_to``.
Backtraces are checked as in the cooked sockets: over ``ttl`` is dropped, malformed costs the pipe.

With a receiver, runs are handed over in the loop turn that read them and nothing is queued here. Without
one, each pipe has an inbox of ``recv_queue`` frames that stops reading that pipe when full; `take_run`
drains them in turn.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from protocols.errors import NotSupported, PipeRefused
from protocols.options import SocketOptions
from protocols.patterns.base import OutputPipe, Pattern, QueueLane, Rotation, StateLane
from protocols.wire.backtrace import OVER_TTL, split
from protocols.wire.handshake import ProtocolNumber

Run = tuple[OutputPipe, list[bytes]]

TO_ONE: Final = (ProtocolNumber.REQ0, ProtocolNumber.PUSH0, ProtocolNumber.PAIR0)
TO_ALL: Final = (ProtocolNumber.SURVEYOR0, ProtocolNumber.PUB0, ProtocolNumber.BUS0)
WITH_BACKTRACE: Final = (
    ProtocolNumber.REQ0,
    ProtocolNumber.REP0,
    ProtocolNumber.SURVEYOR0,
    ProtocolNumber.RESPONDENT0,
)


class RawLane(QueueLane, StateLane):
    """Spreads frames and takes one at a time (`Raw` takes runs). Of both kinds, for sockets of both."""

    def __init__(self, pattern: Raw) -> None:
        super().__init__()
        self._pattern = pattern

    def take(self) -> bytes | None:
        taken = self._pattern.take_frame()
        return None if taken is None else taken[1]

    def put(self, body: bytes) -> bool:
        return self._pattern.spread((body,)) == 1

    def put_many(self, bodies: Sequence[bytes]) -> int:
        return self._pattern.spread(bodies)

    def send(self, body: bytes, now: float) -> bool:
        return self.put(body)

    def recv(self, now: float, waited: bool) -> bytes | None:
        return self.take()


class Raw(Pattern):
    lane: RawLane

    def __init__(
        self,
        protocol: ProtocolNumber,
        options: SocketOptions,
        rng: random.Random,
        receiver: Callable[[OutputPipe, list[bytes]], None] | None,
    ) -> None:
        super().__init__(options, rng)
        self.protocol = protocol
        self.lane = RawLane(self)
        self._receiver = receiver
        self.checked = protocol in WITH_BACKTRACE
        self._pipes: dict[int, OutputPipe] = {}
        self._rotation = Rotation()
        self._inboxes: dict[int, deque[bytes]] = {}
        self._turns: deque[OutputPipe] = deque()  # pipes whose inbox is not empty

    def open_lane(self) -> RawLane:
        raise NotSupported("raw sockets have no contexts")

    # --- out

    def spread(self, frames: Sequence[bytes]) -> int:
        """Send frames as the pattern does; returns how many of them were taken. Raises `NotSupported`."""
        if self.protocol in TO_ONE:
            return self._rotation.deal(frames)
        if self.protocol not in TO_ALL:
            raise NotSupported(f"a raw {self.name} sends by send_to(pipe, frames) only")
        for pipe in self._pipes.values():
            self.count_drop("peer slow", len(frames) - pipe.send_many(frames))
        return len(frames)

    # --- in

    def take_run(self) -> Run | None:
        """All frames that wait from the pipe whose turn it is."""
        if not self._turns:
            return None
        pipe = self._turns.popleft()
        frames = self._inboxes.pop(pipe.id)
        pipe.resume_reading()
        return pipe, list(frames)

    def take_frame(self) -> tuple[OutputPipe, bytes] | None:
        """One frame of the pipe whose turn it is."""
        if not self._turns:
            return None
        pipe = self._turns[0]
        inbox = self._inboxes[pipe.id]
        frame = inbox.popleft()
        self._turns.popleft()
        if inbox:
            self._turns.append(pipe)
        else:
            del self._inboxes[pipe.id]
            pipe.resume_reading()
        return pipe, frame

    # --- pipes

    def pipe_attached(self, pipe: OutputPipe, now: float) -> None:
        if self.protocol is ProtocolNumber.PAIR0 and self._pipes:
            raise PipeRefused("pair0 is already paired")
        self._pipes[pipe.id] = pipe
        self._rotation.add(pipe)
        self.lane.writable()

    def pipe_detached(self, pipe: OutputPipe, now: float) -> None:
        del self._pipes[pipe.id]
        self._rotation.discard(pipe)

    def pipe_writable(self, pipe: OutputPipe, now: float) -> None:
        self._rotation.add(pipe)
        self.lane.writable()

    def received(self, pipe: OutputPipe, frames: list[bytes], now: float) -> None:
        malformed = False
        if self.checked:
            frames, malformed = self._check(frames)
        elif self.protocol is ProtocolNumber.PUB0 or self.protocol is ProtocolNumber.PUSH0:
            self._refuse(pipe, frames)
            return
        if frames:
            self._hand_over(pipe, frames)
        if malformed:
            self.count_drop("malformed")
            pipe.close("a frame ended inside its backtrace")

    def _hand_over(self, pipe: OutputPipe, frames: list[bytes]) -> None:
        if self._receiver is not None:
            self._receiver(pipe, frames)
            return
        inbox = self._inboxes.get(pipe.id)
        if inbox is None:
            self._inboxes[pipe.id] = inbox = deque(frames)
            self._turns.append(pipe)
        else:
            inbox += frames
        if len(inbox) >= self.options.recv_queue:
            pipe.pause_reading()
        self.lane.readable(len(frames))

    def _check(self, frames: list[bytes]) -> tuple[list[bytes], bool]:
        """The frames with a good backtrace that came before the first malformed one, if there is one."""
        for frame in frames:
            if len(frame) < 4 or not frame[0] & 0x80:
                break
        else:
            return frames, False  # none crossed a relay
        ttl = self.options.ttl
        good = []
        for frame in frames:
            offset = split(frame, ttl)
            if offset > 0:
                good.append(frame)
            elif offset == OVER_TTL:
                self.count_drop("over ttl")
            else:
                return good, True
        return good, False

    def _refuse(self, pipe: OutputPipe, frames: list[bytes]) -> None:
        self.count_drop("unsolicited", len(frames))
        if self.protocol is ProtocolNumber.PUB0:
            pipe.close("a subscriber may not send")
