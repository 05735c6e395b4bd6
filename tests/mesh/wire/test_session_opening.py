"""HELLO and WELCOME of sessions: versions, capabilities, and the owner of a publisher's id."""

from __future__ import annotations

import hashlib

import pytest

from mesh.errors import SessionError
from mesh.wire.capabilities import FIRST, PROOF, PUBLISHER_SECRET, SESSION, Agreed, Offer, VersionMismatch
from mesh.wire.session_frames import Kind, decode, encode
from mesh.wire.session_opening import (
    TOO_LONG_FOR_FIRST,
    client_id,
    hello,
    publisher_of,
    read_hello,
    read_welcome,
    verified,
    welcome,
)

SECRET = bytes(range(32))
ID = int.from_bytes(hashlib.sha256(SECRET).digest()[:8], "big") % 2**63


def heard(frame: bytes) -> list[object]:
    return decode(frame)[1:]


def test_an_id_is_63_bits_of_a_hash_and_its_mark_the_highest_bit() -> None:
    assert client_id(SECRET) == ID < 1 << 63
    assert verified(ID) == ID + 2**63 == verified(verified(ID))


def test_a_hello_is_read_as_it_was_written() -> None:
    read = read_hello(heard(hello(SESSION, SECRET, 7, "me", 2.5)))
    assert (read.client, read.publisher(""), read.boot, read.name, read.keepalive_s) == (
        ID,
        verified(ID),
        7,
        "me",
        2.5,
    )
    assert read.agreed == Agreed(2, SESSION.capabilities) and PUBLISHER_SECRET in SESSION.capabilities


def test_a_hello_of_version_1_has_exactly_its_fields_and_keeps_the_secret() -> None:
    """The vectors are those of the first version, byte by byte."""
    frame = hello(FIRST, SECRET, 7, "me", 2.5)
    assert frame == encode(Kind.HELLO, 1, ID, 7, "me", 2500)
    read = read_hello(heard(frame))
    assert (read.publisher(""), read.agreed) == (ID, Agreed(1, frozenset())), (
        "no id that anybody could verify"
    )
    answer = welcome(read.agreed, 9, "alpha", "mesh", 3, 10, 20)
    assert answer == encode(Kind.WELCOME, 1, 9, "alpha", "mesh", 3, 10, 20)
    got = read_welcome(heard(answer), FIRST)
    assert (got.agreed, got.broker, got.mesh, got.messages, got.bytes) == (
        Agreed(1, frozenset()),
        "alpha",
        "mesh",
        10,
        20,
    )


def test_both_ends_agree_on_the_newest_version_and_the_common_capabilities() -> None:
    later = Offer.of(2, 9, [PUBLISHER_SECRET, "of-tomorrow"])
    frame = encode(Kind.HELLO, 9, ID, 7, "me", 0, [2, ["of-tomorrow", PUBLISHER_SECRET], "x"], SECRET, "more")
    agreed = read_hello(heard(frame)).agreed
    assert agreed == Agreed(2, frozenset([PUBLISHER_SECRET]))
    assert read_welcome(heard(welcome(agreed, 9, "alpha", "mesh", 3, 10, 20)), later).agreed == agreed


def test_versions_without_one_in_common_are_named() -> None:
    with pytest.raises(VersionMismatch, match="the peer speaks version 9, this side versions 1 to 2"):
        read_hello([9, 1, 1, "me", 0])
    with pytest.raises(VersionMismatch, match="the peer speaks version 2, this side version 1"):
        read_welcome([2, 9, "alpha", "mesh", 3, 10, 20], FIRST)


@pytest.mark.parametrize(
    ("id", "rest", "word"),
    [
        (ID + 1, [[1, [PUBLISHER_SECRET]], SECRET], f"claims id {ID + 1:016x}, which does not belong"),
        (ID, [[1, [PUBLISHER_SECRET]]], "field secret is not 16 to 64 bytes"),
        (ID, [[1, [PUBLISHER_SECRET]], SECRET[:15]], "field secret is not 16 to 64 bytes"),
        (ID, [[1, [PUBLISHER_SECRET]], bytes(65)], "field secret is not 16 to 64 bytes"),
        (ID, [[1, [PUBLISHER_SECRET]], "text"], "field secret is not 16 to 64 bytes"),
        (ID, [[3, []], SECRET], "versions 3 to 2"),
        (ID, ["offer", SECRET], "field offer is 'offer'"),
        (ID, [[1, ["x" * 33]], SECRET], "offer.capabilities"),
    ],
)
def test_a_wrong_offer_or_secret_is_refused_with_a_sentence(id: int, rest: list[object], word: str) -> None:
    with pytest.raises(SessionError, match=word) as refusal:
        read_hello([2, id, 7, "me", 0, *rest])
    assert SECRET.hex() not in str(refusal.value) and repr(SECRET) not in str(refusal.value)


