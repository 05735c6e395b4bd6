"""Forwards frames of one raw socket to another and back, in the loop turn that read them: a device's work.

A *flow* is one direction. The protocol that frames leave by determines how it works:

| leaves by | a frame goes to | if there is no room |
|---|---|---|
| Req0, Push0, Pair0, Pair1 | one peer | it is *held*; its source pipe is not read until it has gone |
| Pub0, Bus0, Star0, Surveyor0 | all peers (with one socket: except its origin) | that peer misses it |
| Rep0, Respondent0 | the peer in its first word | it is *parked*, and that peer is not read meanwhile |

When a frame leaves by Req0 or Surveyor0, the id of its source pipe is pushed on its backtrace. When an answer
leaves by Rep0 or Respondent0, the id is popped, so the answer returns the way its question came. A pipe is
not read while frames from it are held or frames for it are parked. So a peer that does not take its answers
cannot ask, and no other peer waits for it. An answer whose peer is gone is dropped.

Held frames are bounded by one run for each pipe (read before the pause) and `ORPHANS_MAX` runs of pipes that
left. Frames parked for a peer are bounded by `PARKED_MAX` frames and `HEAVY_BYTES_MAX` bytes. All dropped
frames are counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from protocols.patterns.base import ORPHANS_MAX
from protocols.patterns.raw import ONLY_SENDS, TO_ONE, Raw
from protocols.pipe import HEAVY_BYTES_MAX, HELD, PARKED, Pipe
from protocols.wire.backtrace import encode_word, pop
from protocols.wire.handshake import ProtocolNumber

PARKED_MAX: Final = 16384

ASKING: Final = (ProtocolNumber.REQ0, ProtocolNumber.SURVEYOR0)
ANSWERING: Final = (ProtocolNumber.REP0, ProtocolNumber.RESPONDENT0)


@dataclass(frozen=True, slots=True)
class FlowStatistics:
    """A snapshot of one direction; frames are cumulative, ``waiting`` (held or parked) is current."""

    frames: int
    bytes: int
    waiting: int
    drops: dict[str, int]


class Flow(ABC):
    """One direction. The base class keeps no frames waiting."""

    def __init__(self, target: Raw) -> None:
        self._target = target
        self._frames = 0
        self._bytes = 0
        self._drops: dict[str, int] = {}

    @property
    def waiting(self) -> int:
        return 0

    @abstractmethod
    def forward(self, pipe: Pipe, frames: list[bytes]) -> None:
        """A run arrived from ``pipe`` of the source."""

    def room(self, pipe: Pipe) -> None:  # noqa: B027
        """``pipe`` of the target has room."""

    def source_left(self, pipe: Pipe) -> None:  # noqa: B027
        """``pipe`` of the source is gone."""

    def target_left(self, pipe: Pipe) -> None:  # noqa: B027
        """``pipe`` of the target is gone."""

    def end(self) -> None:  # noqa: B027
        """Drop the waiting frames."""

    def statistics(self) -> FlowStatistics:
        return FlowStatistics(self._frames, self._bytes, self.waiting, dict(self._drops))

    def _count(self, frames: list[bytes]) -> None:
        self._frames += len(frames)
        self._bytes += sum(map(len, frames))

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self._drops[reason] = self._drops.get(reason, 0) + count


class ToOne(Flow):
    """Sends each frame to one peer; a frame without room is held."""

    def __init__(self, target: Raw) -> None:
        super().__init__(target)
        self._pushes = target.protocol in ASKING
        self._held: dict[Pipe, list[bytes]] = {}
        self._orphans: dict[Pipe, None] = {}

    @property
    def waiting(self) -> int:
        return sum(map(len, self._held.values()))

    def forward(self, pipe: Pipe, frames: list[bytes]) -> None:
        if self._pushes:
            word = encode_word(pipe.id)
            frames = [word + frame for frame in frames]
        self._count(frames)
        if pipe in self._held:
            self._held[pipe] += frames  # read before the pause
            return
        rest = self._sent(frames)
        if rest:
            self._hold(pipe, rest)

    def _sent(self, frames: list[bytes]) -> list[bytes]:
        """Send the frames that find room; return the others."""
        taken = self._target.offer(frames)
        taken += self._target.give_up(len(frames) - taken, "peer slow")
        return frames[taken:]

    def _hold(self, pipe: Pipe, frames: list[bytes]) -> None:
        self._held[pipe] = frames
        if pipe.closed:  # its last frames
            self.source_left(pipe)
        else:
            pipe.pause(HELD)

    def room(self, pipe: Pipe) -> None:
        for source in list(self._held):
            rest = self._sent(self._held.pop(source))
            if rest:
                self._held[source] = rest  # behind all others that wait
                return
            self._orphans.pop(source, None)
            source.resume(HELD)

    def source_left(self, pipe: Pipe) -> None:
        if pipe not in self._held:
            return
        self._orphans[pipe] = None
        if len(self._orphans) > ORPHANS_MAX:
            oldest = next(iter(self._orphans))
            del self._orphans[oldest]
            self._drop("peer gone", len(self._held.pop(oldest)))

    def end(self) -> None:
        self._drop("device ended", self.waiting)
        for pipe in self._held:
            pipe.resume(HELD)
        self._held.clear()
        self._orphans.clear()


class ToAll(Flow):
    """Sends each frame to all peers that have room."""

    def __init__(self, target: Raw, *, reflects: bool) -> None:
        super().__init__(target)
        self._pushes = target.protocol in ASKING
        self._reflects = reflects

    def forward(self, pipe: Pipe, frames: list[bytes]) -> None:
        if self._pushes:
            word = encode_word(pipe.id)
            frames = [word + frame for frame in frames]
        self._count(frames)
        self._target.offer(frames, past=pipe if self._reflects else None)


class Drained(Flow):
    """Joins a star to itself: the star has already forwarded every frame that arrives here."""

    def forward(self, pipe: Pipe, frames: list[bytes]) -> None:
        self._count(frames)


class Backlog:
    """Answers that wait for one peer."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.bytes = 0

    def add(self, frames: list[bytes]) -> int:
        """Keep the frames that fit; return how many did not."""
        for kept, frame in enumerate(frames):
            full = len(self.frames) >= PARKED_MAX or self.bytes + len(frame) > HEAVY_BYTES_MAX
            if full and self.frames:
                return len(frames) - kept
            self.frames.append(frame)
            self.bytes += len(frame)
        return 0

    def sent(self, count: int) -> None:
        self.bytes -= sum(map(len, self.frames[:count]))
        del self.frames[:count]


