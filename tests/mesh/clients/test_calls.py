"""What both clients' calls take and end as."""

from __future__ import annotations

import pytest

from mesh.clients.calls import by_topic, joined, level_number, no_credit, packed, unacknowledged, unconfirmed
from mesh.errors import MeshTimeout, NotAccepted, Unknown
from mesh.wire import blocks
from mesh.wire.blocks import HeaderValue, unpack_headers
from mesh.wire.session_frames import Receipt


def test_levels_are_those_of_blocks_and_no_others() -> None:
    assert [level_number("sent"), level_number("accepted")] == [blocks.SENT, blocks.ACCEPTED]
    with pytest.raises(ValueError, match="level 'stored' is not known; levels are 'sent', 'accepted'"):
        level_number("stored")


def test_a_key_travels_as_the_header_of_that_name() -> None:
    assert packed(None, None) == packed({}, None) == b""
    assert unpack_headers(packed(None, "k")) == {"key": "k"}
    given: dict[str, HeaderValue] = {"n": 1, "key": "old"}
    assert unpack_headers(packed(given, "new")) == {"n": 1, "key": "new"}
    assert given == {"n": 1, "key": "old"}, "what the caller gave is the caller's"


def test_messages_are_a_topic_and_bodies_or_pairs_of_both() -> None:
    assert by_topic("a", (b"1", b"23")) == [("a", [b"1", b"23"], 3)]
    assert by_topic("a", []) == by_topic([], None) == []
    pairs = [("b", b"1"), ("a", b"22"), ("b", b"333")]
    assert by_topic(pairs, None) == [("b", [b"1", b"333"], 4), ("a", [b"22"], 2)]
    for messages, bodies, word in (("a", None, "needs the list"), (pairs, [b""], "not pairs and bodies")):
        with pytest.raises(TypeError, match=word):
            by_topic(messages, bodies)
    with pytest.raises(TypeError, match="encode it first"):
        by_topic([("a", "text")], None)  # type: ignore[list-item]


def test_one_receipt_speaks_for_all_topics() -> None:
    one = Receipt("accepted", "alpha", 7, 2, ("x",))
    assert joined([one], "accepted", "beta") is one
    other = Receipt("accepted", "alpha", 3, 5, ("y", "x"))
    assert joined([one, other], "accepted", "alpha") == Receipt("accepted", "alpha", 3, 7, ("x", "y"))
    assert joined([], "sent", "alpha") == Receipt("sent", "alpha", 0, 0)


def test_the_kind_of_error_says_whether_the_message_may_have_been_taken() -> None:
    why = "connected to alpha"
    assert type(no_credit(blocks.SENT, 1.0, why)) is MeshTimeout
    assert type(no_credit(blocks.ACCEPTED, 1.0, why)) is NotAccepted
    assert type(unacknowledged(True, 1.0, why)) is NotAccepted
    error = unacknowledged(False, 0.25, why)
    assert type(error) is Unknown and str(error) == "no acknowledgement in 0.25 s: connected to alpha"
    assert "subscription to a, b.# in 10 s: connected" in str(unconfirmed(["a", "b.#"], why))


def test_errors_repeat_a_little_of_what_was_given() -> None:
    error = unconfirmed([f"device.{number}.#" for number in range(80_000)], "connected to alpha")
    assert "device.4.# and 79995 more in 10 s: connected to alpha" in str(error) and len(str(error)) < 200
    with pytest.raises(ValueError, match="is not known; levels are 'sent', 'accepted'") as caught:
        level_number("x" * 1_000_000)
    assert len(str(caught.value)) < 150
    with pytest.raises(TypeError, match="is a list, not str") as wrong:
        packed({"k" * 1_000_000: []}, None)  # type: ignore[dict-item]
    assert len(str(wrong.value)) < 150
