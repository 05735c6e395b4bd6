"""``tls+tcp://`` on real sockets: the refusals and their words at both ends, and what survives."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from protocols import (
    AddressError,
    AddressInUse,
    ConnectionRefused,
    HandshakeError,
    NotSupported,
    Pair0,
    Pull0,
    Push0,
    Rep0,
    Req0,
    SharedListener,
    SocketOptions,
    TlsConfig,
    TlsConfigError,
    check_dialable,
    check_url,
    is_wildcard,
)
from protocols.dialling import dial_once
from protocols.listening import Listener
from protocols.transports import certificates
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.support.certificates import LOCAL, alice, authority, config, local, stranger

from .support import FakeSocket, assert_gets_through, listening, raw_peer, until

PAIR_HEADER = encode_header(ProtocolNumber.PAIR0)
BASE = SocketOptions(reconnect_min_s=0.01, reconnect_max_s=0.05, recv_timeout_s=10.0, send_timeout_s=10.0)
CLIENT = replace(BASE, tls=config())
SERVER = replace(BASE, tls=config(local()))
MUTUAL = replace(BASE, tls=config(local(), verify="required"))
ALICE = replace(BASE, tls=config(alice()))
ANYWHERE = "tls+tcp://127.0.0.1:0"


async def test_a_dialer_that_can_offer_nothing_is_a_failed_dial_and_no_error_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = certificates.client_context

    def impossible(config: TlsConfig) -> ssl.SSLContext:
        context = real(config)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with listening(ANYWHERE, SERVER) as (_, listener):
        monkeypatch.setattr(certificates, "client_context", impossible)
        with pytest.raises(HandshakeError, match="no TLS version in common"):
            await dial_once(FakeSocket(options=CLIENT), listener.url, 20.0)
    assert not told


# --- addresses


def test_addresses_are_those_of_tcp() -> None:
    for url in ("tls+tcp://h:1", "tls+tcp4://127.0.0.1:1", "tls+tcp6://[::1]:1", "tls+tcp://:0"):
        assert check_url(url) == url
    assert is_wildcard("tls+tcp://*:1") and not is_wildcard("tls+tcp://127.0.0.1:1")
    with pytest.raises(AddressError, match=r"tls\+tcp://:1: dialling needs a host and a port"):
        check_dialable("tls+tcp://:1")
    with pytest.raises(AddressError, match=r"tls\+tcp://h has no port; write tls\+tcp://h:7770"):
        check_url("tls+tcp://h")


@pytest.mark.parametrize("url", ["tls+tcp4://127.0.0.1:0", "tls+tcp6://[::1]:0", "tls+tcp://*:0"])
async def test_every_form_of_address_serves(url: str) -> None:
    async with listening(url, SERVER) as (owner, listener):
        assert listener.url.startswith("tls+tcp://") and not listener.url.endswith(":0")
        port = listener.url.rpartition(":")[2]
        host = "[::1]" if "6" in url.partition(":")[0] else "localhost" if "*" in url else "127.0.0.1"
        await assert_gets_through(owner, f"tls+tcp://{host}:{port}")
        addresses = [pipe.remote_address for pipe in owner.all_pipes]
        assert all(address.startswith("tls+tcp://") for address in addresses)


async def test_errors_name_an_address_in_use_and_one_without_a_listener() -> None:
    async with listening(ANYWHERE, SERVER) as (_, listener):
        url = listener.url
        with pytest.raises(AddressInUse, match=r"tls\+tcp://127\.0\.0\.1:\d+ is in use"):
            await Listener(FakeSocket(options=SERVER), url).start()
    with pytest.raises(ConnectionRefused, match=r"nobody listens at tls\+tcp://"):
        await dial_once(FakeSocket(options=CLIENT), url, 5.0)


@pytest.mark.parametrize(
    ("tls", "sentence"),
    [
        (None, r"127\.0\.0\.1:0 needs a certificate and its key; give the options tls=TlsConfig\("),
        (TlsConfig(), "a TLS listener needs a certificate"),
        (TlsConfig(cert_file="/nonexistent.pem"), "/nonexistent.pem cannot be read"),
    ],
)
async def test_a_listener_without_a_good_certificate_does_not_open(
    tls: TlsConfig | None, sentence: str
) -> None:
    with pytest.raises(TlsConfigError, match=sentence):
        async with Pair0(listen=ANYWHERE, options=SocketOptions(tls=tls)):
            pass


async def test_a_dialer_with_a_missing_file_keeps_trying_and_says_why(tmp_path: Path) -> None:
    """The file may appear later: a certificate is often issued after the program has started."""
    ca = tmp_path / "ca.pem"
    async with listening(ANYWHERE, SERVER) as (_, listener):
        options = replace(BASE, tls=TlsConfig(ca_file=str(ca)))
        async with Pair0(dial=listener.url, options=options) as pair:
            await until(lambda: pair.dialers[0].last_error)
            assert f"{ca} cannot be read: no such file" in pair.dialers[0].last_error
            authority().write(tmp_path)
            await pair.wait_for_peers(1, timeout=10.0)


async def test_a_name_that_no_server_can_have_is_an_address_error() -> None:
    async with listening(ANYWHERE, SERVER) as (_, listener):
        options = replace(BASE, tls=config(server_name="." * 3))
        with pytest.raises(AddressError, match="cannot be the name of a TLS server"):
            await dial_once(FakeSocket(options=options), listener.url, 5.0)


# --- the good way


async def test_frames_of_every_size_arrive_both_ways() -> None:
    sizes = [0, 1, 16_383, 16_384, 16_385, 300_000, 5_000_000, 7]
    options = {"recv_size_max": 0}
    async with (
        Pair0(listen=ANYWHERE, options=replace(SERVER, **options)) as here,
        Pair0(dial=here.listeners[0].url, options=replace(CLIENT, **options)) as there,
    ):
        for one, other in ((here, there), (there, here)):
            for size in sizes:
                await one.send(bytes(size))
            assert [len(await other.recv()) for _ in sizes] == sizes


async def test_everything_sent_before_a_close_arrives() -> None:
    async with Pull0(listen=ANYWHERE, options=replace(SERVER, recv_size_max=0)) as pull:
        async with Push0(dial=pull.listeners[0].url, options=replace(CLIENT, linger_s=10.0)) as push:
            for number in range(100):
                await push.send(b"%d" % number + bytes(50_000))
        bodies = [await pull.recv() for _ in range(100)]
        assert [int(body.rstrip(b"\0")) for body in bodies] == list(range(100))


async def test_one_address_serves_several_patterns_behind_tls() -> None:
    """A shared listener waits for the dialer's header, inside TLS as outside."""
    shared = SharedListener(ANYWHERE, options=SERVER)
    async with Pull0(options=SERVER) as pull, Rep0(options=SERVER) as rep:
        await pull.listen(shared)
        await rep.listen(shared)
        await shared.start()
        async with (
            Push0(dial=shared.url, options=CLIENT) as push,
            Req0(dial=shared.url, options=CLIENT) as req,
        ):
            await push.send(b"pushed")
            assert await pull.recv() == b"pushed"
            await req.send(b"asked")
            assert await rep.recv() == b"asked"
            await rep.send(b"answered")
            assert await req.recv() == b"answered"
        await shared.aclose()


