"""How messages gather, are sealed and acknowledged; the test speaks for the broker."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.clients import publishing
from mesh.errors import NotAccepted
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED, SENT
from mesh.wire.session_frames import Kind, encode
from tests.mesh.clients.brokerless import PREFIX, opened, settled


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
