"""The first eight bytes, against vectors read from NNG 1.11 and nanomsg 1.1.5."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import HandshakeError, LocalProtocolError
from protocols.wire.handshake import (
    PEER_OF,
    Greeting,
    ProtocolNumber,
    encode_header,
    parse_header,
    protocol_name,
)
from protocols.wire.sp import SpCodec

VECTORS = {
    ProtocolNumber.PAIR0: "0053500000100000",
    ProtocolNumber.PAIR1: "0053500000110000",
    ProtocolNumber.PUB0: "0053500000200000",
    ProtocolNumber.SUB0: "0053500000210000",
    ProtocolNumber.REQ0: "0053500000300000",
    ProtocolNumber.REP0: "0053500000310000",
    ProtocolNumber.PUSH0: "0053500000500000",
    ProtocolNumber.PULL0: "0053500000510000",
    ProtocolNumber.SURVEYOR0: "0053500000620000",
    ProtocolNumber.RESPONDENT0: "0053500000630000",
    ProtocolNumber.BUS0: "0053500000700000",
    ProtocolNumber.STAR0: "0053500006400000",
}

# Each differs from a Rep0's header in one way; the second column is the reason that is counted.
BROKEN = [
    ("0153500000310000", "not SP"),
    ("0054500000310000", "not SP"),
    ("0053510000310000", "not SP"),
    ("0053500100310000", "version"),
    ("005350ff00310000", "version"),
    ("0053500000310001", "reserved field"),
    ("0053500000318000", "reserved field"),
    ("0000000000000000", "not SP"),
    ("ffffffffffffffff", "not SP"),
    (b"GET / HT".hex(), "HTTP on an SP address"),
    ("16030100c8010000", "TLS on a plain address"),
    (b"SSH-2.0-".hex(), "not SP"),
    ("00535000", "short header"),
    ("005350000031000000", "short header"),
]


@pytest.mark.parametrize("number", list(ProtocolNumber))
def test_headers_are_those_of_nng_and_nanomsg(number: ProtocolNumber) -> None:
    header = encode_header(number)
    assert header.hex() == VECTORS[number]
    assert parse_header(header) == number


@pytest.mark.parametrize(("header", "reason"), BROKEN)
def test_a_broken_header_is_refused_with_a_reason_to_count_by(header: str, reason: str) -> None:
    with pytest.raises(HandshakeError) as caught:
        parse_header(bytes.fromhex(header))
    assert caught.value.reason == reason


def test_peers_are_symmetric() -> None:
    assert list(PEER_OF) == list(ProtocolNumber)
    for number, peer in PEER_OF.items():
        assert PEER_OF[peer] == number


@given(st.binary(min_size=8, max_size=8))
def test_any_eight_bytes_give_a_number_or_a_handshake_error(header: bytes) -> None:
    try:
        number = parse_header(header)
    except HandshakeError:
        return
    assert header == b"\x00SP\x00" + number.to_bytes(2, "big") + b"\x00\x00"


@given(st.integers(1, 0xFFFF))
def test_every_number_round_trips(number: int) -> None:
    assert parse_header(encode_header(number)) == number


@pytest.mark.parametrize("number", [0, -1, 0x10000])
def test_a_number_that_does_not_fit_is_the_callers_mistake(number: int) -> None:
    with pytest.raises(LocalProtocolError, match="not between 1 and 65535"):
        encode_header(number)


def test_unknown_numbers_have_a_name_too() -> None:
    assert protocol_name(0x30) == "req0"
    assert protocol_name(0x123) == "protocol 0x123"


def test_a_wrong_protocol_is_reported_with_the_protocols_of_both_ends() -> None:
    """The message was: the peer is pair0 and this end talks to sub0; it looks for pair0."""
    with pytest.raises(HandshakeError) as alone:
        Greeting.of(ProtocolNumber.PULL0, ProtocolNumber.PUSH0).answer(ProtocolNumber.REQ0)
    assert (
        str(alone.value) == "the peer is req0, which talks to rep0; this end is pull0, which talks to push0"
    )
    shared = Greeting(
        {ProtocolNumber.SUB0: ProtocolNumber.PUB0, ProtocolNumber.REQ0: ProtocolNumber.REP0}, wait=True
    )
    with pytest.raises(HandshakeError) as several:
        shared.answer(ProtocolNumber.PAIR0)
    assert str(several.value) == (
        "the peer is pair0, which talks to pair0, and no pair0 listens here; this address takes sub0, req0"
    )
    with pytest.raises(
        HandshakeError, match="the peer is protocol 0x123; this end is pull0, which talks to push0"
    ):
        Greeting.of(ProtocolNumber.PULL0, ProtocolNumber.PUSH0).answer(0x123)
    with pytest.raises(HandshakeError, match="and no pair0 listens here; this address takes nobody now"):
        Greeting({}, wait=True).answer(ProtocolNumber.PAIR0)


@pytest.mark.parametrize("serves", [{}, {0x10: 0x10}, {0x30: 0x31, 0x21: 0x20}])
@pytest.mark.parametrize(
    "bytes_", [encode_header(0x50), b"GET / HTTP/1.1\r\n", b"\x00SP\x01\x00\x10\x00\x00", bytes(8)]
)
def test_a_refused_peer_reads_nothing(bytes_: bytes, serves: dict[int, int]) -> None:
    """A peer without a counterpart here got the header of another pattern. Then NNG considered its dial done,
    and a dialer that came before its socket listened waited the longest pause.
    """
    codec = SpCodec(Greeting(serves, wait=True), 0, b"")
    assert codec.begin() == b"" and codec.receive(bytes_) == []
    assert codec.failure is not None and codec.reply == b""
