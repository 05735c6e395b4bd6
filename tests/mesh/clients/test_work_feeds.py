"""A client's end of durable subscriptions, alone; the test plays the home."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.clients.conversation import Conversation
from mesh.clients.jobs import Job, JobBatch, jobs
from mesh.clients.work_feeds import ROWS_MAX, Portion, WorkFeed, check_durable_name
from mesh.errors import (
    Detached,
    HeldElsewhere,
    MeshError,
    NotAccepted,
    OtherPatterns,
    PeerError,
    TopicError,
)
from mesh.wire import blocks
from mesh.wire.durable_frames import BACK_OFF, REDELIVERED, SENTENCE_MAX, Durable, work_head
from mesh.wire.session_frames import Kind, decode, encode
from tests.mesh.clients.brokerless import PREFIX, STORELESS, settled, welcomed


class Teller:
    """Reports settlements at once, as a client does when its turn ends."""

    def done(self, portion: Portion, messages: int) -> bool:
        return portion.done(messages)

    def retry(self, portion: Portion, index: int, after_s: float | None) -> bool:
        return portion.retry(index, after_s)

    def drop(self, portion: Portion, index: int, reason: str) -> bool:
        return portion.drop(index, reason)


def attached(conversation: Conversation, window: int = 100) -> WorkFeed:
    feed = conversation.attach("mail", ["jobs.#"], window, 1 << 20)
    conversation.take_frames()
    assert said(conversation, Durable.ATTACHED, feed.number, 3, ["slow"]) == [feed]
    return feed


def said(conversation: Conversation, kind: int, *fields: object) -> list[object]:
    return list(conversation.received([PREFIX + encode(kind, *fields)], 0.0))


def work(feed: WorkFeed, row: int, first: int, block: bytes, attempt: int = 1, flags: int = 0) -> bytes:
    return PREFIX + work_head(feed.number, row, first, attempt, flags, len(block)) + block


def sealed(*bodies: bytes, sequence: int = 1, headers: list[bytes] | None = None) -> bytes:
    return blocks.seal(
        b"jobs.a", bodies, publisher=5, boot=6, sequence=sequence, level=blocks.STORED, headers=headers
    )


def taken(feed: WorkFeed) -> list[Job]:
    return [job for portion in feed.take_all() for job in jobs(portion, Teller())]


def told(conversation: Conversation, feed: WorkFeed) -> list[list[object]]:
    conversation.tell(feed)
    return [decode(frame, 4) for frame in conversation.take_frames()]


def test_attaching_sends_name_patterns_and_window_and_is_confirmed() -> None:
    conversation = settled()
    feed = conversation.attach("mail", ["jobs.#", "x"], 7, 1000)
    (frame,) = conversation.take_frames()
    assert decode(frame, 4) == [Durable.ATTACH, feed.number, "mail", ["jobs.#", "x"], 7, 1000]
    assert not feed.ready
    said(conversation, Durable.ATTACHED, feed.number, 3, ["slow"])
    assert feed.ready and (feed.waiting, feed.unreached) == (3, ("slow",))
    other = conversation.subscribe(["t"], 0, 1, 1)
    assert other.number != feed.number, "numbers are shared with subscriptions"


def test_messages_arrive_with_all_their_attributes() -> None:
    conversation = settled()
    feed = attached(conversation)
    headers = [blocks.pack_headers({"key": "k", "n": 1}), b""]
    frames = [
        work(feed, 7, 0, sealed(b"one")),
        work(feed, 8, 3, sealed(b"two", b"three", sequence=9, headers=headers), 4, REDELIVERED),
    ]
    assert conversation.received(frames, 0.0) == [feed]
    one, two, three = taken(feed)
    assert (one.topic, one.body, one.attempt, one.redelivered) == ("jobs.a", b"one", 1, False)
    assert (one.headers, one.key, one.id) == ({}, None, "0000000000000005-6-1")
    assert (two.headers, two.key, two.attempt, two.redelivered) == ({"key": "k", "n": 1}, "k", 4, True)
    assert (three.body, three.headers, three.id) == (b"three", {}, "0000000000000005-6-10")
    assert feed.unsettled == 3 and conversation.statistics().received == 3


def test_settlements_of_a_turn_are_one_frame_with_a_bitmap_for_each_row() -> None:
    conversation = settled()
    feed = attached(conversation)
    many = [b"%d" % number for number in range(20)]
    conversation.received([work(feed, 7, 10, sealed(*many)), work(feed, 9, 0, sealed(b"x"))], 0.0)
    found = taken(feed)
    for index in (3, 4, 13, 20):
        assert found[index].done() and found[index].settled
    bitmap = (1 << 0 | 1 << 1 | 1 << 10).to_bytes(2, "little")
    assert told(conversation, feed) == [[Durable.DONE, feed.number, [[7, 13, bitmap], [9, 0, b"\x01"]]]]
    assert told(conversation, feed) == [] and feed.unsettled == 17


def test_a_batch_is_done_in_one_call_except_for_messages_settled_before() -> None:
    conversation = settled()
    feed = attached(conversation)
    conversation.received(
        [work(feed, 7, 0, sealed(b"a", b"b", b"c")), work(feed, 8, 0, sealed(b"d", b"e"))], 0.0
    )
    batch = JobBatch(feed.take_all(), Teller())
    assert batch.bodies == [b"a", b"b", b"c", b"d", b"e"] and list(batch)[3] == ("jobs.a", b"d")
    assert len(batch) == len(batch.topics) == 5
    list(batch.jobs())[1].retry(1.5)
    assert batch.done()
    assert told(conversation, feed) == [
        [Durable.RETRY, feed.number, 7, 1, 1500],
        [Durable.DONE, feed.number, [[7, 0, b"\x05"], [8, 0, b"\x03"]]],
    ]
    assert feed.unsettled == 0 and batch.done(), "nothing is left to be said"


def test_only_the_first_settlement_of_a_message_counts() -> None:
    """Settling the same message three times, in any order, has the effect of the first."""
    conversation = settled()
    feed = attached(conversation)
    conversation.received([work(feed, 7, 0, sealed(b"a", b"b", b"c", b"d"))], 0.0)
    a, b, c, d = taken(feed)
    assert a.done() and not a.done() and not a.retry() and not a.drop("no")
    assert b.retry() and not b.done() and c.drop("r" * 1000) and not c.retry(0) and d.retry(0)
    assert told(conversation, feed) == [
        [Durable.RETRY, feed.number, 7, 1, BACK_OFF],
        [Durable.DROP, feed.number, 7, 2, "r" * SENTENCE_MAX],
        [Durable.RETRY, feed.number, 7, 3, 0],
        [Durable.DONE, feed.number, [[7, 0, b"\x01"]]],
    ]
    assert (feed.unsettled, feed.counters.late) == (0, 0)


@pytest.mark.parametrize("after", [7 * 86400 + 0.001, 1e300, float("inf")])
def test_a_retry_after_more_than_seven_days_is_refused_and_settles_nothing(after: float) -> None:
    """The time was cut, and the message came after seven days."""
    conversation = settled()
    feed = attached(conversation)
    conversation.received([work(feed, 7, 0, sealed(b"a"))], 0.0)
    (job,) = taken(feed)
    with pytest.raises(ValueError, match=r"after is .* a message is tried again within 604800 s \(7 days\)"):
        job.retry(after=after)
    assert not job.settled and job.retry(after=7 * 86400)
    assert told(conversation, feed) == [[Durable.RETRY, feed.number, 7, 0, 7 * 86_400_000]]


def test_a_message_that_comes_again_is_settled_for_itself() -> None:
    """The old settlement of a retried message must not settle its next delivery."""
    conversation = settled()
    feed = attached(conversation)
    conversation.received([work(feed, 7, 0, sealed(b"a"))], 0.0)
    (old,) = taken(feed)
    old.retry(0)
    conversation.received([work(feed, 7, 0, sealed(b"a"), 2, REDELIVERED)], 0.0)
    (new,) = taken(feed)
    told(conversation, feed)
    assert not old.done() and not new.settled and new.attempt == 2
    assert told(conversation, feed) == []
    assert new.done() and told(conversation, feed) == [[Durable.DONE, feed.number, [[7, 0, b"\x01"]]]]


def test_a_settlement_after_its_session_ended_is_not_sent_and_counted_as_late() -> None:
    """A row of the next session may be another one, at another home."""
    conversation = settled()
    feed = attached(conversation)
    conversation.received([work(feed, 7, 0, sealed(b"a", b"b", b"c"))], 0.0)
    a, b, c = taken(feed)
    conversation.received([work(feed, 8, 0, sealed(b"d"))], 0.0)
    assert a.done()
    assert feed in conversation.disconnected()
    assert not feed.ready and not feed.portions and feed.unsettled == 0
    welcomed(conversation)
    (frame,) = conversation.take_frames()
    assert decode(frame, 4)[:3] == [Durable.ATTACH, feed.number, "mail"]
    said(conversation, Durable.ATTACHED, feed.number, 3, [])
    assert not a.done() and not b.done() and not c.retry()
    assert (feed.counters.late, feed.counters.interrupted) == (2, 1)
    assert told(conversation, feed) == []
    conversation.received([work(feed, 7, 0, sealed(b"a", b"b", b"c"), 1, REDELIVERED)], 0.0)
    assert [job.done() for job in taken(feed)] == [True] * 3


def test_leaving_sends_settlements_first() -> None:
    conversation = settled()
    feed = attached(conversation)
    conversation.received([work(feed, 7, 0, sealed(b"a", b"b"))], 0.0)
    a, b = taken(feed)
    a.done()
    conversation.detach(feed)
    conversation.detach(feed)
    assert [decode(frame, 4) for frame in conversation.take_frames()] == [
        [Durable.DONE, feed.number, [[7, 0, b"\x01"]]],
        [Durable.DETACH, feed.number],
    ]
    assert not b.done() and feed.counters.late == 1 and feed.closed
    assert conversation.received([work(feed, 9, 0, sealed(b"c"))], 0.0) == [], "it crossed our DETACH"


def test_closing_the_client_sends_settlements_before_goodbye() -> None:
    conversation = settled()
    feed = attached(conversation)
    conversation.received([work(feed, 7, 0, sealed(b"a"))], 0.0)
    taken(feed)[0].done()
    assert feed in conversation.close("done")
    kinds = [decode(frame, 4)[0] for frame in conversation.take_frames()]
    assert kinds == [Durable.DONE, Kind.BYE] and feed.closed


@pytest.mark.parametrize(
    ("reason", "before", "after"),
    [
        ("held_elsewhere", HeldElsewhere, HeldElsewhere),
        ("other_patterns", OtherPatterns, OtherPatterns),
        ("removed", NotAccepted, Detached),
        ("failed", NotAccepted, Detached),
        ("no_state", NotAccepted, Detached),
        ("limit", NotAccepted, Detached),
        ("bad_name", NotAccepted, Detached),
        ("unknown", NotAccepted, Detached),
    ],
)
def test_a_refusal_is_one_sentence_that_names_the_broker(
    reason: str, before: type[MeshError], after: type[MeshError]
) -> None:
    for was_ready, kind in ((False, before), (True, after)):
        conversation = settled()
        feed = attached(conversation) if was_ready else conversation.attach("mail", ["x"], 1, 1)
        assert said(conversation, Durable.DETACHED, feed.number, reason, "it is so", "tcp://a:1") == [feed]
        assert type(feed.error) is kind and str(feed.error) == "broker alpha: it is so"
        assert feed.closed and not feed.ready and not list(conversation.works)
        if isinstance(feed.error, HeldElsewhere):
            assert feed.error.url == "tcp://a:1"
        assert said(conversation, Durable.DETACHED, feed.number, reason, "", "") == []
        assert said(conversation, Durable.ATTACHED, feed.number, 0, []) == []


def test_a_subscription_that_a_leaving_broker_detaches_is_attached_in_the_next_session() -> None:
    conversation = settled()
    feed = attached(conversation)
    said(conversation, Durable.DETACHED, feed.number, "leaving", "it leaves", "")
    assert not feed.ready and not feed.closed and feed.error is None
    conversation.disconnected()
    welcomed(conversation)
    (frame,) = conversation.take_frames()
    assert decode(frame, 4)[0] == Durable.ATTACH and feed.counters.interrupted == 1


def test_a_settlement_after_the_brokers_goodbye_is_late() -> None:
    conversation = settled()
    feed = attached(conversation)
    conversation.received([work(feed, 7, 0, sealed(b"a"))], 0.0)
    (job,) = taken(feed)
    assert feed in said(conversation, Kind.BYE, "stop")
    assert not job.done() and feed.counters.late == 1 and not feed.ready


def test_a_broker_without_durable_subscriptions_is_named() -> None:
    with pytest.raises(NotAccepted, match="broker alpha does not know level stored and durable"):
        settled(offer=STORELESS).attach("mail", ["x"], 1, 1)
    conversation = settled()
    feed = attached(conversation)
    conversation.disconnected()
    assert feed in welcomed(conversation, offer=STORELESS)
    assert isinstance(feed.error, NotAccepted) and feed.closed


@pytest.mark.parametrize(
    ("name", "patterns", "window", "error"),
    [
        ("", ["x"], 1, ValueError),
        ("x" * 251, ["x"], 1, ValueError),
        ("ä" * 126, ["x"], 1, ValueError),
        ("a\nb", ["x"], 1, ValueError),
        (7, ["x"], 1, TypeError),
        ("mail", ["a..b"], 1, TopicError),
        ("mail", ["x"] * 65, 1, ValueError),
        ("mail", ["x"], 0, ValueError),
        ("mail", ["x"], 1 << 40, ValueError),
    ],
)
def test_invalid_subscriptions_are_refused_at_once(
    name: str, patterns: list[str], window: int, error: type[Exception]
) -> None:
    conversation = settled()
    with pytest.raises(error):
        conversation.attach(name, patterns, window, 1)
    assert not conversation.has_output and not list(conversation.works)


def test_names_of_250_bytes_are_taken_and_those_of_their_dead_letters() -> None:
    assert check_durable_name("x" * 250) and check_durable_name("$dlq." + "x" * 250)
    assert check_durable_name("$dlq.mail ü")


def test_a_large_body_comes_whole_with_its_last_piece_and_settles_one_message() -> None:
    conversation = settled()
    feed = attached(conversation)
    body = random.Random(1).randbytes(3 * blocks.SPLIT + 5)
    pieces = blocks.seal_pieces(b"jobs.a", body, publisher=5, boot=6, sequence=4, level=blocks.STORED)
    for piece in pieces:
        assert not feed.portions
        conversation.received([work(feed, 7, 0, piece)], 0.0)
    (job,) = taken(feed)
    assert job.body == body and job.headers == {} and job.id.endswith("-4") and feed.unsettled == 1
    job.done()
    assert told(conversation, feed) == [[Durable.DONE, feed.number, [[7, 0, b"\x01"]]]]


def test_pieces_of_two_sessions_make_no_body() -> None:
    conversation = settled()
    feed = attached(conversation)
    body = bytes(2 * blocks.SPLIT)
    one, two = blocks.seal_pieces(b"jobs.a", body, publisher=5, boot=6, sequence=4, level=blocks.STORED)
    conversation.received([work(feed, 7, 0, one)], 0.0)
    conversation.disconnected()
    welcomed(conversation)
    conversation.received([work(feed, 7, 0, two)], 0.0)
    assert taken(feed) == []
    conversation.received([work(feed, 7, 0, one), work(feed, 7, 0, two)], 0.0)
    assert [job.body for job in taken(feed)] == [body]


def test_unreadable_messages_become_dead_letters_and_their_neighbours_arrive() -> None:
    conversation = settled()
    feed = attached(conversation)
    headers = [b"", b"\xc1", b"", b"\xc1", b"\x80"]
    conversation.received([work(feed, 7, 2, sealed(b"a", b"b", b"c", b"d", b"e", headers=headers))], 0.0)
    found = taken(feed)
    assert [(job.body, job.id[-1]) for job in found] == [(b"a", "1"), (b"c", "3"), (b"e", "5")]
    assert (feed.counters.malformed, feed.unsettled) == (2, 3)
    for job in found:
        job.done()
    *dropped, done = told(conversation, feed)
    assert [each[:4] for each in dropped] == [[Durable.DROP, feed.number, 7, index] for index in (3, 5)]
    assert "not msgpack" in str(dropped[0][4])
    rows = done[2]
    assert isinstance(rows, list) and sorted((first, bitmap) for _, first, bitmap in rows) == [(2, b"\x15")]


def test_a_malformed_block_is_dropped_message_by_message() -> None:
    conversation = settled()
    feed = attached(conversation)
    block = sealed(b"a", b"b", b"c")[:-1]
    assert conversation.received([work(feed, 7, 4, block)], 0.0) == [feed]
    assert taken(feed) == [] and feed.unsettled == 0
    frames = told(conversation, feed)
    assert [frame[:4] for frame in frames] == [[Durable.DROP, feed.number, 7, index] for index in (4, 5, 6)]
    conversation.received([work(feed, 8, 0, b"")], 0.0)
    assert len(told(conversation, feed)) == 1


def test_a_broken_work_frame_ends_the_session() -> None:
    conversation = settled()
    feed = attached(conversation)
    whole = work(feed, 7, 0, sealed(b"a"))
    for frame in (whole[:20], whole + b"x", whole[:6] + b"\xff" + whole[7:]):
        with pytest.raises(PeerError):
            conversation.received([frame], 0.0)


def test_messages_before_a_broken_frame_are_kept_and_wake_their_feed() -> None:
    conversation = settled()
    feed = attached(conversation)
    with pytest.raises(PeerError):
        conversation.received([work(feed, 7, 0, sealed(b"a")), PREFIX + b"\x93\x44"], 0.0)
    assert feed in conversation.disconnected()


def test_settlements_of_many_rows_are_split_into_frames_that_a_broker_accepts() -> None:
    conversation = settled()
    feed = attached(conversation, 1 << 20)
    count = 2 * ROWS_MAX + 1
    conversation.received([work(feed, row, 0, sealed(b"a")) for row in range(1, count + 1)], 0.0)
    for job in taken(feed):
        job.done()
    frames = told(conversation, feed)
    sizes = [len(fields) for _, _, fields in frames if isinstance(fields, list)]
    assert sizes == [ROWS_MAX, ROWS_MAX, 1]
    full = (1 << blocks.COUNT_MAX) - 1
    feed.settled = {(1 << 62) + row: full for row in range(ROWS_MAX)}
    (frame,) = feed.take_said()
    assert len(frame) < 960_000


def test_settlements_are_due_when_a_quarter_of_the_window_is_settled() -> None:
    conversation = settled()
    feed = attached(conversation, 8)
    conversation.received([work(feed, 7, 0, sealed(b"a", b"b", b"c"))], 0.0)
    a, b, _ = taken(feed)
    a.done()
    assert not feed.said_late
    b.retry()
    assert feed.said_late
    told(conversation, feed)
    assert not feed.said_late


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_frames_of_a_home_end_in_a_peer_error_or_are_read(draws: st.DataObject) -> None:
    """Every kind of frame of durable subscriptions, one byte changed; what is handed out can be settled."""
    conversation = settled()
    feed = attached(conversation)
    piece = blocks.seal_pieces(b"t", bytes(blocks.SPLIT + 1), publisher=5, boot=6, sequence=4, level=2)[1]
    headers = [blocks.pack_headers({"a": 1}), b""]
    whole = [
        work(feed, 7, 0, sealed(b"a", b"bc", headers=headers)),
        work(feed, 8, 0, sealed(b"a", b"b")),
        work(feed, 9, 0, piece),
        PREFIX + encode(Durable.ATTACHED, feed.number, 3, ["slow"]),
        PREFIX + encode(Durable.DETACHED, feed.number, "removed", "it is gone", ""),
        PREFIX + encode(Durable.PENDING, 1, 2, ["a"], ["b"]),
    ]
    frame = bytearray(draws.draw(st.sampled_from(whole)))
    at = draws.draw(st.integers(4, min(len(frame), 120) - 1))
    frame[at] = draws.draw(st.integers(0, 255))
    try:
        conversation.received([bytes(frame)], 0.0)
    except PeerError:
        pass
    for job in taken(feed):
        assert job.done() and job.id and isinstance(job.headers, dict)
    conversation.tell(feed)
    for said_frame in conversation.take_frames():
        decode(said_frame, 4)
