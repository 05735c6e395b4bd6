"""Items 170 to 173: the special rules of ipc, TLS, WebSocket and inproc."""

from __future__ import annotations

import os
import socket as sockets
import stat
from pathlib import Path

import pytest

from protocols import (
    AddressError,
    AddressInUse,
    ConnectionRefused,
    HandshakeError,
    ProtocolNumber,
    TlsConfig,
)
from protocols.tls import TlsConfigError
from tests.support.certificates import alice, authority, config, local, stranger
from tests.support.waiting import turns, until

from .declaring import EACH, OURS, OURS_OURS, STREAMS, WEB, item
from .links import Link
from .script import BINARY, CLOSE, PING, PONG, TEXT, ws_frame, ws_request, ws_token

PUSH, PULL = ProtocolNumber.PUSH0, ProtocolNumber.PULL0
TOKEN = ws_token(PUSH)
FILES, LOCAL = ("ipc",), ("ipc", "abstract")
assert set(LOCAL) < set(STREAMS)


# --- ipc


@item(170, transports=FILES, pairs=EACH)
async def test_a_stale_socket_is_replaced(link: Link) -> None:
    async with link:
        url = link.address()
        with sockets.socket(sockets.AF_UNIX) as left:
            left.bind(url.removeprefix("ipc://"))
        pull, push = link.first("Pull0"), link.ours("Push0")
        await pull.listen(url)
        push.dial(url)
        await push.send(b"new")
        assert await pull.recv() == b"new"


@item(170, transports=FILES, pairs=EACH)
async def test_a_busy_socket_and_a_file_are_left_alone(link: Link) -> None:
    async with link:
        url = link.address()
        await link.ours("Pull0").listen(url)
        file = link.folder / "file"
        file.write_text("precious")
        for where in (url, f"ipc://{file}"):
            with pytest.raises(AddressError):
                await link.first("Pull0").listen(where)
        assert file.read_text() == "precious"
        assert Path(url.removeprefix("ipc://")).is_socket()
        await turns(20)  # the program that checked whether it is busy has disconnected again


@item(170, transports=FILES)
async def test_permissions_are_set_before_a_peer_can_connect(link: Link) -> None:
    async with link:
        for mode in (0o600, 0o660, 0o666):
            url = link.address()
            await link.first("Pull0", ipc_permissions=mode).listen(url)
            assert stat.S_IMODE(os.stat(url.removeprefix("ipc://")).st_mode) == mode


@item(170, transports=LOCAL)
async def test_a_path_that_is_too_long_is_an_error(link: Link) -> None:
    async with link:
        url = link.address() + "x" * 108
        with pytest.raises(AddressError, match="107"):
            await link.first("Pull0").listen(url)
        with pytest.raises(AddressError, match="107"):
            link.first("Push0").dial(url)


@item(170, transports=LOCAL, pairs=(OURS_OURS,))
async def test_the_identity_of_a_peer_comes_from_the_kernel(link: Link) -> None:
    async with link.pair("Pull0", "Push0") as (pull, push):
        for end in (pull, push):
            identity = end.pipes[0].identity
            assert (identity.pid, identity.uid, identity.gid) == (os.getpid(), os.getuid(), os.getgid())


@pytest.mark.parametrize("lead", [0, 2, 255])
@item(170, transports=LOCAL, pairs=EACH)
async def test_a_frame_of_another_type_costs_the_pipe(lead: int, link: Link) -> None:
    async with link.scripted("Pull0", PUSH) as (pull, good):
        bad = await link.script(PUSH, pull)
        await bad.write(bytes((lead,)) + bad.framed(b"body")[1:])
        await bad.read_all()
        await until(lambda: len(pull.pipes) == 1)
        await good.send(b"work")
        assert await pull.recv() == b"work"


@item(170, transports=("abstract",))
async def test_an_empty_abstract_name_is_given_one_and_zero_bytes_may_stand_in_it(link: Link) -> None:
    async with link:
        for where in ("abstract://", link.address() + "%00x"):
            pull, push = link.first("Pull0"), link.first("Push0")
            listener = await pull.listen(where)
            assert listener.url != "abstract://"
            push.dial(listener.url)
            await push.send(b"found")
            assert await pull.recv() == b"found"


# --- tls


@item(171, transports=("tls+tcp", "wss"))
async def test_a_listener_needs_a_certificate_that_can_be_read(link: Link) -> None:
    async with link:
        for tls in (
            None,
            TlsConfig(ca=authority().pem),
            TlsConfig(cert=local().cert, key=alice().key),
            TlsConfig(cert=local().cert.replace("A", "B"), key=local().key),
            TlsConfig(cert_file=str(link.folder / "missing.pem")),
        ):
            with pytest.raises(AddressError):
                await link.first("Pull0", tls=tls).listen(link.address())
        with pytest.raises(TlsConfigError):
            TlsConfig(key=local().key)


@item(171, transports=("tls+tcp", "wss"))
async def test_a_peer_not_trusted_or_with_another_name_is_refused(link: Link) -> None:
    async with link:
        pull = link.first("Pull0")
        listener = await pull.listen(link.address())
        for tls, reason in (
            (TlsConfig(ca=stranger().pem, server_name="localhost"), "tls: untrusted certificate"),
            (TlsConfig(ca=authority().pem, server_name="elsewhere.example"), "tls: wrong name"),
        ):
            with pytest.raises(HandshakeError) as caught:
                await link.first("Push0", tls=tls).dial_once(listener.url)
            assert caught.value.reason == reason
        careless = link.first("Push0", tls=TlsConfig(verify="none"))
        await careless.dial_once(listener.url)
        await careless.send(b"whoever you are")
        assert await pull.recv() == b"whoever you are"


