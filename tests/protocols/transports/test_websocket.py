"""``ws://`` and ``wss://`` on real sockets: addresses, several listeners on one port, and bad peers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import psutil
import pytest

from protocols import (
    AddressError,
    AddressInUse,
    ConnectionRefused,
    HandshakeError,
    Pair0,
    Pull0,
    Push0,
    Rep0,
    Req0,
    SharedListener,
    SocketOptions,
    TlsConfigError,
    check_dialable,
    check_url,
    is_wildcard,
)
from protocols.dialling import dial_once
from protocols.listening import Listener
from protocols.pipe import INBOX_FULL, Pipe
from protocols.transports.loops import loop_state
from protocols.transports.stream import StreamConnection, StreamKind
from protocols.transports.websocket import parse_websocket_address
from protocols.wire.handshake import Greeting, ProtocolNumber, encode_header
from protocols.wire.upgrade import AcceptingUpgrade, Route
from protocols.wire.websocket import WebSocketCodec
from tests.protocols.wire.test_upgrade import LINES, request
from tests.protocols.wire.test_websocket import BINARY, CLOSE, PING, PONG, TEXT, close_code, frame
from tests.support.certificates import authority, config, local, stranger
from tests.support.ports import free_port

from .support import FakeSocket, RawPeer, assert_gets_through, listening, until

BASE = SocketOptions(reconnect_min_s=0.01, reconnect_max_s=0.05, recv_timeout_s=10.0, send_timeout_s=10.0)
SECURE = replace(BASE, tls=config(local()))
TRUSTING = replace(BASE, tls=config())
ANYWHERE = "ws://127.0.0.1:0"
PAIR = request(["GET / HTTP/1.1", *LINES[1:]], sec_websocket_protocol="pair.sp.nanomsg.org")


@asynccontextmanager
async def raw_peer(url: str) -> AsyncIterator[RawPeer]:
    """A plain stream to the host and port of a URL."""
    target = parse_websocket_address("ws", url.partition("://")[2])
    peer = RawPeer(*await asyncio.open_connection(target.host, target.port))
    try:
        yield peer
    finally:
        await peer.aclose()


@asynccontextmanager
async def open_peer(url: str, path: str = "/") -> AsyncIterator[RawPeer]:
    """A pair0 peer whose handshake is complete and that writes any frames it likes."""
    async with raw_peer(url) as peer:
        peer.writer.write(PAIR.replace(b"GET / ", b"GET %s " % path.encode()))
        assert (await peer.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        yield peer


# --- addresses


@pytest.mark.parametrize(
    ("url", "host", "port", "target", "authority"),
    [
        ("ws://h", "h", 80, "/", "h"),
        ("wss://h", "h", 443, "/", "h"),
        ("wss4://h/", "h", 443, "/", "h"),
        ("ws://h:1/a/b%20c?d=e?f", "h", 1, "/a/b%20c?d=e?f", "h:1"),
        ("ws://h?q", "h", 80, "/?q", "h"),
        ("ws6://[::1]:9/x:y", "::1", 9, "/x:y", "[::1]:9"),
        ("ws://[::1]/", "::1", 80, "/", "[::1]"),
        ("ws://*:0/x", "", 0, "/x", "*:0"),
        ("ws://:7/x", "", 7, "/x", ":7"),
        ("ws://bücher.example:8/x", "bücher.example", 8, "/x", "xn--bcher-kva.example:8"),
        ("ws://bücher.example/x", "bücher.example", 80, "/x", "xn--bcher-kva.example"),
    ],
)
def test_an_address_has_a_path_and_may_leave_out_its_port(
    url: str, host: str, port: int, target: str, authority: str
) -> None:
    assert check_url(url) == url
    scheme, _, address = url.partition("://")
    parsed = parse_websocket_address(scheme, address)
    assert (parsed.host, parsed.port, parsed.path + parsed.query) == (host, port, target)
    assert parsed.authority == authority


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ws://h:99999/", "the port must be a number from 0 to 65535, not '99999'"),
        ("ws://h:/", "the port must be a number"),
        ("ws://h:80/a b", "a path has visible ASCII and no #; write other characters as %XX"),
        ("ws://h:80/ä", "write other characters as %XX"),
        ("ws://h/a#b", "no #"),
        ("ws://h/a\r\nX: y", "a path has visible ASCII"),
        ("ws://user@h:80/", "is not a host name"),
        ("ws://::1:80/", "write an IPv6 address in brackets"),
        ("ws://" + "ä" * 70 + "/", "is not a host name"),
        ("ws://ä..b/", "is not a host name"),
    ],
)
def test_impossible_addresses(url: str, sentence: str) -> None:
    with pytest.raises(AddressError, match=sentence):
        check_url(url)


def test_addresses_that_can_be_dialled_and_those_only_listened_on() -> None:
    assert check_dialable("ws://h/x?y") == "ws://h/x?y"
    for url in ("ws://*:80/", "ws://:80/", "ws://0.0.0.0/", "wss://[::]:1/", "ws://h:0/"):
        with pytest.raises(AddressError, match="dialling needs a host and a port"):
            check_dialable(url)
    assert is_wildcard("ws://*/x") and is_wildcard("wss://0.0.0.0:1") and not is_wildcard("ws://h")


async def test_a_listener_cannot_be_chosen_by_a_query() -> None:
    with pytest.raises(AddressError, match="a listener is found by its path; leave out the query"):
        await Listener(FakeSocket(), "ws://127.0.0.1:0/a?b=c").start()


@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
@pytest.mark.parametrize("form", ["4://127.0.0.1:0", "6://[::1]:0/a/path", "://*:0/x", "://localhost:0"])
async def test_every_form_of_address_serves(form: str, secure: bool) -> None:
    scheme = "wss" if secure else "ws"
    async with listening(scheme + form, SECURE) as (owner, listener):
        target = parse_websocket_address(scheme, listener.url.partition("://")[2])
        assert listener.url.startswith(f"{scheme}://") and target.port
        assert target.path == "/" + form.partition("://")[2].partition("/")[2]
        host = "[::1]" if "::1" in form else "localhost"
        await assert_gets_through(owner, f"{scheme}://{host}:{target.port}{target.path}")
        (pipe,) = owner.all_pipes
        assert pipe.remote_address.startswith(f"{scheme}://") and pipe.url == listener.url


async def test_errors_name_a_port_in_use_and_one_without_a_listener() -> None:
    port = free_port()
    url = f"ws://127.0.0.1:{port}/x"
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
    try:
        with pytest.raises(AddressInUse, match="in use by another program"):
            await Listener(FakeSocket(), url).start()
    finally:
        server.close()
    with pytest.raises(ConnectionRefused, match="nobody listens at ws://"):
        await dial_once(FakeSocket(), url, 5.0)
    assert loop_state().websocket_ports == {}


# --- several listeners on one port


async def test_listeners_share_a_port_and_closing_one_leaves_the_other() -> None:
    async with AsyncExitStack() as stack:
        first, one = await stack.enter_async_context(listening(ANYWHERE + "/one"))
        second, two = await stack.enter_async_context(listening(one.url.replace("/one", "/two")))
        assert one.url.rpartition("/")[0] == two.url.rpartition("/")[0]
        await assert_gets_through(first, one.url)
        await assert_gets_through(second, two.url)
        await one.aclose()
        await assert_gets_through(second, two.url)
        with pytest.raises(HandshakeError, match=r"404 Not Found': nothing listens at this path"):
            await dial_once(FakeSocket(), one.url, 5.0)
        again, three = await stack.enter_async_context(listening(one.url))
        await assert_gets_through(again, three.url)
        await two.aclose()
        await three.aclose()
        with pytest.raises(ConnectionRefused):
            await dial_once(FakeSocket(), one.url, 5.0)
        assert loop_state().websocket_ports == {}


async def test_a_pipe_outlives_the_listener_that_brought_it() -> None:
    async with listening(ANYWHERE + "/one") as (first, one), listening(one.url + "2") as (second, _):
        async with open_peer(one.url, "/one") as peer:
            await until(lambda: first.pipes)
            await one.aclose()
            peer.writer.write(frame(BINARY, b"still here"))
            await until(lambda: first.received)
        assert second.received == []


async def test_a_peer_accepted_while_the_last_listener_closes_is_refused() -> None:
    """asyncio makes the connection a loop turn after it has accepted it."""
    async with listening(ANYWHERE) as (owner, listener):
        (port,) = set(loop_state().websocket_ports.values())
        await listener.aclose()
        connection = port._accept()
        transport = FullTransport(connection)
        connection.connection_made(transport)  # type: ignore[arg-type]
        assert transport.aborted and not owner.pipes
        assert listener.statistics().accepted == 0


async def test_a_path_is_taken_once() -> None:
    async with listening(ANYWHERE + "/x") as (_, listener):
        with pytest.raises(AddressInUse, match="another listener of this program; choose another path"):
            await Listener(FakeSocket(), listener.url).start()


async def test_a_port_is_found_by_the_url_that_was_given_and_by_the_one_that_was_bound() -> None:
    async with listening("ws://*:0/x") as (_, first):
        port = parse_websocket_address("ws", first.url.partition("://")[2]).port
        async with listening(f"ws://:{port}/y") as (second, _), listening(f"{first.url}z") as (third, _):
            await assert_gets_through(second, f"ws://127.0.0.1:{port}/y")
            await assert_gets_through(third, f"ws://127.0.0.1:{port}/xz")
    assert loop_state().websocket_ports == {}


async def test_listeners_that_open_at_once_share_the_port() -> None:
    port = free_port()
    owners = [FakeSocket() for _ in range(5)]
    urls = [f"ws://127.0.0.1:{port}/{number}" for number in range(5)]
    listeners = [Listener(owner, url) for owner, url in zip(owners, urls, strict=True)]
    await asyncio.gather(*(listener.start() for listener in listeners))
    for owner, url in zip(owners, urls, strict=True):
        await assert_gets_through(owner, url)
    for listener, owner in zip(listeners, owners, strict=True):
        await listener.aclose()
        await owner.aclose()


async def test_a_port_is_plain_or_of_one_tls_configuration() -> None:
    async with listening(ANYWHERE + "/x", SECURE) as (_, plain):
        with pytest.raises(AddressError, match=r"open for ws:// already; choose another port for wss://"):
            await Listener(FakeSocket(options=SECURE), plain.url.replace("ws://", "wss://") + "y").start()
    async with listening("wss://127.0.0.1:0/x", SECURE) as (_, secure):
        async with listening(secure.url + "y", SECURE) as (owner, listener):
            await assert_gets_through(owner, listener.url)
            assert listener.certificates is secure.certificates
        other = replace(BASE, tls=config(authority().sign("localhost")))
        with pytest.raises(AddressError, match="another TLS configuration already"):
            await Listener(FakeSocket(options=other), secure.url + "z").start()
        with pytest.raises(AddressError, match=r"open for wss:// already"):
            await Listener(FakeSocket(), secure.url.replace("wss://", "ws://") + "z").start()
    with pytest.raises(TlsConfigError, match="needs a certificate and its key"):
        await Listener(FakeSocket(), "wss://127.0.0.1:0/x").start()


async def test_a_connection_counts_at_the_listener_of_its_path_or_else_at_the_oldest() -> None:
    small = replace(BASE, recv_size_max=10)
    async with listening(ANYWHERE + "/old") as (old, first):
        async with listening(first.url.replace("old", "new"), small) as (new, second):
            await assert_gets_through(old, first.url)
            async with open_peer(second.url, "/new") as peer:
                await until(lambda: new.pipes)
                assert first.statistics().accepted == first.statistics().connected == 1
                assert second.statistics().accepted == second.statistics().connected == 1
                peer.writer.write(frame(BINARY, bytes(11)))
                assert close_code(await peer.read_all()) == 1009, "its own listener's limit"
            async with raw_peer(first.url) as silent, raw_peer(first.url) as lost:
                lost.writer.write(request(["GET /lost HTTP/1.1", *LINES[1:]]))
                assert (await lost.read_all()).startswith(b"HTTP/1.1 404 ")
                await until(lambda: first.statistics().headerless == 1)
                assert first.statistics().refused == {"websocket: path": 1}
                assert second.statistics().refused == {}
                assert second.statistics().broken and not first.statistics().broken
                await first.aclose()
                assert await silent.read_all() == b"", "it ends with the listener that watched it"
            async with raw_peer(second.url) as silent:
                await until(lambda: second.statistics().headerless == 1)


async def test_silent_peers_are_bounded_for_any_number_of_paths() -> None:
    owner = FakeSocket()
    shared = SharedListener(ANYWHERE + "/x", headerless_max=5)
    shared.serve(owner)
    await shared.start()
    try:
        async with listening(shared.url + "y") as (other, second), AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(raw_peer(shared.url)) for _ in range(12)]
            await until(lambda: shared.statistics().refused.get("crowded out") == 7)
            assert shared.statistics().headerless == 5
            assert await peers[0].read_all() == b""
            await assert_gets_through(other, second.url)
    finally:
        await shared.aclose()
        await owner.aclose()


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_one_path_serves_several_patterns(scheme: str) -> None:
    async with AsyncExitStack() as stack:
        rep = await stack.enter_async_context(Rep0(options=SECURE))
        pull = await stack.enter_async_context(Pull0(options=SECURE))
        shared = SharedListener(f"{scheme}://127.0.0.1:0/all", options=SECURE)
        await rep.listen(shared)
        await pull.listen(shared)
        await shared.start()
        stack.push_async_callback(shared.aclose)
        req = await stack.enter_async_context(Req0(dial=shared.url, options=TRUSTING))
        push = await stack.enter_async_context(Push0(dial=shared.url, options=TRUSTING))
        await push.send(b"work")
        assert await pull.recv() == b"work"
        await req.send(b"question")
        assert await rep.recv() == b"question"
        await rep.send(b"answer")
        assert await req.recv() == b"answer"
        with pytest.raises(HandshakeError, match="400 Bad Request"):
            await dial_once(FakeSocket(ProtocolNumber.BUS0, TRUSTING), shared.url, 5.0)
        assert shared.statistics().refused == {"wrong protocol": 1}


# --- wss


async def test_a_dialer_that_does_not_trust_the_certificate_does_not_connect() -> None:
    async with listening("wss://127.0.0.1:0/x", SECURE) as (_, listener):
        doubting = replace(BASE, tls=config(trust=stranger()))
        with pytest.raises(HandshakeError) as caught:
            await dial_once(FakeSocket(options=doubting), listener.url, 5.0)
        assert caught.value.reason == "tls: untrusted certificate"
        await until(lambda: listener.statistics().refused)
        assert listener.statistics().refused == {"tls: our certificate refused": 1}


async def test_a_refusal_inside_tls_arrives_whole() -> None:
    async with listening("wss://127.0.0.1:0/x", SECURE) as (_, listener):
        with pytest.raises(HandshakeError, match="404 Not Found"):
            await dial_once(FakeSocket(options=TRUSTING), listener.url + "y", 5.0)
        assert listener.statistics().refused == {"websocket: path": 1}


async def test_errors_tell_plain_peers_from_secure_ones() -> None:
    async with listening("wss://127.0.0.1:0", SECURE) as (_, secure), listening(ANYWHERE) as (_, plain):
        with pytest.raises(HandshakeError, match=r"closed"):
            await dial_once(FakeSocket(), secure.url.replace("wss", "ws"), 5.0)
        assert secure.statistics().refused == {"tls: not TLS": 1}
        with pytest.raises(HandshakeError):
            await dial_once(FakeSocket(options=TRUSTING), plain.url.replace("ws", "wss"), 5.0)
        assert plain.statistics().refused == {"not HTTP": 1}
        assert "give the listener wss://" in plain.last_refused


# --- bad peers


async def test_errors_name_a_peer_of_the_plain_protocol_at_both_ends() -> None:
    async with listening(ANYWHERE) as (_, listener):
        with pytest.raises(HandshakeError):
            await dial_once(FakeSocket(), listener.url.replace("ws://", "tcp://").rstrip("/"), 5.0)
        assert listener.statistics().refused == {"not HTTP": 1}
        assert "dial it with ws://" in listener.last_refused
    async with listening("tcp://127.0.0.1:0") as (_, tcp):
        with pytest.raises(HandshakeError, match=r"are not HTTP; it speaks the plain protocol") as caught:
            await dial_once(FakeSocket(), tcp.url.replace("tcp://", "ws://"), 5.0)
        assert caught.value.reason == "not HTTP"


async def test_half_a_request_is_cut_after_the_deadline() -> None:
    async with listening(ANYWHERE, replace(BASE, handshake_timeout_s=0.2)) as (_, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(PAIR[:100])
            assert await peer.read_all() == b""
        assert listener.statistics().refused == {"timeout": 1}
        assert listener.last_refused.endswith("100 bytes of an HTTP request after 0.2 s")


async def test_a_listener_that_never_answers_is_left_after_the_deadline() -> None:
    writers: list[asyncio.StreamWriter] = []

    def say_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Swi")
        writers.append(writer)

    server = await asyncio.start_server(say_half, "127.0.0.1", 0)
    url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Pair0(dial=url, options=replace(BASE, handshake_timeout_s=0.2)) as pair:
        await until(lambda: pair.dialers[0].statistics().failed.get("timeout"))
    server.close()
    for writer in writers:
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (PAIR.replace(b"pair.sp", b"pear.sp"), b"400"),
        (PAIR.replace(b"GET / ", b"GET /elsewhere "), b"404"),
        (PAIR.replace(b"Version: 13", b"Version: 12"), b"426"),
        (b"GET / HTTP/1.1\r\n" + b"x" * 9000, b"431"),
        (request(["GET / HTTP/1.1", *LINES[1:]], origin="http://evil.example"), b"403"),
    ],
    ids=["subprotocol", "path", "version", "size", "origin"],
)
async def test_a_refusal_reaches_its_peer_also_when_more_was_sent(sent: bytes, status: bytes) -> None:
    """Closing with unread input would reset the stream and destroy the answer."""
    async with listening(ANYWHERE) as (owner, listener):
        async with raw_peer(listener.url) as peer:
            peer.writer.write(sent + bytes(100_000))
            answer = await peer.read_all()
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert answer.endswith(listener.last_refused.partition(": ")[2].encode() + b"\n")
        await assert_gets_through(owner, listener.url)


@pytest.mark.parametrize(
    ("sent", "code", "cause"),
    [
        (frame(TEXT, b"hello"), 1003, "text message"),
        (frame(BINARY, b"x", masked=False), 1002, "bad frame"),
        (frame(BINARY, b"x", bits=0x40), 1002, "bad frame"),
        (b"\x82\xff" + struct.pack(">Q", (1 << 63) - 1), 1009, "too large"),
    ],
    ids=["text", "unmasked", "reserved bit", "huge"],
)
async def test_a_broken_rule_costs_the_peer_its_pipe_and_is_named_to_it(
    sent: bytes, code: int, cause: str
) -> None:
    async with listening(ANYWHERE) as (owner, listener):
        before = psutil.Process().memory_info().rss
        async with open_peer(listener.url) as peer:
            peer.writer.write(frame(BINARY, b"before") + sent + bytes(100_000))
            assert close_code(await peer.read_all()) == code
        await until(lambda: owner.lost)
        assert owner.received == [b"before"]
        assert owner.all_pipes[0].close_cause == cause
        assert sum(listener.statistics().broken.values()) == 1
        assert psutil.Process().memory_info().rss - before < 10 << 20
        await assert_gets_through(owner, listener.url)


@pytest.mark.parametrize(
    ("url", "options", "status"),
    [
        ("ws://127.0.0.1:0", BASE, b"403"),
        ("ws://*:0", BASE, b"403"),
        ("ws://localhost:0", BASE, b"101"),
        ("ws://127.0.0.1:0", replace(BASE, ws_hosts=("localhost",)), b"101"),
    ],
)
async def test_a_page_of_our_host_must_call_us_by_a_name_that_is_ours(
    url: str, options: SocketOptions, status: bytes
) -> None:
    """Any name can be made to point here, and the browser then sends equal Origin and Host."""
    async with listening(url, options) as (_, listener):
        number = listener.url.removesuffix("/").rpartition(":")[2]
        page = request(
            ["GET / HTTP/1.1", *LINES[1:]],
            sec_websocket_protocol="pair.sp.nanomsg.org",
            host=f"localhost:{number}",
            origin=f"http://localhost:{number}",
        )
        async with raw_peer(listener.url) as peer:
            peer.writer.write(page)
            assert (await peer.reader.readline()).split()[1] == status


async def test_pages_of_an_origin_that_is_named_may_connect() -> None:
    page = request(
        ["GET / HTTP/1.1", *LINES[1:]],
        sec_websocket_protocol="pair.sp.nanomsg.org",
        origin="https://app.example",
    )
    for origins, status in (((), b"403"), (("https://app.example",), b"101"), (("*",), b"101")):
        async with listening(ANYWHERE, replace(BASE, ws_origins=origins)) as (_, listener):
            async with raw_peer(listener.url) as peer:
                peer.writer.write(page)
                assert (await peer.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 " + status)


async def test_pings_are_answered_and_a_close_is_answered_and_counted_as_the_peers() -> None:
    async with listening(ANYWHERE) as (owner, listener):
        async with open_peer(listener.url) as peer:
            peer.writer.write(frame(PING, b"there?"))
            assert await peer.reader.readexactly(8) == b"\x8a\x06there?"
            peer.writer.write(frame(CLOSE, struct.pack(">H", 1001)))
            assert close_code(await peer.read_all()) == 1001
        await until(lambda: owner.lost)
        assert owner.lost == ["closed by the peer"] and not listener.statistics().broken


class FullTransport:
    """A stream whose peer reads nothing: it keeps the output, and reports when it exceeds 64 KiB."""

    def __init__(self, protocol: StreamConnection) -> None:
        self.protocol = protocol
        self.written = bytearray()
        self.reading = True
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data
        if len(self.written) > 65536:
            self.protocol.pause_writing()

    def drain(self) -> bytes:
        """The peer reads at last."""
        written, self.written = bytes(self.written), bytearray()
        self.protocol.resume_writing()
        return written

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        self.aborted = True
        self.protocol.connection_lost(None)


async def test_a_peer_that_pings_and_never_reads_is_read_no_further_until_it_does() -> None:
    """Otherwise the replies kept for it would grow with each ping, as fast as it can send them."""
    owner = FakeSocket(options=BASE)
    acceptor = Listener(owner, ANYWHERE)
    upgrade = AcceptingUpgrade(lambda path: Route(Greeting.of(owner.protocol, owner.peer), 1000))
    kind = StreamKind(lambda address: "", lambda transport, options: None, lambda *_: WebSocketCodec(upgrade))
    connection = StreamConnection(kind, Greeting.of(owner.protocol, owner.peer), BASE, acceptor)
    transport = FullTransport(connection)

    def feed(data: bytes) -> None:
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))

    connection.connection_made(transport)  # type: ignore[arg-type]
    feed(PAIR)
    await until(lambda: owner.pipes)
    assert transport.drain().startswith(b"HTTP/1.1 101 ") and transport.reading
    pings = 0
    while transport.reading:
        feed(frame(PING, bytes(125)))
        pings += 1
        assert pings < 1000
    assert len(transport.written) == 127 * pings < 65536 + 128
    owner.pipes[0].pause(INBOX_FULL)
    owner.pipes[0].resume(INBOX_FULL)  # the application reads, which is no reason to read more pings
    assert not transport.reading
    assert transport.drain() == frame(PONG, bytes(125), masked=False) * pings
    assert transport.reading
    feed(frame(BINARY, b"at last"))
    assert owner.received == [b"at last"]
    await owner.aclose()


class Satisfied(FakeSocket):
    """Closes a pipe as soon as it has received anything."""

    def pipe_received(self, pipe: Pipe, frames: list[bytes]) -> None:
        super().pipe_received(pipe, frames)
        pipe.close("enough", flush=True)


@pytest.mark.parametrize("last", [frame(CLOSE, struct.pack(">H", 1001)), frame(TEXT, b"x")])
@pytest.mark.parametrize("together", [True, False], ids=["with the handshake", "later"])
async def test_input_in_one_piece_with_the_last_message_is_answered_before_the_end(
    last: bytes, together: bool
) -> None:
    owner = Satisfied(options=BASE)
    listener = Listener(owner, ANYWHERE)
    await listener.start()
    sent = frame(BINARY, b"message") + last
    code = 1001 if last[0] & 15 == CLOSE else 1003
    async with raw_peer(listener.url) as peer:
        peer.writer.write(PAIR + (sent if together else b""))
        await peer.reader.readuntil(b"\r\n\r\n")
        if not together:
            peer.writer.write(sent)
        assert close_code(await peer.reader.read(200)) == code
        peer.writer.write_eof()
        assert await peer.read_all() == b""
    assert owner.received == [b"message"]
    await listener.aclose()
    await owner.aclose()


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_the_sender_of_a_message_above_the_limit_is_told_the_reason(scheme: str) -> None:
    options = replace(SECURE, recv_size_max=1000)
    async with (
        Pull0(listen=f"{scheme}://localhost:0", options=options) as pull,
        Push0(options=TRUSTING) as push,
    ):
        pipe = await push.dial_once(pull.listeners[0].url)
        await push.send(bytes(2000))
        await until(lambda: pipe.closed)
    assert pipe.close_cause == "closed by the peer"
    assert "1009 a message of 2000 bytes is above the limit of 1000" in pipe.close_reason


async def test_our_close_frame_follows_the_queued_messages() -> None:
    async with listening(ANYWHERE) as (owner, listener), open_peer(listener.url) as peer:
        await until(lambda: owner.pipes)
        owner.pipes[0].send(b"x" * 300)
        owner.pipes[0].close("the work is done", flush=True)
        assert await peer.reader.readexactly(304) == b"\x82\x7e\x01\x2c" + b"x" * 300
        assert await peer.reader.readexactly(4) == b"\x88\x02\x03\xe8"
        peer.writer.write(frame(CLOSE, struct.pack(">H", 1000)))
        assert await peer.reader.read() == b""


async def test_an_end_inside_a_message_loses_that_message_only() -> None:
    async with listening(ANYWHERE) as (owner, listener):
        async with open_peer(listener.url) as peer:
            peer.writer.write(frame(BINARY, b"whole") + frame(BINARY, b"half", fin=False))
            await until(lambda: owner.received)
        await until(lambda: owner.lost)
        assert owner.received == [b"whole"] and "inside a frame" in owner.lost[0]


async def test_frames_need_no_sp_header() -> None:
    """The subprotocol replaces it; the eight bytes of the other transports would be a message here."""
    async with listening(ANYWHERE) as (owner, listener), open_peer(listener.url) as peer:
        peer.writer.write(frame(BINARY, encode_header(ProtocolNumber.PAIR0)))
        await until(lambda: owner.received)
        assert owner.received == [encode_header(ProtocolNumber.PAIR0)]


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_a_large_message_arrives_whole_both_ways(scheme: str) -> None:
    body = bytes(range(256)) * 80_000  # 20 MiB
    options = replace(SECURE, recv_size_max=0)
    async with Pair0(listen=f"{scheme}://127.0.0.1:0", options=options) as here:
        async with Pair0(dial=here.listeners[0].url, options=options) as there:
            await there.send(body)
            assert await here.recv() == body
            await here.send(body)
            assert await there.recv() == body
