"""The answering half of two patterns, Rep0 and Respondent0: take a question, give one answer.

Each lane (the socket's or a context's) is IDLE or OWES an answer to the question it took last:

```
IDLE --recv--> OWES --send--> IDLE
```

``recv`` while OWES gives up that question; ``send`` while IDLE is a `StateError`. A ``send`` that waits for
room answers the question that was owed when it began, or raises `StateError` if that was given up.

Questions wait in one inbox for all lanes, which stops reading when full. The words in front of a question
(its backtrace) go back unchanged in front of the answer: they lead it back through any relays. A question
with more words than ``ttl`` is dropped; one that ends inside them costs its peer the pipe. An answer to a
peer that is gone is dropped silently, but counted. With ``best_effort`` so is one to a peer whose queue is
full.
"""

from __future__ import annotations

import random

from protocols.errors import StateError
from protocols.options import SocketOptions
from protocols.patterns.base import Intake, Pattern, StateLane
from protocols.pipe import Pipe
from protocols.wire.backtrace import OVER_TTL, split
from protocols.wire.handshake import ProtocolNumber

Question = tuple[Pipe, bytes, int]
"""The pipe that the question came from, its frame, and where its body begins."""


class ReplierLane(StateLane):
    timed = False
    exclusive = True

    def __init__(self, pattern: Replier) -> None:
        super().__init__()
        self._pattern = pattern
        self._pipe: Pipe | None = None
        self._backtrace = b""
        self._origin: Pipe | None = None
        self._refused = False  # True if the answer found no room

    def recv(self, now: float, waited: bool) -> bytes | None:
        if self._pipe is not None and not waited:
            self.close()
        pattern = self._pattern
        question = pattern.intake.take()
        if question is None:
            return None
        pattern.owed += 1
        self.epoch += 1
        self._refused = False
        self._pipe, frame, offset = question
        self._origin = self._pipe
        self._backtrace = frame[:offset]
        return frame[offset:]

    def send(self, body: bytes, now: float, epoch: int | None = None) -> bool:
        self.check_epoch(epoch)
        pipe = self._pipe
        if pipe is None:
            raise StateError(f"nothing to answer: {self._pattern.name} receives first, then sends once")
        if pipe.closed:
            self._pattern.count_drop("peer gone")
        elif not self._pattern.answer(pipe, self._backtrace + body) and not self._pattern.give_up(
            1, "peer slow"
        ):
            self._refused = True
            return False
        self._pipe = None
        self._pattern.owed -= 1
        return True

    def origin(self) -> Pipe:
        assert self._origin is not None, "nothing was taken"
        return self._origin

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe = None
            self.epoch += 1
            self._pattern.owed -= 1
            self._pattern.count_drop("not answered")
            if self._refused:
                self.writable()  # a sender that waits for room has been superseded


class Replier(Pattern):
    """The pattern of Rep0; Respondent0 differs only in its number."""

    protocol = ProtocolNumber.REP0
    lane: ReplierLane
    shared_inbox = True

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        super().__init__(options, rng)
        self.lane = ReplierLane(self)
        self.intake: Intake[Question] = Intake(options.recv_queue)
        self.owed = 0
        """Questions that lanes have taken and not yet answered."""

    def open_lane(self) -> ReplierLane:
        return ReplierLane(self)

    def answer(self, pipe: Pipe, frame: bytes) -> bool:
        if self.owed == 1 and not self.intake.inbox:
            return pipe.send_now(frame)  # no other answer is under way that could share the write
        return pipe.send(frame)

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        self.intake.admit()

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        self.intake.discard(pipe)
        self.lane.writable()  # senders that wait for room there need not wait any more

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        self.lane.writable()

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        ttl = self.options.ttl
        questions = []
        malformed = False
        for frame in frames:
            offset = split(frame, ttl)
            if offset > 0:
                questions.append((pipe, frame, offset))
            elif offset == OVER_TTL:
                self.count_drop("over ttl")
            else:
                malformed = True
                break
        if questions:
            self.intake.add(pipe, questions, len(frames[0]))
            self.lane.readable(len(questions))
        if malformed:
            self.count_drop("malformed")
            pipe.reject("a question ended inside its backtrace")
