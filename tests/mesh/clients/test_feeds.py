"""What arrives for subscriptions; the test speaks for the broker."""

from __future__ import annotations

import pytest

from mesh.clients.feeds import Feed, Feeds, Run
from mesh.clients.messages import keep_sound
from mesh.errors import CreditExceeded, TopicError
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED, SENT
from mesh.wire.capabilities import PATTERN_PARTS, Agreed, VersionMismatch
from mesh.wire.session_frames import (
    DATA_SIZE,
    PATTERNS_BYTES,
    Kind,
    data_head,
    decode,
    encode,
)
from tests.mesh.clients.brokerless import PREFIX, data, settled, subscribed


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


def test_a_run_knows_publisher_boot_and_sequence_of_every_message() -> None:
    talk = settled()
    feed = subscribed(talk)
    large = blocks.seal_pieces(b"t", bytes(70_000), publisher=7, boot=8, sequence=40, level=SENT, headers=b"")
    frames = [
        data(feed.number, 10, b"a", b"b", level=ACCEPTED),
        data(feed.number, 20, b"mixed", b""),
        *(PREFIX + data_head(0, 0, feed.number, 1, len(piece)) + piece for piece in large),
        data(feed.number, 10, b"a", b"b", level=ACCEPTED),
    ]
    talk.received(frames, 0.0)
    run = talk.next_run(feed, 0.0)
    assert run is not None and len(run.bodies) == 5
    assert run.origins == [(5, 6, 10, 2), (5, 6, 20, 2), (7, 8, 40, 1)]


def test_a_run_without_its_malformed_messages_still_knows_the_others() -> None:
    run = Run(0)
    run.topics, run.bodies, run.headers = ["t"] * 4, [b"0", b"1", b"2", b"3"], [b"", b"\xc1", b"", b"\xc1"]
    run.origins = [(5, 6, 10, 3), (7, 8, 1, 1)]

    class Counting:
        malformed = 0

    consumer = Counting()
    assert keep_sound(run, consumer)  # type: ignore[arg-type]
    assert (run.bodies, run.origins, consumer.malformed) == ([b"0", b"2"], [(5, 6, 10, 1), (5, 6, 12, 1)], 2)


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


def test_credit_of_a_run_goes_back_when_the_next_is_asked_for_and_it_is_time() -> None:
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


def test_credit_of_an_old_session_or_of_none_does_not_go_back() -> None:
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
    with pytest.raises(ValueError, match=r"0 messages and 1 bytes"):
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
    talk = settled()
    large, small = (talk.subscribe(patterns, 0, 10, 20) for patterns in (names(80_000), ["t"]))
    talk.disconnected()
    talk.connected(0.0)
    talk.take_control()
    woken = talk.received([PREFIX + encode(Kind.WELCOME, 1, 9, "beta", "mesh", 1, 10, 10)], 0.0)
    assert large in woken and large.closed and not small.closed and list(talk.feeds) == [small]
    assert "broker beta speaks version 1 without 'pattern-parts'" in str(large.error)
    assert [decode(frame, 4)[0] for frame in talk.take_frames()] == [Kind.SUBSCRIBE]
    with pytest.raises(VersionMismatch):
        talk.subscribe(names(80_000), 0, 10, 20)
    assert list(talk.feeds) == [small]


def test_a_refused_subscription_fails_alone_and_its_error_is_short() -> None:
    talk = settled()
    large, small = (talk.subscribe(patterns, 0, 10, 20) for patterns in (names(80_000), ["t"]))
    refusal = [PREFIX + encode(Kind.UNSUBSCRIBED, large.number, "80000 patterns are too many")]
    assert talk.received(refusal, 0.0) == [large]
    assert large.closed and list(talk.feeds) == [small]
    assert str(large.error) == (
        "broker alpha refused the subscription to 000000000, 000000001, 000000002, 000000003, 000000004"
        " and 79995 more: 80000 patterns are too many"
    )
    assert talk.received(refusal, 0.0) == [], "one that is gone already"
