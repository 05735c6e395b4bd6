"""Surveyor0 and Respondent0: one question to all peers, and every answer that arrives in time.

Each lane of a surveyor runs one survey at most:

```
IDLE --send--> OPEN --deadline--> OVER      recv: IDLE raises StateError
                |                           OPEN gives an answer or waits, at most to the deadline
                +-- send: the former        OVER gives the answers that came in time, then SurveyOver
                    survey is given up,
                    its answers forgotten
```

``send`` never waits, even without peers. A peer whose queue is full is not asked, and is counted. A reader's
own timeout or cancellation leaves the survey open (NNG ends it). Answers are not told apart by peer: a peer
that answers twice counts twice. If more than ``recv_queue`` answers are unread, the newest are dropped.

A survey may be *tallied* instead of read (`SurveyLane.collect`). Then it is known which peers were asked,
have answered, or left, and the survey is OVER as soon as no peer is left to answer. A tally keeps the first
answer of every peer, and up to ``recv_queue`` further ones.

A respondent is a `Replier`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from protocols.errors import StateError, SurveyOver
from protocols.options import SocketOptions
from protocols.patterns.base import LossyInbox, Pattern, StateLane
from protocols.patterns.replier import Replier
from protocols.patterns.reqrep import Ids
from protocols.pipe import HEAVY_BYTES_MAX, Pipe
from protocols.pipe_view import PipeView, view_of
from protocols.wire.backtrace import WORD_SIZE, encode_word, peek
from protocols.wire.handshake import ProtocolNumber

EVERYBODY = 1 << 30
"""A number above that of all readers: all must ask again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One peer's answer to a survey."""

    body: bytes
    pipe: PipeView


@dataclass(frozen=True, slots=True)
class SurveyResult:
    """The outcome of a survey. Each peer that was there when it began is in one of the four fields.

    A peer that answered more than once is in ``answers`` more than once.
    """

    answers: tuple[Answer, ...]
    """The answers, in the order of arrival."""
    missing: tuple[PipeView, ...]
    """Peers that were asked, stayed, and gave no answer before the end."""
    lost: tuple[PipeView, ...]
    """Peers that were asked and left before they answered."""
    not_asked: tuple[PipeView, ...]
    """Peers that could not be asked: their queues were full."""

    @property
    def complete(self) -> bool:
        """True if at least one peer was asked and all answered."""
        return bool(self.answers) and not (self.missing or self.lost or self.not_asked)


class Tally:
    """The peers asked by one survey, and their outcomes."""

    def __init__(self, asked: list[Pipe], not_asked: list[Pipe], *, early: bool) -> None:
        self.answers: list[tuple[Pipe, bytes]] = []
        self.over = False
        self._waiting = {pipe.id: pipe for pipe in asked}
        self._lost: list[Pipe] = []
        self._not_asked = not_asked
        self._early = early
        self._spare = 0  # further answers of peers that had already answered
        self._spare_bytes = 0

    def ended(self) -> bool | None:
        """True or False once the survey is over; None until then."""
        return self.over or None

    @property
    def finished(self) -> bool:
        """True if no peer is left to wait for."""
        return self._early and not self._waiting

    def add(self, pipe: Pipe, body: bytes, spare_max: int) -> bool:
        """Keep an answer; return False if it is one too many."""
        if self._waiting.pop(pipe.id, None) is None:
            if self._spare >= spare_max or self._spare_bytes + len(body) > HEAVY_BYTES_MAX:
                return False
            self._spare += 1
            self._spare_bytes += len(body)
        self.answers.append((pipe, body))
        return True

    def pipe_lost(self, pipe: Pipe) -> None:
        if self._waiting.pop(pipe.id, None) is not None:
            self._lost.append(pipe)

    def result(self) -> SurveyResult:
        return SurveyResult(
            tuple(Answer(body, view_of(pipe)) for pipe, body in self.answers),
            tuple(map(view_of, self._waiting.values())),
            tuple(map(view_of, self._lost)),
            tuple(map(view_of, self._not_asked)),
        )


