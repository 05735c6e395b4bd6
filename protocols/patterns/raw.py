"""Raw sockets: every pattern without its state machine, for relays and for programs with their own patterns.

Frames pass as they are on the wire, header words in front, together with the pipe they came from. A raw
socket keeps three things of its pattern: its peer protocol, the way ``send`` distributes frames, and the
rules of its header:

| patterns | ``send`` gives each frame to | header in front of the body |
|---|---|---|
| Pair0, Push0 | one peer, and waits | none |
| Pair1 | likewise | hop count; a hop is added by sending |
| Req0 | likewise | backtrace |
| Pub0, Bus0 | all, without waiting | none |
| Star0 | likewise | hop count; a hop is added by receiving, which also forwards |
| Surveyor0 | likewise | backtrace |
| Rep0, Respondent0 | nobody: ``send_to`` only | backtrace |

A header with too many words or hops costs the frame, a malformed one the pipe (with Star0 only the frame),
as in the cooked sockets.

Frames go one of three ways. A receiver gets runs in the loop turn that read them, and nothing is queued here.
While a relay has diverted the socket (`Raw.divert`), the relay gets them in the same way. Otherwise each pipe
has an inbox of ``recv_queue`` frames that stops reading that pipe when full; `take_run` drains them in turn.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from protocols.errors import LocalProtocolError, NoPeers, NotSupported, PipeRefused, StateError
from protocols.options import SocketOptions
from protocols.patterns.base import (
    ORPHANS_MAX,
    Pattern,
    QueueLane,
    Rotation,
)
from protocols.patterns.star import pass_on
from protocols.pipe import HEAVY_BYTES_MAX, INBOX_FULL, LIGHT_MAX, Pipe
from protocols.wire.backtrace import OVER_TTL, split
from protocols.wire.handshake import ProtocolNumber
from protocols.wire.hops import HOPS_MAX, MALFORMED, WORD_SIZE, read_hops, sift, step

Run = tuple[Pipe, list[bytes]]

PAIRS: Final = (ProtocolNumber.PAIR0, ProtocolNumber.PAIR1)
TO_ONE: Final = (*PAIRS, ProtocolNumber.REQ0, ProtocolNumber.PUSH0)
TO_ALL: Final = (
    ProtocolNumber.SURVEYOR0,
    ProtocolNumber.PUB0,
    ProtocolNumber.BUS0,
    ProtocolNumber.STAR0,
)
WITH_BACKTRACE: Final = (
    ProtocolNumber.REQ0,
    ProtocolNumber.REP0,
    ProtocolNumber.SURVEYOR0,
    ProtocolNumber.RESPONDENT0,
)
WITH_HOPS: Final = (ProtocolNumber.PAIR1, ProtocolNumber.STAR0)
ONLY_SENDS: Final = (ProtocolNumber.PUB0, ProtocolNumber.PUSH0)


class Diversion(Protocol):
    """Gets a raw socket's frames instead of its inboxes. No method may wait or raise."""

    def frames_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        """A run of frames arrived."""

    def room(self, pipe: Pipe) -> None:
        """The pipe is new, or refused a frame and has room again."""

    def detached(self, pipe: Pipe) -> None:
        """The pipe is gone."""

    def closed(self) -> None:
        """The socket has closed."""


class RawLane(QueueLane):
    """Distributes frames and takes one at a time (`Raw` takes runs)."""

    def __init__(self, pattern: Raw) -> None:
        super().__init__()
        self._pattern = pattern
        self._origin: Pipe | None = None

    def take(self) -> bytes | None:
        taken = self._pattern.take_frame()
        if taken is None:
            return None
        self._origin, frame = taken
        return frame

    def origin(self) -> Pipe:
        assert self._origin is not None, "nothing was taken"
        return self._origin

    def put(self, body: bytes) -> bool:
        return self._pattern.spread((body,)) == 1

    def put_many(self, bodies: Sequence[bytes]) -> int:
        return self._pattern.spread(bodies)

    def close(self) -> None:
        self._pattern.closed()


