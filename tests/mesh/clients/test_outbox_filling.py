"""Messages for an outbox are appended together and in order; those of one call all or none."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.clients.outbox_filling import Filling, Parcel
from mesh.errors import NotAccepted, OutboxFailed, StoreFull, TopicError, Unknown
from mesh.wire import blocks

PUBLISHER, BOOT = (1 << 63) | 7, 3


def filling(room: int = 1 << 20) -> Filling:
    return Filling("/o", PUBLISHER, BOOT, room)


def opened(sealed: list[bytes]) -> list[blocks.Opened]:
    return [blocks.open_block(block) for block in sealed]


def test_messages_gathered_during_an_append_form_the_next_one_with_a_block_per_topic() -> None:
    it = filling()
    first = it.add([("a", [b"1"])])
    assert [list(block.bodies) for block in opened(it.next_append(0))] == [[b"1"]]
    later = [it.add([("a", [b"2"])]), it.add([("b", [b"3", b"4"])]), it.add([("a", [b"5"])], b"")]
    assert it.next_append(0) == [] and it.busy
    assert it.appended(None) == [first] and first.receipt(0).seq == 1
    made = opened(it.next_append(0))
    assert [(block.topic, list(block.bodies), block.sequence) for block in made] == [
        (b"a", [b"2", b"5"], 2),
        (b"b", [b"3", b"4"], 4),
    ]
    assert {(block.publisher, block.boot, block.level) for block in made} == {
        (PUBLISHER, BOOT, blocks.STORED)
    }
    assert it.appended(None) == later
    assert [(each.receipt(0).seq, each.count) for each in later] == [(2, 1), (4, 2), (3, 1)]
    assert not it.busy and it.next_append(0) == []


def test_headers_stay_with_their_message_among_others_without() -> None:
    it = filling()
    packed = blocks.pack_headers({"n": 1})
    for headers in (b"", packed, b""):
        it.add([("a", [b"x"])], headers)
    (block,) = opened(it.next_append(0))
    assert block.headers == [b"", packed, b""]


def test_a_large_body_becomes_pieces_under_one_number() -> None:
    it = filling()
    it.add([("a", [bytes(3 * blocks.SPLIT)])], blocks.pack_headers({"n": 1}))
    it.add([("a", [b"next"])])
    made = opened(it.next_append(0))
    assert [block.sequence for block in made] == [1, 1, 1, 2]
    assert blocks.unpack_headers((made[0].headers or [b""])[0]) == {"n": 1}


def test_a_call_of_many_topics_is_in_one_append_and_its_receipt_names_the_first() -> None:
    it = filling()
    it.add([("b", [b"0"])])
    parcel = it.add([("a", [b"1"]), ("b", [b"2", b"3"])])
    it.next_append(0)
    it.appended(None)
    assert (parcel.first, parcel.receipt(0, 3).seq) == (4, 4), "topic b has the numbers 1 to 3"


def test_parcels_wait_for_room_in_their_order() -> None:
    it = filling(10_000)
    big, small = it.add([("a", [bytes(6000)])]), it.add([("b", [b"x"])])
    assert it.next_append(8000) == [], "a small one behind does not pass"
    assert "is full: it holds 8000 of 10000 bytes" in it.why_waiting(8000)
    assert it.next_append(2000) and big.under_way and small.under_way


def test_parcels_are_tried_one_at_a_time_while_the_disk_has_no_room() -> None:
    it = filling()
    parcels = [it.add([("a", [b"%d" % number])]) for number in range(3)]
    assert len(opened(it.next_append(0))[0].bodies) == 3
    assert it.appended(StoreFull("the disk is full")) == []
    assert it.full == it.why_waiting(0) == "the disk is full"
    it.add([("a", [b"3"])])
    (block,) = opened(it.next_append(0))
    assert (list(block.bodies), block.sequence) == ([b"0"], 1), "numbers that nobody has are given again"
    assert it.appended(None) == parcels[:1] and not it.full
    (block,) = opened(it.next_append(0))
    assert (list(block.bodies), block.sequence) == ([b"1", b"2", b"3"], 2)


def test_a_queued_message_can_be_given_up_and_one_being_appended_cannot() -> None:
    it = filling()
    first, second = it.add([("a", [b"1"])]), it.add([("a", [b"2"])])
    assert it.give_up(second)
    (block,) = opened(it.next_append(0))
    assert list(block.bodies) == [b"1"]
    assert not it.give_up(first)
    assert it.appended(StoreFull("full")) == []
    assert it.next_append(0) == [], "nobody waits for it any more, and it is not there"


def test_a_failed_disk_makes_the_messages_being_appended_unknown_and_refuses_the_rest() -> None:
    it = filling()
    given_, waiting = it.add([("a", [b"1"])]), None
    it.next_append(0)
    waiting = it.add([("a", [b"2"])])
    assert it.appended(OutboxFailed("the disk failed")) == [given_, waiting]
    with pytest.raises(Unknown, match="may be in the outbox: the disk failed"):
        given_.receipt(0)
    with pytest.raises(NotAccepted, match="^the disk failed$"):
        waiting.receipt(0)
    with pytest.raises(NotAccepted, match="^the disk failed$"):
        it.add([("a", [b"3"])])


def test_messages_above_the_limit_are_refused_at_once() -> None:
    with pytest.raises(NotAccepted, match=r"\d+ bytes do not fit the outbox /o of 1000 bytes"):
        filling(1000).add([("a", [bytes(2000)])])
    with pytest.raises(TopicError):
        filling().add([("a", [b""]), ("a..b", [b""])])


CALLS = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(1, 3)),
            min_size=1,
            max_size=3,
            unique_by=lambda t: t[0],
        ),
        st.sampled_from(["", "append", "full", "give up", "done"]),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(CALLS)
def test_each_topic_is_appended_in_the_order_of_the_calls_and_each_number_is_given_once(
    calls: list[tuple[list[tuple[str, int]], str]],
) -> None:
    it = filling()
    kept: dict[bytes, list[bytes]] = defaultdict(list)
    wanted: dict[str, list[bytes]] = defaultdict(list)
    numbers: list[int] = []
    parcels: list[Parcel] = []
    under_way: list[blocks.Opened] = []
    given_up: set[bytes] = set()

    def end(how: Exception | None) -> None:
        nonlocal under_way
        if under_way:
            it.appended(how)
            if how is None:
                for block in under_way:
                    kept[block.topic] += block.bodies
                    numbers.extend(range(block.sequence, block.sequence + len(block.bodies)))
            under_way = []

    for number, (topics, what) in enumerate(calls):
        given_ = [(topic, [b"%d/%d" % (number, each) for each in range(count)]) for topic, count in topics]
        parcels.append(it.add(given_))
        for topic, bodies in given_:
            wanted[topic] += bodies
        if what == "append":
            under_way = under_way or opened(it.next_append(0))
        elif what == "full":
            end(StoreFull("full"))
        elif what == "done":
            end(None)
        elif what == "give up" and not parcels[-1].under_way:
            assert it.give_up(parcels[-1])
            given_up |= {body for _, bodies in given_ for body in bodies}
    while it.busy:
        under_way = under_way or opened(it.next_append(0))
        end(None)
    for topic, bodies in wanted.items():
        assert kept[topic.encode()] == [body for body in bodies if body not in given_up]
    assert numbers == sorted(numbers) == list(range(1, len(numbers) + 1))


def test_gathered_messages_share_a_parcel_until_something_comes_between() -> None:
    it = filling()

    def gather(topic: str, limit_s: float = 1.0, headers: bytes = b"", size: int = 1) -> tuple[Parcel, int]:
        return it.gather(topic, bytes(size), headers, limit_s)

    first, _ = gather("a")
    assert gather("b")[0] is not first and gather("a") == (first, 1)
    it.add([("a", [b"awaited"])])
    after, _ = gather("a")
    assert after is not first, "what is gathered later comes later"
    assert gather("a", headers=blocks.pack_headers({"n": 1}))[0] is not after
    patient, _ = gather("a", 2.0)
    assert gather("a", 2.0) == (patient, 1)
    it.new_turn()
    assert gather("a", 2.0)[1] == 0
    large = gather("a", 2.0, size=blocks.SPLIT)
    assert large[1] == 0 and gather("a", 2.0)[0] is not large[0]
    it.next_append(0)
    assert gather("a", 2.0)[1] == 0, "the disk has the others"


def test_gathered_messages_count_for_the_room_they_take() -> None:
    it = filling(10_000)
    parcel, _ = it.gather("a", bytes(6000), b"", 1.0)
    assert it.gather("a", bytes(6000), b"", 1.0)[0] is not parcel
    assert len(opened(it.next_append(0))) == 1
    it.appended(None)
    assert it.next_append(6500) == [], "no room for the second"
