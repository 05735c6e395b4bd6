"""The HTTP opening of a WebSocket, byte by byte, as our peers write it and as no peer should."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import HandshakeError
from protocols.wire.handshake import PEER_OF, Greeting, ProtocolNumber
from protocols.wire.upgrade import HEAD_SIZE_MAX, SUBPROTOCOLS, AcceptingUpgrade, DiallingUpgrade, Route

REQ, REP = ProtocolNumber.REQ0, ProtocolNumber.REP0
PUSH, PULL = ProtocolNumber.PUSH0, ProtocolNumber.PULL0

# As nanomsg 1.1.5 writes it; the nonce and its digest are those of RFC 6455 section 1.3.
LINES = [
    "GET /chat HTTP/1.1",
    "Host: 127.0.0.1:45949",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Protocol: rep.sp.nanomsg.org",
]
ACCEPTED = (
    b"HTTP/1.1 101 Switching Protocols\r\n"
    b"Upgrade: websocket\r\n"
    b"Connection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
    b"Sec-WebSocket-Protocol: rep.sp.nanomsg.org\r\n\r\n"
)


def request(lines: list[str] = LINES, **replaced: str) -> bytes:
    """The request, with headers replaced (empty: left out) or added; ``_`` stands for ``-``."""
    headers = {name.replace("_", "-").lower(): value for name, value in replaced.items()}
    kept = []
    for line in lines:
        name = line.partition(":")[0].lower()
        if name not in headers:
            kept.append(line)
        elif headers[name]:
            kept.append(f"{name}: {headers[name]}")
        headers.pop(name, None)
    kept += [f"{name}: {value}" for name, value in headers.items() if value]
    return ("\r\n".join(kept) + "\r\n\r\n").encode("latin-1")


def listening(
    serves: dict[int, int] | None = None, origins: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
) -> AcceptingUpgrade:
    """At /chat, for req peers."""
    greeting = Greeting({REQ: REP} if serves is None else serves)
    routes = {"/chat": Route(greeting, 1000, origins, hosts)}
    return AcceptingUpgrade(routes.get)


def refusal(sent: bytes, listener: AcceptingUpgrade | None = None) -> tuple[str, str, str]:
    """The status line, our word and the body."""
    listener = listener or listening()
    assert listener.receive(sent) == b""
    assert listener.peer == 0 and listener.failure is not None
    head, _, body = listener.reply.partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    assert f"Content-Length: {len(body)}" in headers and "Connection: close" in headers
    assert body.decode().strip() == str(listener.failure)
    return status, listener.failure.reason, body.decode()


# --- names


def test_subprotocols_are_called_as_nng_calls_them() -> None:
    stems = {number: name.removesuffix(".sp.nanomsg.org") for number, name in SUBPROTOCOLS.items()}
    assert stems == {
        0x10: "pair",
        0x11: "pair1",
        0x20: "pub",
        0x21: "sub",
        0x30: "req",
        0x31: "rep",
        0x50: "push",
        0x51: "pull",
        0x62: "surveyor",
        0x63: "respondent",
        0x70: "bus",
        0x640: "star",
    }


@pytest.mark.parametrize("number", list(ProtocolNumber), ids=lambda number: number.name)
def test_a_dialer_of_each_protocol_finds_its_listener(number: ProtocolNumber) -> None:
    dialer = DiallingUpgrade(Greeting.of(number, PEER_OF[number]), "h", "/chat", 0)
    listener = listening({number: PEER_OF[number]})
    assert listener.receive(dialer.request) == b"" and listener.peer == number
    assert dialer.receive(listener.reply) == b"" and dialer.peer == PEER_OF[number]


# --- the listener


def test_a_request_is_answered_with_its_digest_and_its_own_subprotocol() -> None:
    listener = listening()
    assert listener.receive(request()) == b""
    assert (listener.peer, listener.failure, listener.reply) == (REQ, None, ACCEPTED)


def test_bytes_behind_the_request_belong_to_the_frames() -> None:
    assert listening().receive(request() + b"\x82\x80abcd") == b"\x82\x80abcd"


def test_the_request_may_come_a_byte_at_a_time() -> None:
    listener = listening()
    for byte in request()[:-1]:
        assert listener.receive(bytes([byte])) == b"" and not listener.peer
    assert listener.progress() == f"{len(request()) - 1} bytes of an HTTP request"
    listener.receive(b"\n")
    assert listener.peer == REQ


@pytest.mark.parametrize(
    "replaced",
    [
        {"sec_websocket_protocol": "REP.SP.NanoMsg.ORG"},
        {"host": "another.name"},
        {"host": "[::1]:80"},
        {"connection": "keep-alive, Upgrade"},
        {"upgrade": "WebSocket"},
        {"sec_websocket_extensions": "permessage-deflate; client_max_window_bits"},
        {"origin": "http://127.0.0.1:45949"},
        {"cookie": "a=b"},
    ],
    ids=str,
)
def test_allowed_variants_of_requests_of_peers_and_browsers(replaced: dict[str, str]) -> None:
    listener = listening()
    listener.receive(request(**replaced))
    assert listener.peer == REQ, listener.failure
    assert b"xtensions" not in listener.reply, "none is taken"


def test_the_query_chooses_no_listener() -> None:
    listener = listening()
    listener.receive(request(["GET /chat?token=1 HTTP/1.1", *LINES[1:]]))
    assert listener.peer == REQ


@pytest.mark.parametrize("first", ["GET  HTTP/1.1", "GET ?a=b HTTP/1.1", "GET / HTTP/1.1"])
def test_a_request_without_a_path_is_for_the_root(first: str) -> None:
    """nngcat 1.5.2 writes the first of these for ws://host:port."""
    listener = AcceptingUpgrade({"/": Route(Greeting.of(REP, REQ), 0)}.get)
    listener.receive(request([first, *LINES[1:]]))
    assert listener.peer == REQ, listener.failure


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (request(["GET / HTTP/1.1", *LINES[1:]]), "404 Not Found", "websocket: path"),
        (request(["GET /chat/ HTTP/1.1", *LINES[1:]]), "404 Not Found", "websocket: path"),
        (request(["GET /CHAT HTTP/1.1", *LINES[1:]]), "404 Not Found", "websocket: path"),
        (request(sec_websocket_protocol=""), "400 Bad Request", "websocket: subprotocol"),
        (request(sec_websocket_protocol="chat"), "400 Bad Request", "websocket: subprotocol"),
        (request(sec_websocket_protocol="rep"), "400 Bad Request", "websocket: subprotocol"),
        (
            request(sec_websocket_protocol="rep.sp.nanomsg.org, req.sp.nanomsg.org"),
            "400 Bad Request",
            "websocket: subprotocol",
        ),
        (request([*LINES, LINES[-1]]), "400 Bad Request", "websocket: subprotocol"),
        (request(sec_websocket_protocol="req.sp.nanomsg.org"), "400 Bad Request", "wrong protocol"),
        (request(sec_websocket_protocol="pull.sp.nanomsg.org"), "400 Bad Request", "wrong protocol"),
        (request(sec_websocket_version="8"), "426 Upgrade Required", "websocket: version"),
        (request(sec_websocket_version=""), "400 Bad Request", "websocket: bad request"),
        (request(sec_websocket_key=""), "400 Bad Request", "websocket: bad request"),
        (request(upgrade=""), "400 Bad Request", "websocket: bad request"),
        (request(connection="close"), "400 Bad Request", "websocket: bad request"),
        (request(host=""), "400 Bad Request", "websocket: bad request"),
        (request(host="xn--\xff"), "400 Bad Request", "websocket: bad request"),
        (request(sec_websocket_protocol="r\xffp"), "400 Bad Request", "websocket: bad request"),
        (request(["POST /chat HTTP/1.1", *LINES[1:]]), "400 Bad Request", "websocket: bad request"),
        (request(["GET /chat HTTP/1.0", *LINES[1:]]), "400 Bad Request", "not HTTP"),
        (request(["GET /chat HTTP/2", *LINES[1:]]), "400 Bad Request", "not HTTP"),
        (request(["GET /cha\xfft HTTP/1.1", *LINES[1:]]), "400 Bad Request", "websocket: bad request"),
        (request([*LINES, "no colon"]), "400 Bad Request", "websocket: bad request"),
        (request(origin="http://evil.example"), "403 Forbidden", "websocket: origin"),
        (request(origin="https://127.0.0.1"), "403 Forbidden", "websocket: origin"),
        (request(origin="null"), "403 Forbidden", "websocket: origin"),
        (request(origin="http://[broken"), "403 Forbidden", "websocket: origin"),
        (b"HELLO\r\n\r\n", "400 Bad Request", "not HTTP"),
    ],
)
def test_requests_that_a_listener_refuses(sent: bytes, status: str, reason: str) -> None:
    answered, word, _ = refusal(sent)
    assert (answered, word) == (f"HTTP/1.1 {status}", reason)


