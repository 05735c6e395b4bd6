"""The arriving messages of subscriptions; the test plays the broker."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.clients.feeds import Feed, Feeds, Run
from mesh.clients.messages import keep_sound
from mesh.errors import CreditExceeded, SessionError, TopicError
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED, SENT
from mesh.wire.capabilities import PATTERN_PARTS, Agreed, VersionMismatch
from mesh.wire.session_frames import (
    DATA_SIZE,
    PATTERNS_BYTES,
    SUBSCRIPTIONS_MAX,
    Kind,
    data_head,
    decode,
    encode,
)
from tests.mesh.clients.brokerless import PREFIX, data, settled, subscribed, welcomed


def test_runs_are_gathered_per_read_and_gaps_counted() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    conversation.received([data(feed.number, 1, b"a", b"b"), data(feed.number, 4, b"ccc", b"")], 0.0)
    run = conversation.next_run(feed, 0.0)
    assert run is not None and run.bodies == [b"a", b"b", b"ccc", b""] and run.topics == ["t"] * 4
    assert feed.lost_blocks == 2


def test_a_broker_that_sends_beyond_credit_is_disconnected() -> None:
    conversation = settled()
    feed = subscribed(conversation, messages=4)
    conversation.received([data(feed.number, 1, *[b"x"] * 4)], 0.0)
    with pytest.raises(CreditExceeded):
        conversation.received([data(feed.number, 2, b"x")], 0.0)


def test_a_malformed_block_of_another_publisher_costs_nothing_but_itself() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    bad = bytearray(data(feed.number, 1, b"a", b"bc"))
    bad[4 + DATA_SIZE + 4 + 3] = 9
    conversation.received([bytes(bad), data(feed.number, 2, b"good")], 0.0)
    run = conversation.next_run(feed, 0.0)
    assert run is not None and run.bodies == [b"good"] and feed.bad_blocks == 1


def test_a_run_knows_publisher_boot_and_sequence_of_every_message() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    large = blocks.seal_pieces(b"t", bytes(70_000), publisher=7, boot=8, sequence=40, level=SENT, headers=b"")
    again = blocks.seal(b"t", [b"a", b"b"], publisher=5, boot=6, sequence=10, level=ACCEPTED)
    frames = [
        data(feed.number, 10, b"a", b"b", level=ACCEPTED),
        data(feed.number, 20, b"mixed", b""),
        *(
            PREFIX + data_head(0, 0, feed.number, 21 + index, len(piece)) + piece
            for index, piece in enumerate(large)
        ),
        PREFIX + data_head(0, 0, feed.number, 23, len(again)) + again,
    ]
    conversation.received(frames, 0.0)
    run = conversation.next_run(feed, 0.0)
    assert run is not None and len(run.bodies) == 5
    assert list(run.origins()) == [(5, 6, 10, 2), (5, 6, 20, 2), (7, 8, 40, 1)]


def test_a_run_without_its_malformed_messages_still_knows_the_others() -> None:
    run = Run(0)
    run.topics, run.bodies, run.headers = ["t"] * 4, [b"0", b"1", b"2", b"3"], [b"", b"\xc1", b"", b"\xc1"]
    run.numbers = [5, 6, 10, 3, 7, 8, 1, 1]

    class Counting:
        malformed = 0

    consumer = Counting()
    assert keep_sound(run, consumer)  # type: ignore[arg-type]
    assert (run.bodies, list(run.origins()), consumer.malformed) == (
        [b"0", b"2"],
        [(5, 6, 10, 1), (5, 6, 12, 1)],
        2,
    )


def test_a_block_of_level_accepted_that_comes_twice_is_delivered_once() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    again = bytearray(data(feed.number, 1, b"x", level=ACCEPTED))
    conversation.received([bytes(again)], 0.0)
    again[4 + 12 + 7] = 2  # the next number in the subscription, with the same block
    conversation.received([bytes(again)], 0.0)
    bodies = []
    while (run := conversation.next_run(feed, 0.0)) is not None:
        bodies += run.bodies
    assert bodies == [b"x"]


def test_credit_of_a_run_is_returned_with_the_next_take_and_not_too_often() -> None:
    feed = Feed(1, ["t"], 0, messages=8, size=1 << 20)
    for sequence in (1, 2, 3):
        feed.window.arrive(1, 10)
        run = Run(feed.epoch)
        run.bodies, run.messages, run.size = [b"%d" % sequence], 1, 10
        feed.runs.append(run)
    assert feed.take(100.0, True) is None and feed.current is not None, "nothing is done with yet"
    assert feed.take(100.0, True) == (1, 10), "the first time, it is long since the last grant"
    assert feed.take(100.1, True) is None, "less than a quarter window, so soon"
    assert feed.take(100.2, True) == (2, 20) and feed.current is None, "now it is a quarter"


def test_credit_of_an_old_session_or_of_none_is_not_returned() -> None:
    for settled_, again in ((False, False), (True, True)):
        feed = Feed(1, ["t"], 0, messages=1, size=10)
        run = Run(feed.epoch)
        run.messages, run.size = 1, 10
        feed.runs.append(run)
        assert feed.take(100.0, settled_) is None
        if again:
            feed.again()
        assert feed.take(200.0, settled_) is None


def test_a_subscription_needs_patterns_and_a_window() -> None:
    feeds = Feeds()
    with pytest.raises(ValueError, match=r"at least one pattern"):
        feeds.add([], 0, 1, 1)
    with pytest.raises(ValueError, match=r"a window of 0 messages"):
        feeds.add(["t"], 0, 0, 1)
    with pytest.raises(TopicError):
        feeds.add(["a.#.b"], 0, 1, 1)
    assert list(feeds) == []
    feed = feeds.add(["a", "b.*"], 0, 1, 1)
    assert list(feeds) == [feed] and feeds.get(feed.number) is feed
    assert feeds.remove(feed) and not feeds.remove(feed) and feed.closed
    assert feeds.read_question(feed.number, 7, "a", b"", b"", 10) is None


def test_a_question_is_a_run_of_its_own_and_counts_against_the_window() -> None:
    feeds = Feeds()
    feed = feeds.add(["ask"], 1, messages=1, size=100)
    assert feeds.read_question(feed.number, 7, "ask", b"2+2", b"", 40) is feed
    (run,) = feed.runs
    assert (run.topics, run.bodies, run.tokens, run.messages, run.size) == (["ask"], [b"2+2"], [7], 1, 40)
    with pytest.raises(CreditExceeded):
        feeds.read_question(feed.number, 8, "ask", b"3+3", b"", 40)


def block(sequence: int, *bodies: bytes, topic: bytes = b"t", **more: Any) -> bytes:
    sealed = blocks.seal(topic, bodies, publisher=5, boot=6, sequence=100 * sequence, **more)
    return PREFIX + data_head(0, 0, 1, sequence, len(sealed)) + sealed


def test_runs_and_windows_count_arrived_messages_exactly() -> None:
    conversation = settled()
    feed = subscribed(conversation, messages=100)
    frames = [
        block(1, b"a", b"b"),
        block(2, b"a", b"bcd"),
        block(3, b"x", headers=[blocks.pack_headers({"n": 1})]),
        block(4, b"y", b"z"),
        block(5, b"q", topic=b"u"),
    ]
    size = sum(len(frame) - 4 - DATA_SIZE for frame in frames)
    assert conversation.received(frames, 0.0) == [feed]
    (run,) = feed.runs
    assert (run.messages, run.size) == (8, size)
    assert (feed.window.messages_left, feed.window.bytes_left) == (100 - 8, (1 << 20) - size)
    assert run.topics == ["t"] * 7 + ["u"] and run.bodies == [
        b"a",
        b"b",
        b"a",
        b"bcd",
        b"x",
        b"y",
        b"z",
        b"q",
    ]
    assert run.headers == [b"", b"", b"", b"", blocks.pack_headers({"n": 1}), b"", b"", b""]
    assert (feed.lost_blocks, feed.bad_blocks, feed.expected) == (0, 0, 6)
    assert conversation.statistics().received == 8


def test_blocks_without_a_subscription_are_not_counted() -> None:
    conversation = settled()
    assert conversation.received([block(1, b"x")], 0.0) == [] and conversation.statistics().received == 0


def test_a_sequence_that_goes_back_is_a_broken_rule_and_no_negative_loss() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    conversation.received([block(1, b"x"), block(4, b"x")], 0.0)
    assert feed.lost_blocks == 2
    for sequence in (4, 1):
        with pytest.raises(SessionError, match=rf"block {sequence} of subscription 1 after 4"):
            conversation.received([block(sequence, b"x")], 0.0)
    assert feed.lost_blocks == 2


@pytest.mark.parametrize("count", [0, blocks.COUNT_MAX + 1, (1 << 31) - 10])
def test_a_block_that_claims_a_wrong_number_of_records_is_bad_and_costs_no_memory(count: int) -> None:
    """Empty bodies take no bytes, so the claim would fit any length."""
    conversation = settled()
    feed = subscribed(conversation, messages=1 << 31)
    conversation.received([block(1, b"first")], 0.0)
    bad = bytearray(block(2, b""))
    bad[4 + DATA_SIZE + 4 : 4 + DATA_SIZE + 8] = count.to_bytes(4, "big")
    conversation.received([bytes(bad), block(3, b"good")], 0.0)
    assert [body for run in feed.runs for body in run.bodies] == [b"first", b"good"] and feed.bad_blocks == 1


def test_the_most_records_of_a_block_are_read() -> None:
    conversation = settled()
    feed = subscribed(conversation, messages=10_000)
    bodies = [b"x"] * blocks.COUNT_MAX
    conversation.received([block(1, b"first"), block(2, *bodies)], 0.0)
    assert len(feed.runs[0].bodies) == blocks.COUNT_MAX + 1 and feed.bad_blocks == 0


def test_a_topic_that_is_not_ascii_is_another_clients_fault_and_costs_one_block() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    conversation.received(
        [block(1, b"x", topic=b"\xff"), block(2, b"x", topic=b"\xff"), block(3, b"good")], 0.0
    )
    assert [body for run in feed.runs for body in run.bodies] == [b"good"] and feed.bad_blocks == 2


def test_topics_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesh.clients.feeds.TOPICS_MAX", 2)
    conversation = settled()
    feed = subscribed(conversation)
    conversation.received([block(number, b"x", topic=b"t%d" % (number % 4)) for number in range(1, 9)], 0.0)
    assert feed.runs[0].topics == [f"t{number % 4}" for number in range(1, 9)]
    assert len(conversation.feeds._topics) <= 2


@pytest.mark.parametrize("at", [4, 5, 10, 24, 28])
def test_a_data_frame_with_a_wrong_head_is_a_broken_rule(at: int) -> None:
    conversation = settled()
    subscribed(conversation)
    frame = bytearray(block(1, b"x"))
    frame[at] ^= 0x40
    with pytest.raises(SessionError):
        conversation.received([bytes(frame)], 0.0)
    with pytest.raises(SessionError, match=r"announces a block of 38 bytes and has 39"):
        conversation.received([block(1, b"x") + b"y"], 0.0)
    with pytest.raises(SessionError, match="shorter than its heads"):
        conversation.received([bytes(block(1, b"x")[:60])], 0.0)


def test_pieces_are_put_together_and_a_body_that_came_twice_is_delivered_once() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    headers = blocks.pack_headers({"n": 1})

    def pieces(first: int) -> list[bytes]:
        sealed = blocks.seal_pieces(
            b"t", bytes(150_000), publisher=5, boot=6, sequence=9, level=ACCEPTED, headers=headers
        )
        return [
            PREFIX + data_head(0, 0, feed.number, first + index, len(piece)) + piece
            for index, piece in enumerate(sealed)
        ]

    frames = pieces(1)
    conversation.received([block(1, b"small")], 0.0)
    for number, frame in enumerate(pieces(2), 1):
        conversation.received([frame], 0.0)
        assert sum(len(run.bodies) for run in feed.runs) == (2 if number == len(frames) else 1)
    conversation.received(pieces(2 + len(frames)), 0.0)
    assert [len(body) for run in feed.runs for body in run.bodies] == [5, 150_000]
    assert feed.runs[-2].headers == [headers] and feed.bad_blocks == 0


def test_large_bodies_given_up_for_want_of_room_are_lost() -> None:
    """Beyond 16 unfinished ones they vanished uncounted."""
    conversation = settled()
    feed = conversation.subscribe(["t"], 0, 100, 64 << 20)
    feed.assembler.bytes_max = 20 * blocks.SPLIT
    many = [blocks.seal_pieces(b"t", bytes(100_000), publisher=n, boot=1, sequence=1) for n in range(30)]
    sequence = 0
    for end in range(2):
        for pieces in many:
            sequence += 1
            piece = pieces[end]
            conversation.received([PREFIX + data_head(0, 0, feed.number, sequence, len(piece)) + piece], 0.0)
    received = conversation.statistics().received
    assert received == 19 and feed.lost == conversation.statistics().lost_blocks == 11


def test_publishers_that_a_subscription_forgets_are_counted() -> None:
    conversation = settled()
    feed = subscribed(conversation)
    feed.seen.publishers_max = 2
    for sequence in range(1, 6):
        sealed = blocks.seal(b"t", [b"x"], publisher=sequence, boot=1, sequence=1, level=ACCEPTED)
        conversation.received([PREFIX + data_head(0, 0, feed.number, sequence, len(sealed)) + sealed], 0.0)
    assert conversation.statistics().forgotten == 3


def test_a_client_has_a_bounded_number_of_subscriptions() -> None:
    feeds = Feeds()
    for number in range(1, SUBSCRIPTIONS_MAX + 1):
        assert feeds.add(["t"], 0, 1, 1).number == number
    with pytest.raises(ValueError, match="at most 4096 subscriptions"):
        feeds.add(["t"], 0, 1, 1)
    assert feeds.get(1) is not None
    feeds.remove(next(iter(feeds)))
    assert feeds.add(["t"], 0, 1, 1).number == SUBSCRIPTIONS_MAX + 1


def test_a_new_session_begins_with_a_fresh_window_and_fresh_numbers() -> None:
    conversation = settled()
    feed = subscribed(conversation, messages=10)
    conversation.received([block(1, *[b"x"] * 4), PREFIX + encode(Kind.SUBSCRIBED, 1, ["beta"])], 0.0)
    assert feed.ready and feed.unreached == ("beta",) and feed.window.messages_left == 6
    conversation.disconnected()
    welcomed(conversation)
    assert (feed.ready, feed.window.messages_left, feed.expected, feed.epoch) == (False, 10, 1, 2)
    conversation.received([block(1, *[b"y"] * 10)], 0.0)
    assert conversation.next_run(feed, 100.0) is not None and conversation.next_run(feed, 101.0) is not None
    conversation.take_control()
    assert feed.window.messages_left == 0, "the run of the old session gave no credit"
    assert conversation.next_run(feed, 102.0) is None
    (credit,) = [decode(frame, 4) for frame in conversation.take_control()]
    assert credit[:3] == [Kind.CREDIT, 1, 10]


# --- announcements

FIRST_VERSION = Agreed(1, frozenset())
THIS_VERSION = Agreed(2, frozenset([PATTERN_PARTS]))


def names(count: int, size: int = 9) -> list[str]:
    return [f"{number:0{size}}" for number in range(count)]


def announced(count: int, agreed: Agreed, size: int = 9) -> list[list[object]]:
    feed = Feeds().add(names(count, size), 1, 10, 20)
    frames = feed.announcement(agreed, "alpha")
    assert max(map(len, frames)) < 65_000 or agreed == FIRST_VERSION
    return [decode(frame) for frame in frames]


def test_a_few_patterns_are_announced_in_one_frame() -> None:
    for agreed in (FIRST_VERSION, THIS_VERSION):
        assert announced(3, agreed) == [[Kind.SUBSCRIBE, 1, names(3), 1, 10, 20]]


@pytest.mark.parametrize("size", [9, 255])
def test_many_patterns_are_announced_in_parts_that_fit_one_read(size: int) -> None:
    *parts, last = announced(20_000, THIS_VERSION, size)
    assert all(part[:2] == [Kind.PATTERNS, 1] for part in parts) and last[:2] == [Kind.SUBSCRIBE, 1]
    assert last[3:] == [1, 10, 20]
    assert [name for part in (*parts, last) for name in part[2]] == names(20_000, size)  # type: ignore[attr-defined]


def test_a_part_ends_exactly_at_its_limit() -> None:
    count = PATTERNS_BYTES // 11
    assert len(announced(count, THIS_VERSION)) == 1 and len(announced(count + 1, THIS_VERSION)) == 2


def test_the_first_version_gets_one_frame_or_the_capability_is_named() -> None:
    assert announced(60_000, FIRST_VERSION) == [[Kind.SUBSCRIBE, 1, names(60_000), 1, 10, 20]]
    with pytest.raises(VersionMismatch, match="broker alpha speaks version 1 without 'pattern-parts'"):
        announced(80_000, FIRST_VERSION)
    with pytest.raises(VersionMismatch, match="'pattern-parts'"):
        announced(5_000, FIRST_VERSION, 255)


def test_a_subscription_that_a_broker_is_too_old_for_fails_and_the_others_stay() -> None:
    conversation = settled()
    large, small = (conversation.subscribe(patterns, 0, 10, 20) for patterns in (names(80_000), ["t"]))
    conversation.disconnected()
    conversation.connected(0.0)
    conversation.take_control()
    woken = conversation.received([PREFIX + encode(Kind.WELCOME, 1, 9, "beta", "mesh", 1, 10, 10)], 0.0)
    assert large in woken and large.closed and not small.closed and list(conversation.feeds) == [small]
    assert "broker beta speaks version 1 without 'pattern-parts'" in str(large.error)
    assert [decode(frame, 4)[0] for frame in conversation.take_frames()] == [Kind.SUBSCRIBE]
    with pytest.raises(VersionMismatch):
        conversation.subscribe(names(80_000), 0, 10, 20)
    assert list(conversation.feeds) == [small]


def test_a_refused_subscription_fails_alone_and_its_error_is_short() -> None:
    conversation = settled()
    large, small = (conversation.subscribe(patterns, 0, 10, 20) for patterns in (names(80_000), ["t"]))
    refusal = [PREFIX + encode(Kind.UNSUBSCRIBED, large.number, "80000 patterns are too many")]
    assert conversation.received(refusal, 0.0) == [large]
    assert large.closed and list(conversation.feeds) == [small]
    assert str(large.error) == (
        "broker alpha refused the subscription to 000000000, 000000001, 000000002, 000000003, 000000004"
        " and 79995 more: 80000 patterns are too many"
    )
    assert conversation.received(refusal, 0.0) == [], "one that is gone already"


@pytest.mark.parametrize("window", [0, -1, (1 << 31) + 1, 1 << 64, 1.5, True, "x"])
def test_a_window_that_no_broker_takes_is_refused_before_it_ends_the_session(window: Any) -> None:
    with pytest.raises(ValueError, match=r"a window of .* messages: expected a whole number from 1 to"):
        Feeds().add(["t"], 0, window, 1024)
    with pytest.raises(ValueError, match=r"a window of .* bytes: expected a whole number from 1 to"):
        Feeds().add(["t"], 0, 16, window if window != (1 << 31) + 1 else (1 << 40) + 1)
    assert Feeds().add(["t"], 0, 1 << 31, 1 << 40).number == 1
