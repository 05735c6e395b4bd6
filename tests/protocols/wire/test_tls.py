"""TLS over memory: two real ends, their bytes carried by hand."""

from __future__ import annotations

import re
import ssl
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.errors import HandshakeError, MessageTooLarge, RemoteProtocolError
from protocols.identity import PeerIdentity
from protocols.tls import TlsConfigError
from protocols.transports.certificates import client_context, server_context
from protocols.wire.framing import TCP_LEAD
from protocols.wire.handshake import Greeting, ProtocolNumber
from protocols.wire.sp import SpCodec
from protocols.wire.tls import HELD_MAX, RECORD_SIZE, WRITE_SIZE, TlsCodec, identity_of, rfc4514
from tests.support.certificates import LOCAL, Signed, alice, authority, config, local, stranger

PUSH, PULL = ProtocolNumber.PUSH0, ProtocolNumber.PULL0


def test_a_dialer_that_can_offer_nothing_fails_instead_of_raising() -> None:
    """Some system configurations leave no version, or no cipher, that this end may offer."""
    context = client_context(config())
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    codec = TlsCodec(
        SpCodec(Greeting.of(PUSH, PULL), 0, TCP_LEAD), context, server_side=False, server_name=LOCAL[0]
    )
    codec.begin()
    assert isinstance(codec.failure, HandshakeError)
    assert codec.failure.reason == "tls: protocol version"
    assert codec.receive(b"\x16\x03\x03\x00\x01x") == [] and codec.end() == b""


class Ends:
    """A client and a server."""

    def __init__(
        self,
        client: Any = None,
        server: Any = None,
        *,
        name: str = "127.0.0.1",
        wait: bool = False,
        size_max: int = 0,
    ) -> None:
        self.client = TlsCodec(
            SpCodec(Greeting.of(PUSH, PULL), size_max, TCP_LEAD),
            client_context(client or config()),
            server_side=False,
            server_name=name,
        )
        self.server = TlsCodec(
            SpCodec(Greeting({PUSH: PULL}, wait), size_max, TCP_LEAD),
            server_context(server or config(local())),
            server_side=True,
        )

    def shake(self) -> None:
        """Carry bytes in both directions until neither end has more to send."""
        to_server, to_client = self.client.begin(), self.server.begin()
        while to_server or to_client:
            if to_server:
                assert self.server.receive(to_server) == []
            to_client += take_reply(self.server)
            to_server = b""
            if to_client:
                assert self.client.receive(to_client) == []
            to_client = b""
            to_server = take_reply(self.client)

    def shaken(self) -> Ends:
        self.shake()
        assert (self.client.failure, self.server.failure) == (None, None)
        return self


def take_reply(codec: TlsCodec) -> bytes:
    reply, codec.reply = codec.reply, b""
    return reply


def encoded(codec: TlsCodec, *frames: bytes) -> bytes:
    return b"".join(codec.encode(frames))


def reason(codec: TlsCodec) -> str:
    assert isinstance(codec.failure, HandshakeError), codec.failure
    return codec.failure.reason


# --- the good way


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("wait", [False, True], ids=["header-at-once", "header-after-the-dialers"])
def test_two_ends_shake_hands_and_exchange_frames_both_ways(version: Any, wait: bool) -> None:
    ends = Ends(config(version_min=version, version_max=version), wait=wait).shaken()
    assert (ends.client.peer, ends.server.peer) == (PULL, PUSH)
    assert ends.server.receive(encoded(ends.client, b"", b"one", b"two" * 9000)) == [
        b"",
        b"one",
        b"two" * 9000,
    ]
    assert ends.client.receive(encoded(ends.server, b"back")) == [b"back"]