async def test_each_end_learns_the_identity_of_the_other() -> None:
    async with listening(ANYWHERE, MUTUAL) as (owner, listener):
        dialer = FakeSocket(options=ALICE)
        pipe = await dial_once(dialer, listener.url, 5.0)
        await until(lambda: owner.pipes)
        identity, server = owner.pipes[0].identity, pipe.identity
        assert identity is not None and identity.subject.startswith("CN=alice,")
        assert identity.names == ("alice@example.com",)
        assert server is not None and set(server.names) == set(LOCAL)
        await dialer.aclose()


# --- refusals


REFUSALS = {
    "an unknown authority": (
        SERVER,
        replace(BASE, tls=config(trust=stranger())),
        "tls: untrusted certificate",
        "tls: our certificate refused",
    ),
    "an expired certificate": (
        replace(BASE, tls=config(authority().expired(*LOCAL))),
        CLIENT,
        "tls: expired certificate",
        "tls: our certificate refused",
    ),
    "another name": (
        replace(BASE, tls=config(authority().sign("elsewhere.example"))),
        CLIENT,
        "tls: wrong name",
        "tls: our certificate refused",
    ),
    "the system's authorities": (SERVER, BASE, "tls: untrusted certificate", "tls: our certificate refused"),
    "no certificate of the client": (
        MUTUAL,
        CLIENT,
        "tls: our certificate missing",
        "tls: no certificate",
    ),
    "a stranger's certificate": (
        MUTUAL,
        replace(BASE, tls=config(stranger().sign("eve@example.com"))),
        "tls: our certificate refused",
        "tls: untrusted certificate",
    ),
    "an expired certificate of the client": (
        MUTUAL,
        replace(BASE, tls=config(authority().expired("bob@example.com"))),
        "tls: our certificate refused",
        "tls: expired certificate",
    ),
    "versions": (
        replace(BASE, tls=config(local(), version_min="1.3")),
        replace(BASE, tls=config(version_max="1.2")),
        "tls: protocol version",
        "tls: protocol version",
    ),
}


