"""Items 1 to 25: the common rules of the 24 sockets, twelve cooked and twelve raw."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

import protocols
from protocols import (
    Closed,
    NotSupported,
    ProtocolNumber,
    RawSocket,
    Socket,
    SocketOptions,
    Timeout,
    WouldBlock,
)
from protocols.wire.handshake import PEER_OF
from tests.support.waiting import turns, until

from .declaring import EACH, OURS, OURS_OURS, PAIRS, PLAIN, PYNNG, TRANSPORTS, item
from .links import End, Link, soon
from .script import header

NUMBERS = {
    "Pair0": 16,
    "Pair1": 17,
    "Pub0": 32,
    "Sub0": 33,
    "Req0": 48,
    "Rep0": 49,
    "Push0": 80,
    "Pull0": 81,
    "Surveyor0": 98,
    "Respondent0": 99,
    "Bus0": 112,
    "Star0": 1600,
}
PEERS = {
    "Pub0": "Sub0",
    "Sub0": "Pub0",
    "Req0": "Rep0",
    "Rep0": "Req0",
    "Push0": "Pull0",
    "Pull0": "Push0",
    "Surveyor0": "Respondent0",
    "Respondent0": "Surveyor0",
}
TALKS = (
    ("Pair0", "Pair0"),
    ("Pair1", "Pair1"),
    ("Pub0", "Sub0"),
    ("Req0", "Rep0"),
    ("Push0", "Pull0"),
    ("Surveyor0", "Respondent0"),
    ("Bus0", "Bus0"),
    ("Star0", "Star0"),
)
"""The kinds by who speaks first."""
ONLY_SEND, ONLY_RECEIVE = ("Pub0", "Push0"), ("Sub0", "Pull0")
WITH_CONTEXTS = ("Req0", "Rep0", "Surveyor0", "Respondent0", "Sub0")
IN_TURNS = ("Req0", "Rep0", "Surveyor0", "Respondent0")
HEARS = tuple(kind for kind in NUMBERS if kind not in (*ONLY_SEND, "Req0", "Surveyor0"))
"""Kinds whose `recv` waits before anything was sent."""

KINDS = pytest.mark.parametrize("kind", NUMBERS)
BOTH = pytest.mark.parametrize("raw", [False, True], ids=["cooked", "raw"])


def make(kind: str, raw: bool = False, **options: Any) -> Socket:
    made: type[Socket] = getattr(protocols, kind)
    chosen = SocketOptions(**options)
    socket = RawSocket(made, options=chosen) if raw else made(options=chosen)
    return socket


@KINDS
@BOTH
@item(1)
async def test_numbers_and_names(kind: str, raw: bool) -> None:
    async with make(kind, raw) as socket:
        assert socket.protocol == NUMBERS[kind]
        assert socket.peer == NUMBERS[PEERS.get(kind, kind)]
        assert socket.statistics().protocol == kind.lower()


@KINDS
@item(1, transports=PLAIN, pairs=EACH)
async def test_the_number_is_on_the_wire_before_any_message(kind: str, link: Link) -> None:
    async with link:
        socket = link.first(kind)
        link.url = (await socket.listen(link.address())).url
        peer = await link.dial_script()
        assert await peer.read_header() == NUMBERS[kind]


@KINDS
@BOTH
@item(2)
async def test_raw_sockets_are_a_class_of_their_own(kind: str, raw: bool) -> None:
    async with make(kind, raw) as socket:
        assert isinstance(socket, RawSocket) is raw
        for call in ("attach", "send_to", "send_message", "recv_run"):
            assert hasattr(socket, call) is raw
        for call in ("pipe_received", "pipe_writable", "pipe_closed"):
            assert not hasattr(socket, call)


@KINDS
@item(3)
async def test_raw_sockets_have_no_contexts(kind: str) -> None:
    async with make(kind, raw=True) as socket:
        with pytest.raises(NotSupported):
            socket.new_context()


@pytest.mark.parametrize("kind", [kind for kind in NUMBERS if kind not in WITH_CONTEXTS])
@item(4, pairs=EACH)
async def test_patterns_without_contexts_refuse_them(kind: str, link: Link) -> None:
    async with link:
        with pytest.raises(NotSupported):
            link.first(kind).new_context()


@KINDS
@BOTH
@item(5, 6, 7, 8, 9, note="a second aclose() is quiet, as Python's are, where the others answer Closed")
async def test_a_closed_socket_raises_closed(kind: str, raw: bool) -> None:
    socket = make(kind, raw)
    await socket.aclose()
    for call in (
        lambda: socket.send(b"body"),
        lambda: socket.recv(),
        lambda: socket.listen("tcp://127.0.0.1:0"),
        lambda: socket.wait_for_peers(1),
        lambda: socket.dial_once("tcp://127.0.0.1:1"),
    ):
        with pytest.raises(Closed):
            await call()
    for nowait in (
        lambda: socket.send_nowait(b"body"),
        socket.recv_nowait,
        lambda: socket.dial("tcp://127.0.0.1:1"),
    ):
        with pytest.raises(Closed):
            nowait()
    await socket.aclose()


@pytest.mark.parametrize("kind", [kind for kind in NUMBERS if kind != "Star0"])
@item(5, 6, 8, 9, pairs=((PYNNG,),))
async def test_a_closed_socket_of_the_other_engine_raises_closed(kind: str, link: Link) -> None:
    async with link:
        socket = link.first(kind)
        await socket.aclose()
        for call in (
            lambda: socket.send(b"body"),
            lambda: socket.recv(),
            lambda: socket.listen("tcp://127.0.0.1:0"),
        ):
            with pytest.raises(Closed):
                await call()
        with pytest.raises(Closed):
            socket.dial("tcp://127.0.0.1:1")
        await socket.aclose()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see the note
@item(
    10,
    transports=TRANSPORTS,
    pairs=(OURS_OURS,),
    note="a connection accepted in the very loop turn its server closes is freed by CPython's collector",
)
async def test_a_peer_that_arrives_while_we_close_is_refused(link: Link) -> None:
    async with link:
        for turn in range(12):
            pull, push = link.first("Pull0"), link.second("Push0")
            url = (await pull.listen(link.address())).url
            push.dial(url)
            for _ in range(turn):  # another stage of the handshake each time
                await asyncio.sleep(0)
            await pull.aclose()
            await until(lambda push=push: not push.pipes)
            assert not pull.pipes
            await push.aclose()
        await turns()
        gc.collect()


@item(11)
async def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        SocketOptions(no_such_option=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "name, value",
    [
        ("send_queue", "1"),
        ("recv_queue", 1.5),
        ("send_timeout_s", "1"),
        ("linger_s", "soon"),
        ("ttl", None),
        ("ttl", True),
        ("resend_s", "never"),
        ("survey_s", None),
        ("prefer_new", 1),
        ("recv_size_max", 1.0),
        ("nodelay", "yes"),
        ("tls", "cert.pem"),
    ],
)
@item(12)
async def test_an_option_of_another_type_is_an_error(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        SocketOptions(**{name: value})


@item(13)
async def test_queue_lengths_are_checked_and_kept() -> None:
    for name in ("send_queue", "recv_queue"):
        for value in (-1, 0):
            with pytest.raises(ValueError, match=name):
                SocketOptions(**{name: value})
        assert getattr(make("Pair0", **{name: 7}).options, name) == 7


@item(14, note="1 to 255 as mangos; the engine over NNG refuses more than 15")
async def test_hop_limits_are_checked_and_kept() -> None:
    for value in (0, -1, 256):
        with pytest.raises(ValueError, match="ttl"):
            SocketOptions(ttl=value)
    with pytest.raises(TypeError, match="ttl"):
        SocketOptions(ttl="8")  # type: ignore[arg-type]
    for value in (2, 255):
        assert make("Rep0", ttl=value).options.ttl == value


@item(14, pairs=((PYNNG,),))
async def test_hop_limits_of_the_other_engine(link: Link) -> None:
    async with link:
        with pytest.raises(ValueError, match="ttl"):
            link.first("Rep0", ttl=16)
        link.first("Rep0", ttl=15)


@item(15)
async def test_receive_limits_are_checked_and_kept() -> None:
    with pytest.raises(ValueError, match="recv_size_max"):
        SocketOptions(recv_size_max=-1)
    for value in (0, 1024):
        assert make("Pull0", recv_size_max=value).options.recv_size_max == value


@KINDS
@item(16, transports=PLAIN)
async def test_only_the_right_protocol_is_accepted(kind: str, link: Link) -> None:
    async with link:
        socket = link.first(kind)
        link.url = (await socket.listen(link.address())).url
        for number in (*ProtocolNumber, 1, 0x60, 0xFFFF):
            peer = await link.dial_script()
            await peer.write(header(number))
            if number == PEER_OF[NUMBERS[kind]]:
                await until(lambda: socket.pipes)
                await peer.aclose()
                await until(lambda: not socket.pipes)
            else:
                await peer.read_all()
        assert socket.statistics().attached == 1
        assert socket.listeners[0].statistics().refused["wrong protocol"] == 14


@pytest.mark.parametrize("kind", (*ONLY_SEND, *ONLY_RECEIVE))
@item(17, pairs=EACH)
async def test_one_way_patterns_refuse_the_other_direction(kind: str, link: Link) -> None:
    async with link:
        socket = link.first(kind)
        with pytest.raises(NotSupported):
            await (socket.recv() if kind in ONLY_SEND else socket.send(b"body"))
        with pytest.raises(NotSupported):
            socket.recv_nowait() if kind in ONLY_SEND else socket.send_nowait(b"body")


@pytest.mark.parametrize("kind", HEARS)
@item(18, 20, pairs=EACH)
async def test_a_recv_that_finds_nothing_ends_at_its_deadline_or_at_once(kind: str, link: Link) -> None:
    async with link:
        socket = link.first(kind, recv_timeout_s=0.01)
        with pytest.raises(Timeout):
            await socket.recv()
        with pytest.raises(Timeout):
            await socket.recv(timeout=0.0)
        if link.case.pair[0] == OURS or kind not in IN_TURNS:
            with pytest.raises(WouldBlock):
                socket.recv_nowait()


@pytest.mark.parametrize("kind", ["Pair0", "Pair1", "Push0", "Req0"])
@item(19, 20, pairs=EACH)
async def test_a_send_that_finds_no_room_ends_at_its_deadline_or_at_once(kind: str, link: Link) -> None:
    async with link:
        socket = link.first(kind, send_timeout_s=0.01, send_queue=1)
        await fill(socket)
        with pytest.raises(Timeout):
            await socket.send(b"nobody", timeout=0.0)
        with pytest.raises(WouldBlock):
            socket.send_nowait(b"nobody")


async def fill(socket: End) -> None:
    """Send until it times out: NNG accepts as much as its own queue holds, we accept nothing without a
    peer.
    """
    with pytest.raises(Timeout):
        for _ in range(4):
            await socket.send(b"nobody")


@pytest.mark.parametrize("speaker, listener", TALKS)
@item(21, transports=TRANSPORTS, pairs=PAIRS)
async def test_empty_messages_pass(speaker: str, listener: str, link: Link) -> None:
    topics = {"topics": [b""]} if listener == "Sub0" else {}
    async with link.pair(speaker, listener, b=topics) as (one, other):
        await one.send(b"")
        assert await other.recv() == b""
        if listener in ("Rep0", "Respondent0", "Pair0", "Pair1", "Bus0", "Star0"):
            await other.send(b"")
            assert await one.recv() == b""


@pytest.mark.parametrize("kind", HEARS)
@item(22, pairs=EACH)
async def test_closing_ends_a_recv_that_waits(kind: str, link: Link) -> None:
    async with link:
        socket = link.first(kind)
        receiving = await soon(socket.recv())
        await socket.aclose()
        with pytest.raises(Closed):
            await receiving


@pytest.mark.parametrize("kind", ["Pair0", "Pair1", "Push0", "Req0"])
@item(23, pairs=EACH)
async def test_closing_ends_a_send_that_waits(kind: str, link: Link) -> None:
    async with link:
        socket = link.first(kind, send_queue=1)

        async def send() -> None:
            for _ in range(4):
                await socket.send(b"nobody")

        sending = await soon(send())
        await socket.aclose()
        with pytest.raises(Closed):
            await sending


@pytest.mark.parametrize("speaker, listener", TALKS)
@item(24, transports=TRANSPORTS, pairs=PAIRS)
async def test_a_cancelled_recv_loses_no_message(speaker: str, listener: str, link: Link) -> None:
    topics = {"topics": [b""]} if listener == "Sub0" else {}
    async with link.pair(speaker, listener, b=topics) as (one, other):
        receiving = await soon(other.recv())
        await one.send(b"now or never")
        receiving.cancel()  # before, while or after it arrives
        try:
            body = await receiving
        except asyncio.CancelledError:
            body = await other.recv()
        assert body == b"now or never"
