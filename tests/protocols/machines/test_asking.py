"""Req/rep and surveys while peers come and go, queues fill and time passes: each answer belongs to its
question.

The machines model what a caller may rely on. An answer belongs to the question asked last on that lane. An
answer that came in time can be read. A question that can still be answered is answered, once all connections
are well again.
"""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from protocols.errors import StateError, SurveyOver
from protocols.patterns.replier import Replier, ReplierLane
from protocols.patterns.reqrep import Requester, RequesterLane
from protocols.patterns.survey import Respondent, SurveyLane, Surveyor, Tally
from protocols.pipe import Pipe
from protocols.wire.backtrace import peek

from .world import MACHINE, QUEUE, RUN_MAX, Clock, Node, Wire, options, rng

RESEND_S = 5.0
SURVEY_S = 4.0
ANY = st.integers(0, 5)
WORLD = ("join", "cut", "hold", "hold", "flush", "carry", "carry", "spoil")
SPOILT = (b"", b"\x80\0\0", b"\x80\0\0\x01an answer to nobody", b"\0\0\0\x01no end")


Owed = tuple[bytes, Pipe, int]
"""A question that was taken, its asker, and the number of the taking."""


class Answering(Node):
    """A replier or respondent with three lanes."""

    in_drops = ("over ttl", "malformed")
    other_drops = ("peer gone", "not answered")

    def __init__(self, pattern: Replier, clock: Clock) -> None:
        super().__init__(pattern, clock, limit=QUEUE)
        self.replier = pattern
        self.lanes: list[ReplierLane] = [pattern.lane, pattern.open_lane(), pattern.open_lane()]
        self.owed: list[Owed | None] = [None] * len(self.lanes)
        self.parked: list[tuple[int, int, Owed]] = []
        """Senders that wait for room: their lane, its epoch, and the question they answer."""

    def waiting_in(self) -> int:
        return len(self.replier.intake.inbox)

    def take(self, place: int) -> None:
        """Receive; an answer owed before is given up."""
        waiting = list(self.replier.intake.inbox)
        question = self.lanes[place].recv(self.clock.now, False)
        self.owed[place] = None
        if question is None:
            assert not waiting, "a question waits and nobody gets it"
            return
        self.read += 1
        assert waiting[0][1].endswith(question), "questions come in the order in which they arrived"
        self.owed[place] = question, waiting[0][0], self.read

    def answer(self, place: int) -> None:
        owed = self.owed[place]
        if owed is None:
            with pytest.raises(StateError):
                self.lanes[place].send(b"unasked", self.clock.now)
            return
        question, pipe, _ = owed
        closed, full = pipe.closed, pipe.full
        if self.lanes[place].send(b"answer to " + question, self.clock.now):
            self.owed[place] = None
            self.offered += not closed
        else:
            assert full, "there was room for the answer"
            self.parked.append((place, self.lanes[place].epoch, owed))

    def answer_a_deaf_peer(self, place: int) -> None:
        """The queue of the asking peer is full: the sender parks."""
        owed = self.owed[place]
        if owed is not None:
            while owed[1].send(SPOILT[2]):
                self.offered += 1
            self.answer(place)

    def resume(self, which: int) -> None:
        """A parked sender checks again: it answers the question it began with, or nothing."""
        if not self.parked:
            return
        place, epoch, answered = self.parked.pop(which % len(self.parked))
        question, pipe, _ = answered
        overtaken = self.owed[place] != answered
        closed, taken = pipe.closed, pipe.taken
        try:
            sent = self.lanes[place].send(b"answer to " + question, self.clock.now, epoch)
        except StateError:
            assert overtaken, "a sender was refused that had not been overtaken"
            return
        assert not overtaken, "a sender that was overtaken went on"
        if sent:
            self.owed[place] = None
            self.offered += not closed
            assert closed or pipe.taken == taken + 1, "the answer went to another requester"
        else:
            self.parked.append((place, epoch, answered))

    def check(self) -> None:
        super().check()
        assert self.replier.owed == sum(owed is not None for owed in self.owed)