def test_a_refusal_of_another_version_names_ours() -> None:
    listener = listening()
    listener.receive(request(sec_websocket_version="8"))
    assert b"\r\nSec-WebSocket-Version: 13\r\n" in listener.reply


def test_a_refusal_names_the_right_subprotocol() -> None:
    _, _, body = refusal(request(sec_websocket_protocol="chat"))
    assert body == "the request asks for 'chat'; it must name one, and here is rep.sp.nanomsg.org\n"
    _, _, body = refusal(request(sec_websocket_protocol="pull.sp.nanomsg.org"))
    assert body == "the peer is push0, which talks to pull0; this end is rep0, which talks to req0\n"


def test_pages_of_other_origins_may_connect_where_they_are_named() -> None:
    page = request(origin="https://app.example:8443")
    assert refusal(page, listening(origins=("https://other.example",)))[1] == "websocket: origin"
    for origins in (("https://App.example:8443/",), ("*",)):
        listener = listening(origins=origins)
        listener.receive(page)
        assert listener.peer == REQ


REBOUND = request(host="evil.example:8080", origin="http://evil.example:8080")
"""A browser's request for a page whose name was made to point at the listener."""


@pytest.mark.parametrize("hosts", [(), ("localhost",), ("example", "evil.example.com", "")])
def test_a_page_of_a_foreign_name_that_resolves_to_this_host_is_refused(hosts: tuple[str, ...]) -> None:
    status, word, body = refusal(REBOUND, listening(hosts=hosts))
    assert (status, word) == ("HTTP/1.1 403 Forbidden", "websocket: host")
    assert "'evil.example:8080'" in body and "ws_hosts" in body


