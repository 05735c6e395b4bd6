"""How messages of level stored are published; the test plays the brokers."""

from __future__ import annotations

from math import inf

import pytest

from mesh.clients.calls import joined
from mesh.clients.conversation import Conversation
from mesh.clients.resending import BODY_S, REFUSED_MAX_S, REFUSED_S
from mesh.clients.tickets import Ticket
from mesh.errors import NotAccepted, Unknown
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED, SENT, STORED
from mesh.wire.durable_frames import Durable
from mesh.wire.session_frames import AGAIN, DATA_SIZE, Kind, Receipt, decode, encode, read_data
from tests.mesh.clients.brokerless import PREFIX, STORELESS, opened, settled, welcomed


def publish(conversation: Conversation, *bodies: bytes, topic: str = "t", level: int = STORED) -> Ticket:
    ticket, index = conversation.add_many(topic, list(bodies), level)
    assert ticket is not None and index == 0
    conversation.flush()
    return ticket


def said(conversation: Conversation, kind: int, *fields: object, now: float = 0.0) -> list[object]:
    return list(conversation.received([PREFIX + encode(kind, *fields)], now))


def sent(conversation: Conversation) -> list[tuple[int, int, int]]:
    """Sequence number, flags and the distance below it, for each block that is sent."""
    found = []
    for frame in conversation.take_frames():
        _, flags, behind, _ = read_data(frame, 4)
        found.append((blocks.open_block(frame, 4 + DATA_SIZE).sequence, flags, behind))
    return found


def again(conversation: Conversation) -> None:
    """Lose the session and begin another one."""
    conversation.disconnected()
    welcomed(conversation)
    conversation.flush()


def test_a_receipt_says_stored_and_names_the_homes_of_all_its_blocks() -> None:
    conversation = settled()
    ticket = publish(conversation, *[b"x" * 1000] * 100)
    assert [block.level for block in opened(conversation)] == [STORED, STORED]
    said(conversation, Kind.ACK, STORED, [[1, 65]], [], ["h1"])
    said(conversation, Kind.ACK, STORED, [[66, 100]], ["gone"], ["h1", "h2"])
    assert ticket.receipt(0, 100) == Receipt("stored", "alpha", 1, 100, ("gone",), ("h1", "h2"))


def test_a_receipt_of_several_topics_names_the_homes_of_each() -> None:
    one, two = Receipt("stored", "a", 1, 2, (), ("h1",)), Receipt("stored", "a", 3, 1, (), ("h2", "h1"))
    assert joined([one, two], "stored", "a") == Receipt("stored", "a", 1, 3, (), ("h1", "h2"))


def test_levels_of_one_topic_do_not_share_a_block_and_keep_their_order() -> None:
    conversation = settled()
    for level, body in ((STORED, b"1"), (ACCEPTED, b"2"), (STORED, b"3"), (SENT, b"4"), (ACCEPTED, b"5")):
        conversation.add_many("t", [body], level)
    conversation.flush()
    assert sorted((block.level, *block.bodies) for block in opened(conversation)) == [
        (SENT, b"4"),
        (ACCEPTED, b"2", b"5"),
        (STORED, b"1", b"3"),
    ]


def test_a_block_carries_its_distance_to_the_lowest_waiting_stored_number() -> None:
    """A home remembers numbers from there on; it does not count those of other levels."""
    conversation = settled()
    publish(conversation, b"1", b"2", level=ACCEPTED)
    publish(conversation, b"3", b"4")
    publish(conversation, b"5")
    conversation.add_many("t", [b"6"], SENT)
    conversation.flush()
    assert sent(conversation) == [(1, 0, 0), (3, 0, 0), (5, 0, 2), (6, 0, 0)]
    said(conversation, Kind.ACK, STORED, [[3, 4]], [], ["h"])
    publish(conversation, b"7")
    assert sent(conversation) == [(7, 0, 2)]
    said(conversation, Kind.ACK, STORED, [[5, 7]], [], ["h"])
    publish(conversation, b"8")
    assert sent(conversation) == [(8, 0, 0)]