class AskingMachine(RuleBasedStateMachine):
    """One that asks, two that answer."""

    asker: Node
    answering: type[Replier]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.wires: list[Wire] = []
        self.number = 0

    def begin_with(self, asker: Node) -> None:
        self.asker = asker
        made = [self.answering(options(), rng()) for _ in range(2)]
        self.answerers = [Answering(pattern, self.clock) for pattern in made]
        self.join(0)

    def body(self) -> bytes:
        self.number += 1
        return b"question %d" % self.number

    @rule(
        happenings=st.lists(st.tuples(st.sampled_from(WORLD), ANY, st.integers(0, 1)), min_size=1, max_size=8)
    )
    def disturb(self, happenings: list[tuple[str, int, int]]) -> None:
        for what, which, end in happenings:
            alive = [wire for wire in self.wires if wire.alive]
            if what == "join":
                self.join(which)
            elif alive:
                self.happen(what, alive[which % len(alive)], end, which)
            self.check()

    def join(self, which: int) -> None:
        self.wires.append(Wire(self.asker, self.answerers[which % 2], "wire"))

    def happen(self, what: str, wire: Wire, end: int, which: int) -> None:
        if what == "cut":
            wire.cut()
        elif what == "hold":
            wire.ends[end].held = not wire.ends[end].held
        elif what == "flush":
            wire.ends[end].flush()
        elif what == "carry":
            wire.carry(end, RUN_MAX)
        else:
            wire.inject(end, [SPOILT[which % len(SPOILT)]])

    @rule()
    def carry_everything(self) -> None:
        for wire in self.wires:
            for end in (0, 1):
                wire.ends[end].flush()
                wire.carry(end, RUN_MAX)
            wire.tell_ends()

    @rule(
        deeds=st.lists(
            st.tuples(st.sampled_from(["take", "answer", "answer_a_deaf_peer", "resume"]), ANY, ANY),
            min_size=1,
            max_size=8,
        )
    )
    def answer(self, deeds: list[tuple[str, int, int]]) -> None:
        for deed, which, place in deeds:
            node = self.answerers[which % 2]
            getattr(node, deed)(place % len(node.lanes))
            self.check()

    @rule(
        which=ANY,
        place=ANY,
        then=st.lists(st.sampled_from(["take", "answer", "resume", "make room"]), max_size=6),
    )
    def an_answer_waits_for_room(self, which: int, place: int, then: list[str]) -> None:
        for number in range(4):
            self.ask_on(number)
        self.carry_everything()
        node = self.answerers[which % 2]
        lane = place % len(node.lanes)
        node.take(lane)
        node.answer_a_deaf_peer(lane)
        self.check()
        for deed in then:
            if deed == "make room":
                self.carry_everything()
            else:
                getattr(node, deed)(lane)
            self.check()

    def ask_on(self, place: int) -> None:
        raise NotImplementedError

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0, RESEND_S, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        due = self.asker.pattern.next_deadline()
        if due is not None and due <= self.clock.now:
            self.asker.pattern.deadline_reached(self.clock.now)
            due = self.asker.pattern.next_deadline()
            assert due is None or due > self.clock.now, "a timer would fire forever"

    @invariant()
    def check(self) -> None:
        for wire in self.wires:
            wire.tell_ends()
        self.check_asker()
        for node in self.answerers:
            node.check()

    def check_asker(self) -> None:
        raise NotImplementedError

    def make_well(self) -> None:
        """Hold no wire, and have at least one."""
        if not any(wire.alive for wire in self.wires):
            self.join(0)
        for wire in self.wires:
            for cable in wire.ends:
                cable.held = False