@given(cuts=st.lists(st.integers(1, 700), min_size=1), frames=st.lists(st.binary(max_size=3000), max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_cuts_of_the_stream_do_not_matter(cuts: list[int], frames: list[bytes]) -> None:
    """From the first byte of the handshake on: pieces of any size, in turn."""
    ends = Ends()
    sizes = iter(cuts * 100_000)
    pending = {"client": ends.client.begin(), "server": b""}
    received: list[bytes] = []
    sent = False
    while any(pending.values()) or not sent:
        if not any(pending.values()):
            pending["client"], sent = encoded(ends.client, *frames) if frames else b"", True
            continue
        for name, other, end in (("client", "server", ends.server), ("server", "client", ends.client)):
            piece = pending[name][: (size := next(sizes))]
            pending[name] = pending[name][size:]
            if piece:
                received += end.receive(memoryview(piece))
            pending[other] += take_reply(end)
    assert (ends.client.failure, ends.server.failure) == (None, None)
    assert received == frames
    assert not ends.server.inside_frame


def test_the_clients_header_goes_with_its_last_handshake_bytes() -> None:
    """nanomsg and NNG give the header a deadline; and a server that refuses us answers one flight."""
    ends = Ends()
    ends.server.receive(ends.client.begin())
    ends.client.receive(take_reply(ends.server))
    assert ends.client.peer == 0
    ends.server.receive(take_reply(ends.client))
    assert ends.server.peer == PUSH


def test_a_large_frame_is_encrypted_in_pieces_on_request() -> None:
    ends = Ends().shaken()
    frame = bytes(16 << 20)
    tracemalloc.start()
    received: list[bytes] = []
    pieces = 0
    for piece in ends.client.encode([frame]):
        pieces += 1
        assert len(piece) < WRITE_SIZE + 2 * RECORD_SIZE
        received += ends.server.receive(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pieces >= 60
    assert received == [frame]
    assert peak < 2.2 * len(frame), f"{peak / len(frame):.2f} times the frame"  # it grows, and is copied once


class Talker:
    """An inner codec that sends its frames as one buffer, and answers every input."""

    def __init__(self, answer: bytes, last: bytes = b"") -> None:
        self.peer = 1
        self.reply = b""
        self.failure = None
        self._last = last
        self.ended = False
        self.identity = None
        self.inside_frame = False
        self.heard = b""
        self._answer = answer

    def begin(self) -> bytes:
        return b""

    def receive(self, chunk: bytes | memoryview) -> list[bytes]:
        self.heard += chunk
        self.reply += self._answer
        return []

    def encode(self, frames: Sequence[bytes]) -> Sequence[bytes]:
        return frames

    def end(self) -> bytes:
        return self._last

    def progress(self) -> str:
        return "talking"


def joined(here: Talker, there: Talker) -> tuple[TlsCodec, TlsCodec]:
    """A client and a server around these, handshake complete."""
    client = TlsCodec(here, client_context(config()), server_side=False, server_name="localhost")
    server = TlsCodec(there, server_context(config(local())), server_side=True)
    server.receive(client.begin())
    client.receive(take_reply(server))
    server.receive(take_reply(client))
    return client, server


def test_an_answer_never_splits_a_message_in_progress() -> None:
    """A WebSocket pong owed while a large frame is half written belongs after that frame."""
    here, there = Talker(b"pong"), Talker(b"")
    client, server = joined(here, there)
    frames = [b"a" * (3 * WRITE_SIZE), b"b" * (2 * WRITE_SIZE)]
    saying = iter(client.encode(frames))
    server.receive(next(saying))
    client.receive(encoded(server, b"ping"))
    server.receive(take_reply(client))
    for piece in saying:
        server.receive(piece)
    assert there.heard == frames[0] + b"pong" + frames[1]
    client.receive(encoded(server, b"ping"))
    server.receive(take_reply(client))
    assert there.heard.endswith(b"bpong")


def test_a_peer_that_reads_nothing_cannot_let_answers_pile_up() -> None:
    """They wait for the end of a half-written frame, which never comes."""
    client, server = joined(Talker(bytes(1000)), Talker(b""))
    saying = iter(client.encode([bytes(3 * WRITE_SIZE)]))
    next(saying)
    asked = 0
    while client.failure is None:
        client.receive(encoded(server, b"ping"))
        asked += 1
        assert asked < 1000, "the answers are kept without bound"
    assert client.failure.reason == "not reading"
    assert asked * 1000 <= HELD_MAX + 1000
    assert client.receive(encoded(server, b"ping")) == []
    assert list(saying) == [], "what is broken says nothing more"


BROKEN_RECORD = b"\x17\x03\x03\x00\x40" + bytes(64)


def test_frames_after_a_broken_record_are_neither_sent_nor_errors() -> None:
    """The owner of the frame before it answers before the connection has learned of the failure."""
    ends = Ends().shaken()
    question = encoded(ends.client, b"question")
    half_said = iter(ends.server.encode([bytes(3 * WRITE_SIZE)]))
    next(half_said)
    assert ends.server.receive(question + BROKEN_RECORD) == [b"question"]
    assert encoded(ends.server, b"answer") == b""
    assert list(half_said) == []
    assert ends.server.end() == b""
    assert ends.server.failure is not None and ends.server.failure.reason == "tls: broken record"


def test_frames_after_the_peers_goodbye_are_neither_sent_nor_errors() -> None:
    here, there = Talker(b"pong", last=b"goodbye"), Talker(b"")
    client, server = joined(here, there)
    half_said = iter(client.encode([bytes(3 * WRITE_SIZE)]))
    next(half_said)
    client.receive(encoded(server, b"ping") + server.end())
    assert client.ended
    assert list(half_said) == []
    assert encoded(client, b"more") == b""
    assert client.end() == b""


# --- the peer's identity


def test_the_server_learns_the_identity_of_the_client() -> None:
    signed = authority().sign("alice@example.com", "10.1.2.3", "a.example", common_name="Al, Ice")
    ends = Ends(config(signed), config(local(), verify="required")).shaken()
    identity = ends.server.identity
    assert identity is not None
    assert identity.subject.startswith("CN=Al\\, Ice,OU=")
    assert identity.names == ("alice@example.com", "10.1.2.3", "a.example")
    assert ends.client.identity is not None
    assert ends.client.identity.names == LOCAL


def test_a_peer_not_asked_or_not_verified_has_no_identity() -> None:
    ends = Ends(config(alice(), verify="none"), config(local())).shaken()
    assert (ends.client.identity, ends.server.identity) == (None, None)
    ends = Ends(config(), config(local(), verify="optional")).shaken()
    assert ends.server.identity is None
    ends = Ends(config(alice()), config(local(), verify="optional")).shaken()
    assert ends.server.identity is not None


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        ((), ""),
        (((("countryName", "DE"),), (("commonName", "a"),)), "CN=a,C=DE"),
        (((("commonName", "a"), ("userId", "7")),), "CN=a+UID=7"),
        (((("commonName", "#1 "),),), "CN=\\#1\\ "),
        (((("commonName", " "),),), "CN=\\ "),
        (((("commonName", 'x"y;z<w>\\,+'),),), 'CN=x\\"y\\;z\\<w\\>\\\\\\,\\+'),
        (((("commonName", "a\0b"),),), "CN=a\\00b"),
        (((("1.2.3.4", "a"),),), "1.2.3.4=a"),
    ],
)
def test_a_subject_is_written_as_rfc_4514_says(subject: Any, text: str) -> None:
    assert rfc4514(subject) == text


def test_no_certificate_is_no_identity() -> None:
    assert identity_of(None) is None
    assert identity_of({}) is None
    assert identity_of({"subject": ()}) == PeerIdentity()


# --- refusals: the word at the end that refuses, and the word at the other


def expired(*names: str) -> Signed:
    return authority().expired(*names)


def refusals() -> dict[str, tuple[Ends, str, str]]:
    """Ends, the client's reason, the server's reason."""
    mutual = config(local(), verify="required")
    refused = "tls: our certificate refused"
    return {
        "stranger's server": (
            Ends(server=config(stranger().sign(*LOCAL))),
            "tls: untrusted certificate",
            refused,
        ),
        "expired server": (Ends(server=config(expired(*LOCAL))), "tls: expired certificate", refused),
        "wrong name": (Ends(server=config(authority().sign("b.example"))), "tls: wrong name", refused),
        "wrong host name": (Ends(name="c.example"), "tls: wrong name", refused),
        "stranger's client": (
            Ends(config(stranger().sign("eve@example.com")), mutual),
            refused,
            "tls: untrusted certificate",
        ),
        "expired client": (
            Ends(config(expired("bob@example.com")), mutual),
            refused,
            "tls: expired certificate",
        ),
        "no client certificate": (
            Ends(config(), mutual),
            "tls: our certificate missing",
            "tls: no certificate",
        ),
        "stranger's client where one is optional": (
            Ends(config(stranger().sign("eve@example.com")), config(local(), verify="optional")),
            refused,
            "tls: untrusted certificate",
        ),
        "old client": (
            Ends(config(version_max="1.2"), config(local(), version_min="1.3")),
            "tls: protocol version",
            "tls: protocol version",
        ),
        "old server": (
            Ends(config(version_min="1.3"), config(local(), version_max="1.2")),
            "tls: protocol version",
            "tls: protocol version",
        ),
        "no client certificate in 1.2": (
            Ends(config(version_max="1.2"), mutual),
            "tls: refused by peer",
            "tls: no certificate",
        ),
    }


@pytest.mark.parametrize("case", list(refusals()))
def test_each_refusal_has_its_reason_at_both_ends(case: str) -> None:
    ends, client, server = refusals()[case]
    ends.shake()
    assert (reason(ends.client), reason(ends.server)) == (client, server)
    assert ends.client.peer == ends.server.peer == 0, "nobody got as far as SP"
    for failure in (ends.client.failure, ends.server.failure):
        assert failure is not None
        assert len(str(failure)) > 20 and "\n" not in str(failure)


def test_the_reference_page_has_every_reason() -> None:
    root = Path(__file__).resolve().parents[3]
    words = set(re.findall(r'"(tls: [\w ]+)"', (root / "protocols" / "wire" / "tls.py").read_text()))
    words.add(TlsConfigError.reason)
    page = (root / "docs" / "reference" / "tls.md").read_text()
    assert set(re.findall(r"^\| `(tls: [\w ]+)` \|", page, re.MULTILINE)) == words


def test_any_certificate_passes_without_verification() -> None:
    Ends(config(verify="none"), config(stranger().sign("x.example"))).shaken()
    Ends(config(verify="none"), config(expired("x.example"))).shaken()


def test_a_name_of_the_configuration_replaces_that_of_the_url() -> None:
    server = config(authority().sign("mesh.internal"))
    Ends(server=server, name="mesh.internal").shaken()


# --- bytes that are no TLS


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (b"\0SP\0\0\x50\0\0", r"dial it with tls\+tcp://"),
        (b"\0", r"dial it with tls\+tcp://"),
        (b"GET / HTTP/1.1\r\n\r\n", "plain HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "53 53 48 2d 32 2e 30 2d are not TLS"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "are not TLS"),
    ],
)
def test_a_server_names_the_protocol_of_a_client_without_tls(start: bytes, sentence: str) -> None:
    server = Ends().server
    assert server.receive(start) == []
    assert reason(server) == "tls: not TLS"
    with pytest.raises(HandshakeError, match=sentence):
        raise server.failure or AssertionError
    assert server.reply == b""
    assert server.receive(b"more") == []


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (b"\0SP\0\0\x51\0\0", "dial it with tcp://"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "plain HTTP"),
        (b"220 mail.example ESMTP\r\n", "are not TLS"),
    ],
)
def test_a_client_names_the_protocol_of_a_server_without_tls(start: bytes, sentence: str) -> None:
    client = Ends().client
    client.begin()
    client.receive(start)
    assert reason(client) == "tls: not TLS"
    with pytest.raises(HandshakeError, match=sentence):
        raise client.failure or AssertionError