@pytest.mark.parametrize("case", list(REFUSALS))
async def test_both_ends_know_why_a_connection_was_refused(case: str) -> None:
    server, client, dialer_says, listener_says = REFUSALS[case]
    async with listening(ANYWHERE, server) as (owner, listener):
        for _ in range(5):  # the alert must not be lost to a reset, however the bytes fall
            with pytest.raises(HandshakeError) as caught:
                await dial_once(FakeSocket(options=client), listener.url, 5.0)
            assert caught.value.reason == dialer_says
        await until(lambda: listener.statistics().refused == {listener_says: 5})
        assert owner.all_pipes == []
        if server.tls is not None and case != "an expired certificate" and case != "another name":
            good = replace(ALICE, tls=config(alice()))
            await assert_gets_through(owner, listener.url, good)


async def test_a_dialer_that_is_refused_keeps_the_reason_and_counts_it() -> None:
    async with listening(ANYWHERE, MUTUAL) as (_, listener), Pair0(dial=listener.url, options=CLIENT) as pair:
        dialer = pair.dialers[0]
        await until(lambda: dialer.statistics().failed.get("tls: our certificate missing", 0) >= 2)
        assert dialer.last_error == "the peer asks for a certificate and this end has none"


async def test_an_insecure_dialer_trusts_any_certificate() -> None:
    async with listening(ANYWHERE, replace(BASE, tls=config(stranger().expired("x.example")))) as (
        owner,
        listener,
    ):
        await assert_gets_through(owner, listener.url, replace(BASE, tls=TlsConfig(verify="none")))


async def test_the_configured_name_is_checked() -> None:
    async with listening(ANYWHERE, replace(BASE, tls=config(authority().sign("mesh.internal")))) as (
        owner,
        listener,
    ):
        await assert_gets_through(owner, listener.url, replace(BASE, tls=config(server_name="mesh.internal")))


# --- peers that do not speak TLS


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (PAIR_HEADER, "plain protocol"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "plain HTTP"),
        (b"\xff\xfe\xfd", "are not TLS"),
    ],
)
async def test_a_plain_peer_at_a_tls_address_is_closed_with_a_reason(start: bytes, what: str) -> None:
    told: list[str] = []
    shared = SharedListener(ANYWHERE, options=SERVER, on_refused=lambda address, text: told.append(text))
    await shared.start()
    async with raw_peer(shared.url.removeprefix("tls+")) as peer:
        peer.writer.write(start)
        assert await peer.read_all() == b""
    assert shared.statistics().refused == {"tls: not TLS": 1}
    assert what in told[0]
    await shared.aclose()


