"""A client's end of the session, alone, also when its broker sends nonsense."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.clients.conversation import Conversation
from mesh.clients.feeds import Feed, Token
from mesh.errors import PeerError, SessionError
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED
from mesh.wire.capabilities import Agreed
from mesh.wire.session_frames import BODY_MAX, Kind, Role, Status, decode, encode
from mesh.wire.session_opening import client_id, verified, welcome
from tests.mesh.clients.brokerless import PREFIX, data, settled, subscribed, welcomed
from tests.mesh.dataplane.neighbourhood import FakeMesh


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x91",
        b"hello",
        b"\x93\x05",
        encode(Kind.HELLO, 1, 1, 1, "x", 0),
        encode(Kind.WELCOME, 99, 9, "alpha", "mesh", 1, 1, 1),
        encode(Kind.ERROR, "SessionError", "no"),
        encode(Kind.CREDIT, 0, 1 << 31, 1 << 40) * 1,
    ],
)
def test_a_broken_frame_of_a_broker_is_a_peer_error(frame: bytes) -> None:
    conversation = settled()
    with pytest.raises(PeerError):
        conversation.received([PREFIX + frame], 0.0)


def test_a_new_connection_begins_with_a_fresh_keepalive() -> None:
    conversation = Conversation(secret=bytes(16), boot=2, name="me", prefix=PREFIX, keepalive_s=1.0, now=0.0)
    conversation.connected(1000.0)
    assert not conversation.tick(1001.0)


def test_frames_of_another_session_are_not_ours() -> None:
    conversation = settled()
    assert conversation.received([b"\x80\0\0\2" + encode(Kind.BYE, "x")], 0.0) == []
    assert conversation.settled


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_frames_end_in_a_peer_error_at_either_end_or_are_read(draws: st.DataObject) -> None:
    """Every kind of frame, one byte changed: a broker never raises, a client raises nothing but
    `PeerError`."""
    mesh = FakeMesh(1)
    client, other = mesh.client(), mesh.client()
    other.subscribe("t", role=1)
    client.subscribe("t")
    client.conversation.add_many("t", [b"a", b"bc"], draws.draw(st.integers(0, 1)))
    client.conversation.add("t", bytes(70_000), ACCEPTED, blocks.pack_headers({"a": 1}))
    client.conversation.ask("t", b"", b"", survey=True, timeout_s=1.0, now=0.0)
    client.conversation.answer(Token(1, 1), b"x")
    client.conversation.sync()
    client.conversation.flush()
    frames = client.conversation.take_control() + client.conversation.take_frames()
    index = draws.draw(st.integers(0, len(frames) - 1))
    frame = bytearray(frames[index])
    at = draws.draw(st.integers(4, min(len(frame), 120) - 1))
    frame[at] = draws.draw(st.integers(0, 255))
    frames[index] = bytes(frame)
    node = mesh.nodes[1].exchange
    node.client_frames(client.pipe, frames, 0.0)
    back = client.pipe.take() + other.pipe.take()
    if back:
        position = draws.draw(st.integers(0, len(back) - 1))
        answer = bytearray(back[position])
        at = draws.draw(st.integers(4, min(len(answer), 120) - 1))
        answer[at] = draws.draw(st.integers(0, 255))
        back[position] = bytes(answer)
    for conversation in (client.conversation, other.conversation):
        try:
            conversation.received([conversation.prefix + frame[4:] for frame in back], 0.0)
        except PeerError:
            pass
    bystander = mesh.client()
    feed = bystander.subscribe("u")
    bystander.publish("u", b"still here")
    assert [body for _, body in bystander.take(feed)] == [b"still here"]


def test_the_last_error_of_a_broker_is_remembered() -> None:
    conversation = settled()
    with pytest.raises(SessionError, match="too fast"):
        conversation.received([PREFIX + encode(Kind.ERROR, "CreditExceeded", "too fast")], 0.0)
    assert conversation.last_error == "CreditExceeded: too fast"


def said(conversation: Conversation) -> list[list[object]]:
    frames = conversation.take_control() + conversation.take_frames()
    assert all(frame[:4] == PREFIX for frame in frames)
    return [decode(frame, 4) for frame in frames]


def test_messages_before_a_broken_frame_wake_their_waiters_when_the_connection_ends() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    ticket, _ = conversation.add("t", b"x", ACCEPTED, b"")
    conversation.flush()
    frames = [
        data(feed.number, 1, b"a"),
        PREFIX + encode(Kind.ACK, 1, [[1, 1]], []),
        PREFIX + encode(Kind.ERROR, "SessionError", "no"),
    ]
    with pytest.raises(PeerError):
        conversation.received(frames, 0.0)
    woken = conversation.disconnected()
    assert ticket in woken and feed in woken and len(feed.runs) == 1
    assert feed not in conversation.disconnected(), "once"
    welcomed(conversation)
    assert conversation.received([PREFIX + encode(Kind.PONG, 1)], 0.0) == [conversation.heard]


def test_a_ping_is_sent_at_each_tick_of_a_session_and_silence_ends_it() -> None:
    conversation = Conversation(secret=bytes(16), boot=2, name="me", prefix=PREFIX, keepalive_s=1.0, now=0.0)
    assert not conversation.tick(100.0), "there is no connection"
    conversation.connected(10.0)
    conversation.take_control()
    assert not conversation.tick(11.0) and said(conversation) == [], "there is no session yet"
    answer = welcome(Agreed(2, frozenset()), 9, "alpha", "mesh", 1, 10, 10)
    conversation.received([PREFIX + answer], 11.0)
    assert not conversation.tick(12.0) and said(conversation) == [[Kind.PING, 0]]
    assert not conversation.tick(14.0)
    assert conversation.tick(14.1) and not conversation.tick(14.2, late_s=0.6), "a late look judges nobody"
    conversation.disconnected()
    assert not conversation.attached and not conversation.tick(1000.0), "there is nobody to be judged"
    silent = settled()
    assert not silent.tick(1000.0) and not silent.has_output, "without keepalive nobody is asked or judged"


def test_pings_are_numbered_and_older_pongs_do_not_count() -> None:
    conversation = settled()
    assert (conversation.sync(), conversation.sync()) == (1, 2)
    assert conversation.take_control() == [] and [
        decode(frame, 4) for frame in conversation.take_frames()
    ] == [
        [Kind.PING, 1],
        [Kind.PING, 2],
    ]
    for stamp, synced in ((2, 2), (1, 2)):
        assert conversation.received([PREFIX + encode(Kind.PONG, stamp)], 0.0) == [conversation.heard]
        assert conversation.synced == synced
    conversation.disconnected()
    assert conversation.sync() == 3 and not conversation.has_output


def test_a_ping_is_answered_with_its_stamp() -> None:
    conversation = settled()
    assert conversation.received([PREFIX + encode(Kind.PING, 77)], 0.0) == []
    assert said(conversation) == [[Kind.PONG, 77]]


def test_subscriptions_and_requests_made_without_a_session_are_sent_in_the_next_one() -> None:
    conversation = settled()
    conversation.disconnected()
    feed, other = subscribed(conversation), subscribed(conversation)
    conversation.unsubscribe(other)
    question = conversation.ask("t", b"q", b"", survey=False, timeout_s=5.0, now=0.0)
    conversation.answer(Token(1, 1), b"answer")
    conversation.extend(Token(1, 1), 2.0)
    assert not conversation.has_output
    welcomed(conversation)
    assert [frame[:2] for frame in said(conversation)] == [
        [Kind.SUBSCRIBE, feed.number],
        [Kind.REQUEST, question.id],
    ]
    assert question.sent
    conversation.answer(Token(2, 2), b"answer")
    conversation.extend(Token(2, 2), 2.0)
    conversation.unsubscribe(feed)
    conversation.unsubscribe(feed)
    assert said(conversation) == [
        [Kind.ANSWER, 2, Status.OK, b"answer", b""],
        [Kind.EXTEND, 2, 2000],
        [Kind.UNSUBSCRIBE, feed.number],
    ]
    with pytest.raises(ValueError, match="an answer of 960001 bytes"):
        conversation.answer(Token(2, 3), bytes(BODY_MAX + 1))
    conversation.answer(Token(2, 3), bytes(BODY_MAX))
    assert len(said(conversation)) == 1


def test_a_question_for_a_subscription_that_is_gone_is_refused() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    ask = PREFIX + encode(Kind.ASK, feed.number, 7, 0, "t", b"q", b"", 1000)
    assert conversation.received([ask], 0.0) == [feed]
    conversation.unsubscribe(feed)
    said(conversation)
    assert conversation.received([ask], 0.0) == []
    assert said(conversation) == [[Kind.ANSWER, 7, Status.DROPPED, b"not subscribed any more", b""]]


def question(conversation: Conversation, feed: Feed, token: int) -> Token:
    """A question that the broker puts to a subscription, as the program gets it."""
    ask = PREFIX + encode(Kind.ASK, feed.number, token, 0, "t", b"q", b"", 1000)
    assert conversation.received([ask], 0.0) == [feed]
    run = conversation.next_run(feed)
    assert run is not None and run.tokens is not None
    return run.tokens[0]


def test_an_answer_after_a_reconnect_is_not_sent_to_the_next_broker() -> None:
    """At the next broker its token may name another question, whose asker got this answer."""
    conversation = settled()
    feed = subscribed(conversation)
    early = question(conversation, feed, 7)
    conversation.disconnected()
    assert not conversation.answer(early, b"nobody can be told now")
    welcomed(conversation)
    said(conversation)
    assert not conversation.extend(early, 5.0) and not conversation.answer(early, b"answer to the first")
    assert said(conversation) == []
    late = question(conversation, feed, 7)
    assert conversation.extend(late, 5.0) and conversation.answer(late, b"answer to the second")
    assert [frame[:4] for frame in said(conversation)] == [
        [Kind.EXTEND, 7, 5000],
        [Kind.ANSWER, 7, Status.OK, b"answer to the second"],
    ]


def test_an_answer_never_reaches_a_request_of_another_broker() -> None:
    """Each broker numbers its questions; an answer after a reconnect went to another one's question."""
    first, second = FakeMesh(1), FakeMesh(1)
    responder = first.client()
    feed = responder.subscribe("add", role=Role.ANSWERS)
    first.client().ask("add", b"1 2")
    (early,) = feed.runs
    feed.runs.clear()
    responder.lose()
    responder.mesh = second
    responder.connect(second.nodes[1])
    asked = second.client().ask("add", b"3 4")
    (late,) = feed.runs
    assert early.tokens is not None and late.tokens is not None
    assert early.tokens[0].number == late.tokens[0].number
    responder.conversation.answer(early.tokens[0], b"3")
    second.pump()
    assert not asked.done
    responder.conversation.answer(late.tokens[0], b"7")
    second.pump()
    assert asked.reply == b"7"