@given(st.binary(min_size=1, max_size=400))
@settings(max_examples=200, deadline=None)
def test_no_bytes_raise(data: bytes) -> None:
    server, client = Ends().server, Ends().client
    client.begin()
    for end in (server, client):
        end.receive(b"\x16" + data)
        assert end.failure is None or isinstance(end.failure, HandshakeError)
        assert end.peer == 0


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7), after=st.booleans())
@settings(max_examples=100, deadline=None)
def test_one_flipped_bit_never_gives_a_wrong_frame(position: int, bit: int, after: bool) -> None:
    ends = Ends().shaken()
    data = bytearray(encoded(ends.client, b"a" * 300, b"b" * 40_000))
    data[position % len(data)] ^= 1 << bit
    frames = ends.server.receive(data)
    assert frames in ([], [b"a" * 300])
    failure = ends.server.failure
    if failure is not None:  # a length that grew makes it wait for more
        assert failure.reason in ("tls: broken record", "tls: protocol version", "tls: error")
        assert not isinstance(failure, HandshakeError)


# --- ends


def test_close_notify_is_an_end_and_is_answered() -> None:
    ends = Ends().shaken()
    last = encoded(ends.client, b"last") + ends.client.end()
    assert ends.server.receive(last) == [b"last"]
    assert ends.server.ended
    assert ends.server.failure is None
    assert not ends.server.inside_frame
    ends.client.receive(take_reply(ends.server))
    assert ends.client.ended


