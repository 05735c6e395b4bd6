"""The outcomes of messages that nobody waits for yet; the test plays the broker."""

from __future__ import annotations

import gc
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mesh.clients.conversation import Conversation
from mesh.clients.pending import STALE_MIN, AnyPending
from mesh.errors import MeshError, NotAccepted, Unknown
from mesh.wire.blocks import ACCEPTED, STORED
from mesh.wire.session_frames import Kind, Receipt, encode
from tests.mesh.clients.brokerless import PREFIX, settled, welcomed


def soon(
    conversation: Conversation,
    topic: str = "t",
    *,
    limit_s: float = 10.0,
    now: float = 0.0,
    level: int = STORED,
) -> AnyPending:
    ticket, index = conversation.add(topic, b"x", level, b"")
    assert ticket is not None
    return AnyPending(conversation.pendings.add(ticket, index, limit_s, now), index)


def said(conversation: Conversation, kind: int, *fields: object) -> None:
    for item in conversation.received([PREFIX + encode(kind, *fields)], 0.0):
        item.wake()


def accepted(conversation: Conversation, first: int, last: int) -> None:
    said(conversation, Kind.ACK, STORED, [[first, last]], [], ["h"])


def result(outcome: AnyPending) -> Receipt:
    return outcome._result()


def called(conversation: Conversation) -> list[AnyPending]:
    """The outcomes with due callbacks, in order."""
    calls = conversation.pendings.calls
    return [calls.popleft()[1] for _ in range(len(calls))]


def test_messages_of_a_turn_share_a_group_a_block_and_its_acknowledgement() -> None:
    conversation = settled()
    outcomes = [soon(conversation) for _ in range(100)]
    assert len({id(outcome.place[0]) for outcome in outcomes}) == 1 and conversation.pendings.count == 100
    conversation.flush()
    assert len(conversation.take_frames()) == 1
    assert not any(outcome.done() for outcome in outcomes)
    accepted(conversation, 1, 100)
    assert all(outcome.done() for outcome in outcomes) and conversation.pendings.count == 0
    assert [result(outcome).seq for outcome in outcomes] == list(range(1, 101))
    assert result(outcomes[0]) == Receipt("stored", "alpha", 1, 1, (), ("h",))
    assert outcomes[0].exception() is None


def test_messages_of_waiting_callers_keep_their_order_among_pending_ones() -> None:
    conversation = settled()
    first = soon(conversation)
    ticket, index = conversation.add("t", b"awaited", STORED, b"")
    second = soon(conversation)
    assert first.place[0] is not second.place[0]
    conversation.flush()
    accepted(conversation, 1, 3)
    assert ticket is not None
    assert [result(first).seq, ticket.receipt(index).seq, result(second).seq] == [1, 2, 3]


def test_an_open_outcome_is_not_known_yet() -> None:
    outcome = soon(settled())
    assert repr(outcome) == "<AnyPending waits>"
    with pytest.raises(MeshError, match="not known yet"):
        outcome.exception()


def test_a_refused_outcome_raises_like_publish_each_time_it_is_read() -> None:
    conversation = settled()
    outcome = soon(conversation)
    conversation.flush()
    said(conversation, Kind.REFUSED, [[1, 1]], "nobody keeps t")
    for _ in range(2):
        with pytest.raises(NotAccepted, match="refused the message: nobody keeps t"):
            result(outcome)
    error = outcome.exception()
    assert isinstance(error, NotAccepted) and error.__traceback__ is None, "each raise is of a copy"
    assert "failed: broker alpha refused" in repr(outcome)


def test_a_timeout_takes_unsent_messages_back_and_makes_sent_ones_unknown() -> None:
    conversation = settled()
    sent = soon(conversation)
    conversation.flush()
    conversation.take_frames()
    gathered = soon(conversation, now=1.0)
    conversation.pendings.expire(9.99, "connected to alpha")
    assert not sent.done() and conversation.pendings.due == 10.0
    conversation.pendings.expire(10.0, "connected to alpha")
    assert isinstance(sent.exception(), Unknown)
    assert str(sent.exception()) == "no acknowledgement in 10 s: connected to alpha"
    assert not gathered.done() and conversation.pendings.due == 11.0
    conversation.pendings.expire(11.0, "away")
    assert isinstance(gathered.exception(), NotAccepted)
    conversation.flush()
    assert conversation.take_frames() == [] and conversation.pendings.due == inf


