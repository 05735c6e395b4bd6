"""A client's end alone: what it makes of a broker that sends nonsense, and how it gathers and seals."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh import blocks
from mesh.blocks import ACCEPTED, SENT
from mesh.clients import publishing
from mesh.clients.conversation import Conversation, Feed
from mesh.errors import CreditExceeded, NotAccepted, PeerError, SessionError
from mesh.session import DATA_SIZE, Kind, data_head, encode
from tests.mesh.data_plane import FakeMesh

PREFIX = b"\x80\0\0\1"


def settled(messages: int = 1000, size: int = 1 << 20) -> Conversation:
    """A conversation whose broker has said WELCOME with that much credit."""
    talk = Conversation(client=1, boot=2, name="me", prefix=PREFIX, keepalive_s=0.0, now=0.0)
    talk.connected(0.0)
    talk.received([PREFIX + encode(Kind.WELCOME, 1, 9, "alpha", "mesh", 1, messages, size)], 0.0)
    talk.take_control()
    return talk


def opened(talk: Conversation) -> list[blocks.Opened]:
    return [blocks.open_block(frame, 4 + DATA_SIZE) for frame in talk.take_frames()]


def data(number: int, sequence: int, *bodies: bytes, level: int = SENT) -> bytes:
    block = blocks.seal(b"t", bodies, publisher=5, boot=6, sequence=sequence, level=level)
    return PREFIX + data_head(0, 0, number, sequence, len(block)) + block


def subscribed(talk: Conversation, messages: int = 100) -> Feed:
    feed = talk.subscribe(["t"], 0, messages, 1 << 20)
    talk.take_control()
    return feed


# --- publishing


def test_a_turn_of_one_topic_fills_one_block_exactly() -> None:
    talk = settled(10_000)
    count = 0
    talk.add_many("t", [b"x" * 128], SENT)
    while talk.room > 0:
        talk.add_many("t", [b"x" * 128], SENT)
        count += 1
    talk.flush()
    (block,) = opened(talk)
    assert len(block.bodies) == count + 1 > 450 and block.sequence == 1


def test_a_thousand_topics_in_turn_share_a_longer_turn() -> None:
    talk = settled(1 << 20, 1 << 24)
    number = 0
    while talk.room > 0:
        talk.add_many(f"t.{number % 1000}", [b"x" * 128], SENT)
        number += 1
    talk.flush()
    assert number / len(opened(talk)) > 15


def test_numbers_follow_the_order_of_sealing_and_levels_do_not_mix() -> None:
    talk = settled()
    talk.add_many("a", [b"1", b"2"], SENT)
    talk.add_many("b", [b"3"], ACCEPTED)
    talk.add("a", b"4", SENT, blocks.pack_headers({"h": 1}))
    talk.add_many("a", [b"5"], SENT)
    talk.flush()
    found = [(block.topic, block.level, list(block.bodies), block.sequence) for block in opened(talk)]
    assert sorted(found, key=lambda block: block[3]) == found
    assert [block[2] for block in found if block[:2] == (b"a", SENT)] == [[b"1", b"2"], [b"4"], [b"5"]]
    assert [block[2] for block in found if block[1] == ACCEPTED] == [[b"3"]]


def test_sealing_stops_where_credit_stops_and_goes_on_with_it() -> None:
    talk = settled(10)
    for topic in ("a", "b", "c"):
        talk.add_many(topic, [b"x"] * 8, SENT)
    talk.flush()
    assert [block.topic for block in opened(talk)] == [b"a", b"b"]
    assert talk.blocked and talk.room <= 0 and talk.gathered
    woken = talk.received([PREFIX + encode(Kind.CREDIT, 0, 100, 1000)], 0.0)
    assert talk.gate in woken
    talk.add_many("c", [b"y"], SENT)
    talk.flush()
    (block,) = opened(talk)
    assert list(block.bodies) == [b"x"] * 8 + [b"y"], "blocks grow while credit is short"


def test_a_batch_that_credit_cuts_in_two_has_one_range_of_numbers() -> None:
    talk = settled(5, 1 << 24)
    ticket, index = talk.add_many("a", [b"x" * 1000] * 200, ACCEPTED)
    talk.flush()
    talk.add_many("b", [b"y"], SENT)
    talk.received([PREFIX + encode(Kind.CREDIT, 0, 1 << 20, 1 << 24)], 0.0)
    talk.flush()
    sealed = opened(talk)
    assert [block.topic for block in sealed] == [b"a"] * 4 + [b"b"]
    assert ticket is not None and not ticket.done
    talk.received([PREFIX + encode(Kind.ACK, 1, [[1, 150]], [])], 0.0)
    talk.received([PREFIX + encode(Kind.ACK, 1, [[1, 200]], ["beta"])], 0.0)
    assert ticket.done and ticket.receipt(index, 200).absent == ("beta",)


def test_what_the_broker_refuses_is_not_accepted() -> None:
    talk = settled()
    ticket, _ = talk.add("t", b"x", ACCEPTED, b"")
    talk.flush()
    talk.received([PREFIX + encode(Kind.REFUSED, [[1, 1]], "leaving")], 0.0)
    assert ticket is not None
    with pytest.raises(NotAccepted, match="leaving"):
        ticket.receipt(0)


def test_only_topics_in_use_are_kept_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "TOPICS_MAX", 50)
    talk = settled(1 << 20, 1 << 24)
    for number in range(400):
        talk.add_many(f"t.{number}", [b"x"], SENT)
        if number % 30 == 29:
            talk.flush()
    talk.flush()
    assert {block.topic for block in opened(talk)} == {b"t.%d" % number for number in range(400)}


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 70_000), st.booleans(), st.booleans()), max_size=20
    ),
    st.integers(1, 40),
    st.integers(1, 1 << 17),
)
def test_any_credit_seals_everything_once_and_in_order(
    work: list[tuple[str, int, bool, bool]], messages: int, size: int
) -> None:
    talk = settled(messages, size)
    expected: dict[tuple[bytes, int], list[bytes]] = {}
    for index, (topic, length, accepted, headed) in enumerate(work):
        body = random.Random(index).randbytes(length)
        talk.add(topic, body, int(accepted), blocks.pack_headers({"i": index}) if headed else b"")
        expected.setdefault((topic.encode(), int(accepted)), []).append(body)
    got: dict[tuple[bytes, int], list[bytes]] = {}
    assembler = blocks.Assembler()
    numbers: list[int] = []
    for _ in range(400):
        talk.flush()
        for block in opened(talk):
            bodies = list(block.bodies)
            if block.whole_size:
                whole = assembler.add(block)
                if whole is None:
                    continue
                bodies = [whole[0]]
            numbers += range(block.sequence, block.sequence + len(bodies))
            got.setdefault((block.topic, block.level), []).extend(bodies)
        talk.received([PREFIX + encode(Kind.CREDIT, 0, messages, size + 50_000)], 0.0)
        if not talk.gathered and not talk.has_output:
            break
    assert got == expected
    assert numbers == list(range(1, len(work) + 1))


# --- receiving


def test_runs_are_gathered_per_read_and_gaps_counted() -> None:
    talk = settled()
    feed = subscribed(talk)
    talk.received([data(feed.number, 1, b"a", b"b"), data(feed.number, 4, b"ccc", b"")], 0.0)
    run = talk.next_run(feed, 0.0)
    assert run is not None and run.bodies == [b"a", b"b", b"ccc", b""] and run.topics == ["t"] * 4
    assert feed.lost_blocks == 2


def test_a_broker_that_sends_beyond_credit_is_left() -> None:
    talk = settled()
    feed = subscribed(talk, messages=4)
    talk.received([data(feed.number, 1, *[b"x"] * 4)], 0.0)
    with pytest.raises(CreditExceeded):
        talk.received([data(feed.number, 2, b"x")], 0.0)


def test_a_malformed_block_of_another_publisher_costs_nothing_but_itself() -> None:
    talk = settled()
    feed = subscribed(talk)
    bad = bytearray(data(feed.number, 1, b"a", b"bc"))
    bad[4 + DATA_SIZE + 4 + 3] = 9
    talk.received([bytes(bad), data(feed.number, 2, b"good")], 0.0)
    run = talk.next_run(feed, 0.0)
    assert run is not None and run.bodies == [b"good"] and feed.bad_blocks == 1


def test_a_block_of_level_accepted_that_comes_twice_is_delivered_once() -> None:
    talk = settled()
    feed = subscribed(talk)
    again = bytearray(data(feed.number, 1, b"x", level=ACCEPTED))
    talk.received([bytes(again)], 0.0)
    again[4 + 12 + 7] = 2  # the next in the subscription's sequence, the same block
    talk.received([bytes(again)], 0.0)
    bodies = []
    while (run := talk.next_run(feed, 0.0)) is not None:
        bodies += run.bodies
    assert bodies == [b"x"]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x91",
        b"hello",
        b"\x93\x05",
        encode(Kind.HELLO, 1, 1, 1, "x", 0),
        encode(Kind.WELCOME, 2, 9, "alpha", "mesh", 1, 1, 1),
        encode(Kind.ERROR, "SessionError", "no"),
        encode(Kind.CREDIT, 0, 1 << 31, 1 << 40) * 1,
    ],
)
def test_a_broken_frame_of_a_broker_is_a_peer_error(frame: bytes) -> None:
    talk = settled()
    with pytest.raises(PeerError):
        talk.received([PREFIX + frame], 0.0)


def test_a_new_connection_begins_with_a_fresh_keepalive() -> None:
    talk = Conversation(client=1, boot=2, name="me", prefix=PREFIX, keepalive_s=1.0, now=0.0)
    talk.connected(1000.0)
    assert not talk.tick(1001.0)


def test_frames_of_another_session_are_not_ours() -> None:
    talk = settled()
    assert talk.received([b"\x80\0\0\2" + encode(Kind.BYE, "x")], 0.0) == []
    assert talk.settled


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_frames_end_in_a_peer_error_at_either_end_or_are_read(draws: st.DataObject) -> None:
    """Every kind of frame, one byte changed: a broker never raises, a client raises nothing but
    `PeerError`."""
    mesh = FakeMesh(1)
    client, other = mesh.client(), mesh.client()
    other.subscribe("t", role=1)
    client.subscribe("t")
    client.talk.add_many("t", [b"a", b"bc"], draws.draw(st.integers(0, 1)))
    client.talk.add("t", bytes(70_000), ACCEPTED, blocks.pack_headers({"a": 1}))
    client.talk.ask("t", b"", b"", survey=True, timeout_s=1.0, now=0.0)
    client.talk.answer(1, b"x")
    client.talk.sync()
    client.talk.flush()
    frames = client.talk.take_control() + client.talk.take_frames()
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
    for talk in (client.talk, other.talk):
        try:
            talk.received([talk.prefix + frame[4:] for frame in back], 0.0)
        except PeerError:
            pass
    bystander = mesh.client()
    feed = bystander.subscribe("u")
    bystander.publish("u", b"still here")
    assert [body for _, body in bystander.take(feed)] == [b"still here"]


def test_the_error_of_a_broker_is_remembered_for_whoever_asks_why() -> None:
    talk = settled()
    with pytest.raises(SessionError, match="too fast"):
        talk.received([PREFIX + encode(Kind.ERROR, "CreditExceeded", "too fast")], 0.0)
    assert talk.last_error == "CreditExceeded: too fast"