def test_an_answer_after_the_goodbye_is_refused() -> None:
    conversation = settled()
    token = question(conversation, subscribed(conversation), 7)
    conversation.close("done")
    said(conversation)
    assert not conversation.answer(token, b"too late") and not conversation.has_output


def test_closing_sends_goodbye_and_wakes_all_waiters() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    question = conversation.ask("t", b"q", b"", survey=False, timeout_s=5.0, now=0.0)
    said(conversation)
    assert (
        set(conversation.close("done")) == {conversation.opened, conversation.gate, question, feed}
        and feed.closed
    )
    assert said(conversation) == [[Kind.BYE, "done"]]
    away = settled()
    away.disconnected()
    away.close("done")
    assert not away.has_output


def test_a_broker_that_leaves_ends_the_session_and_not_the_connection() -> None:
    conversation = settled()
    assert conversation.received([PREFIX + encode(Kind.BYE, "stop")], 0.0) == [conversation.opened]
    assert conversation.attached and not conversation.settled
    assert conversation.standing("tcp://x") == "broker alpha left: stop"
    welcomed(conversation)
    conversation.received([PREFIX + encode(Kind.BYE, "broker alpha leaves")], 0.0)
    assert conversation.standing("tcp://x") == "broker alpha leaves"
    welcomed(conversation)
    assert (
        conversation.standing("tcp://x") == "connected to alpha" and conversation.statistics().sessions == 3
    )
    conversation.disconnected()
    assert conversation.standing("tcp://x") == "no connection to tcp://x"


