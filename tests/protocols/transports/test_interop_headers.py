"""Our bytes and NNG's, seen by a plain stream: the same header, the same framing, the same refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from protocols.dialling import Dialer, dial_once
from protocols.errors import HandshakeError
from protocols.listening import Listener, SharedListener
from protocols.options import SocketOptions
from protocols.pipe import INBOX_FULL
from protocols.wire.framing import IPC_LEAD, TCP_LEAD, encode_frames
from protocols.wire.handshake import PEER_OF, ProtocolNumber, encode_header
from tests.protocols.wire.test_handshake import BROKEN
from tests.support.ports import free_port

from .support import FakeSocket, raw_peer, until

pynng = pytest.importorskip("pynng")
pytestmark = [pytest.mark.interop, pytest.mark.isolated]

NNG_NUMBERS = [number for number in ProtocolNumber if number is not ProtocolNumber.STAR0]
LEADS = {"tcp": TCP_LEAD, "ipc": IPC_LEAD}
OPTIONS = SocketOptions(recv_size_max=0, reconnect_min_s=0.01)


def open_nng(number: ProtocolNumber, **options: Any) -> Any:
    """The socket of pynng with this protocol number; ours are named after them."""
    return getattr(pynng, number.name.capitalize())(**options)


def address(scheme: str, folder: Path) -> str:
    return f"tcp://127.0.0.1:{free_port()}" if scheme == "tcp" else f"ipc://{folder / 'nng.sock'}"


@pytest.mark.parametrize("number", NNG_NUMBERS)
async def test_nng_sends_the_header_we_encode(scheme: str, tmp_path: Path, number: ProtocolNumber) -> None:
    with open_nng(number) as nng:
        url = address(scheme, tmp_path)
        nng.listen(url)
        async with raw_peer(url) as peer:
            assert await peer.reader.readexactly(8) == encode_header(number)


@pytest.mark.parametrize("number", NNG_NUMBERS)
async def test_nng_and_we_complete_the_handshake_either_way(
    scheme: str, tmp_path: Path, number: ProtocolNumber
) -> None:
    url = address(scheme, tmp_path)
    with open_nng(number) as nng:
        nng.listen(url)
        dialer = FakeSocket(PEER_OF[number], OPTIONS)
        assert (await dial_once(dialer, url, 5.0)).peer == number
        await dialer.aclose()
    owner = FakeSocket(PEER_OF[number], OPTIONS)
    for listener in (Listener(owner, "tcp://127.0.0.1:0"), SharedListener("tcp://127.0.0.1:0")):
        if isinstance(listener, SharedListener):
            listener.serve(owner)
        await listener.start()
        before = len(owner.all_pipes)
        with open_nng(number) as nng:
            nng.dial(listener.url, block=False)
            await until(lambda: len(owner.all_pipes) > before)  # noqa: B023
        await until(lambda: not owner.pipes)
        await listener.aclose()


@pytest.mark.parametrize(("header", "reason"), [row for row in BROKEN if row[1] != "short header"])
async def test_nng_refuses_the_headers_we_refuse(header: str, reason: str) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    with pynng.Rep0(listen=url):
        async with raw_peer(url) as peer:
            peer.writer.write(bytes.fromhex(header))
            assert await peer.read_all() == encode_header(ProtocolNumber.REP0)


async def test_nng_frames_as_we_do(scheme: str, tmp_path: Path) -> None:
    url = address(scheme, tmp_path)
    with pynng.Pair0(listen=url, send_timeout=5000, recv_timeout=5000) as nng:
        async with raw_peer(url) as peer:
            peer.writer.write(encode_header(ProtocolNumber.PAIR0) + encode_frames([b"to nng"], LEADS[scheme]))
            assert await nng.arecv() == b"to nng"
            await nng.asend(b"from nng")
            expected = encode_header(ProtocolNumber.PAIR0) + encode_frames([b"from nng"], LEADS[scheme])
            assert await peer.reader.readexactly(len(expected)) == expected


async def test_messages_of_many_sizes_cross_both_ways(scheme: str, tmp_path: Path) -> None:
    url = address(scheme, tmp_path)
    bodies = [b"x" * size for size in (1, 7, 8, 9, 4096, 65535, 65536, 65537, 1 << 20, 3 << 20)]
    with pynng.Pair0(listen=url, send_timeout=5000, recv_timeout=5000) as nng:
        dialer = FakeSocket(options=OPTIONS)
        pipe = await dial_once(dialer, url, 5.0)
        for body in bodies:
            pipe.send(body)
            assert await nng.arecv() == body
            await nng.asend(body)
        await until(lambda: dialer.received == bodies)
        await dialer.aclose()


async def test_a_frame_that_nng_cuts_off_by_closing_is_lost_alone() -> None:
    """NNG closes without linger: what it had queued ends in the middle of a frame."""
    owner = FakeSocket(ProtocolNumber.PULL0, OPTIONS)
    listener = Listener(owner, "tcp://127.0.0.1:0")
    await listener.start()
    with pynng.Push0(send_buffer_size=100) as nng:
        nng.dial(listener.url, block=False)
        await until(lambda: owner.pipes)
        owner.pipes[0].pause(INBOX_FULL)
        with pytest.raises(pynng.TryAgain):
            while True:
                nng.send(b"z" * 200_000, block=False)
    owner.pipes[0].resume(INBOX_FULL)
    await until(lambda: owner.lost)
    assert all(frame == b"z" * 200_000 for frame in owner.received)
    assert not listener.statistics().broken
    await listener.aclose()
    await owner.aclose()


async def test_we_come_back_to_an_nng_listener_that_restarts(scheme: str, tmp_path: Path) -> None:
    url = address(scheme, tmp_path)
    owner = FakeSocket(options=OPTIONS)
    dialer = Dialer(owner, url)
    dialer.start()
    for count in (1, 2):
        with pynng.Pair0(listen=url, recv_timeout=5000) as nng:
            pipe = (await dialer.wait_connected())._pipe
            pipe.send(b"hello again")
            assert await nng.arecv() == b"hello again"
        await until(lambda: len(owner.lost) == count)  # noqa: B023
    await dialer.aclose()
    await owner.aclose()


async def test_a_mismatch_with_nng_is_a_handshake_error(scheme: str, tmp_path: Path) -> None:
    url = address(scheme, tmp_path)
    with pynng.Rep0(listen=url), pytest.raises(HandshakeError):
        await asyncio.wait_for(dial_once(FakeSocket(ProtocolNumber.SUB0), url), 5)
