"""A pipe and its connection against two lists: what is queued, and what has left."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from protocols import pipe as pipe_module
from protocols.pipe import Pipe

from .world import MACHINE, Cable

LIMIT = 3
CONTROLS = 4
WAYS = ("send", "send now", "send many", "send all", "displace")


class Owner:
    """Counts its calls, and may answer room with a frame, as patterns do."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.rooms = 0
        self.closed: list[str] = []
        self.answer: bytes | None = None
        self.answered: list[bytes] = []

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        assert not pipe.closed and frames
        self.received += frames

    def pipe_writable(self, pipe: Pipe) -> None:
        self.rooms += 1
        assert not pipe.full, "told of room that is not there"
        if self.answer is not None:
            answer, self.answer = self.answer, None
            if pipe.send(answer):
                self.answered.append(answer)

    def pipe_closed(self, pipe: Pipe, reason: str) -> None:
        self.closed.append(reason)

    def pipe_gone(self, pipe: Pipe) -> None: ...


class PipeMachine(RuleBasedStateMachine):
    weighed = False

    @initialize()
    def begin(self) -> None:
        self.owner = Owner()
        self.cable = Cable(1, "cable")
        self.pipe = Pipe(
            1, self.cable, self.owner, url="fake://", dialed=True, limit=LIMIT, weighed=self.weighed
        )
        self.cable.start(self.pipe)
        self.queued: list[bytes] = []
        self.controls: list[bytes] = []
        self.left: list[bytes] = []
        self.refused = 0
        self.starved = False
        self.delivered = 0
        self.number = 0

    def frame(self) -> bytes:
        self.number += 1
        return b"%06d" % self.number

    # --- the model

    def model_flush(self) -> None:
        """The effect of a flush if the kernel has room."""
        if self.cable.held or self.cable.ended:
            return
        self.left += self.controls + self.queued
        self.controls, self.queued = [], []
        if self.starved and not self.pipe.closed:
            self.queued += self.owner.answered
        self.owner.answered.clear()
        self.starved = False

    @property
    def room(self) -> int:
        return 0 if self.pipe.closed else LIMIT - len(self.queued)

    def model_refuse(self, count: int) -> None:
        self.refused += count
        self.starved = self.starved or count > 0

    # --- rules

    @rule(way=st.sampled_from(WAYS), count=st.integers(1, LIMIT + 2))
    def send(self, way: str, count: int) -> None:
        frames = [self.frame() for _ in range(1 if way in ("send", "send now") else count)]
        room = self.room
        taken = min(room, len(frames))
        if way == "send":
            assert self.pipe.send(frames[0]) == (room > 0)
        elif way == "send now":
            self.send_now(frames[0])
            return
        elif way == "send many":
            assert self.pipe.send_many(frames) == taken
        elif way == "send all":
            taken = taken if room >= len(frames) else 0
            assert self.pipe.send_all(frames) == (taken == len(frames))
        else:
            self.displace(frames)
            return
        self.queued += frames[:taken]
        self.model_refuse(len(frames) - taken)

    def send_now(self, frame: bytes) -> None:
        room = self.room
        at_once = not (self.cable.due or self.cable.held or self.cable.ended or self.pipe.closed)
        assert self.pipe.send_now(frame) == (at_once or room > 0)
        if at_once:
            self.left.append(frame)
        elif room:
            self.queued.append(frame)
        else:
            self.model_refuse(1)

    def displace(self, frames: list[bytes]) -> None:
        dropped = self.pipe.displace(frames)
        if self.pipe.closed:
            assert dropped == len(frames)
            return
        everything = self.queued + frames
        self.queued = everything[-LIMIT:]
        assert dropped == len(everything) - len(self.queued)

    @rule()
    def send_control(self) -> None:
        frame = self.frame()
        full = len(self.controls) >= CONTROLS
        was_closed = self.pipe.closed
        self.pipe.send_control(frame)
        if full and not was_closed:
            assert self.pipe.closed and not self.owner.closed, "who sends is not called back"
        elif not was_closed:
            self.controls.append(frame)

    @rule(answers=st.booleans())
    def flush(self, answers: bool) -> None:
        if not self.cable.due:
            return
        self.owner.answer = self.frame() if answers else None
        rooms, told = self.owner.rooms, self.starved and not self.pipe.closed
        stopped = self.cable.held or self.cable.ended
        self.cable.flush()
        assert self.owner.rooms - rooms == (1 if told and not stopped else 0), (
            "room is told once to the refused"
        )
        self.model_flush()
        self.owner.answer = None

    @rule()
    def hold(self) -> None:
        self.cable.held = not self.cable.held

    @rule(count=st.integers(1, 3))
    def deliver(self, count: int) -> None:
        self.pipe.deliver([self.frame() for _ in range(count)])
        self.delivered += 0 if self.pipe.closed else count
        assert len(self.owner.received) == self.delivered

    @rule(how=st.sampled_from(["close", "flush", "lost", "lost again"]))
    def end(self, how: str) -> None:
        if self.number < 20 and how != "lost again":
            return  # let it live for a while first
        if how == "lost again" and not self.pipe.closed:
            return
        given_up = self.pipe.closed and not self.owner.closed
        if how in ("close", "flush"):
            self.pipe.close("closed", flush=how == "flush")
        else:
            self.pipe.connection_lost("lost")
        assert len(self.owner.closed) == 1
        if given_up:
            assert "control" in self.owner.closed[0], "the first reason stays"

    # --- invariants

    @invariant()
    def the_queue_is_what_the_model_says(self) -> None:
        assert self.pipe._output == self.queued
        assert self.pipe._control == self.controls
        assert self.pipe.queued == len(self.queued) + len(self.controls)
        assert list(self.cable.sent) == self.left, "frames left in another order, or not once"
        assert len(self.queued) <= LIMIT and len(self.controls) <= CONTROLS

    @invariant()
    def whatever_is_queued_will_be_flushed(self) -> None:
        assert not self.pipe.queued or self.cable.due or self.cable.ended

    @invariant()
    def counters_count(self) -> None:
        counted = self.pipe.statistics()
        assert counted.refused == self.refused
        assert counted.frames_out == len(self.left)
        assert self.pipe.full == (self.room == 0)
        assert len(self.owner.closed) <= 1


class WeighedPipeMachine(PipeMachine):
    """It holds as many light frames as any pipe."""

    weighed = True


@pytest.mark.parametrize("machine", [PipeMachine, WeighedPipeMachine])
def test_a_pipe_is_its_queue(machine: type[RuleBasedStateMachine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_module, "CONTROL_MAX", CONTROLS)
    run_state_machine_as_test(machine, settings=MACHINE)