def test_a_stream_cut_inside_a_frame_is_a_failure_and_between_frames_is_not() -> None:
    ends = Ends().shaken()
    data = encoded(ends.client, b"x" * 100_000)
    ends.server.receive(data[:60_000])
    assert ends.server.inside_frame
    ends.server.receive(data[60_000:])
    assert not ends.server.inside_frame


@given(cut=st.integers(1, 400), more=st.lists(st.integers(1, 60)))
@settings(max_examples=60, deadline=None)
def test_a_stream_cut_anywhere_inside_a_record_is_a_failure(cut: int, more: list[int]) -> None:
    """A small frame is one record, and OpenSSL shows nothing of it until it is complete."""
    ends = Ends().shaken()
    first, second = encoded(ends.client, b"first"), encoded(ends.client, b"s" * 300)
    rest = memoryview(first + second[:cut])
    frames: list[bytes] = []
    for size in [*more, len(rest)]:
        frames += ends.server.receive(rest[:size])
        rest = rest[size:]
    assert frames == [b"first"] + [b"s" * 300] * (cut >= len(second))
    assert ends.server.inside_frame == (cut < len(second))
    ends.server.receive(second[cut:])
    assert not ends.server.inside_frame


def test_a_refusal_of_the_inner_protocol_is_a_refusal() -> None:
    ends = Ends(size_max=1000).shaken()
    assert ends.server.receive(encoded(ends.client, b"fits", b"x" * 1001)) == [b"fits"]
    assert isinstance(ends.server.failure, MessageTooLarge)
    wrong = Ends()
    wrong.server = TlsCodec(
        SpCodec(Greeting({ProtocolNumber.REQ0: ProtocolNumber.REP0}, True), 0, TCP_LEAD),
        server_context(config(local())),
        server_side=True,
    )
    wrong.shake()
    assert reason(wrong.server) == "wrong protocol"