def test_an_acknowledgement_that_comes_too_late_changes_nothing() -> None:
    conversation = settled()
    outcome = soon(conversation)
    conversation.flush()
    conversation.pendings.expire(10.0, "away")
    accepted(conversation, 1, 1)
    assert isinstance(outcome.exception(), Unknown) and conversation.pendings.count == 0


def test_messages_of_a_batch_that_were_acknowledged_in_time_succeed() -> None:
    """One batch has two blocks, and one of them is acknowledged: each message has its own outcome."""
    conversation = settled(size=1 << 24)
    ticket, index = conversation.add_many("t", [bytes(1000)] * 100, STORED)
    assert ticket is not None
    outcomes = [AnyPending(conversation.pendings.add(ticket, index + n, 5.0, 0.0), n) for n in range(100)]
    conversation.flush()
    accepted(conversation, 1, 65)
    assert not outcomes[0].done()
    conversation.pendings.expire(5.0, "away")
    assert [isinstance(outcome.exception(), Unknown) for outcome in outcomes] == [False] * 65 + [True] * 35
    assert result(outcomes[64]).seq == 65


def test_a_group_with_another_timeout_ends_at_its_own_time() -> None:
    conversation = settled()
    long, short = soon(conversation), soon(conversation, limit_s=1.0)
    conversation.pendings.expire(1.0, "away")
    assert short.done() and not long.done()
    conversation.flush()
    accepted(conversation, 1, 1)
    assert result(long).count == 1


def test_the_timeout_of_a_message_begins_with_its_own_turn() -> None:
    """Without a session a batch may gather for long."""
    conversation = settled()
    first, second = soon(conversation), soon(conversation, now=5.0)
    assert first.place[0] is second.place[0], "of one turn"
    conversation.pendings.new_turn()
    third = soon(conversation, now=5.0)
    conversation.pendings.expire(10.0, "away")
    assert first.done() and not third.done()


def test_closing_makes_messages_in_flight_unknown_and_unsent_ones_not_accepted() -> None:
    conversation = settled()
    under_way = soon(conversation)
    conversation.flush()
    gathered = soon(conversation)
    for item in conversation.close("closed"):
        item.wake()
    assert isinstance(under_way.exception(), Unknown) and isinstance(gathered.exception(), NotAccepted)
    assert conversation.pendings.count == 0


def test_callbacks_come_in_order_once_and_when_all_of_a_group_is_known() -> None:
    conversation = settled()
    outcomes = [soon(conversation) for _ in range(3)]
    for outcome in reversed(outcomes):
        outcome.on_done(print)
    conversation.flush()
    assert called(conversation) == []
    accepted(conversation, 1, 3)
    assert called(conversation) == outcomes[::-1]
    outcomes[0].on_done(print)
    assert called(conversation) == outcomes[:1], "at once, as it is known"


def test_the_gate_opens_when_the_number_of_pending_messages_falls() -> None:
    conversation = settled()
    conversation.pendings.most = 2
    opened: list[int] = []
    outcomes = [soon(conversation, topic) for topic in ("a", "b")]
    assert conversation.pendings.full
    conversation.pendings.gate.waiters[lambda: opened.append(conversation.pendings.count)] = None
    conversation.flush()
    accepted(conversation, 1, 1)
    assert opened == [1] and outcomes[0].done() and not outcomes[1].done()


def unheard(conversation: Conversation) -> list[tuple[int, str]]:
    told: list[tuple[int, str]] = []
    conversation.pendings.tell = lambda count, error: told.append((count, str(error)))
    return told


def test_unread_failures_are_reported_once_their_outcomes_are_garbage() -> None:
    conversation = settled()
    told = unheard(conversation)
    outcomes = [soon(conversation) for _ in range(5)]
    outcomes[4].on_done(print)
    conversation.flush()
    said(conversation, Kind.REFUSED, [[1, 5]], "no")
    assert isinstance(outcomes[0].exception(), NotAccepted)
    with pytest.raises(NotAccepted):
        result(outcomes[1])
    assert called(conversation) == outcomes[4:], "being called back is not looking"
    assert told == []
    del outcomes
    gc.collect()
    assert told == [(3, "broker alpha refused the message: no")] and conversation.pendings.unheard == 3


def test_failures_of_messages_without_a_kept_outcome_are_reported() -> None:
    conversation = settled()
    told = unheard(conversation)
    soon(conversation)
    conversation.flush()
    gc.collect()
    assert told == []
    said(conversation, Kind.REFUSED, [[1, 1]], "no")
    assert [count for count, _ in told] == [1]


