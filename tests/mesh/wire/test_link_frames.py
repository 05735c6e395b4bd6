"""Link frames are read strictly, and also as later versions may write them."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.cluster.membership import STATES, MemberRecord
from mesh.errors import LinkError
from mesh.wire.capabilities import FIRST, LINK
from mesh.wire.link_frames import (
    ADDED,
    CHALLENGE_SIZE,
    LAYOUTS,
    RECORDS_MAX,
    Hello,
    LinkKind,
    decode,
    encode,
    members_frames,
)

TEXT = st.text(max_size=20)
IDS = st.integers(1, (1 << 63) - 1)
RECORDS = st.builds(
    MemberRecord, IDS, st.integers(0, (1 << 62) - 1), st.sampled_from(STATES), IDS, TEXT, TEXT, TEXT, TEXT
)


def hello(id: int = 1, **changes: object) -> Hello:
    fields = {
        "mesh": "m",
        "id": id,
        "boot": id + 100,
        "incarnation": 1,
        "name": f"n{id}",
        "host": "h",
        "peer_url": f"tcp://{id}:1",
        "client_url": f"tcp://{id}:1",
        "epoch": 0,
        "challenge": bytes([id]) * CHALLENGE_SIZE,
        **changes,
    }
    return Hello(**fields)  # type: ignore[arg-type]


# --- frames


@given(st.lists(RECORDS, min_size=1, max_size=600))
def test_records_come_out_as_they_went_in(records: list[MemberRecord]) -> None:
    frames = members_frames(records, reply=True)
    messages = [decode(frame) for frame in frames]
    assert [record for message in messages for record in message[2]] == records
    assert [message[1] for message in messages] == [0] * (len(frames) - 1) + [1]
    assert len(frames) == -(-len(records) // RECORDS_MAX)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decode(data)
    except LinkError:
        pass


JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 1 << 63), st.floats(), st.binary(max_size=40), TEXT),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.sampled_from(sorted(LAYOUTS)), st.lists(JUNK, max_size=13))
def test_any_fields_are_checked(kind: int, fields: list[object]) -> None:
    frame = msgpack.packb([kind, *fields])
    try:
        message = decode(frame)
    except LinkError as error:
        assert str(error)
    else:
        added = kind in ADDED or kind == LinkKind.HELLO
        assert message[0] == kind and len(message) == len(LAYOUTS[kind]) + 1 + added


@given(RECORDS, st.integers(0, 200), st.integers(0, 255))
def test_a_frame_with_one_byte_changed_is_read_or_refused(
    record: MemberRecord, position: int, value: int
) -> None:
    frame = bytearray(members_frames([record])[0])
    frame[position % len(frame)] = value
    try:
        decode(bytes(frame))
    except LinkError:
        pass


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (b"\xc1", "no msgpack"),
        (b"\x91" * 2000, "no msgpack"),
        (msgpack.packb({"a": 1}), "expected an array"),
        (msgpack.packb("text"), "expected an array"),
        (msgpack.packb([60]), "kind 60, which is not known"),
        (msgpack.packb([LinkKind.BIND]), "BIND has 0 fields, expected 1"),
        (msgpack.packb([LinkKind.BIND, b"short"]), "field token is b'short', expected 16 bytes"),
        (msgpack.packb([LinkKind.INTEREST_HELD, -1]), "field version is -1, expected an integer"),
        (msgpack.packb([LinkKind.INTEREST_HELD, True]), "field version is True, expected an integer"),
        (msgpack.packb([LinkKind.MEMBERS, 0, [[1, 2]]]), "a record in records has 2 fields, expected 8"),
        (msgpack.packb([LinkKind.MEMBERS, 0, [[0, 1, 0, 5, "", "", "", ""]]]), "neither may be 0"),
        (msgpack.packb([LinkKind.MEMBERS, 0, [[1, 1, 4, 5, "", "", "", ""]]]), "field records.state is 4"),
        (msgpack.packb([LinkKind.INTEREST, 1, 0, 1, [["a", 2]]]), "field patterns is 2"),
        (msgpack.packb([LinkKind.INTEREST, 1, 0, 1, [], "me"]), "field owner is 'me'"),
        (msgpack.packb([LinkKind.DURABLE, 0, 2, 0, 1, "n", "", []]), "field home is 0, which is no broker"),
        (msgpack.packb([LinkKind.DURABLE, 1, -2, 0, 1, "n", "", []]), "field version is -2"),
        (msgpack.packb([LinkKind.DURABLE, 1, 2, 0, 2, "n", "", []]), "field last is 2"),
        (
            msgpack.packb([LinkKind.DURABLE, 1, 2, 0, 1, "n", "", [["s"]]]),
            r"expected a pair \[name, patterns\]",
        ),
        (msgpack.packb([LinkKind.DURABLE, 1, 2, 0, 1, "n", "", [["", []]]]), "field subscriptions is empty"),
        (
            msgpack.packb([LinkKind.DURABLE, 1, 2, 0, 1, "n", "", [["\x1b[2J", []]]]),
            "subscriptions is .* cannot be printed",
        ),
        (
            msgpack.packb([LinkKind.DURABLE, 1, 2, 0, 1, "n", "", [["ü" * 128, []]]]),
            "subscriptions has 256 bytes, the limit is 250",
        ),
        (
            msgpack.packb([LinkKind.DURABLE, 1, 2, 0, 1, "n", "", [["s", ["t"] * 65]]]),
            "expected a list of at most 64",
        ),
        (
            msgpack.packb([LinkKind.DURABLE_CHANGE, 1, 2, 4, [["s", []]] * 513, []]),
            "field added is .* expected a list of at most 512",
        ),
        (msgpack.packb([LinkKind.DURABLE_CHANGE, 1, 2, 4, [], [7]]), "field removed is 7, expected a name"),
        (msgpack.packb([LinkKind.DURABLE_HELD, [[1]]]), r"expected a pair \[home, version\]"),
        (msgpack.packb([LinkKind.DURABLE_HELD, [[1, 1 << 63]]]), "expected an integer from 0 to"),
        (msgpack.packb([LinkKind.DURABLE_HELD, [[1, 2]] * 1025]), "expected a list of at most 1024"),
        (msgpack.packb([LinkKind.DURABLE_WANTED, "me"]), "field home is 'me'"),
        (
            msgpack.packb([LinkKind.HELLO, 2, "m", 1, 2, 1, "", "", "", "", 0, bytes(16), 3]),
            "field offer is 3",
        ),
    ],
)
def test_complaints_name_the_field(frame: bytes, complaint: str) -> None:
    with pytest.raises(LinkError, match=complaint.replace("(", r"\(")):
        decode(frame)


def test_frames_begin_as_session_frames_do_and_their_second_byte_is_the_kind() -> None:
    for kind in LinkKind:
        frame = encode(kind, *(0 for _ in LAYOUTS[kind]))
        assert frame[0] & 0xF0 == 0x90 and frame[1] == kind and 32 <= kind <= 63


@given(
    IDS,
    st.integers(0, 1 << 62),
    st.dictionaries(
        st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20),
        st.lists(st.sampled_from(["a.#", "b"]), max_size=3),
        max_size=5,
    ),
)
def test_durable_subscriptions_come_out_as_they_went_in(
    home: int, version: int, subscriptions: dict[str, list[str]]
) -> None:
    pairs = list(subscriptions.items())
    expected = [(name, tuple(patterns)) for name, patterns in pairs]
    frame = encode(LinkKind.DURABLE, home, version, 0, 1, "name", "tcp://a:1", pairs)
    assert decode(frame) == [LinkKind.DURABLE, home, version, 0, 1, "name", "tcp://a:1", expected]
    frame = encode(LinkKind.DURABLE_CHANGE, home, version, version, pairs, list(subscriptions))
    assert decode(frame)[4:] == [expected, list(subscriptions)]
    frame = encode(LinkKind.DURABLE_HELD, [[home, version]])
    assert decode(frame) == [LinkKind.DURABLE_HELD, [(home, version)]]


def test_the_bytes_in_the_reference_are_these() -> None:
    """The page is docs/reference/link-format.md."""
    me = replace(hello(1, mesh="mangrove", name="alpha", boot=1 << 61, epoch=1), id=1 << 62)
    assert me.encode().startswith(b"\x9d\x20\x02\xa8mangrove")
    offer = b"\x92\x01\x94\xa7durable\xae" + b"interest-owner" + b"\xa4mark\xa8received"
    assert me.encode().endswith(b"\xc4\x10" + bytes([1]) * 16 + offer)
    greeting = replace(me, offer=FIRST).encode()
    expected = b"\x9c\x20\x01\xa8mangrove" + b"\xcf" + (1 << 62).to_bytes(8, "big")
    expected += b"\xcf" + (1 << 61).to_bytes(8, "big") + b"\x01\xa5alpha"
    assert greeting.startswith(expected)
    assert greeting.endswith(b"\x01\xc4\x10" + bytes([1]) * 16)
    survey = encode(LinkKind.SURVEY, b"12345678", 3)
    assert survey == b"\x93\x38\xc4\x0812345678\x03"


def test_a_frame_that_cannot_be_packed_leaves_nothing_behind() -> None:
    """The packer is kept from one frame to the next."""
    before = encode(5, b"x", 3)
    with pytest.raises((TypeError, OverflowError)):
        encode(5, b"y", object())
    with pytest.raises((TypeError, OverflowError)):
        encode(5, b"y", 1 << 70)
    assert encode(5, b"x", 3) == before


LATER = {"of": ["a version", b"to come", None]}


@pytest.mark.parametrize("kind", sorted(LAYOUTS))
def test_further_fields_of_a_frame_are_ignored(kind: int) -> None:
    """A later version changes frames in no other way."""
    record = [1, 2, 0, 3, "name", "host", "", ""]
    fields = {
        LinkKind.HELLO: [*decode(hello(2).encode())[1:-1], LINK.packed()],
        LinkKind.PROOF: [b""],
        LinkKind.TOKEN: [b"", bytes(16)],
        LinkKind.BIND: [bytes(16)],
        LinkKind.REFUSED: ["mesh", "no"],
        LinkKind.MEMBERS: [0, [record]],
        LinkKind.INTEREST: [1, 0, 1, [["a", 0]], 5],
        LinkKind.INTEREST_CHANGE: [1, 2, [["a", 0]], ["b"], 5],
        LinkKind.INTEREST_HELD: [1],
        LinkKind.DURABLE: [1, 2, 0, 1, "name", "", [["mail", ["a"]]]],
        LinkKind.DURABLE_CHANGE: [1, 2, 4, [["mail", ["a"]]], ["jobs"]],
        LinkKind.DURABLE_HELD: [[[1, 2]]],
        LinkKind.DURABLE_WANTED: [1],
        LinkKind.SURVEY: [bytes(8), 1],
        LinkKind.ANSWER: [bytes(8), 1],
    }.get(LinkKind(kind), [])
    known = decode(encode(kind, *fields))
    assert decode(encode(kind, *fields, LATER)) == known


def test_further_fields_of_a_record_or_a_pattern_are_ignored() -> None:
    record = [1, 2, 0, 3, "name", "host", "", ""]
    one, other = (decode(encode(LinkKind.MEMBERS, 0, [each])) for each in (record, [*record, LATER]))
    assert one == other
    one, other = (decode(encode(LinkKind.INTEREST, 1, 0, 1, [each])) for each in (["a", 1], ["a", 1, LATER]))
    assert one == other
    pairs = (["mail", ["a"]], ["mail", ["a"], LATER])
    one, other = (decode(encode(LinkKind.DURABLE, 1, 2, 0, 1, "", "", [each])) for each in pairs)
    assert one == other
    one, other = (decode(encode(LinkKind.DURABLE_HELD, [each])) for each in ([1, 2], [1, 2, LATER]))
    assert one == other


def test_interest_names_its_owner_or_0() -> None:
    assert decode(encode(LinkKind.INTEREST, 1, 0, 1, [["a", 1]]))[-1] == 0
    assert decode(encode(LinkKind.INTEREST_CHANGE, 1, 2, [], [], 7))[-1] == 7
