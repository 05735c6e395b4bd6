"""The frames that a relay keeps while there is no room, and their bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.options import SocketOptions
from protocols.patterns import relay as relay_module
from protocols.patterns.base import ORPHANS_MAX
from protocols.patterns.raw import Raw
from protocols.patterns.relay import PARKED_MAX, Backlog, Relay
from protocols.pipe import HEAVY_BYTES_MAX
from protocols.wire.backtrace import END_BIT, encode_word, pop
from protocols.wire.handshake import ProtocolNumber
from tests.support.link import Plug

ID = encode_word(END_BIT | 7)
STEPS = ["ask", "answer", "read answers", "read questions", "leave", "come"]


def raw(number: ProtocolNumber) -> Raw:
    return Raw(number, SocketOptions(), random.Random(1), None)


def nothing() -> None:
    """Ignores the end."""


def joined(front: ProtocolNumber, back: ProtocolNumber) -> tuple[Raw, Raw, Relay]:
    one, two = raw(front), raw(back)
    return one, two, Relay(one, two, nothing)


def test_runs_of_peers_that_left_are_kept_up_to_a_bound_and_the_oldest_dropped() -> None:
    pull, push, relay = joined(ProtocolNumber.PULL0, ProtocolNumber.PUSH0)
    for number in range(ORPHANS_MAX + 10):
        plug = Plug(pull, number + 1)
        plug.say(b"%d" % number, b"and")
        plug.lose()
    assert relay.forward is not None
    assert relay.forward.statistics().waiting == 2 * ORPHANS_MAX
    assert relay.forward.statistics().drops == {"peer gone": 20}
    taker = Plug(push, 1, limit=10_000)
    assert taker.take() == [
        body for number in range(10, ORPHANS_MAX + 10) for body in (b"%d" % number, b"and")
    ]
    assert relay.forward.statistics().waiting == 0


def test_messages_queued_before_the_device_go_first() -> None:
    pull, push = raw(ProtocolNumber.PULL0), raw(ProtocolNumber.PUSH0)
    one, two = Plug(pull, 1), Plug(pull, 2)
    one.say(b"1")
    two.say(b"2")
    one.lose()
    taker = Plug(push)
    Relay(pull, push, nothing)
    two.say(b"3")
    assert taker.take() == [b"1", b"2", b"3"]


def test_answers_parked_for_one_peer_are_bounded_in_number() -> None:
    rep, req, relay = joined(ProtocolNumber.REP0, ProtocolNumber.REQ0)
    asker, replier = Plug(rep, 5, limit=1), Plug(req, 1)
    answers = [encode_word(5) + ID] * 1000
    for _ in range(20):
        replier.say(*answers)
    assert relay.backward is not None
    statistics = relay.backward.statistics()
    assert statistics.waiting == PARKED_MAX
    assert statistics.drops == {"peer slow": 20_000 - 1 - PARKED_MAX}
    assert asker.connection.paused


def test_parked_answers_are_bounded_in_bytes_but_one_is_always_taken() -> None:
    parked = Backlog()
    assert parked.add([bytes(HEAVY_BYTES_MAX + 1), b"x"]) == 1
    parked.sent(1)
    megabyte = bytes(1 << 20)
    assert parked.add([megabyte] * 20) == 4
    parked.sent(16)
    assert (parked.frames, parked.bytes) == ([], 0)


def test_the_docstring_of_the_module_names_every_protocol_of_its_flows() -> None:
    """The table has a line for every protocol that a flow can leave by."""
    text = relay_module.__doc__ or ""
    for number in ProtocolNumber:
        name = number.name.title()
        if name not in ("Sub0", "Pull0"):
            assert name in text, name


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "answer", "read answers", "read questions", "leave", "come"]),
            st.integers(1, 3),
        ),
        max_size=60,
    )
)
def test_every_question_and_answer_is_delivered_once_waits_or_is_counted(
    steps: list[tuple[str, int]],
) -> None:
    rep, req, relay = joined(ProtocolNumber.REP0, ProtocolNumber.REQ0)
    assert relay.forward is not None and relay.backward is not None
    askers = {id: Plug(rep, id, limit=2) for id in (1, 2, 3)}
    replier = Plug(req, 9, limit=3)
    asked = taken = answered = heard = lost = 0
    questions: list[bytes] = []
    number = 0
    for what, id in steps:
        asker = askers[id]
        if what == "ask" and not asker.connection.paused and not asker.pipe.closed:
            number += 1
            asker.say(ID + b"%d" % number, ID)
            asked += 2
        elif what == "read questions":
            questions += (got := replier.take())
            taken += len(got)
        elif what == "answer" and questions and not replier.connection.paused:
            replier.say(*questions[:2])
            answered += len(questions[:2])
            del questions[:2]
        elif what == "read answers" and not asker.pipe.closed:
            got = asker.take()
            heard += len(got)
            assert all(frame.startswith(ID) for frame in got)
        elif what == "leave" and not asker.pipe.closed:
            lost += asker.pipe.queued
            asker.lose()
        elif what == "come" and asker.pipe.closed:
            askers[id] = Plug(rep, id, limit=2)
    forward, backward = relay.forward.statistics(), relay.backward.statistics()
    assert asked == taken + replier.pipe.queued + forward.waiting + sum(forward.drops.values())
    in_queues = sum(asker.pipe.queued for asker in askers.values() if not asker.pipe.closed)
    assert answered == heard + lost + in_queues + backward.waiting + sum(backward.drops.values())
    if not forward.waiting and not backward.waiting:
        assert not any(asker.connection.paused for asker in askers.values() if not asker.pipe.closed)


@pytest.mark.parametrize("count", [1, 5])
def test_requests_carry_the_id_of_the_pipe_they_came_by(count: int) -> None:
    rep, req, _ = joined(ProtocolNumber.REP0, ProtocolNumber.REQ0)
    replier = Plug(req, 1, limit=100)
    for id in range(1, count + 1):
        Plug(rep, id).say(ID + b"q", encode_word(3) + ID + b"far")
    frames = replier.take()
    assert [pop(frame) for frame in frames] == [
        (id, rest) for id in range(1, count + 1) for rest in (ID + b"q", encode_word(3) + ID + b"far")
    ]