async def test_https_at_a_tls_address_is_not_told_that_the_address_is_plain() -> None:
    """A codec behind TLS judges the header, and does not know of it; its message spoke of a plain address."""
    async with listening(ANYWHERE, SERVER) as (_, listener):
        host, _, port = listener.url.removeprefix("tls+tcp://").partition(":")
        context = certificates.client_context(config())
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.read()
        writer.close()
        assert listener.statistics().refused == {"HTTP on an SP address": 1}
        assert "for WebSocket both use ws://, or wss:// with TLS" in listener.last_refused


async def test_a_plain_dialer_at_a_tls_address_is_told_of_the_close() -> None:
    async with listening(ANYWHERE, SERVER) as (_, listener):
        with pytest.raises(HandshakeError) as caught:
            await dial_once(FakeSocket(options=BASE), listener.url.removeprefix("tls+"), 5.0)
        assert caught.value.reason == "closed"
        assert listener.statistics().refused == {"tls: not TLS": 1}


@pytest.mark.parametrize("shared", [False, True])
async def test_a_tls_dialer_at_a_plain_address_gets_an_error_that_says_so(shared: bool) -> None:
    owner = FakeSocket(options=BASE)
    listener: SharedListener | Listener
    listener = (
        SharedListener("tcp://127.0.0.1:0", options=BASE) if shared else Listener(owner, "tcp://127.0.0.1:0")
    )
    if isinstance(listener, SharedListener):
        listener.serve(owner)
    await listener.start()
    with pytest.raises(HandshakeError) as caught:
        await dial_once(FakeSocket(options=CLIENT), f"tls+{listener.url}", 5.0)
    assert (caught.value.reason, "TLS" in str(caught.value)) == (
        "closed" if shared else "tls: not TLS",  # a shared listener sends nothing before it has read
        True,
    )
    assert sum(listener.statistics().refused.values()) == 1
    await listener.aclose()


# --- bad peers


async def test_a_silent_peer_is_dropped_at_the_deadline() -> None:
    async with listening(ANYWHERE, replace(SERVER, handshake_timeout_s=0.1)) as (_, listener):
        async with raw_peer(listener.url.removeprefix("tls+")) as peer:
            assert await peer.read_all() == b""
        assert listener.statistics().refused == {"timeout": 1}


async def test_a_peer_that_stops_inside_tls_before_its_header_is_dropped_at_the_deadline() -> None:
    async with listening(ANYWHERE, replace(SERVER, handshake_timeout_s=0.3)) as (_, listener):
        reader, writer = await tls_stream(listener.url)
        assert await reader.read() == PAIR_HEADER
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        assert listener.statistics().refused == {"timeout": 1}


async def test_connections_in_their_tls_handshake_count_as_without_header() -> None:
    shared = SharedListener(ANYWHERE, options=SERVER, headerless_max=5)
    owner = FakeSocket(options=SERVER)
    shared.serve(owner)
    await shared.start()
    host, _, port = shared.url.removeprefix("tls+tcp://").rpartition(":")
    streams = [await asyncio.open_connection(host, int(port)) for _ in range(12)]
    for _, writer in streams:
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # the start of a hello
    await until(lambda: shared.statistics().refused.get("crowded out") == 7)
    assert shared.statistics().headerless == 5
    await assert_gets_through(owner, shared.url)
    for _, writer in streams:
        writer.close()
    await shared.aclose()
    await owner.aclose()


async def tls_stream(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A TLS connection of asyncio's own."""
    context = ssl.create_default_context(cadata=authority().pem)
    host, _, port = url.removeprefix("tls+tcp://").rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)