def test_an_unacknowledged_block_is_sent_again_unchanged() -> None:
    conversation = settled()
    ticket = publish(conversation, b"1")
    (first,) = conversation.take_frames()
    again(conversation)
    (second,) = conversation.take_frames()
    assert second[4 + DATA_SIZE :] == first[4 + DATA_SIZE :] and read_data(second, 4)[1] == AGAIN
    said(conversation, Kind.ACK, STORED, [[1, 1]], [], ["h"])
    assert ticket.receipt(0).homes == ("h",)


def test_a_waiting_message_that_a_home_refuses_as_past_is_unknown() -> None:
    """Another client said under this id that it waits for nothing below."""
    conversation = settled()
    ticket, other = publish(conversation, b"1"), publish(conversation, b"2")
    assert ticket in said(conversation, Durable.PAST, 1, 1, ["h"])
    with pytest.raises(Unknown, match=r"h forgot the number of the message, since another client"):
        ticket.receipt(0)
    assert said(conversation, Durable.PAST, 1, 1, ["h"]) == [] and not other.done
    again(conversation)
    assert [first for first, *_ in sent(conversation)][-1] == 2


def test_a_message_that_no_home_keeps_is_not_accepted() -> None:
    conversation = settled()
    ticket = publish(conversation, b"1")
    assert ticket in said(conversation, Kind.REFUSED, [[1, 1]], "nobody keeps t")
    with pytest.raises(NotAccepted, match="broker alpha refused the message: nobody keeps t"):
        ticket.receipt(0)


def test_a_second_copy_that_is_refused_is_sent_again_until_it_is_stored() -> None:
    """The next entry broker may have no link yet to the home that kept the first copy."""
    conversation = settled()
    ticket = publish(conversation, b"1")
    again(conversation)
    sent(conversation)
    pauses, now = [], 10.0
    for _ in range(8):
        assert said(conversation, Kind.REFUSED, [[1, 1]], "home h has no link", now=now) == []
        pauses.append(round(conversation.resend_at - now, 6))
        conversation.resend(now)
        assert sent(conversation) == [], "not before its time"
        now = conversation.resend_at
        conversation.resend(now)
        assert sent(conversation) == [(1, AGAIN, 0)] and conversation.resend_at == inf
    assert pauses[:3] == [REFUSED_S, 2 * REFUSED_S, 4 * REFUSED_S] and pauses[-1] == REFUSED_MAX_S
    assert "refused to have it stored again: home h has no link" in ticket.why("connected to alpha")
    assert said(conversation, Kind.ACK, STORED, [[1, 1]], [], ["h"]) == [ticket]
    assert ticket.receipt(0).homes == ("h",)


def test_a_block_that_waits_for_its_retry_is_sent_at_once_in_a_new_session() -> None:
    conversation = settled()
    publish(conversation, b"1")
    again(conversation)
    said(conversation, Kind.REFUSED, [[1, 1]], "no", now=1.0)
    sent(conversation)
    again(conversation)
    assert sent(conversation) == [(1, AGAIN, 0)] and conversation.resend_at == inf
    conversation.resend(100.0)
    assert sent(conversation) == []


def test_a_refused_copy_that_is_stored_meanwhile_is_not_sent_again() -> None:
    conversation = settled()
    ticket = publish(conversation, b"1")
    again(conversation)
    said(conversation, Kind.REFUSED, [[1, 1], [1, 1]], "no")
    said(conversation, Kind.ACK, STORED, [[1, 1], [1, 1]], [], ["h"])
    sent(conversation)
    conversation.resend(conversation.resend_at)
    assert sent(conversation) == [] and ticket.receipt(0).count == 1


def test_a_refused_copy_that_nobody_waits_for_is_not_retried() -> None:
    conversation = settled()
    ticket = publish(conversation, b"1")
    again(conversation)
    said(conversation, Kind.REFUSED, [[1, 1]], "no")
    assert not conversation.cancel(ticket, 0) and ticket.done
    sent(conversation)
    conversation.resend(conversation.resend_at)
    assert sent(conversation) == [] and not conversation._unacked