@item(171, transports=("tls+tcp", "wss"))
async def test_a_certificate_that_is_required_must_be_shown(link: Link) -> None:
    async with link:
        pull = link.first("Pull0", tls=config(local(), verify="required"))
        listener = await pull.listen(link.address())
        with pytest.raises(HandshakeError):
            await link.first("Push0", tls=config(server_name="localhost")).dial_once(listener.url)
        await until(lambda: listener.statistics().refused == {"tls: no certificate": 1})
        push = link.first("Push0", tls=config(alice(), server_name="localhost"))
        await push.dial_once(listener.url)
        await push.send(b"from alice")
        assert await pull.recv() == b"from alice"
        assert pull.pipes[0].identity is not None


# --- websocket


@item(172, transports=WEB, pairs=EACH)
async def test_only_a_single_right_subprotocol_at_the_right_path_is_accepted(link: Link) -> None:
    async with link:
        pull = link.first("Pull0")
        url = link.url = (await pull.listen(link.address())).url
        for request, status in (
            (ws_request(url, TOKEN, path="/another"), b"404"),
            (ws_request(url, TOKEN, path="/path/below"), b"404"),
            (ws_request(url, ""), b"400"),
            (ws_request(url, "push.sp.nanomsg.org"), b"400"),
            (ws_request(url, f"{TOKEN}, push.sp.nanomsg.org"), b"400"),
            (ws_request(url, TOKEN, version="12"), b"4"),
        ):
            peer = await link.dial_script()
            await peer.write(request)
            answer = await peer.reader.readline()
            assert answer.startswith(b"HTTP/1.1 " + status), (request, answer)
        assert not pull.pipes
        peer = await link.dial_script()
        await peer.write(ws_request(url, TOKEN.upper()))
        assert (await peer.reader.readline()).startswith(b"HTTP/1.1 101")


@item(172, transports=WEB, note="any Host; NNG wants the listener's own text and answers 404")
async def test_any_host_may_be_named_and_pages_of_other_origins_may_not_connect(link: Link) -> None:
    async with link:
        pull = link.first("Pull0")
        url = link.url = (await pull.listen(link.address())).url
        for request, status in (
            (ws_request(url, TOKEN, host="broker.example"), b"101"),
            (ws_request(url, TOKEN, extra="Origin: https://evil.example\r\n"), b"403"),
        ):
            peer = await link.dial_script()
            await peer.write(request)
            assert (await peer.reader.readline()).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "frame, code",
    [
        (ws_frame(b"text", TEXT), 1003),
        (ws_frame(b"body", mask=False), 1002),
        (ws_frame(b"body", rsv=4), 1002),
        (ws_frame(bytes(1001)), 1009),
    ],
    ids=["text", "unmasked", "reserved bit", "too large"],
)
@item(172, transports=WEB, pairs=EACH)
async def test_a_broken_rule_is_answered_by_its_close_code(frame: bytes, code: int, link: Link) -> None:
    async with link.scripted("Pull0", PUSH, recv_size_max=1000) as (pull, peer):
        await peer.write(frame)
        opcode, _, payload = await peer.read_ws()
        assert (opcode, int.from_bytes(payload[:2])) == (CLOSE, code)
        await peer.aclose()
        await until(lambda: not pull.pipes)


@item(172, transports=WEB, pairs=EACH)
async def test_pings_are_answered_between_fragments_and_close_by_close(link: Link) -> None:
    async with link.scripted("Pull0", PUSH) as (pull, peer):
        await peer.write(
            ws_frame(b"in ", fin=False)
            + ws_frame(b"there?", PING)
            + ws_frame(b"three ", 0, fin=False)
            + ws_frame(b"parts", 0)
        )
        assert await pull.recv() == b"in three parts"
        assert await peer.read_ws() == (PONG, True, b"there?")
        await peer.write(ws_frame((1000).to_bytes(2), CLOSE))
        assert (await peer.read_ws())[0] == CLOSE
        await until(lambda: not pull.pipes)


@item(172, transports=WEB, pairs=EACH)
async def test_large_messages_leave_in_fragments_that_nng_can_take(link: Link) -> None:
    async with link.scripted("Push0", PULL) as (push, peer):
        await push.send(bytes(200_000))
        sizes, fin, opcodes = [], False, []
        while not fin:
            opcode, fin, payload = await peer.read_ws()
            sizes.append(len(payload))
            opcodes.append(opcode)
        assert sizes == [65536, 65536, 65536, 200_000 - 3 * 65536]
        assert opcodes == [BINARY, 0, 0, 0]


@item(172, transports=WEB)
async def test_one_of_two_listeners_on_one_port_may_close(link: Link) -> None:
    async with link:
        one, other = link.first("Pull0"), link.first("Pull0")
        first = await one.listen(link.address())
        second = await other.listen(first.url.replace("/path", "/other"))
        with pytest.raises(AddressInUse):
            await link.first("Pull0").listen(second.url)
        await first.aclose()
        with pytest.raises((HandshakeError, ConnectionRefused)):
            await link.first("Push0").dial_once(first.url)
        push = link.first("Push0")
        await push.dial_once(second.url)
        await push.send(b"here")
        assert await other.recv() == b"here"


# --- inproc


@item(173, transports=("inproc",), pairs=((OURS,),))
async def test_names_inside_the_process(link: Link) -> None:
    async with link:
        pull, push = link.first("Pull0", recv_size_max=10), link.first("Push0")
        url = link.address()
        with pytest.raises(ConnectionRefused):
            await push.dial_once(url)
        await pull.listen(url)
        with pytest.raises(AddressInUse):
            await link.first("Pull0").listen(url)
        await push.dial_once(url)
        await push.send(bytes(1000))  # limits are for strangers
        assert await pull.recv() == bytes(1000)