class Raw(Pattern):
    lane: RawLane

    def __init__(
        self,
        protocol: ProtocolNumber,
        options: SocketOptions,
        rng: random.Random,
        receiver: Callable[[Pipe, list[bytes]], None] | None,
    ) -> None:
        super().__init__(options, rng)
        self.protocol = protocol
        self.lane = RawLane(self)
        self.pipes: dict[int, Pipe] = {}
        """The attached pipes by id."""
        self._receiver = receiver
        self._diversion: Diversion | None = None
        self._rotation = Rotation()
        self._inboxes: dict[int, deque[bytes]] = {}
        self._turns: deque[Pipe] = deque()  # pipes whose inbox is not empty
        self._heavy_bytes: dict[
            int, int
        ] = {}  # bytes of large frames, by pipe, since its inbox was last empty
        self._check = self._checks()

    def _checks(self) -> Callable[[Pipe, list[bytes]], tuple[list[bytes], bool]] | None:
        if self.protocol in WITH_BACKTRACE:
            return self._check_backtraces
        if self.protocol is ProtocolNumber.PAIR1:
            return self._check_hops
        if self.protocol is ProtocolNumber.STAR0:
            return self._pass_on
        return None

    def open_lane(self) -> RawLane:
        raise NotSupported("raw sockets have no contexts")

    def header_size(self, frame: bytes) -> int:
        """The number of header bytes of a received frame."""
        if self.protocol in WITH_BACKTRACE:
            return split(frame)
        return WORD_SIZE if self.protocol in WITH_HOPS else 0

    # --- out

    def spread(self, frames: Sequence[bytes]) -> int:
        """Send frames as the pattern does; return how many of them were taken.

        Raises:
            LocalProtocolError: a frame lacks its pattern's hop count, or has reached the last hop.
            NoPeers: depending on options.
            NotSupported: the pattern answers pipe by pipe.
        """
        if self.protocol in WITH_HOPS:
            self._check_own(frames)
        taken = self.offer(frames)
        if taken == len(frames):
            return taken
        if self._rotation.deserted and self.options.fail_without_peers:
            raise NoPeers(f"{self.name} has no peer")
        return taken + self.give_up(
            len(frames) - taken, "no peer" if self._rotation.deserted else "peer slow"
        )

    def offer(self, frames: Sequence[bytes], past: Pipe | None = None) -> int:
        """Like `spread`, for frames already checked. Frames that go to all peers skip ``past``."""
        if self.protocol in TO_ONE:
            if self.protocol is ProtocolNumber.PAIR1:
                frames = [step(frame) for frame in frames]
            return self._rotation.deal(frames)
        if self.protocol not in TO_ALL:
            raise NotSupported(f"a raw {self.name} sends by send_to(pipe, frames) only")
        for pipe in self.pipes.values():
            if pipe is not past:
                pipe.make_room(len(frames))
                self.count_drop("peer slow", self._queue(pipe, frames))
        return len(frames)

    def _queue(self, pipe: Pipe, frames: Sequence[bytes]) -> int:
        """Queue frames for one of many peers; return how many were dropped: for Pub0 the oldest, otherwise
        the newest.
        """
        if self.protocol is not ProtocolNumber.PUB0:
            return len(frames) - pipe.send_many(frames)
        dropped = pipe.displace(frames)
        pipe.refused += dropped
        return dropped

    def _check_own(self, frames: Sequence[bytes]) -> None:
        highest = HOPS_MAX - 1 if self.protocol is ProtocolNumber.PAIR1 else HOPS_MAX
        for frame in frames:
            hops = read_hops(frame)
            if hops == MALFORMED:
                raise LocalProtocolError(
                    f"a raw {self.name} frame begins with three zero bytes and a hop count, "
                    f"not with {frame[:WORD_SIZE].hex(' ') or 'nothing'}"
                )
            if hops > highest:
                raise LocalProtocolError(f"a hop count of {hops} cannot go further; at most {highest}")

    # --- in

    def take_run(self) -> Run | None:
        """Take all frames that wait from the pipe whose turn it is."""
        if not self._turns:
            return None
        pipe = self._turns.popleft()
        frames = self._inboxes.pop(pipe.id)
        self._heavy_bytes.pop(pipe.id, None)
        pipe.resume(INBOX_FULL)
        return pipe, list(frames)

    def take_frame(self) -> tuple[Pipe, bytes] | None:
        """Take one frame of the pipe whose turn it is. Raises `NotSupported` if frames go to a receiver."""
        if self._receiver is not None:
            raise NotSupported("this socket's frames go to its receiver")
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
            self._heavy_bytes.pop(pipe.id, None)
            pipe.resume(INBOX_FULL)
        return pipe, frame

    def check_divertible(self) -> None:
        """Raise `NotSupported` if frames go to a receiver, `StateError` if they are already diverted."""
        if self._receiver is not None:
            raise NotSupported(f"the frames of this {self.name} go to its receiver")
        if self._diversion is not None:
            raise StateError(f"this {self.name} is in a device already")

    def divert(self, diversion: Diversion) -> None:
        """Give ``diversion`` all frames from now on, beginning with those that wait."""
        self.check_divertible()
        self._diversion = diversion
        while (run := self.take_run()) is not None:
            diversion.frames_received(*run)

    def restore(self) -> None:
        """End the diversion."""
        self._diversion = None

    def closed(self) -> None:
        """The socket closes."""
        if self._diversion is not None:
            self._diversion.closed()

    # --- pipes

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        if self.protocol in PAIRS and self.pipes:
            raise PipeRefused(f"{self.name} is already paired")
        if len(self._inboxes) >= ORPHANS_MAX:
            self._refuse_beside_orphans()
        self.pipes[pipe.id] = pipe
        self._rotation.add(pipe)
        self._tell_of_room(pipe)

    def _refuse_beside_orphans(self) -> None:
        orphans = sum(id not in self.pipes for id in self._inboxes)
        if orphans >= ORPHANS_MAX:
            raise PipeRefused(f"{orphans} peers left frames and went; nobody has read them since")

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        del self.pipes[pipe.id]
        self._rotation.discard(pipe)
        if self.options.fail_without_peers:
            self.lane.writable()  # no room will come there: let waiting senders ask again
        if self._diversion is not None:
            self._diversion.detached(pipe)

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        self._rotation.add(pipe)
        self._tell_of_room(pipe)

    def _tell_of_room(self, pipe: Pipe) -> None:
        self.lane.writable()
        if self._diversion is not None:
            self._diversion.room(pipe)

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        malformed = False
        check, receiver = self._check, self._receiver  # reading an attribute is faster than calling one
        if check is not None:
            frames, malformed = check(pipe, frames)
        elif self.protocol in ONLY_SENDS:
            self._refuse(pipe, frames)
            return
        if frames:
            if receiver is not None:
                receiver(pipe, frames)
            else:
                self._hand_over(pipe, frames)
        if malformed:
            self.count_drop("malformed")
            pipe.reject("a frame ended inside its header")

    def _hand_over(self, pipe: Pipe, frames: list[bytes]) -> None:
        """Deliver frames when there is no receiver."""
        if self._diversion is not None:
            self._diversion.frames_received(pipe, frames)
        else:
            if self.protocol is ProtocolNumber.STAR0:
                frames = self._fitting(pipe, frames)
            if frames:
                self._keep(pipe, frames)

    def _keep(self, pipe: Pipe, frames: list[bytes]) -> None:
        inbox = self._inboxes.get(pipe.id)
        if inbox is None:
            self._inboxes[pipe.id] = inbox = deque(frames)
            self._turns.append(pipe)
        else:
            inbox += frames
        if len(frames[0]) > LIGHT_MAX:  # only the first of a run can be larger than a read
            self._heavy_bytes[pipe.id] = self._heavy_bytes.get(pipe.id, 0) + len(frames[0])
        if self.protocol is not ProtocolNumber.STAR0 and self._full(pipe):
            pipe.pause(INBOX_FULL)
        self.lane.readable(len(frames))

    def _full(self, pipe: Pipe) -> bool:
        inbox = self._inboxes.get(pipe.id, ())
        return len(inbox) >= self.options.recv_queue or self._heavy_bytes.get(pipe.id, 0) >= HEAVY_BYTES_MAX

    def _fitting(self, pipe: Pipe, frames: list[bytes]) -> list[bytes]:
        """For a star: an application that does not read must not stop it from forwarding."""
        room = 0 if self._full(pipe) else self.options.recv_queue - len(self._inboxes.get(pipe.id, ()))
        self.count_drop("inbox full", max(len(frames) - room, 0))
        return frames[:room]

    # --- headers: which frames may pass, and whether a malformed one came after them

    def _check_backtraces(self, pipe: Pipe, frames: list[bytes]) -> tuple[list[bytes], bool]:
        for frame in frames:
            if len(frame) < WORD_SIZE or not frame[0] & 0x80:
                break
        else:
            return frames, False  # no frame crossed a relay
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

    def _check_hops(self, pipe: Pipe, frames: list[bytes]) -> tuple[list[bytes], bool]:
        hops_max = min(self.options.ttl, HOPS_MAX - 1)  # otherwise it could not be sent on
        good, over_ttl, malformed = sift(frames, hops_max, stop=True)
        self.count_drop("over ttl", over_ttl)
        return good, malformed > 0

    def _pass_on(self, pipe: Pipe, frames: list[bytes]) -> tuple[list[bytes], bool]:
        return pass_on(self, self.pipes.values(), pipe, frames), False

    def _refuse(self, pipe: Pipe, frames: list[bytes]) -> None:
        self.count_drop("unsolicited", len(frames))
        if self.protocol is ProtocolNumber.PUB0:
            pipe.reject("a subscriber may not send")