class Return(Flow):
    """Sends each frame to the peer whose id is its first word; a frame without room is parked."""

    def __init__(self, target: Raw) -> None:
        super().__init__(target)
        self._parked: dict[Pipe, Backlog] = {}

    @property
    def waiting(self) -> int:
        return sum(len(parked.frames) for parked in self._parked.values())

    def forward(self, pipe: Pipe, frames: list[bytes]) -> None:
        by_id: dict[int, list[bytes]] = {}
        for frame in frames:
            id, rest = pop(frame)
            by_id.setdefault(id, []).append(rest)
        for id, answers in by_id.items():
            asker = self._target.pipes.get(id)
            if asker is None:
                self._drop("peer gone", len(answers))
            else:
                self._count(answers)
                self._answer(asker, answers)

    def _answer(self, asker: Pipe, answers: list[bytes]) -> None:
        parked = self._parked.get(asker)
        if parked is None:
            taken = asker.send_many(answers)
            if taken == len(answers):
                return
            answers = answers[taken:]
            answers = answers[self._target.give_up(len(answers), "peer slow") :]
            if not answers:
                return
            parked = self._parked[asker] = Backlog()
            asker.pause(PARKED)
        self._drop("peer slow", parked.add(answers))

    def room(self, pipe: Pipe) -> None:
        parked = self._parked.get(pipe)
        if parked is None:
            return
        parked.sent(pipe.send_many(parked.frames))
        if not parked.frames:
            del self._parked[pipe]
            pipe.resume(PARKED)

    def target_left(self, pipe: Pipe) -> None:
        parked = self._parked.pop(pipe, None)
        if parked is not None:
            self._drop("peer lost", len(parked.frames))

    def end(self) -> None:
        self._drop("device ended", self.waiting)
        for pipe in self._parked:
            pipe.resume(PARKED)
        self._parked.clear()


class Side:
    """One socket of a relay: where its frames go, and what waits for its pipes."""

    def __init__(self, relay: Relay, outward: Flow | None, inward: Flow | None) -> None:
        self._relay = relay
        self._outward = outward
        self._inward = inward

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        if self._outward is not None:
            self._outward.forward(pipe, frames)

    def room(self, pipe: Pipe) -> None:
        if self._inward is not None:
            self._inward.room(pipe)

    def detached(self, pipe: Pipe) -> None:
        if self._outward is not None:
            self._outward.source_left(pipe)
        if self._inward is not None:
            self._inward.target_left(pipe)

    def closed(self) -> None:
        self._relay.end()


class Relay:
    """Joins two raw sockets of complementary protocols, or reflects one; runs from its creation to `end`.

    Raises:
        NotSupported: a socket has a receiver.
        StateError: a socket is already in another relay.
    """

    def __init__(self, front: Raw, back: Raw, ended: Callable[[], None]) -> None:
        self._tell_ended = ended
        self._sockets = [front] if front is back else [front, back]
        for socket in self._sockets:
            socket.check_divertible()
        self.forward = self._flow(front, back)
        self.backward = None if front is back else self._flow(back, front)
        front.divert(Side(self, self.forward, self.forward if front is back else self.backward))
        if front is not back:
            back.divert(Side(self, self.backward, self.forward))

    def _flow(self, source: Raw, target: Raw) -> Flow | None:
        reflects = source is target
        if source.protocol in ONLY_SENDS:
            return None
        if target.protocol in TO_ONE:
            return ToOne(target)
        if target.protocol in ANSWERING:
            return Return(target)
        if reflects and target.protocol is ProtocolNumber.STAR0:
            return Drained(target)
        return ToAll(target, reflects=reflects)

    def end(self) -> None:
        """Stop; sockets that are still open go on as raw sockets. A second call does nothing."""
        if not self._sockets:
            return
        sockets, self._sockets = self._sockets, []
        for socket in sockets:
            socket.restore()
        for flow in (self.forward, self.backward):
            if flow is not None:
                flow.end()
        self._tell_ended()