async def test_asyncios_own_tls_is_a_peer_like_another() -> None:
    async with listening(ANYWHERE, SERVER) as (owner, listener):
        reader, writer = await tls_stream(listener.url)
        writer.write(PAIR_HEADER + bytes(7) + b"\x05hello")
        assert await reader.readexactly(8) == PAIR_HEADER
        await until(lambda: owner.received == [b"hello"])
        owner.pipes[0].send(b"back")
        assert await reader.readexactly(12) == bytes(7) + b"\x04back"
        writer.close()  # close_notify first
        await until(lambda: owner.lost == ["closed by the peer"])
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def test_a_stream_cut_inside_a_frame_loses_that_frame_only() -> None:
    async with listening(ANYWHERE, SERVER) as (owner, listener):
        _, writer = await tls_stream(listener.url)
        writer.write(PAIR_HEADER + bytes(7) + b"\x03one" + bytes(7) + b"\x09half")
        await until(lambda: owner.received == [b"one"])
        writer.transport.abort()
        await until(lambda: owner.lost)
        assert owner.received == [b"one"]
        assert not listener.statistics().broken
        await assert_gets_through(owner, listener.url)


@pytest.mark.parametrize("rest", [b"", b"\x17\x03\x03", b"\x17\x03\x03\x00\x40half"])
async def test_an_end_without_close_notify_is_a_loss_only_inside_a_record(rest: bytes) -> None:
    async with listening(ANYWHERE, SERVER) as (owner, listener):
        _, writer = await tls_stream(listener.url)
        writer.write(PAIR_HEADER + bytes(7) + b"\x03one")
        await until(lambda: owner.received == [b"one"])
        raw = writer.transport.get_extra_info("socket")._sock
        if rest:
            raw.send(rest)
        raw.shutdown(socket.SHUT_WR)
        await until(lambda: owner.lost)
        assert owner.lost == ["closed by the peer inside a frame" if rest else "closed by the peer"]
        writer.transport.abort()


async def test_a_record_that_does_not_decrypt_costs_the_connection_and_is_counted() -> None:
    async with listening(ANYWHERE, SERVER) as (owner, listener):
        _, writer = await tls_stream(listener.url)
        writer.write(PAIR_HEADER)
        await until(lambda: owner.pipes)
        raw = writer.transport.get_extra_info("socket")
        await asyncio.to_thread(raw._sock.send, b"\x17\x03\x03\x00\x20" + bytes(32))
        await until(lambda: owner.lost)
        assert "does not decrypt" in owner.lost[0]
        assert sum(listener.statistics().broken.values()) == 1
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        await assert_gets_through(owner, listener.url)


async def test_an_oversized_frame_costs_the_connection() -> None:
    async with listening(ANYWHERE, replace(SERVER, recv_size_max=1000)) as (owner, listener):
        _, writer = await tls_stream(listener.url)
        writer.write(PAIR_HEADER + b"\x7f" + bytes(7))
        await until(lambda: owner.lost)
        assert "above the limit of 1000" in owner.lost[0]
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def test_a_large_message_takes_a_bounded_multiple_of_its_size() -> None:
    """64 MiB through both ends in this one process: plain there, plain here, plus the output that the kernel
    and the transport have not taken yet.
    """
    size = 64 << 20
    process = psutil.Process()
    async with (
        Pull0(listen=ANYWHERE, options=replace(SERVER, recv_size_max=0)) as pull,
        Push0(dial=pull.listeners[0].url, options=CLIENT) as push,
    ):
        await push.send(b"warm")
        await pull.recv()
        body = b"x" * size
        before = process.memory_info().rss
        peak = 0
        receiving = asyncio.ensure_future(pull.recv())
        await push.send(body)
        while not receiving.done():
            peak = max(peak, process.memory_info().rss - before)
            await asyncio.sleep(0)
        assert len(await receiving) == size
        print(f"{peak / size:.2f} times the message for both ends")
        assert peak < 4.0 * size