def test_an_error_that_was_raised_elsewhere_keeps_no_outcome_alive() -> None:
    """A raised error holds its frames, and they may hold the outcome, which is not collected then."""
    conversation = settled()
    told = unheard(conversation)

    def fail() -> None:
        outcome = soon(conversation)
        ticket, index = conversation.add("t", b"awaited", STORED, b"")
        conversation.flush()
        said(conversation, Kind.REFUSED, [[1, 2]], "no")
        assert ticket is not None and outcome.done()
        with pytest.raises(NotAccepted):
            ticket.receipt(index)

    fail()
    gc.collect()
    assert [count for count, _ in told] == [1]


def test_unread_successes_are_not_reported() -> None:
    conversation = settled()
    told = unheard(conversation)
    soon(conversation)
    conversation.flush()
    accepted(conversation, 1, 1)
    gc.collect()
    assert told == [] and conversation.pendings.unheard == 0


def test_finished_groups_are_forgotten_before_their_timeout() -> None:
    """At a thousand a second, each would otherwise be kept for ten seconds."""
    conversation = settled(1 << 20, 1 << 26)
    for number in range(1, 1001):
        soon(conversation)
        conversation.flush()
        accepted(conversation, number, number)
    assert len(conversation.pendings._by_deadline) <= STALE_MIN + 1


class PendingMachine(RuleBasedStateMachine):
    """Messages of a few topics and timeouts; a broker that answers some of them, and goes away at times."""

    @initialize()
    def begin(self) -> None:
        self.conversation = settled(200, 1 << 16)
        self.now = 0.0
        self.outcomes: list[AnyPending] = []
        self.ends: dict[int, str] = {}
        self.calls: list[AnyPending] = []
        self.conversation.pendings.call = lambda _, outcome: self.calls.append(outcome)

    @rule(
        topic=st.sampled_from("ab"),
        limit_s=st.sampled_from([1.0, 3.0]),
        level=st.sampled_from([ACCEPTED, STORED]),
    )
    def publish(self, topic: str, limit_s: float, level: int) -> None:
        outcome = soon(self.conversation, topic, limit_s=limit_s, now=self.now, level=level)
        outcome.on_done(print)
        self.outcomes.append(outcome)

    @rule()
    def turn(self) -> None:
        self.conversation.flush()
        self.conversation.pendings.new_turn()

    @rule(first=st.integers(1, 40), count=st.integers(1, 8), refuse=st.booleans())
    @precondition(lambda self: self.conversation.settled)
    def answer(self, first: int, count: int, refuse: bool) -> None:
        if refuse:
            said(self.conversation, Kind.REFUSED, [[first, first + count - 1]], "no")
        else:
            accepted(self.conversation, first, first + count - 1)

    @rule(seconds=st.sampled_from([0.3, 1.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.conversation.pendings.expire(self.now, "away")
        assert all(outcome.done() for outcome in self.outcomes if outcome.place[0].deadline <= self.now)

    @rule()
    def lose(self) -> None:
        for item in self.conversation.disconnected("lost"):
            item.wake()

    @rule()
    @precondition(lambda self: not self.conversation.settled)
    def come_back(self) -> None:
        for item in welcomed(self.conversation, 200, 1 << 16):
            item.wake()

    @invariant()
    def what_is_known_changes_no_more(self) -> None:
        for outcome in self.outcomes:
            if outcome.done():
                error = outcome.exception()
                end = repr(result(outcome)) if error is None else repr(error)
                assert self.ends.setdefault(id(outcome), end) == end

    @invariant()
    def each_is_called_back_once_it_is_known(self) -> None:
        known = {id(outcome) for outcome in self.outcomes if outcome.done()}
        assert len(self.calls) == len(known) and {id(outcome) for outcome in self.calls} == known

    @invariant()
    def the_open_ones_are_counted(self) -> None:
        assert self.conversation.pendings.count == sum(not outcome.done() for outcome in self.outcomes)
        groups = {id(outcome.place[0]) for outcome in self.outcomes if not outcome.done()}
        assert len(self.conversation.pendings._groups) == len(groups)

    def teardown(self) -> None:
        for item in self.conversation.close("closed"):
            item.wake()
        assert all(outcome.done() for outcome in self.outcomes)
        assert self.conversation.pendings.count == 0 and not self.conversation.pendings._groups


TestPendingMachine = PendingMachine.TestCase
TestPendingMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
