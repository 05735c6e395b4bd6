"""Req0: asks one of the peers and receives its answer (for the other half, Rep0, see `replier`).

Each lane of a requester has one request at most:

```
IDLE --send--> ASKED --reply--> ANSWERED --recv--> IDLE
                 |  \\-- pipe lost, resending off --> FAILED --recv raises--> IDLE
                 +-- send: the former request is given up, its reply ignored
```

An ASKED request is on a pipe. If that pipe was lost and no other has room, it is *unassigned* until one has.
It is sent again with the same id: at once when its pipe is lost, and after each ``resend_s`` without a reply
(so a replier may see it twice). Requests go in turn to the pipes that have room. If none has, ``send`` waits;
with ``best_effort`` the request is unassigned instead. With ``fail_without_peers`` nothing waits for a peer:
without any, ``send`` raises, and when the last one leaves, every request fails.

An id has 31 bits, starting at random, with bit 31 set. A reply with an unknown id is dropped.
"""

from __future__ import annotations

import random

from protocols.errors import NoPeers, RequestLost, SPError, StateError
from protocols.options import SocketOptions
from protocols.patterns.base import Pattern, Rotation, StateLane
from protocols.pipe import Pipe
from protocols.wire.backtrace import END_BIT, WORD_SIZE, peek
from protocols.wire.handshake import ProtocolNumber

NOBODY = "req0 has no peer, and fail_without_peers forbids waiting for one"


class Ids:
    """Yields 31-bit numbers from a random start, with bit 31 set."""

    def __init__(self, rng: random.Random) -> None:
        self._last = rng.getrandbits(31)

    def draw(self) -> int:
        self._last = (self._last + 1) & (END_BIT - 1)
        return self._last | END_BIT


class Request:
    """One question under way; ``pipe`` is None while it is unassigned."""

    __slots__ = ("due", "frame", "id", "lane", "pipe")

    def __init__(self, id: int, frame: bytes, lane: RequesterLane, pipe: Pipe | None) -> None:
        self.id = id
        self.frame = frame
        self.lane = lane
        self.pipe = pipe
        self.due = 0.0


class RequesterLane(StateLane):
    exclusive = True

    def __init__(self, pattern: Requester) -> None:
        super().__init__()
        self._pattern = pattern
        self._request: Request | None = None
        self._reply: bytes | None = None
        self._failure: SPError | None = None
        self._refused = False  # True if the last request found no room
        self._origin: Pipe | None = None

    def send(self, body: bytes, now: float, epoch: int | None = None) -> bool:
        if epoch is None:
            if self._request is not None or self._reply is not None or self._failure is not None:
                self._give_up()
            self.epoch += 1
            if self._refused:
                self.writable()  # a sender that waits for room has been superseded
        else:
            self.check_epoch(epoch)
        request = self._request = self._pattern.ask(self, body, now)
        self._refused = request is None
        return request is not None

    def recv(self, now: float, waited: bool) -> bytes | None:
        if self._reply is not None:
            reply, self._reply = self._reply, None
            return reply
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._request is None:
            raise StateError("no request is under way: req0 sends first, then receives once")
        return None

    def origin(self) -> Pipe:
        assert self._origin is not None, "nothing was received"
        return self._origin

    def answered(self, pipe: Pipe, reply: bytes) -> None:
        self._request = None
        self._origin = pipe
        self._reply = reply
        self.readable(1)

    def failed(self, failure: SPError) -> None:
        self._request = None
        self._failure = failure
        self.readable(1)

    def close(self) -> None:
        self._give_up()

    def _give_up(self) -> None:
        if self._request is not None:
            self._pattern.forget(self._request)
            self._request = None
        self._reply = None
        self._failure = None


class Requester(Pattern):
    protocol = ProtocolNumber.REQ0
    deadlines_ascend = True
    lane: RequesterLane

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        super().__init__(options, rng)
        self.lane = RequesterLane(self)
        self._ids = Ids(rng)
        self._rotation = Rotation()
        self._resend_s = options.resend_s
        self._requests: dict[int, Request] = {}
        self._due: dict[int, Request] = {}  # the requests on a pipe, the next one to be sent again first
        self._unassigned: dict[int, Request] = {}

    def open_lane(self) -> RequesterLane:
        return RequesterLane(self)

    # --- for lanes

    def ask(self, lane: RequesterLane, body: bytes, now: float) -> Request | None:
        """Send a new request; return None if no pipe has room. Raises `NoPeers`."""
        id = self._ids.draw()
        frame = id.to_bytes(WORD_SIZE, "big") + body
        # With one request under way at a time, no other request could share the write.
        pipe = self._rotation.send(frame) if self._requests else self._rotation.send_alone(frame)
        if pipe is None and self._rotation.deserted and self.options.fail_without_peers:
            raise NoPeers(NOBODY)
        if pipe is None and not self.options.best_effort:
            return None
        request = Request(id, frame, lane, pipe)
        self._requests[id] = request
        if pipe is None:
            self._unassigned[id] = request
        elif self._resend_s:  # like `_schedule`, without the call
            request.due = now + self._resend_s
            self._due[id] = request
        return request

    def forget(self, request: Request) -> None:
        """Forget a request whose reply is no longer wanted."""
        id = request.id
        self._requests.pop(id, None)
        self._due.pop(id, None)
        if self._unassigned:
            self._unassigned.pop(id, None)

    # --- pipes

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        self._rotation.add(pipe)
        self._assign_waiting(now)
        self.lane.writable()

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        self.pipe_attached(pipe, now)

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        self._rotation.discard(pipe)
        if self.options.fail_without_peers and self._rotation.deserted:
            self._fail_all()
            return
        lost = [request for request in self._requests.values() if request.pipe is pipe]
        for request in lost:
            if self.options.resend_s:
                self._send_again(request, now)
            else:
                self.forget(request)
                self.count_drop("peer lost")
                request.lane.failed(
                    RequestLost(f"the peer at {pipe.remote_address} is gone and resend_s is off")
                )

    def _fail_all(self) -> None:
        for request in list(self._requests.values()):
            self.forget(request)
            self.count_drop("peer lost")
            request.lane.failed(NoPeers(NOBODY))
        self.lane.writable()  # no room will come there: let waiting senders ask again

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        for frame in frames:
            if len(frame) < WORD_SIZE:
                self.count_drop("malformed")
                pipe.reject(f"a reply of {len(frame)} bytes has no id")
                return
            request = self._requests.get(peek(frame))
            if request is None:
                self.count_drop("stale")
                continue
            self.forget(request)
            request.lane.answered(pipe, frame[WORD_SIZE:])

    def count_lost(self, pipe: Pipe) -> None:
        pass  # requests are sent again, or fail and are counted then

    # --- sending again

    def next_deadline(self) -> float | None:
        for request in self._due.values():
            return request.due
        return None

    def deadline_reached(self, now: float) -> None:
        due = []
        for request in self._due.values():
            if request.due > now:
                break
            due.append(request)
        for request in due:
            self._send_again(request, now)

    def _send_again(self, request: Request, now: float) -> None:
        self._due.pop(request.id, None)
        request.pipe = self._rotation.send(request.frame)
        if request.pipe is None:
            self._unassigned[request.id] = request
        else:
            self._schedule(request, now)

    def _assign_waiting(self, now: float) -> None:
        unassigned, self._unassigned = self._unassigned, {}
        for request in unassigned.values():
            self._send_again(request, now)

    def _schedule(self, request: Request, now: float) -> None:
        if self._resend_s:
            request.due = now + self._resend_s
            self._due[request.id] = request