@pytest.mark.parametrize(
    ("host", "hosts", "origins"),
    [
        ("127.0.0.1:45949", (), ()),
        ("127.0.0.1", (), ()),
        ("[::1]:80", (), ()),
        ("[::1]", (), ()),
        ("app.example:8080", ("app.example",), ()),
        ("App.Example.", ("app.example",), ()),
        ("app.example", ("APP.example.",), ()),
        ("evil.example:8080", (), ("http://evil.example:8080",)),
        ("evil.example:8080", (), ("*",)),
    ],
)
def test_pages_of_the_own_host_may_connect_by_an_address_or_a_name_that_is_known(
    host: str, hosts: tuple[str, ...], origins: tuple[str, ...]
) -> None:
    listener = listening(hosts=hosts, origins=origins)
    listener.receive(request(host=host, origin=f"http://{host}"))
    assert listener.peer == REQ


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40))
def test_a_page_is_accepted_only_by_an_address_or_a_known_name(host: str) -> None:
    listener = listening(hosts=("known.example",))
    listener.receive(request(host=host, origin=f"http://{host}"))
    if listener.peer:
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        assert name.lower().rstrip(".") == "known.example" or ipaddress.ip_address(name)


def test_a_program_without_an_origin_may_call_us_as_it_likes() -> None:
    listener = listening()
    listener.receive(request(host="any.name.at.all:1"))
    assert listener.peer == REQ


def test_the_token_chooses_among_several_protocols() -> None:
    serves: dict[int, int] = {REQ: REP, PUSH: PULL}
    for token, peer in (("rep", REQ), ("pull", PUSH)):
        listener = listening(serves)
        listener.receive(request(sec_websocket_protocol=f"{token}.sp.nanomsg.org"))
        assert listener.peer == peer


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["without an end", "with an end"])
def test_a_head_beyond_the_limit_is_refused_and_not_kept(end: bytes) -> None:
    start = b"GET /chat HTTP/1.1\r\nX: "
    sent = start + b"x" * (HEAD_SIZE_MAX + 1 - len(start) - len(end)) + end
    assert refusal(sent)[:2] == (
        "HTTP/1.1 431 Request Header Fields Too Large",
        "websocket: bad request",
    )


def test_a_head_of_just_the_limit_is_read() -> None:
    missing = HEAD_SIZE_MAX - len(request(x=""))
    sent = request(x="y" * (missing - len("x: \r\n")))
    assert len(sent) == HEAD_SIZE_MAX
    listener = listening()
    listener.receive(sent)
    assert listener.peer == REQ


@pytest.mark.parametrize(
    ("first", "hint"),
    [
        (b"\0SP\0\0\x30\0\0", "dial it with ws://"),
        (b"\x16\x03\x01\x02\x00", "give the listener wss://"),
        (b"\x82\x80", "are not HTTP"),
    ],
)
def test_input_that_is_no_http_is_detected_by_its_first_byte_and_gets_no_answer(
    first: bytes, hint: str
) -> None:
    listener = listening()
    listener.receive(first)
    assert listener.failure is not None and listener.reply == b""
    assert listener.failure.reason == "not HTTP" and hint in str(listener.failure)


@given(st.binary(min_size=1, max_size=300), st.integers(0, 250))
def test_no_request_makes_a_listener_raise(noise: bytes, at: int) -> None:
    whole = request()
    listener = listening()
    listener.receive(whole[:at] + noise + whole[at:])
    assert not (listener.peer and listener.failure)


