"""Star0: a message reaches every node, because each node passes on what it receives.

```
received --> hop word: malformed or ttl hops: dropped
         --> a hop more, to all peers but the one it came from; one whose queue is full misses it
         --> the inbox; full: the arriving message is dropped
```

Forwarding comes first and never waits, so a node whose application does not read still forwards (in mangos,
the only other implementation, it stalls). Raw sockets forward too. Nothing removes duplicates: in a cycle
each message circulates until its hops reach ``ttl``. So a star should be a tree, or it wastes bandwidth.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from protocols.options import SocketOptions
from protocols.patterns.base import LossyInbox, Pattern, QueueLane
from protocols.pipe import Pipe
from protocols.wire.handshake import ProtocolNumber
from protocols.wire.hops import HOP_WORDS, WORD_SIZE, sift, step

NO_HOP = HOP_WORDS[0]


def pass_on(pattern: Pattern, pipes: Iterable[Pipe], origin: Pipe, frames: list[bytes]) -> list[bytes]:
    """Send the frames that may pass to all pipes except their origin; return them with one hop more."""
    good, over_ttl, malformed = sift(frames, pattern.options.ttl - 1, stop=False)
    pattern.count_drop("over ttl", over_ttl)
    pattern.count_drop("malformed", malformed)
    if not good:
        return good
    passed = [step(frame) for frame in good]
    for pipe in pipes:
        if pipe is not origin:
            pipe.make_room(len(passed))
            pattern.count_drop("peer slow", len(passed) - pipe.send_many(passed))
    return passed


class Star(Pattern, QueueLane):
    protocol = ProtocolNumber.STAR0

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
        passed = pass_on(self, self._pipes.values(), pipe, frames)
        if passed:
            bodies = [frame[WORD_SIZE:] for frame in passed]
            self.count_drop("inbox full", self._intake.add(pipe, bodies))
            self.readable(len(bodies))

    def origin(self) -> Pipe:
        return self._intake.origins.last()

    def put(self, body: bytes) -> bool:
        frame = NO_HOP + body
        for pipe in self._pipes.values():
            if not pipe.send(frame):
                self.count_drop("peer slow")
        return True

    def put_many(self, bodies: Sequence[bytes]) -> int:
        frames = [NO_HOP + body for body in bodies]
        for pipe in self._pipes.values():
            self.count_drop("peer slow", len(frames) - pipe.send_many(frames))
        return len(bodies)
