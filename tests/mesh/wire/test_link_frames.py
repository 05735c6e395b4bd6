"""Link frames are read strictly, and admission lets in whom it should."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.cluster.membership import STATES, MemberRecord
from mesh.errors import LinkError
from mesh.wire.link_frames import (
    CHALLENGE_SIZE,
    LAYOUTS,
    RECORDS_MAX,
    Admission,
    Hello,
    LinkKind,
    LinkRank,
    Refused,
    Stage,
    decode,
    encode,
    members_frames,
    supersedes,
)

TOKEN = b"t" * 16
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


def pair(
    *,
    keys: tuple[bytes | None, bytes | None] = (None, None),
    hellos: tuple[Hello, Hello] | None = None,
    epochs: tuple[int, int] = (0, 0),
) -> tuple[Admission, Admission]:
    mine, theirs = hellos or (hello(1), hello(2))
    dialler = Admission(
        mine, dialed=True, mesh_key=keys[0], token=b"", epoch_after=lambda _: epochs[0], expect=theirs.id
    )
    listener = Admission(theirs, dialed=False, mesh_key=keys[1], token=TOKEN, epoch_after=lambda _: epochs[1])
    return dialler, listener


def talk(dialler: Admission, listener: Admission) -> list[bytes]:
    """Pass frames to and fro until nobody has more to say; returns all."""
    said = []
    to_listener, to_dialler = dialler.begin(), listener.begin()
    while to_listener or to_dialler:
        said += to_listener + to_dialler
        answers = [answer for frame in to_listener for answer in listener.received(frame)]
        to_listener = [answer for frame in to_dialler for answer in dialler.received(frame)]
        to_dialler = answers
    return said


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
        assert message[0] == kind and len(message) == len(LAYOUTS[kind]) + 1


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
        (msgpack.packb({"a": 1}), "no msgpack"),
        (msgpack.packb("text"), "expected an array"),
        (msgpack.packb([60]), "kind 60, which is not known"),
        (msgpack.packb([LinkKind.BIND]), "BIND has 0 fields, expected 1"),
        (msgpack.packb([LinkKind.BIND, b"short"]), "field token is b'short', expected 16 bytes"),
        (msgpack.packb([LinkKind.INTEREST_HELD, -1]), "field version is -1, expected an integer"),
        (msgpack.packb([LinkKind.INTEREST_HELD, True]), "field version is True, expected an integer"),
        (msgpack.packb([LinkKind.MEMBERS, 0, [[1, 2]]]), "expected a record of 8 fields"),
        (msgpack.packb([LinkKind.MEMBERS, 0, [[0, 1, 0, 5, "", "", "", ""]]]), "neither may be 0"),
        (msgpack.packb([LinkKind.MEMBERS, 0, [[1, 1, 4, 5, "", "", "", ""]]]), "field records.state is 4"),
        (msgpack.packb([LinkKind.INTEREST, 1, 0, 1, [["a", 2]]]), "field patterns is 2"),
    ],
)
def test_complaints_name_the_field(frame: bytes, complaint: str) -> None:
    with pytest.raises(LinkError, match=complaint.replace("(", r"\(")):
        decode(frame)


def test_frames_begin_as_session_frames_do_and_their_second_byte_is_the_kind() -> None:
    for kind in LinkKind:
        frame = encode(kind, *(0 for _ in LAYOUTS[kind]))
        assert frame[0] & 0xF0 == 0x90 and frame[1] == kind and 32 <= kind <= 63


def test_the_bytes_in_the_reference_are_these() -> None:
    """docs/reference/link-format.md."""
    greeting = replace(hello(1, mesh="mangrove", name="alpha", boot=1 << 61, epoch=1), id=1 << 62).encode()
    expected = b"\x9c\x20\x01\xa8mangrove" + b"\xcf" + (1 << 62).to_bytes(8, "big")
    expected += b"\xcf" + (1 << 61).to_bytes(8, "big") + b"\x01\xa5alpha"
    assert greeting.startswith(expected)
    assert greeting.endswith(b"\x01\xc4\x10" + bytes([1]) * 16)
    survey = encode(LinkKind.SURVEY, b"12345678", 3)
    assert survey == b"\x93\x38\xc4\x0812345678\x03"


# --- admission


@pytest.mark.parametrize("key", [None, b"secret"])
def test_two_of_one_mesh_and_key_are_admitted(key: bytes | None) -> None:
    dialler, listener = pair(keys=(key, key))
    talk(dialler, listener)
    assert (dialler.stage, listener.stage) == (Stage.READY, Stage.BIND)
    assert dialler.token == listener.token == TOKEN
    assert dialler.peer == hello(2, epoch=1) and listener.peer == hello(1, epoch=1)
    assert not listener.bind("surveyor") and listener.bind("respondent")
    assert dialler.received(encode(LinkKind.READY)) == []
    assert (dialler.stage, listener.stage) == (Stage.UP, Stage.UP)
    assert dialler.rank == listener.rank


@pytest.mark.parametrize("keys", [(b"a", b"b"), (None, b"b"), (b"a", None)])
def test_another_key_or_none_is_refused_before_any_token_is_given(
    keys: tuple[bytes | None, bytes | None],
) -> None:
    dialler, listener = pair(keys=keys)
    with pytest.raises(Refused) as refusal:
        talk(dialler, listener)
    assert refusal.value.reason == "key"
    assert not listener.token and not dialler.token


def test_a_listener_that_does_not_know_the_key_is_refused_by_the_dialler() -> None:
    dialler, listener = pair(keys=(b"secret", b"secret"))
    (answer,) = listener.received(dialler.begin()[0])
    (proof,) = dialler.received(answer)
    assert decode(proof)[0] == LinkKind.PROOF
    for forged in (b"", bytes(32), decode(proof)[1]):  # nothing, a guess, our own proof sent back
        with pytest.raises(Refused) as refusal:
            dialler.received(encode(LinkKind.TOKEN, forged, TOKEN))
        assert refusal.value.reason == "key"


def test_a_hello_changed_on_the_way_breaks_the_proof() -> None:
    dialler, listener = pair(keys=(b"secret", b"secret"))
    dialler.begin()
    (answer,) = listener.received(hello(1, epoch=1, peer_url="tcp://evil:1").encode())
    (proof,) = dialler.received(answer)
    with pytest.raises(Refused, match="another mesh key"):
        listener.received(proof)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (hello(2, mesh="other"), "mesh"),
        (hello(2, version=2), "version"),
        (hello(1), "self"),
        (hello(1, boot=5), "conflict"),
    ],
)
def test_who_is_not_of_this_mesh_or_is_this_broker_is_refused(other: Hello, reason: str) -> None:
    dialler, listener = pair(hellos=(hello(1), other))
    with pytest.raises(Refused) as refusal:
        talk(dialler, listener)
    assert refusal.value.reason == reason


@pytest.mark.parametrize("kind", sorted(LAYOUTS))
def test_nothing_but_what_is_due_is_taken(kind: int) -> None:
    """At every stage, every kind of frame that is well formed and not the one waited for."""
    fields = {
        LinkKind.HELLO: decode(hello(2).encode())[1:],
        LinkKind.PROOF: [b""],
        LinkKind.TOKEN: [b"", TOKEN],
        LinkKind.BIND: [TOKEN],
        LinkKind.REFUSED: ["mesh", "no"],
        LinkKind.MEMBERS: [0, []],
        LinkKind.INTEREST: [1, 0, 1, []],
        LinkKind.INTEREST_CHANGE: [1, 2, [], []],
        LinkKind.INTEREST_HELD: [1],
        LinkKind.SURVEY: [bytes(8), 1],
        LinkKind.ANSWER: [bytes(8), 1],
    }.get(LinkKind(kind), [])
    frame = encode(kind, *fields)
    dialler, listener = pair()
    if kind != LinkKind.HELLO:
        for admission in (dialler, listener):
            with pytest.raises(Refused):
                admission.received(frame)
    dialler, listener = pair()
    talk(dialler, listener)
    if kind != LinkKind.READY:
        with pytest.raises(Refused):
            dialler.received(frame)
    with pytest.raises(Refused):
        listener.received(frame)


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_a_stranger_may_say_anything(frames: list[bytes]) -> None:
    _, listener = pair()
    for frame in frames:
        try:
            listener.received(frame)
        except Refused as refusal:
            assert refusal.reason == "malformed"


def test_a_heartbeat_connection_is_bound_once() -> None:
    dialler, listener = pair()
    talk(dialler, listener)
    listener.bind("surveyor")
    with pytest.raises(Refused):
        listener.bind("surveyor")


def test_a_greeting_takes_little_memory() -> None:
    _, listener = pair()
    with pytest.raises(Refused, match="5000 bytes, at most 4096"):
        listener.received(bytes(5000))


# --- duplicates


def test_both_ends_see_one_rank_whoever_dials_and_whatever_they_remember() -> None:
    for hellos in ((hello(1), hello(2)), (hello(2), hello(1))):
        for epochs in ((0, 0), (3, 0), (0, 7), (5, 5)):
            dialler, listener = pair(hellos=hellos, epochs=epochs)
            talk(dialler, listener)
            assert dialler.rank == listener.rank
            assert dialler.rank.epoch == max(epochs) + 1
            assert dialler.rank.dialed_by_lower is (hellos[0].id == 1)


def test_the_greater_epoch_wins_then_the_lower_ids_dial_then_the_challenge() -> None:
    ranks = [
        LinkRank(1, False, b"z"),
        LinkRank(1, True, b"a"),
        LinkRank(1, True, b"b"),
        LinkRank(2, False, b"a"),
    ]
    for lower, higher in pairwise(ranks):
        both = {"new_hello": hello(2), "old_hello": hello(2), "old_answers": True}
        assert supersedes(higher, lower, **both) and not supersedes(lower, higher, **both)  # type: ignore[arg-type]


def test_a_later_run_wins_and_a_second_process_with_one_id_does_not() -> None:
    rank = LinkRank(1, True, b"a")
    old = hello(2, incarnation=5)
    later, same = hello(2, boot=9, incarnation=6), hello(2, boot=9, incarnation=5)
    assert supersedes(rank, rank, new_hello=later, old_hello=old, old_answers=True)
    assert not supersedes(rank, rank, new_hello=same, old_hello=old, old_answers=True)
    assert supersedes(rank, rank, new_hello=same, old_hello=old, old_answers=False)


def test_a_frame_that_cannot_be_packed_leaves_nothing_behind() -> None:
    """The packer is kept from frame to frame."""
    before = encode(5, b"x", 3)
    with pytest.raises((TypeError, OverflowError)):
        encode(5, b"y", object())
    with pytest.raises((TypeError, OverflowError)):
        encode(5, b"y", 1 << 70)
    assert encode(5, b"x", 3) == before


@pytest.mark.parametrize("reason", ["role", "certificate", "leaving"])
def test_why_a_peer_refused_is_counted_by_its_own_word(reason: str) -> None:
    dialler, _ = pair()
    with pytest.raises(Refused, match="the sentence") as refused:
        dialler.received(encode(LinkKind.REFUSED, reason, "the sentence"))
    assert refused.value.reason == reason