async def test_an_idle_connection_takes_a_bounded_amount_of_memory() -> None:
    """OpenSSL's state of both ends included, in this one process."""
    process, count = psutil.Process(), 300
    async with listening(ANYWHERE, SERVER) as (owner, listener):
        dialer = FakeSocket(options=CLIENT)
        for _ in range(50):  # one-time allocations
            await dial_once(dialer, listener.url, 5.0)
        before = process.memory_info().rss
        for _ in range(count):
            await dial_once(dialer, listener.url, 5.0)
        await until(lambda: len(owner.pipes) == count + 50)
        each_kb = (process.memory_info().rss - before) / 1024 / count
        print(f"{each_kb:.0f} KB for both ends of an idle connection")
        assert each_kb < 120
        await dialer.aclose()


# --- replaced certificates


async def test_new_certificates_are_taken_without_a_restart_and_old_connections_live_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)  # every handshake looks
    cert_file, key_file = local().write(tmp_path, "server")
    options = replace(BASE, tls=TlsConfig(cert_file=cert_file, key_file=key_file))
    async with listening(ANYWHERE, options) as (owner, listener):
        old = FakeSocket(options=CLIENT)
        pipe = await dial_once(old, listener.url, 5.0)
        stranger().sign(*LOCAL).write(tmp_path, "server")
        with pytest.raises(HandshakeError) as caught:
            await dial_once(FakeSocket(options=CLIENT), listener.url, 5.0)
        assert caught.value.reason == "tls: untrusted certificate"
        await assert_gets_through(owner, listener.url, replace(BASE, tls=config(trust=stranger())))
        pipe.send(b"still here")
        await until(lambda: b"still here" in owner.received)
        await old.aclose()


async def test_a_listener_reads_its_files_when_it_is_told_to(tmp_path: Path) -> None:
    cert_file, key_file = local().write(tmp_path, "server")
    options = replace(BASE, tls=TlsConfig(cert_file=cert_file, key_file=key_file))
    async with listening(ANYWHERE, options) as (owner, listener):
        await assert_gets_through(owner, listener.url)
        stranger().sign(*LOCAL).write(tmp_path, "server")
        listener.reload_certificates()
        trusting = replace(BASE, tls=config(trust=stranger()))
        await assert_gets_through(owner, listener.url, trusting)
        Path(key_file).write_text("no key")
        with pytest.raises(TlsConfigError, match="holds no private key"):
            listener.reload_certificates()
        await assert_gets_through(owner, listener.url, trusting)
        assert listener.certificates is not None
        assert listener.certificates.statistics().refused == 1


async def test_a_listener_without_tls_has_nothing_to_read() -> None:
    async with Pull0(listen="tcp://127.0.0.1:0") as pull:
        with pytest.raises(NotSupported, match="has no certificates to load"):
            pull.listeners[0].reload_certificates()
        assert pull.listeners[0].certificates is None


@pytest.mark.parametrize("questions", [1, 2])
async def test_a_question_with_a_broken_record_behind_it_raises_nothing_in_the_replier(
    questions: int,
) -> None:
    """One answer is written at once, several at the end of the delivery."""
    broken = b"\x17\x03\x03\x00\x40" + bytes(64)
    frame = b"\x80\x00\x00\x01hello"
    async with Rep0(listen=ANYWHERE, options=SERVER) as rep, raw_peer(rep.listeners[0].url) as peer:

        async def serve() -> None:
            for _ in range(questions):
                await rep.send(b"answer to " + await rep.recv())

        serving = asyncio.create_task(serve())
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = certificates.client_context(config()).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                peer.writer.write(outgoing.read())
                incoming.write(await peer.reader.read(65536))
        tls.write(encode_header(ProtocolNumber.REQ0))
        peer.writer.write(outgoing.read())
        await rep.wait_for_peers()
        for _ in range(questions):
            tls.write(len(frame).to_bytes(8, "big") + frame)
        peer.writer.write(outgoing.read() + broken)
        await peer.read_all()
        await serving
        await until(lambda: not rep.pipes)
        assert rep.statistics().closed == {"tls: broken record": 1}