def test_a_broken_rule_after_the_handshake_is_no_handshake_error() -> None:
    ends = Ends().shaken()
    ends.server.receive(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert type(ends.server.failure) is RemoteProtocolError
    assert ends.server.failure.reason == "tls: broken record"
    assert ends.server.reply, "the peer gets an alert"
    ends.client.receive(take_reply(ends.server))
    assert ends.client.failure is not None
    assert ends.client.failure.reason == "tls: refused by peer"


def test_progress_names_the_stage_of_the_handshake() -> None:
    ends = Ends(wait=True)
    assert ends.server.progress() == "no byte of TLS"
    hello = ends.client.begin()
    assert ends.client.progress() == "no byte of TLS"
    ends.server.receive(hello[:10])
    assert ends.server.progress() == "half a TLS handshake"
    ends.server.receive(hello[10:])
    ends.client.receive(take_reply(ends.server))
    assert ends.client.progress() == "0 of 8 header bytes inside TLS"


# --- its cost


def test_a_hello_that_never_ends_is_cut_off_early() -> None:
    """A record that announces 16 MiB of ClientHello, and more records with nothing in them."""
    server = Ends().server
    record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(16380)
    fed = 0
    while server.failure is None and fed < 1 << 20:
        server.receive(record)
        fed += len(record)
    assert reason(server).startswith("tls: ")
    assert fed <= 2 * len(record)


@pytest.mark.parametrize("kind", ["ECDSA", "RSA"])
def test_one_handshake_holds_the_loop_for_a_few_milliseconds_at_most(kind: str) -> None:
    """The longest of the server's turns in a mutual handshake, the best of several. A hello that is answered
    costs this much of the loop, from any sender.
    """
    type_ = trustme.KeyType[kind]
    server = server_context(config(authority().sign(*LOCAL, key_type=type_), verify="required"))
    client = client_context(config(authority().sign("c@example.com", key_type=type_)))
    best = min(_longest_turn(server, client) for _ in range(5))
    print(f"{kind}: {best * 1000:.2f} ms")
    assert best < 0.05


def _longest_turn(server_side: ssl.SSLContext, client_side: ssl.SSLContext) -> float:
    ends = Ends()
    ends.client = TlsCodec(
        SpCodec(Greeting.of(PUSH, PULL), 0, TCP_LEAD), client_side, server_side=False, server_name="localhost"
    )
    ends.server = TlsCodec(SpCodec(Greeting.of(PULL, PUSH), 0, TCP_LEAD), server_side, server_side=True)
    longest = 0.0
    to_server = ends.client.begin()
    while to_server:
        start = time.thread_time()
        ends.server.receive(to_server)
        longest = max(longest, time.thread_time() - start)
        ends.client.receive(take_reply(ends.server))
        to_server = take_reply(ends.client)
    assert ends.server.identity is not None
    return longest