def test_credit_wakes_only_waiters_for_credit() -> None:
    conversation = settled(1, 1 << 20)
    more = PREFIX + encode(Kind.CREDIT, 0, 5, 100)
    assert conversation.received([more], 0.0) == [], "nobody waits"
    conversation.add_many("t", [b"x"] * 6, 0)
    conversation.flush()
    assert conversation.blocked and conversation.room <= 0
    assert conversation.received([more], 0.0) == [conversation.gate]
    assert (conversation.credit.messages, conversation.room > 0) == (5, True)


def test_ids_are_drawn_and_the_secret_is_a_token() -> None:
    tokens: list[int] = []

    def token(size: int) -> bytes:
        tokens.append(size)
        return bytes(size)

    one = Conversation.of(random.Random(1), token, name="a", keepalive_s=2.0, now=5.0)
    two = Conversation.of(random.Random(2), token, name="a", keepalive_s=2.0, now=5.0)
    assert tokens == [32, 32] and one.publisher == two.publisher == verified(client_id(bytes(32)))
    assert one.boot != two.boot and 0 < one.boot < 1 << 63
    assert one.prefix != two.prefix and one.prefix[0] & 0x80 and len(one.prefix) == 4
    assert (one.name, one.keepalive_s) == ("a", 2.0)