@given(st.text(st.characters(max_codepoint=255, blacklist_characters="\r\n"), max_size=100), st.data())
def test_no_header_makes_a_listener_raise(value: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([line.partition(":")[0] for line in LINES[1:]] + ["Origin"]))
    listener = listening()
    listener.receive(request(**{name.replace("-", "_"): value}))
    assert bool(listener.peer) != bool(listener.failure)


# --- the dialer


def dialling() -> DiallingUpgrade:
    return DiallingUpgrade(Greeting.of(REQ, REP), "example.net:8080", "/chat?a=b", 0)


def answer_to(dialer: DiallingUpgrade, **replaced: str) -> bytes:
    """A listener's answer to this dialer, with headers replaced."""
    listener = listening()
    listener.receive(dialer.request)
    head = listener.reply.decode().removesuffix("\r\n\r\n").split("\r\n")
    return request(head, **replaced)


def failure_of(dialer: DiallingUpgrade, sent: bytes) -> HandshakeError:
    assert dialer.receive(sent) == b"" and not dialer.peer
    assert dialer.failure is not None
    return dialer.failure


def test_a_request_names_the_url_and_the_listeners_protocol_and_nothing_else() -> None:
    lines = dialling().request.decode().split("\r\n")
    assert lines[0] == "GET /chat?a=b HTTP/1.1"
    assert lines[1] == "Host: example.net:8080", "NNG compares it with its URL"
    assert lines[-3:] == ["Sec-WebSocket-Protocol: rep.sp.nanomsg.org", "", ""]
    names = [line.partition(":")[0] for line in lines[1:-2]]
    assert names == [
        "Host",
        "Upgrade",
        "Connection",
        "Sec-WebSocket-Key",
        "Sec-WebSocket-Version",
        "Sec-WebSocket-Protocol",
    ]


def test_the_answer_may_come_a_byte_at_a_time_and_frames_right_behind_it() -> None:
    dialer = dialling()
    answer = answer_to(dialer)
    for byte in answer[:-1]:
        assert dialer.receive(bytes([byte])) == b"" and not dialer.peer and not dialer.failure
    assert dialer.receive(answer[-1:] + b"\x82\x00") == b"\x82\x00"
    assert dialer.peer == REP


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\nContent-Length: 0\r\n\r\n"])
def test_a_refusal_is_known_by_its_first_line(end: bytes) -> None:
    """nanomsg sends no blank line after its refusals, and keeps the stream open."""
    failure = failure_of(dialling(), b"HTTP/1.1 400 Bad Request\r\n" + end)
    assert failure.reason == "websocket: refused"
    assert "400 Bad Request" in str(failure) and "another pattern" in str(failure)


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({"sec_websocket_accept": "c3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, "websocket: bad answer"),
        ({"sec_websocket_accept": ""}, "websocket: bad answer"),
        ({"upgrade": ""}, "websocket: bad answer"),
        ({"connection": "close"}, "websocket: bad answer"),
        ({"sec_websocket_protocol": "pull.sp.nanomsg.org"}, "websocket: bad answer"),
        ({"sec_websocket_protocol": "\xff"}, "websocket: bad answer"),
        ({"sec_websocket_protocol": ""}, "websocket: subprotocol"),
        ({"sec_websocket_extensions": "permessage-deflate"}, "websocket: bad answer"),
    ],
    ids=str,
)
def test_bad_answers_open_no_connection(replaced: dict[str, str], reason: str) -> None:
    dialer = dialling()
    assert failure_of(dialer, answer_to(dialer, **replaced)).reason == reason


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\0SP\0\0\x31\0\0", "not HTTP"),
        (b"\x15\x03\x01", "not HTTP"),
        (b"HTTP/2 200\r\n", "not HTTP"),
        (b"HTTP/1.1 abc\r\n", "websocket: bad answer"),
        (b"HTTP/1.1\r\n", "websocket: bad answer"),
        (b"HTTP/1.1 " + b"1" * HEAD_SIZE_MAX, "websocket: bad answer"),
        (b"HTTP/1.1 101 Yes\r\n" + b"X: y\r\n" * HEAD_SIZE_MAX, "websocket: bad answer"),
        (b"HTTP/1.1 101 Yes\r\n\r\n", "websocket: bad answer"),
        (b"HTTP/1.1 200 OK\r\n", "websocket: refused"),
    ],
)
def test_answers_that_no_websocket_listener_gives(sent: bytes, reason: str) -> None:
    assert failure_of(dialling(), sent).reason == reason


@given(st.binary(min_size=1, max_size=300), st.integers(0, 200))
def test_no_answer_makes_a_dialer_raise(noise: bytes, at: int) -> None:
    dialer = dialling()
    whole = answer_to(dialer)
    dialer.receive(whole[:at] + noise + whole[at:])
    assert not (dialer.peer and dialer.failure)