def test_all_pieces_of_a_large_body_are_sent_again_after_a_refusal() -> None:
    conversation = settled(size=1 << 30)
    publish(conversation, b"y")
    ticket = publish(conversation, bytes(3 * blocks.SPLIT))
    assert sent(conversation) == [(1, 0, 0), (2, 0, 1), (2, 0, 1), (2, 0, 1)]
    again(conversation)
    sent(conversation)
    for _ in range(3):
        said(conversation, Kind.REFUSED, [[2, 2]], "no")
    conversation.resend(conversation.resend_at)
    assert sent(conversation) == [(2, AGAIN, 1)] * 3
    said(conversation, Kind.ACK, STORED, [[2, 2]], [], ["h"])
    assert ticket.receipt(0).seq == 2


def test_a_slow_large_body_is_sent_again_whole_as_long_as_its_caller_waits() -> None:
    """A restarting home drops the pieces it has, and then only the publisher has them."""
    conversation = settled(size=1 << 30)
    ticket = publish(conversation, bytes(3 * blocks.SPLIT))
    publish(conversation, b"y")
    assert sent(conversation) == [(1, 0, 0)] * 3 + [(2, 0, 1)] and conversation.resend_at == inf
    said(conversation, Durable.PENDING, 1, 2, [], ["h"], now=0.5)
    said(conversation, Durable.PENDING, 1, 2, ["g"], ["h"], now=1.0)
    assert conversation.resend_at == 0.5 + BODY_S, "the first word counts, and for the body only"
    conversation.resend(0.4 + BODY_S)
    assert sent(conversation) == []
    conversation.resend(0.5 + BODY_S)
    assert sent(conversation) == [(1, AGAIN, 0)] * 3
    assert conversation.resend_at == 0.5 + 3 * BODY_S, "twice as long"
    said(conversation, Kind.REFUSED, [[1, 1]], "home h has no link", now=3.0)
    assert not ticket.done, "it may be kept by now"
    conversation.resend(3.0 + REFUSED_S)
    assert sent(conversation) == [(1, AGAIN, 0)] * 3
    conversation.cancel(ticket, 0)
    conversation.resend(0.5 + 3 * BODY_S)
    assert sent(conversation) == [] and conversation.resend_at == inf


def test_a_large_body_is_not_sent_again_before_all_of_it_was_sent() -> None:
    conversation = settled(size=2 * blocks.SPLIT)
    ticket = publish(conversation, bytes(5 * blocks.SPLIT))
    assert len(sent(conversation)) == 2
    said(conversation, Durable.PENDING, 1, 1, [], ["h"], now=0.5)
    conversation.resend(0.5 + BODY_S)
    said(conversation, Kind.CREDIT, 0, 100, 1 << 30, now=4.0)
    conversation.flush()
    assert len(sent(conversation)) == 3, "the rest, once"
    said(conversation, Kind.ACK, STORED, [[1, 1]], [], ["h"])
    conversation.resend(conversation.resend_at)
    assert ticket.receipt(0).homes == ("h",) and conversation.resend_at == inf


def test_a_small_pending_block_is_not_sent_again_by_the_client() -> None:
    conversation = settled()
    publish(conversation, b"1")
    said(conversation, Durable.PENDING, 1, 1, [], ["h"])
    assert conversation.resend_at == inf


def test_a_caller_that_gives_up_learns_which_homes_confirmed_and_which_did_not() -> None:
    conversation = settled()
    ticket = publish(conversation, b"1", b"2")
    assert ticket.why("connected to alpha") == "connected to alpha"
    assert said(conversation, Durable.PENDING, 1, 2, [], ["h1", "h2"]) == []
    assert ticket.why("x") == "no home is known to keep it; asked: h1, h2; x"
    said(conversation, Durable.PENDING, 1, 2, ["h1"], ["h2"])
    assert ticket.why("x") == "kept by h1, not yet by h2; x"
    said(conversation, Durable.PENDING, 7, 9, ["h1"], ["h2"])
    conversation.close("done")
    with pytest.raises(Unknown, match="kept by h1, not yet by h2; the client was closed"):
        ticket.receipt(0)


