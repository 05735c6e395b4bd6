"""How messages gather, are sealed and acknowledged; the test plays the broker."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.clients import publishing
from mesh.errors import NotAccepted, Unknown
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED, SENT
from mesh.wire.session_frames import DATA_SIZE, Kind, encode
from tests.mesh.clients.brokerless import PREFIX, opened, settled, welcomed


def test_a_turn_of_one_topic_fills_one_block_exactly() -> None:
    conversation = settled(10_000)
    count = 0
    conversation.add_many("t", [b"x" * 128], SENT)
    while conversation.room > 0:
        conversation.add_many("t", [b"x" * 128], SENT)
        count += 1
    conversation.flush()
    (block,) = opened(conversation)
    assert len(block.bodies) == count + 1 > 450 and block.sequence == 1


def test_a_thousand_topics_in_turn_share_a_longer_turn() -> None:
    conversation = settled(1 << 20, 1 << 24)
    number = 0
    while conversation.room > 0:
        conversation.add_many(f"t.{number % 1000}", [b"x" * 128], SENT)
        number += 1
    conversation.flush()
    assert number / len(opened(conversation)) > 15


def test_numbers_follow_the_order_of_sealing_and_levels_do_not_mix() -> None:
    conversation = settled()
    conversation.add_many("a", [b"1", b"2"], SENT)
    conversation.add_many("b", [b"3"], ACCEPTED)
    conversation.add("a", b"4", SENT, blocks.pack_headers({"h": 1}))
    conversation.add_many("a", [b"5"], SENT)
    conversation.flush()
    found = [(block.topic, block.level, list(block.bodies), block.sequence) for block in opened(conversation)]
    assert sorted(found, key=lambda block: block[3]) == found
    assert [block[2] for block in found if block[:2] == (b"a", SENT)] == [[b"1", b"2"], [b"4"], [b"5"]]
    assert [block[2] for block in found if block[1] == ACCEPTED] == [[b"3"]]


def test_sealing_stops_at_the_end_of_credit_and_continues_with_more() -> None:
    conversation = settled(10)
    for topic in ("a", "b", "c"):
        conversation.add_many(topic, [b"x"] * 8, SENT)
    conversation.flush()
    assert [block.topic for block in opened(conversation)] == [b"a", b"b"]
    assert conversation.blocked and conversation.room <= 0 and conversation.gathered
    woken = conversation.received([PREFIX + encode(Kind.CREDIT, 0, 100, 1000)], 0.0)
    assert conversation.gate in woken
    conversation.add_many("c", [b"y"], SENT)
    conversation.flush()
    (block,) = opened(conversation)
    assert list(block.bodies) == [b"x"] * 8 + [b"y"], "blocks grow while credit is short"


def test_a_batch_that_credit_cuts_in_two_has_one_range_of_numbers() -> None:
    conversation = settled(5, 1 << 24)
    ticket, index = conversation.add_many("a", [b"x" * 1000] * 200, ACCEPTED)
    conversation.flush()
    conversation.add_many("b", [b"y"], SENT)
    conversation.received([PREFIX + encode(Kind.CREDIT, 0, 1 << 20, 1 << 24)], 0.0)
    conversation.flush()
    sealed = opened(conversation)
    assert [block.topic for block in sealed] == [b"a"] * 4 + [b"b"]
    assert ticket is not None and not ticket.done
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 150]], [])], 0.0)
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 200]], ["beta"])], 0.0)
    assert ticket.done and ticket.receipt(index, 200).absent == ("beta",)


def test_no_receipt_is_given_while_a_part_of_the_batch_waits_for_credit() -> None:
    conversation = settled(5, 1 << 24)
    ticket, index = conversation.add_many("a", [b"x" * 1000] * 200, ACCEPTED)
    conversation.flush()
    (block,) = opened(conversation)
    assert ticket is not None
    sent = len(block.bodies)
    woken = conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, sent]], [])], 0.0)
    assert ticket not in woken and not ticket.done, f"{200 - sent} of 200 were not sent yet"
    conversation.received([PREFIX + encode(Kind.CREDIT, 0, 1 << 20, 1 << 24)], 0.0)
    conversation.flush()
    woken = conversation.received([PREFIX + encode(Kind.ACK, 1, [[sent + 1, 200]], [])], 0.0)
    assert ticket in woken and ticket.receipt(index, 200).count == 200


def test_the_headers_of_a_cancelled_message_go_with_it() -> None:
    conversation = settled()
    headers = [blocks.pack_headers({"n": number}) if number != 2 else b"" for number in range(5)]
    tickets = [conversation.add("t", b"%d" % number, ACCEPTED, headers[number]) for number in range(5)]
    for number in (3, 0):
        ticket, index = tickets[number]
        assert ticket is not None and conversation.cancel(ticket, index)
    conversation.flush()
    (block,) = opened(conversation)
    assert list(block.bodies) == [b"1", b"2", b"4"]
    assert block.headers == [headers[1], b"", headers[4]]
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 3]], [])], 0.0)
    assert [tickets[number][0].receipt(tickets[number][1]).seq for number in (1, 2, 4)] == [1, 2, 3]  # type: ignore[union-attr]


@pytest.mark.timeout(60)  # it takes a second; with quadratic cost it took minutes
def test_the_cost_of_a_call_does_not_grow_with_the_number_of_callers() -> None:
    """4 000 timeouts of one topic took 0.6 s, 16 000 took 10 s; so did ACKs beside a backlog of topics."""
    count = 100_000
    conversation = settled(count, 1 << 30)
    held = [conversation.add_many("t", [b"x"], ACCEPTED) for _ in range(count)]
    for ticket, index in (*reversed(held[: count // 2]), *held[count // 2 : -1]):
        assert ticket is not None and conversation.cancel(ticket, index)
    conversation.flush()
    ((block,), (ticket, index)) = opened(conversation), held[-1]
    assert list(block.bodies) == [b"x"] and ticket is not None
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 1]], [])], 0.0)
    assert ticket.receipt(index).seq == 1


@pytest.mark.timeout(60)
def test_the_cost_of_an_ack_does_not_depend_on_the_backlog() -> None:
    conversation = settled(10, 1 << 30)
    tickets = [conversation.add_many(f"t.{number}", [b"x"], ACCEPTED)[0] for number in range(60_000)]
    while conversation.gathered:
        conversation.flush()
        blocks_out = opened(conversation)
        acked = [[block.sequence, block.sequence] for block in blocks_out]
        conversation.received([PREFIX + encode(Kind.ACK, 1, acked, [])], 0.0)
        conversation.received([PREFIX + encode(Kind.CREDIT, 0, 500, 1 << 20)], 0.0)
    assert all(ticket is not None and ticket.done for ticket in tickets)


@pytest.mark.timeout(60)
def test_more_topics_at_once_than_are_remembered_cost_each_the_same() -> None:
    conversation = settled(10, 1 << 30)
    for number in range(120_000):
        conversation.open_topic(f"t.{number}").append(b"")
    assert len(conversation._suffixes) == 120_000, "all of them are needed"
    conversation.forming.clear()
    for number in range(120_000):
        conversation.open_topic(f"u.{number}")
        conversation.forming.clear()
    assert len(conversation._suffixes) <= 120_000, "and then they are forgotten"


def test_a_batch_of_cancelled_messages_only_is_done_and_nothing_is_sent() -> None:
    conversation = settled()
    ticket, index = conversation.add_many("t", [b"a", b"b"], ACCEPTED)
    assert ticket is not None and conversation.cancel(ticket, index, 2)
    conversation.flush()
    assert ticket.done and opened(conversation) == []
    conversation.add_many("t", [b"c"], ACCEPTED)
    conversation.flush()
    (block,) = opened(conversation)
    assert (list(block.bodies), block.sequence) == ([b"c"], 1)


def test_sealed_or_acknowledged_messages_cannot_be_taken_back() -> None:
    conversation = settled()
    ticket, index = conversation.add_many("t", [b"a"], ACCEPTED)
    conversation.flush()
    assert ticket is not None and not conversation.cancel(ticket, index)
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 1]], [])], 0.0)
    assert ticket.done and not conversation.cancel(ticket, index)


def test_the_rest_of_a_batch_whose_caller_gave_up_is_not_sealed_later() -> None:
    """Its caller had got `Unknown` by then, perhaps minutes earlier."""
    conversation = settled(5, 1 << 24)
    ticket, index = conversation.add_many("a", [b"x" * 1000] * 200, ACCEPTED)
    conversation.flush()
    (block,) = opened(conversation)
    assert ticket is not None and not conversation.cancel(ticket, index, 200)
    assert not conversation.gathered and ticket.done
    conversation.received([PREFIX + encode(Kind.CREDIT, 0, 1 << 20, 1 << 24)], 0.0)
    conversation.flush()
    assert opened(conversation) == []
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, len(block.bodies)]], [])], 0.0)
    assert not conversation._unacked


def test_a_caller_that_gives_up_does_not_end_a_batch_that_others_wait_for() -> None:
    conversation = settled(5, 1 << 24)
    ticket, _ = conversation.add_many("a", [b"x" * 1000] * 65, ACCEPTED)
    _, second = conversation.add_many("a", [b"y" * 1000] * 65, ACCEPTED)
    assert ticket is not None
    conversation.flush()
    assert len(opened(conversation)) == 1
    assert not conversation.cancel(ticket, 0, 65) and not ticket.done
    conversation.received([PREFIX + encode(Kind.CREDIT, 0, 1 << 20, 1 << 24)], 0.0)
    conversation.flush()
    assert [set(block.bodies) for block in opened(conversation)] == [{b"y" * 1000}]
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 130]], [])], 0.0)
    assert ticket.receipt(second, 65).seq == 66


def test_the_last_caller_of_a_batch_takes_back_unsealed_messages() -> None:
    conversation = settled(5, 1 << 24)
    ticket, _ = conversation.add_many("a", [b"x" * 1000] * 65, ACCEPTED)
    conversation.add_many("a", [b"y" * 1000] * 65, ACCEPTED)
    assert ticket is not None
    conversation.flush()
    assert not conversation.cancel(ticket, 0, 65), "sealed"
    assert conversation.cancel(ticket, 65, 65), "certainly not accepted"


def test_a_message_that_nobody_waits_for_is_not_sent_again_in_a_new_session() -> None:
    conversation = settled()
    ticket, index = conversation.add_many("a", [b"x"], ACCEPTED)
    conversation.flush()
    assert ticket is not None and not conversation.cancel(ticket, index)
    conversation.disconnected()
    welcomed(conversation)
    conversation.flush()
    assert len(opened(conversation)) == 0


def test_a_receipt_names_all_brokers_that_were_absent_for_any_part_of_it() -> None:
    """It named only those of the last acknowledgement."""
    conversation = settled(10_000, 1 << 22)
    ticket, index = conversation.add_many("t", [b"x" * 1000] * 200, ACCEPTED)
    conversation.flush()
    ends = [(block.sequence, block.sequence + len(block.bodies) - 1) for block in opened(conversation)]
    absent = [["beta"], [], ["gamma", "beta"], []]
    for ends_of, names in zip(ends, absent, strict=True):
        conversation.received([PREFIX + encode(Kind.ACK, 1, [list(ends_of)], names)], 0.0)
    assert ticket is not None and ticket.receipt(index, 200).absent == ("beta", "gamma")


def test_the_rest_of_a_batch_that_failed_is_not_sent() -> None:
    """Its first part was refused, so the caller may publish all of it again."""
    conversation = settled(5, 1 << 24)
    ticket, index = conversation.add_many("a", [b"x" * 1000] * 200, ACCEPTED)
    conversation.flush()
    (block,) = opened(conversation)
    assert ticket is not None
    conversation.received([PREFIX + encode(Kind.REFUSED, [[1, len(block.bodies)]], "leaving")], 0.0)
    with pytest.raises(NotAccepted, match="leaving"):
        ticket.receipt(index, 200)
    conversation.received([PREFIX + encode(Kind.CREDIT, 0, 1 << 20, 1 << 24)], 0.0)
    conversation.flush()
    assert opened(conversation) == [] and not conversation.gathered


def test_callers_that_share_a_batch_get_the_outcomes_of_their_own_messages() -> None:
    conversation = settled(5, 1 << 24)
    ticket, _ = conversation.add_many("a", [b"x" * 1000] * 65, ACCEPTED)
    shares = [(0, 65)]
    for count in (10, 60, 65, 60):
        ticket, index = conversation.add_many("a", [b"x" * 1000] * count, ACCEPTED)
        shares.append((index, count))
    assert ticket is not None
    conversation.flush()
    conversation.received([PREFIX + encode(Kind.CREDIT, 0, 130, 1 << 24)], 0.0)
    conversation.flush()
    first, second, third = opened(conversation)
    assert [len(block.bodies) for block in (first, second, third)] == [65, 65, 65]
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 65]], ["beta"])], 0.0)
    conversation.received([PREFIX + encode(Kind.REFUSED, [[66, 130]], "leaving")], 0.0)
    assert ticket.done
    assert ticket.receipt(*shares[0]).absent == ("beta",), "all of it was accepted"
    for share in (shares[1], (66, 10), (129, 1), shares[4]):
        with pytest.raises(NotAccepted, match="leaving"):
            ticket.receipt(*share)
    for share in (shares[3], (64, 2), (129, 2), (194, 1)):
        with pytest.raises(Unknown, match="some of the messages may have been accepted"):
            ticket.receipt(*share)
    with pytest.raises(NotAccepted):
        ticket.receipt(195, 1)


def test_late_answers_for_a_failed_batch_change_nothing() -> None:
    conversation = settled(1 << 20, 1 << 24)
    ticket, _ = conversation.add_many("a", [b"x" * 1000] * 200, ACCEPTED)
    conversation.flush()
    assert ticket is not None
    conversation.received([PREFIX + encode(Kind.REFUSED, [[1, 65]], "leaving")], 0.0)
    assert conversation.received([PREFIX + encode(Kind.ACK, 1, [[66, 200]], [])], 0.0) == []
    assert conversation.received([PREFIX + encode(Kind.REFUSED, [[131, 195]], "again")], 0.0) == []
    with pytest.raises(NotAccepted, match="leaving"):
        ticket.receipt(0)
    assert not conversation._unacked


def test_messages_that_were_unsent_at_the_close_are_not_accepted() -> None:
    conversation = settled(5, 1 << 24)
    cut, _ = conversation.add_many("a", [b"x" * 1000] * 200, ACCEPTED)
    conversation.flush()
    gathered, _ = conversation.add_many("b", [b"x"], ACCEPTED)
    assert cut is not None and gathered is not None
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 65]], [])], 0.0)
    assert {cut, gathered} <= set(conversation.close("done"))
    assert cut.receipt(0, 65).count == 65
    for ticket, index in ((cut, 65), (gathered, 0)):
        with pytest.raises(NotAccepted, match="closed before the message was sent"):
            ticket.receipt(index)


def test_only_unanswered_blocks_are_sent_again_in_a_new_session() -> None:
    conversation = settled()
    tickets = []
    for topic in ("accepted", "refused", "unanswered"):
        tickets.append(conversation.add_many(topic, [b"x"], ACCEPTED)[0])
        conversation.flush()
    conversation.add_many("sent", [b"x"], SENT)
    conversation.flush()
    assert len(opened(conversation)) == 4
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 1]], [])], 0.0)
    conversation.received([PREFIX + encode(Kind.REFUSED, [[2, 2]], "leaving")], 0.0)
    conversation.disconnected()
    welcomed(conversation)
    conversation.flush()
    assert [block.topic for block in opened(conversation)] == [b"unanswered"]
    assert [ticket.done for ticket in tickets if ticket] == [True, True, False]


def test_a_block_of_a_batch_that_failed_is_not_sent_again_with_the_rest() -> None:
    conversation = settled(1 << 20, 1 << 24)
    ticket, _ = conversation.add_many("a", [b"x" * 1000] * 200, ACCEPTED)
    conversation.flush()
    first, *others = opened(conversation)
    assert ticket is not None and len(others) == 3
    conversation.received([PREFIX + encode(Kind.REFUSED, [[1, len(first.bodies)]], "leaving")], 0.0)
    conversation.disconnected()
    welcomed(conversation)
    conversation.flush()
    assert opened(conversation) == []


def test_a_refused_message_is_not_accepted() -> None:
    conversation = settled()
    ticket, _ = conversation.add("t", b"x", ACCEPTED, b"")
    conversation.flush()
    conversation.received([PREFIX + encode(Kind.REFUSED, [[1, 1]], "leaving")], 0.0)
    assert ticket is not None
    with pytest.raises(NotAccepted, match="leaving"):
        ticket.receipt(0)


def test_a_refused_second_copy_is_unknown_since_the_first_may_have_been_accepted() -> None:
    """The ACK of the first copy was lost with its connection. `NotAccepted` made programs publish twice."""
    conversation = settled()
    again, _ = conversation.add("again", b"x", ACCEPTED, b"")
    conversation.flush()
    conversation.disconnected()
    new, _ = conversation.add("new", b"y", ACCEPTED, b"")
    welcomed(conversation)
    conversation.flush()
    assert [block.topic for block in opened(conversation)] == [b"again", b"new"]
    assert again is not None and new is not None
    woken = conversation.received([PREFIX + encode(Kind.REFUSED, [[1, 2]], "leaving")], 0.0)
    assert again in woken and new in woken
    with pytest.raises(Unknown, match="broker alpha refused a second copy .* leaving"):
        again.receipt(0)
    with pytest.raises(NotAccepted, match="broker alpha refused the message: leaving"):
        new.receipt(0)


@pytest.mark.parametrize("first", ["copy", "rest"])
def test_only_the_messages_of_a_refused_batch_that_were_sent_twice_are_unknown(first: str) -> None:
    """200 messages become blocks of 65, 65, 65 and 5. Credit lets one block out in the first session, two
    more in the second one, and the last one never."""
    conversation = settled(5, 1 << 24)
    ticket, _ = conversation.add_many("a", [b"x" * 1000] * 200, ACCEPTED)
    conversation.flush()
    assert ticket is not None and len(opened(conversation)) == 1
    conversation.disconnected()
    welcomed(conversation, 100, 1 << 24)
    conversation.flush()
    assert [block.sequence for block in opened(conversation)] == [1, 66]
    ranges = [[1, 65], [66, 130]] if first == "copy" else [[66, 130], [1, 65]]
    conversation.received([PREFIX + encode(Kind.REFUSED, ranges, "leaving")], 0.0)
    for index, count in ((0, 65), (64, 2), (0, 200), (10, 1)):
        with pytest.raises(Unknown, match="leaving"):
            ticket.receipt(index, count)
    for index, count in ((65, 65), (66, 1), (100, 100), (130, 70)):
        with pytest.raises(NotAccepted, match="leaving"):
            ticket.receipt(index, count)
    assert not conversation._unacked


def test_only_topics_in_use_are_kept_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "TOPICS_MAX", 50)
    conversation = settled(1 << 20, 1 << 24)
    for number in range(400):
        conversation.add_many(f"t.{number}", [b"x"], SENT)
        if number % 30 == 29:
            conversation.flush()
    conversation.flush()
    assert {block.topic for block in opened(conversation)} == {b"t.%d" % number for number in range(400)}


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
    conversation = settled(messages, size)
    expected: dict[tuple[bytes, int], list[bytes]] = {}
    for index, (topic, length, accepted, headed) in enumerate(work):
        body = random.Random(index).randbytes(length)
        conversation.add(topic, body, int(accepted), blocks.pack_headers({"i": index}) if headed else b"")
        expected.setdefault((topic.encode(), int(accepted)), []).append(body)
    got: dict[tuple[bytes, int], list[bytes]] = {}
    assembler = blocks.Assembler()
    numbers: list[int] = []
    for _ in range(400):
        conversation.flush()
        for block in opened(conversation):
            bodies = list(block.bodies)
            if block.whole_size:
                whole = assembler.add(block)
                if whole is None:
                    continue
                bodies = [whole[0]]
            numbers += range(block.sequence, block.sequence + len(bodies))
            got.setdefault((block.topic, block.level), []).extend(bodies)
        conversation.received([PREFIX + encode(Kind.CREDIT, 0, messages, size + 50_000)], 0.0)
        if not conversation.gathered and not conversation.has_output:
            break
    assert got == expected
    assert numbers == list(range(1, len(work) + 1))


def test_numbers_have_no_gap_where_blocks_of_equal_and_of_mixed_lengths_alternate() -> None:
    conversation = settled()
    for topic, bodies in (("a", [b"1", b"22"]), ("b", [b"3"]), ("c", [b"4", b"", b"5"]), ("d", [b"6", b"7"])):
        assert conversation.add_many(topic, bodies, SENT) == (None, 0)
    conversation.flush()
    assert [(block.sequence, len(block.bodies)) for block in opened(conversation)] == [
        (1, 2),
        (3, 1),
        (4, 3),
        (7, 2),
    ]
    assert conversation.statistics().published == 8 and conversation.statistics().blocks_out == 4
    conversation.add_many("a", [b"x"], SENT)
    conversation.flush()
    assert [block.sequence for block in opened(conversation)] == [9]


def test_waiters_for_a_ticket_are_called_once() -> None:
    conversation = settled()
    ticket, _ = conversation.add("t", b"x", ACCEPTED, b"")
    assert ticket is not None
    calls: list[str] = []
    ticket.waiters[lambda: calls.append("a")] = None
    ticket.waiters[lambda: calls.append("b")] = None
    conversation.flush()
    for item in conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 1]], [])], 0.0):
        item.wake()
    ticket.wake()
    assert calls == ["a", "b"]


def test_room_grows_with_topics_up_to_a_bound() -> None:
    conversation = settled(1 << 20, 1 << 30)
    for level in (SENT, ACCEPTED):
        conversation.room = publishing.TURN_MAX - 1
        conversation.add_many(f"below.{level}", [b""], level)
        assert conversation.room == publishing.TURN_MAX - 1 + publishing.TURN_TOPIC - publishing.MESSAGE_COST
        before = conversation.room = publishing.TURN_MAX + publishing.MESSAGE_COST
        conversation.add_many(f"above.{level}", [b""], level)
        assert conversation.room == before - publishing.MESSAGE_COST


def test_credit_is_spent_by_messages_and_by_the_bytes_of_blocks() -> None:
    conversation = settled(100, 10_000)
    conversation.add_many("t", [b"abc"] * 3, SENT)
    conversation.add_many("u", [b"abc", b"d"], SENT)
    conversation.add_many("v", [b"abc"], ACCEPTED)
    conversation.flush()
    frames = conversation.take_frames()
    size = sum(len(frame) - 4 - DATA_SIZE for frame in frames)
    assert (conversation.credit.messages, conversation.credit.bytes) == (100 - 6, 10_000 - size) and len(
        frames
    ) == 3


@pytest.mark.parametrize("level", [SENT, ACCEPTED])
@pytest.mark.parametrize("short", ["messages", "bytes"])
def test_exactly_used_up_credit_is_none(level: int, short: str) -> None:
    size = len(blocks.seal(b"a", [b"xyz"], publisher=1, boot=2, sequence=1))
    conversation = settled(1 if short == "messages" else 100, size if short == "bytes" else 1 << 20)
    for topic in ("a", "b"):
        conversation.add_many(topic, [b"xyz"], level)
    conversation.flush()
    assert [block.topic for block in opened(conversation)] == [b"a"]
    assert 0 in (conversation.credit.messages, conversation.credit.bytes) and conversation.blocked
    assert conversation.room == 0 and conversation.gathered, "nobody gathers into credit that is not there"
    conversation.flush()
    assert opened(conversation) == [] and conversation.room == 0
    assert conversation.received([PREFIX + encode(Kind.CREDIT, 0, 1, size)], 0.0) == [conversation.gate]
    assert conversation.room > 0
    conversation.flush()
    assert [block.topic for block in opened(conversation)] == [b"b"] and not conversation.gathered


def test_messages_gathered_without_credit_count_against_the_room_of_new_credit() -> None:
    conversation = settled(1, 1 << 20)
    conversation.add_many("a", [b"x"], SENT)
    conversation.flush()
    kept = publishing.TURN + publishing.TURN_TOPIC * 2 - 1000 - 2000 - 2 * publishing.MESSAGE_COST
    conversation.received([PREFIX + encode(Kind.CREDIT, 0, 1, 1)], 0.0)
    for topic, body in (("a", b"x"), ("b", bytes(1000)), ("c", bytes(2000))):
        conversation.add_many(topic, [body], SENT)
    conversation.flush()
    assert conversation.room == 0 and len(opened(conversation)) == 2
    conversation.received([PREFIX + encode(Kind.CREDIT, 0, 1 << 20, 1 << 24)], 0.0)
    assert conversation.room == kept