class ReqRepMachine(AskingMachine):
    answering = Replier
    requester: Requester

    @initialize(best_effort=st.booleans())
    def begin(self, best_effort: bool) -> None:
        self.requester = Requester(options(resend_s=RESEND_S, best_effort=best_effort), rng())
        self.lanes: list[RequesterLane] = [self.requester.lane]
        self.lanes += [self.requester.open_lane() for _ in range(3)]
        self.asked: list[bytes | None] = [None] * len(self.lanes)
        self.begin_with(Node(self.requester, self.clock, limit=QUEUE))

    @rule(deeds=st.lists(st.tuples(st.booleans(), ANY), min_size=1, max_size=6))
    def ask(self, deeds: list[tuple[bool, int]]) -> None:
        for asks, which in deeds:
            place = which % len(self.lanes)
            if asks:
                question = self.body()
                taken = self.lanes[place].send(question, self.clock.now)
                assert taken or all(pipe.full for pipe in self.asker.pipes.values()), "there was room"
                self.asked[place] = question if taken else None
            else:
                self.hear(place)
            self.check()

    def ask_on(self, place: int) -> None:
        self.ask([(True, place)])

    def hear(self, place: int) -> bytes | None:
        asked = self.asked[place]
        if asked is None:
            with pytest.raises(StateError):
                self.lanes[place].recv(self.clock.now, False)
            return None
        reply = self.lanes[place].recv(self.clock.now, False)
        if reply is not None:
            assert reply == b"answer to " + asked, "an answer to another question"
            self.asked[place] = None
        return reply

    @rule()
    def all_is_answered_once_all_is_well(self) -> None:
        self.make_well()
        for _ in range(4 * len(self.wires) + 8):
            self.time_passes(RESEND_S)
            self.carry_everything()
            for node in self.answerers:
                for place in range(len(node.lanes)):
                    node.take(place)
                    node.answer(place)
            self.carry_everything()
            self.check()
        for place, asked in enumerate(self.asked):
            if asked is not None:
                assert self.hear(place) is not None, f"{asked!r} was never answered"

    def check_asker(self) -> None:
        self.asker.check_pipes()
        requests = self.requester._requests
        under_way = [lane for lane in self.lanes if lane._request is not None]
        assert len(requests) == len(under_way), "a request that nobody waits for is kept"
        assert {*self.requester._due, *self.requester._unassigned} == set(requests)
        assert not {*self.requester._due} & {*self.requester._unassigned}
        due = [request.due for request in self.requester._due.values()]
        assert due == sorted(due), "the earliest deadline is not first"
        for request in requests.values():
            if request.pipe is None:
                assert all(pipe.full for pipe in self.asker.pipes.values()), (
                    "unassigned beside a pipe with room"
                )
            else:
                assert request.pipe.id in self.asker.pipes, "a request is on a pipe that has gone"


class SurveyingNode(Node):
    out_drops = ("peer lost", "peer slow")
    in_drops = ("late", "inbox full", "survey given up", "malformed")

    def __init__(self, machine: SurveyMachine, pattern: Surveyor) -> None:
        super().__init__(pattern, machine.clock, limit=QUEUE)
        self.machine = machine

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        for frame in frames:
            self.machine.expect(pipe, frame)
        super().pipe_received(pipe, frames)

    def waiting_in(self) -> int:
        return sum(map(len, self.machine.unread)) + sum(len(t.answers) for t in self.machine.tallies if t)