def test_a_broker_without_level_stored_is_named_before_anything_is_gathered() -> None:
    conversation = settled(offer=STORELESS)
    room = conversation.room
    with pytest.raises(NotAccepted, match="broker alpha does not know level stored"):
        conversation.add_many("t", [b"1"], STORED)
    assert not conversation.gathered and conversation.room == room
    assert publish(conversation, b"2", level=ACCEPTED).sealed


def test_a_next_broker_without_level_stored_ends_waiting_stored_messages_only() -> None:
    conversation = settled()
    under_way = publish(conversation, b"1")
    accepted = publish(conversation, b"2", level=ACCEPTED)
    conversation.disconnected()
    gathered = publish(conversation, b"3")
    conversation.take_frames()
    woken = welcomed(conversation, offer=STORELESS)
    assert under_way in woken and gathered in woken and accepted not in woken
    with pytest.raises(Unknown, match="an earlier copy of the message may be stored: broker alpha does not"):
        under_way.receipt(0)
    with pytest.raises(NotAccepted, match="broker alpha does not know level stored"):
        gathered.receipt(0)
    conversation.flush()
    assert sent(conversation) == [(2, AGAIN, 0)]


def lowest(conversation: Conversation) -> list[int]:
    """The lowest pending number that the broker is told."""
    frames = [decode(frame, 4) for frame in conversation.take_frames()]
    assert all(frame[:3] == [Durable.LOWEST, conversation.publisher, 2] for frame in frames)
    return [frame[3] for frame in frames]


def test_the_client_announces_abandoned_numbers_when_it_has_no_credit() -> None:
    """A home that did not answer held the credit of everything in flight to it. Then nothing could be
    published at any level, though every caller had given up."""
    conversation = settled(messages=20)
    first, second, third = (publish(conversation, *[b"x"] * 10, topic=topic) for topic in ("a", "b", "c"))
    assert [block.sequence for block in opened(conversation)] == [1, 11] and not third.sealed
    assert not conversation.cancel(second, 0, 10) and lowest(conversation) == [], "the first is waited for"
    assert conversation.cancel(third, 0, 10) and lowest(conversation) == [], "it was never sent"
    assert not conversation.cancel(first, 0, 10) and lowest(conversation) == [21]
    conversation.flush()
    assert lowest(conversation) == [], "it is told once"
    again(conversation)
    assert not conversation.has_output, "nobody waits for anything"


def test_numbers_abandoned_while_there_was_credit_are_announced_when_it_is_used_up() -> None:
    conversation = settled(messages=20)
    ticket = publish(conversation, *[b"x"] * 10)
    conversation.cancel(ticket, 0, 10)
    assert [block.sequence for block in opened(conversation)] == [1]
    publish(conversation, *[b"x"] * 10, level=ACCEPTED)
    assert [block.sequence for block in opened(conversation)] == [11]
    conversation.flush()
    assert lowest(conversation) == [21]


def test_a_client_without_stored_messages_announces_no_lowest_number() -> None:
    conversation = settled(messages=10)
    ticket = publish(conversation, *[b"x"] * 10, level=ACCEPTED)
    conversation.take_frames()
    conversation.cancel(ticket, 0, 10)
    conversation.flush()
    assert lowest(conversation) == []


def test_an_abandoned_message_is_not_sent_again_when_credit_comes() -> None:
    conversation = settled(messages=20)
    tickets = [publish(conversation, *[b"x"] * 10, topic=topic) for topic in ("a", "b")]
    conversation.take_frames()
    conversation.disconnected()
    welcomed(conversation, messages=1)
    conversation.flush()
    assert sent(conversation) == [(1, AGAIN, 0)], "there is credit for one block"
    conversation.cancel(tickets[1], 0, 10)
    said(conversation, Kind.CREDIT, 0, 100, 1 << 20)
    conversation.flush()
    assert sent(conversation) == []