@pytest.mark.parametrize("size", [16, 64])
def test_secrets_of_any_allowed_size_are_taken(size: int) -> None:
    secret = bytes(size)
    assert read_hello(heard(hello(SESSION, secret, 7, "me", 0.0))).publisher("") == verified(
        client_id(secret)
    )


def test_a_wrong_offer_of_a_broker_is_a_session_error() -> None:
    with pytest.raises(SessionError, match="offer"):
        read_welcome([2, 9, "alpha", "mesh", 3, 10, 20, 5], SESSION)


def test_the_first_version_refuses_a_present_hello_with_the_expected_sentence() -> None:
    fields = decode(hello(SESSION, SECRET, 7, "me", 0.0))[1:]
    assert f"a HELLO frame has {len(fields)} fields, expected 5" == TOO_LONG_FOR_FIRST


def test_the_id_of_a_principals_publisher_is_made_of_its_name_and_its_secret() -> None:
    """So no principal can publish under the id of another, on any broker."""
    ids = {publisher_of(secret, name) for secret in (SECRET, b"x" * 32) for name in ("", "alice", "bob")}
    assert len(ids) == 6 and all(id >> 63 for id in ids)
    assert publisher_of(SECRET) == verified(ID)
    read = read_hello(heard(hello(SESSION, SECRET, 7, "me", 0.0)))
    assert read.publisher("alice") == publisher_of(SECRET, "alice")
    untold = Offer.of(1, 2, SESSION.capabilities - {PROOF})
    read = read_hello(heard(hello(untold, SECRET, 7, "me", 0.0)))
    assert read.publisher("alice") == verified(ID), "a client that is not told its principal cannot know it"


def test_a_claim_is_read_as_it_was_written_and_only_if_both_sides_know_proofs() -> None:
    frame = hello(SESSION, SECRET, 7, "me", 0.0, ("key", b"k" * 32))
    assert read_hello(heard(frame)).claim == ("key", b"k" * 32)
    untold = Offer.of(1, 2, SESSION.capabilities - {PROOF})
    assert read_hello(heard(hello(untold, SECRET, 7, "me", 0.0, ("key", b"k")))).claim is None
    assert hello(FIRST, SECRET, 7, "me", 0.0, ("key", b"k")) == hello(FIRST, SECRET, 7, "me", 0.0)


@pytest.mark.parametrize(
    ("claim", "field"),
    [
        ("key", "claim"),
        (["key"], "claim"),
        ([5, b"k"], "claim.method"),
        (["x" * 17, b"k"], "claim.method"),
        (["key", "text"], "claim.identity"),
        (["key", b"k" * 65], "claim.identity"),
    ],
)
def test_a_malformed_claim_is_refused_with_its_field(claim: object, field: str) -> None:
    fields = [2, ID, 7, "me", 0, SESSION.packed(), SECRET, claim]
    with pytest.raises(SessionError, match=f"field {field} "):
        read_hello(heard(encode(Kind.HELLO, *fields)))


def test_a_welcome_names_the_principal_or_has_an_empty_name() -> None:
    agreed = Agreed(2, SESSION.capabilities)
    frame = welcome(agreed, 9, "alpha", "mesh", 3, 10, 20, "alice")
    assert read_welcome(heard(frame), SESSION).principal == "alice"
    short = encode(Kind.WELCOME, 2, 9, "alpha", "mesh", 3, 10, 20, SESSION.packed())
    assert read_welcome(heard(short), SESSION).principal == ""
    with pytest.raises(SessionError, match="field principal"):
        read_welcome([2, 9, "alpha", "mesh", 3, 10, 20, SESSION.packed(), 5], SESSION)