class SurveyLane(StateLane):
    def __init__(self, pattern: Surveyor, survey_s: float) -> None:
        super().__init__()
        self.survey_s = survey_s
        """Seconds that the next survey is open."""
        self.deadline = 0.0
        self.id = 0
        """The id of the open survey; 0 if there is none."""
        self._pattern = pattern
        self._intake = LossyInbox(pattern.options.recv_queue, prefer_new=False)
        self._answers = self._intake.inbox
        self._tally: Tally | None = None

    def send(self, body: bytes, now: float, epoch: int | None = None) -> bool:
        self._begin(body, now, self.survey_s)
        return True

    def collect(self, body: bytes, now: float, survey_s: float | None, *, early: bool) -> Tally:
        """Begin a survey that is tallied; ``readable`` is called when the tally is ``over``."""
        asked, not_asked = self._begin(body, now, self.survey_s if survey_s is None else survey_s)
        tally = self._tally = Tally(asked, not_asked, early=early)
        if early and not asked:
            self.finish()
        return tally

    def _begin(self, body: bytes, now: float, survey_s: float) -> tuple[list[Pipe], list[Pipe]]:
        self.close()
        self.epoch += 1
        self.deadline = now + survey_s
        return self._pattern.ask(self, body)

    def recv(self, now: float, waited: bool) -> bytes | None:
        if self._tally is not None and not self._tally.over:
            raise StateError("survey() collects the answers here; concurrent surveys take a context each")
        if self._answers:
            return self._answers.popleft()
        if self.id and now < self.deadline:
            return None
        if self.id:
            self.finish()
        if waited or self.epoch:
            raise SurveyOver("the survey is over; its answers have been read")
        raise StateError("no survey is open: surveyor0 sends first, then receives until the deadline")

    def answered(self, pipe: Pipe, answer: bytes) -> None:
        if self._tally is None:
            self._pattern.count_drop("inbox full", self._intake.add(pipe, [answer]))
            self.readable(1)
        elif not self._tally.add(pipe, answer, self._pattern.options.recv_queue):
            self._pattern.count_drop("inbox full")
        elif self._tally.finished:
            self.finish()

    def pipe_lost(self, pipe: Pipe) -> None:
        if self._tally is not None:
            self._tally.pipe_lost(pipe)
            if self._tally.finished:
                self.finish()

    def origin(self) -> Pipe:
        return self._intake.origins.last()

    def finish(self) -> None:
        """The open survey is over: later answers are too late."""
        if self._tally is not None:
            self._tally.over = True
        self._pattern.over(self)
        self.readable(EVERYBODY)

    def take_tally(self, tally: Tally) -> SurveyResult | None:
        """Return the outcome of a survey that is over; None if another has replaced it."""
        if self._tally is not tally:
            return None
        self._tally = None
        return tally.result()

    def abandon(self, tally: Tally) -> None:
        """Nobody waits for the tally any more: its answers can be read one by one."""
        if self._tally is tally:
            self._tally = None
            for pipe, body in tally.answers:
                self._answers.append(body)
                self._intake.origins.add(pipe, 1)

    def close(self) -> None:
        if self.id:
            self.finish()
        given_up = len(self._answers) + (len(self._tally.answers) if self._tally is not None else 0)
        self._pattern.count_drop("survey given up", given_up)
        self._answers.clear()
        self._tally = None


class Surveyor(Pattern):
    protocol = ProtocolNumber.SURVEYOR0
    hears_time = True
    lane: SurveyLane

    def __init__(self, options: SocketOptions, rng: random.Random) -> None:
        super().__init__(options, rng)
        self.lane = SurveyLane(self, options.survey_s)
        self._ids = Ids(rng)
        self._pipes: dict[int, Pipe] = {}
        self._open: dict[int, SurveyLane] = {}

    def open_lane(self) -> SurveyLane:
        return SurveyLane(self, self.options.survey_s)

    # --- for lanes

    def ask(self, lane: SurveyLane, body: bytes) -> tuple[list[Pipe], list[Pipe]]:
        """Send the lane's new survey to all peers; return the peers asked, and those that could not be
        asked.
        """
        lane.id = self._ids.draw()
        self._open[lane.id] = lane
        frame = encode_word(lane.id) + body
        asked: list[Pipe] = []
        not_asked: list[Pipe] = []
        for pipe in self._pipes.values():
            pipe.make_room(1)  # contexts may begin more surveys in one loop turn than a queue holds
            (asked if pipe.send_now(frame) else not_asked).append(pipe)
        self.count_drop("peer slow", len(not_asked))
        return asked, not_asked

    def over(self, lane: SurveyLane) -> None:
        """End the lane's survey: later answers are too late."""
        del self._open[lane.id]
        lane.id = 0

    # --- pipes

    def pipe_attached(self, pipe: Pipe, now: float) -> None:
        self._pipes[pipe.id] = pipe

    def pipe_detached(self, pipe: Pipe, now: float) -> None:
        del self._pipes[pipe.id]
        for lane in list(self._open.values()):
            lane.pipe_lost(pipe)

    def pipe_writable(self, pipe: Pipe, now: float) -> None:
        pass

    def received(self, pipe: Pipe, frames: list[bytes], now: float) -> None:
        for frame in frames:
            if len(frame) < WORD_SIZE:
                self.count_drop("malformed")
                pipe.reject(f"an answer of {len(frame)} bytes has no id")
                return
            lane = self._open.get(peek(frame))
            if lane is None or now >= lane.deadline:
                self.count_drop("late")
            else:
                lane.answered(pipe, frame[WORD_SIZE:])

    # --- deadlines

    def next_deadline(self) -> float | None:
        return min((lane.deadline for lane in self._open.values()), default=None)

    def deadline_reached(self, now: float) -> None:
        for lane in list(self._open.values()):
            if lane.deadline <= now:
                lane.finish()


class Respondent(Replier):
    protocol = ProtocolNumber.RESPONDENT0
