"""Surveyor0 and Respondent0: one question to everybody, and as many answers as come in time.

Each lane of a surveyor runs one survey at most:

```
IDLE --send--> OPEN --deadline--> OVER      recv: IDLE raises StateError
                |                           OPEN gives an answer or waits, at most to the deadline (Timeout)
                +-- send: the former        OVER gives the answers that came in time, then StateError
                    survey is given up,
                    its answers forgotten
```

``send`` never waits, also without peers; a peer whose queue is full is not asked, and counted. A reader's
own timeout or cancellation leaves the survey open (NNG ends it). Answers are not told apart by peer: one that
answers twice counts twice. More than ``recv_queue`` unread answers are dropped, the newest first.

A respondent is a `Replier`.
"""

from __future__ import annotations

import random
from collections import deque

from protocols.errors import StateError, Timeout
from protocols.options import SocketOptions
from protocols.patterns.base import OutputPipe, Pattern, StateLane
from protocols.patterns.replier import Replier
from protocols.patterns.reqrep import Ids
from protocols.wire.backtrace import WORD_SIZE, encode_word, peek
from protocols.wire.handshake import ProtocolNumber

EVERYBODY = 1 << 30
"""More readers than there are: all are to ask again."""


class SurveyLane(StateLane):
    def __init__(self, pattern: Surveyor, survey_s: float) -> None:
        super().__init__()
        self.survey_s = survey_s
        """How long the next survey is open."""
        self.deadline = 0.0
        self.id = 0
        """Of the open survey; 0 when there is none."""
        self._pattern = pattern
        self._answers: deque[bytes] = deque()

    def send(self, body: bytes, now: float) -> bool:
        self.close()
        self.epoch += 1
        self.deadline = now + self.survey_s
        self.id = self._pattern.ask(self, body)
        return True

    def recv(self, now: float, waited: bool) -> bytes | None:
        if self._answers:
            return self._answers.popleft()
        if self.id and now < self.deadline:
            return None
        if self.id:
            self._pattern.over(self)
            self.readable(EVERYBODY)
        if waited:
            raise Timeout(f"the survey is over after {self.survey_s:g} s")
        raise StateError("no survey is open: surveyor0 sends first, then receives until the deadline")

    def answered(self, answer: bytes) -> None:
        if len(self._answers) >= self._pattern.options.recv_queue:
            self._pattern.count_drop("inbox full")
            return
        self._answers.append(answer)
        self.readable(1)

    def close(self) -> None:
        if self.id:
            self._pattern.over(self)
        self._pattern.count_drop("survey given up", len(self._answers))
        self._answers.clear()


class Surveyor(Pattern):
    protocol = ProtocolNumber.SURVEYOR0
    lane: SurveyLane

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        super().__init__(options, rng)
        self.lane = SurveyLane(self, options.survey_s)
        self._ids = Ids(rng)
        self._pipes: dict[int, OutputPipe] = {}
        self._open: dict[int, SurveyLane] = {}

    def open_lane(self) -> SurveyLane:
        return SurveyLane(self, self.options.survey_s)

    # --- for lanes

    def ask(self, lane: SurveyLane, body: bytes) -> int:
        """Broadcast a new survey; returns its id."""
        id = self._ids.draw()
        self._open[id] = lane
        frame = encode_word(id) + body
        for pipe in self._pipes.values():
            if not pipe.send(frame):
                self.count_drop("peer slow")
        return id

    def over(self, lane: SurveyLane) -> None:
        """Answers to the lane's survey are late from now on."""
        del self._open[lane.id]
        lane.id = 0

    # --- pipes

    def pipe_attached(self, pipe: OutputPipe, now: float) -> None:
        self._pipes[pipe.id] = pipe

    def pipe_detached(self, pipe: OutputPipe, now: float) -> None:
        del self._pipes[pipe.id]

    def pipe_writable(self, pipe: OutputPipe, now: float) -> None:
        pass

    def received(self, pipe: OutputPipe, frames: list[bytes], now: float) -> None:
        for frame in frames:
            if len(frame) < WORD_SIZE:
                self.count_drop("malformed")
                pipe.close(f"an answer of {len(frame)} bytes has no id")
                return
            lane = self._open.get(peek(frame))
            if lane is None or now >= lane.deadline:
                self.count_drop("late")
            else:
                lane.answered(frame[WORD_SIZE:])

    # --- deadlines

    def next_deadline(self) -> float | None:
        return min((lane.deadline for lane in self._open.values()), default=None)

    def deadline_reached(self, now: float) -> None:
        for lane in list(self._open.values()):
            if lane.deadline <= now:
                self.over(lane)
                lane.readable(EVERYBODY)


class Respondent(Replier):
    protocol = ProtocolNumber.RESPONDENT0