class SurveyMachine(AskingMachine):
    """The model: which answers of which lane came in time and are unread, and which peers were asked."""

    answering = Respondent
    surveyor: Surveyor

    @initialize()
    def begin(self) -> None:
        self.surveyor = Surveyor(options(survey_s=SURVEY_S), rng())
        self.lanes: list[SurveyLane] = [self.surveyor.lane, self.surveyor.open_lane()]
        self.unread: list[deque[bytes]] = [deque(), deque()]
        self.current: list[tuple[int, float, bytes]] = [(0, 0.0, b"")] * 2
        self.tallies: list[Tally | None] = [None, None]
        self.present: list[set[int]] = [set(), set()]
        self.begin_with(SurveyingNode(self, self.surveyor))

    def expect(self, pipe: Pipe, frame: bytes) -> None:
        """An answer arrives: the lane it belongs to, by the rules."""
        for place, (id, deadline, _) in enumerate(self.current):
            if len(frame) >= 4 and id == peek(frame) and self.clock.now < deadline:
                if self.tallies[place] is None and len(self.unread[place]) < QUEUE:
                    self.unread[place].append(frame[4:])

    @rule(which=ANY)
    def ask(self, which: int) -> None:
        place = which % 2
        question = self.body()
        self.asker.offered += len(self.asker.pipes)
        assert self.lanes[place].send(question, self.clock.now), "a surveyor never waits"
        self.note_survey(place, question, None)

    def ask_on(self, place: int) -> None:
        self.ask(place)

    @rule(which=ANY, early=st.booleans())
    def collect(self, which: int, early: bool) -> None:
        place = which % 2
        question = self.body()
        self.asker.offered += len(self.asker.pipes)
        tally = self.lanes[place].collect(question, self.clock.now, None, early=early)
        self.note_survey(place, question, tally)

    def note_survey(self, place: int, question: bytes, tally: Tally | None) -> None:
        self.unread[place].clear()
        self.current[place] = self.lanes[place].id or -1, self.clock.now + SURVEY_S, question
        self.tallies[place] = tally
        self.present[place] = set(self.asker.pipes)
        self.take_tally(place)

    @rule(which=ANY)
    def hear(self, which: int) -> None:
        place = which % 2
        if self.tallies[place] is not None:
            return
        _, deadline, question = self.current[place]
        expected = self.unread[place]
        try:
            body = self.lanes[place].recv(self.clock.now, False)
        except StateError:
            assert not expected, "an answer that came in time cannot be read"
            assert self.clock.now >= deadline or not question, "the survey is open"
            return
        if body is None:
            assert not expected and self.clock.now < deadline
            return
        assert body == expected.popleft()
        assert body == b"answer to " + question or body.startswith(b"an answer"), "a stale answer"
        self.asker.read += 1

    @rule(which=ANY)
    def one_who_waited_is_told_of_the_end(self, which: int) -> None:
        place = which % 2
        deadline = self.current[place][1]
        if self.tallies[place] is None and not self.unread[place] and self.clock.now >= deadline:
            with pytest.raises(SurveyOver if self.current[place][2] else StateError):
                self.lanes[place].recv(self.clock.now, True)

    def take_tally(self, place: int) -> None:
        """The tally of a survey that is over: every peer that was there is in one of its four lists."""
        tally = self.tallies[place]
        if tally is None or not tally.over:
            return
        result = self.lanes[place].take_tally(tally)
        assert result is not None
        self.tallies[place] = None
        self.asker.read += len(result.answers)
        answered = {answer.pipe.id for answer in result.answers}
        silent = [pipe.id for pipe in (*result.missing, *result.lost, *result.not_asked)]
        assert len(silent) == len(set(silent)), "somebody is in two lists"
        assert answered | set(silent) >= self.present[place], "somebody is in none"
        assert not answered & {pipe.id for pipe in (*result.missing, *result.lost)}
        assert all(not pipe.closed for pipe in result.missing)
        assert self.clock.now >= self.current[place][1] or not result.missing, (
            "it ended early beside the silent"
        )
        id, deadline, question = self.current[place]
        self.current[place] = id, min(deadline, self.clock.now), question
        assert all(answer.body == b"answer to " + question for answer in result.answers)

    def check_asker(self) -> None:
        for place in range(2):
            self.take_tally(place)
        self.asker.check()
        due = self.surveyor.next_deadline()
        assert due is None or due == min(lane.deadline for lane in self.lanes if lane.id)
        assert all(lane.id == 0 or lane.deadline > self.clock.now - 20.0 for lane in self.lanes), (
            "a survey is open long after its end"
        )

    @rule()
    def everybody_answers_once_all_is_well(self) -> None:
        self.make_well()
        for _ in range(12 * QUEUE):  # messages queued by others go first
            self.carry_everything()
            self.answer_all()
            self.carry_everything()
        self.time_passes(SURVEY_S)
        self.check()
        tally = self.lanes[0].collect(question := self.body(), self.clock.now, None, early=True)
        self.asker.offered += len(self.asker.pipes)
        self.unread[0].clear()
        self.current[0] = self.lanes[0].id, self.clock.now + SURVEY_S, question
        self.present[0] = set(self.asker.pipes)
        self.tallies[0] = tally
        for _ in range(len(self.wires) + 2):
            self.carry_everything()
            self.answer_all()
        self.carry_everything()
        assert tally.over, "everybody has answered, and it goes on"
        result = tally.result()
        assert result.complete, (result.missing, result.lost, result.not_asked)
        self.check()

    def answer_all(self) -> None:
        for node in self.answerers:
            for place in range(len(node.lanes)):
                node.take(place)
                node.answer(place)


@pytest.mark.parametrize("machine", [ReqRepMachine, SurveyMachine])
def test_every_answer_finds_its_question(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=MACHINE)
