"""Items 157 to 169, 174 and 175: the rules for every transport, and the faults it must survive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from protocols import (
    AddressError,
    AddressInUse,
    HandshakeError,
    ProtocolNumber,
)
from tests.support.waiting import turns, until

from .declaring import (
    EACH,
    OURS,
    OURS_OURS,
    PAIRS,
    PLAIN,
    PYNNG_OURS,
    STREAMS,
    TRANSPORTS,
    WEB,
    item,
)
from .links import Link, soon
from .script import header, ws_frame, ws_request, ws_token

PUSH, PULL, REQ = ProtocolNumber.PUSH0, ProtocolNumber.PULL0, ProtocolNumber.REQ0
GOOD = header(PUSH)
TOKEN = ws_token(PUSH)

BAD_HEADERS = {
    **{f"{size} of 8 bytes": GOOD[:size] for size in range(1, 8)},
    "first byte": b"\x01" + GOOD[1:],
    "no S": b"\x00T" + GOOD[2:],
    "no P": b"\x00SQ" + GOOD[3:],
    "version 1": b"\x00SP\x01" + GOOD[4:],
    "reserved high": GOOD[:6] + b"\x80\x00",
    "reserved low": GOOD[:6] + b"\x00\x01",
    "wrong protocol": header(REQ),
}
assert len(BAD_HEADERS) == 14


def changed(old: str, new: str) -> Callable[[str], bytes]:
    def request(url: str) -> bytes:
        good = ws_request(url, TOKEN)
        assert old.encode() in good
        return good.replace(old.encode(), new.encode())

    return request


BAD_REQUESTS: dict[str, Callable[[str], bytes]] = {
    "not HTTP": lambda _: b"\x00SP\x00\x00\x50\x00\x00\r\n\r\n",
    "garbage": lambda _: bytes(range(128, 256)) + b"\r\n\r\n",
    "cut off": lambda url: ws_request(url, TOKEN)[:40],
    "POST": changed("GET ", "POST "),
    "no upgrade": changed("Upgrade: websocket\r\n", ""),
    "other upgrade": changed("Upgrade: websocket", "Upgrade: h2c"),
    "no connection": changed("Connection: Upgrade\r\n", ""),
    "no key": changed("Sec-WebSocket-Key", "X-Key"),
    "no version": changed("Sec-WebSocket-Version: 13\r\n", ""),
    "version 12": changed("Version: 13", "Version: 12"),
    "no protocol": lambda url: ws_request(url, ""),
    "wrong protocol": lambda url: ws_request(url, "rep.sp.nanomsg.org"),
    "wrong path": lambda url: ws_request(url, TOKEN, path="/another"),
    "endless head": lambda url: ws_request(url, TOKEN, extra="X: " + "y" * 70_000),
}
assert len(BAD_REQUESTS) == 14
CUT_OFF = ("cut off", *BAD_HEADERS)[:8]
"""Incomplete beginnings, after which the peer hangs up."""


@pytest.mark.parametrize("name", BAD_HEADERS)
@item(157, transports=PLAIN, pairs=EACH)
async def test_a_listener_survives_a_bad_header(name: str, link: Link) -> None:
    await survive(link, name, lambda _: BAD_HEADERS[name])


@pytest.mark.parametrize("name", BAD_REQUESTS)
@item(157, transports=WEB, pairs=EACH)
async def test_a_listener_survives_a_bad_request(name: str, link: Link) -> None:
    await survive(link, name, BAD_REQUESTS[name])


async def survive(link: Link, name: str, said: Callable[[str], bytes]) -> None:
    """The bad connection is closed and the next one served."""
    async with link:
        pull = link.first("Pull0")
        link.url = (await pull.listen(link.address())).url
        bad = await link.dial_script()
        await bad.write(said(link.url))
        if name in CUT_OFF:
            await bad.aclose()
        else:
            # NNG keeps the connection for another request
            answer = await (bad.read_all() if link.case.pair[0] == OURS else bad.reader.read(4096))
            assert b" 101 " not in answer
            await bad.aclose()
        good = await link.script(PUSH, pull)
        await good.send(b"work")
        assert await pull.recv() == b"work"
        assert len(pull.pipes) == 1
        if link.case.pair[0] == OURS:
            assert sum(pull.listeners[0].statistics().refused.values()) == 1


@item(158, transports=TRANSPORTS, pairs=(OURS_OURS, PYNNG_OURS))
async def test_a_mismatch_of_protocols_fails_at_both_ends(link: Link) -> None:
    async with link:
        pull, req = link.first("Pull0"), link.second("Req0")
        listener = await pull.listen(link.address())
        with pytest.raises(HandshakeError):
            await req.dial_once(listener.url)
        if link.case.pair[0] == OURS:
            await until(lambda: listener.statistics().refused)
        assert not pull.pipes and not req.pipes


SIZE_MAX = 1000
BAD_LENGTHS = {
    "negative": (1 << 64) - 1,
    "2^63": 1 << 63,
    "2^40": 1 << 40,
    "limit and one": SIZE_MAX + 1,
    "short": 0,
}


@pytest.mark.parametrize("name", BAD_LENGTHS)
@item(159, transports=PLAIN, pairs=EACH)
async def test_a_broken_frame_closes_only_its_pipe(name: str, link: Link) -> None:
    async with link.scripted("Pull0", PUSH, recv_size_max=SIZE_MAX) as (pull, good):
        bad = await link.script(PUSH, pull)
        if name == "short":
            await bad.write(bad.framed(bytes(100))[:-1])
            bad.writer.close()
        else:
            await bad.write(bad.lead + BAD_LENGTHS[name].to_bytes(8) + b"anything")
            await bad.read_all()
        await until(lambda: len(pull.pipes) == 1)
        await good.send(b"work")
        assert await pull.recv() == b"work"


BAD_FRAMES = {
    "unmasked": ws_frame(b"body", mask=False),
    "reserved bit": ws_frame(b"body", rsv=4),
    "reserved opcode": ws_frame(b"body", 3),
    "endless control": ws_frame(bytes(126), 9),
    "limit and one": ws_frame(bytes(SIZE_MAX + 1)),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
@item(159, transports=WEB, pairs=EACH)
async def test_a_broken_web_frame_closes_only_its_pipe(name: str, link: Link) -> None:
    async with link.scripted("Pull0", PUSH, recv_size_max=SIZE_MAX) as (pull, good):
        bad = await link.script(PUSH, pull)
        await bad.write(BAD_FRAMES[name])
        await bad.read_all()
        await until(lambda: len(pull.pipes) == 1)
        await good.send(b"work")
        assert await pull.recv() == b"work"


@item(160, transports=STREAMS, pairs=EACH)
async def test_a_message_of_the_limit_passes_and_a_larger_one_does_not(link: Link) -> None:
    async with link.scripted("Pull0", PUSH, recv_size_max=SIZE_MAX) as (pull, peer):
        for size in (SIZE_MAX - 1, SIZE_MAX):
            await peer.send(bytes(size))
            assert len(await pull.recv()) == size
        await peer.send(bytes(SIZE_MAX + 1))
        await peer.read_all()
        await until(lambda: not pull.pipes)


@item(161, transports=TRANSPORTS, pairs=PAIRS)
async def test_all_sizes_pass_both_ways(link: Link) -> None:
    sizes = [1 << power for power in range(21)]
    pattern = bytes(range(256)) * (sizes[-1] // 256)
    async with link.pair("Pair0", "Pair0") as (one, other):
        for size in (*sizes, *reversed(sizes)):
            await one.send(pattern[:size])
            assert await other.recv() == pattern[:size]
            await other.send(pattern[-size:])
            assert await one.recv() == pattern[-size:]


@item(162, transports=TRANSPORTS, pairs=(OURS_OURS, PYNNG_OURS))
async def test_header_and_body_arrive_as_one_message(link: Link) -> None:
    async with link.pair("Req0", "Rep0", b={"raw": True}) as (req, rep):
        for body in (b"", b"body", bytes(100_000)):
            await req.send(body)
            message = await rep.recv_message()
            assert len(message.header) == 4 and message.header[0] & 0x80
            assert message.body == body


@item(163, transports=TRANSPORTS, pairs=PAIRS)
async def test_an_address_is_listened_at_once(link: Link) -> None:
    async with link:
        pull, other = link.first("Pull0"), link.second("Pull0")
        url = (await pull.listen(link.address())).url
        with pytest.raises(AddressInUse):
            await other.listen(url)
        with pytest.raises(AddressInUse):
            await pull.listen(url)
        push = link.ours("Push0")
        push.dial(url)
        await push.send(b"the first still does")
        assert await pull.recv() == b"the first still does"


@item(164, transports=("tcp", "tls+tcp", "ws", "wss"), pairs=EACH)
async def test_port_0_becomes_a_real_one(link: Link) -> None:
    async with link:
        pull, push = link.first("Pull0"), link.ours("Push0")
        path = "/path" if link.transport in WEB else ""
        listener = await pull.listen(f"{link.transport}://127.0.0.1:0{path}")
        assert ":0" not in listener.url.removeprefix(link.transport)
        push.dial(listener.url)
        await push.send(b"found")
        assert await pull.recv() == b"found"


@item(164, transports=("tcp", "tls+tcp", "ws", "wss"))
async def test_an_address_only_for_listening_cannot_be_dialled(link: Link) -> None:
    async with link:
        push = link.first("Push0")
        for host in ("*:7", "0.0.0.0:7", "[::]:7", "127.0.0.1:0"):
            with pytest.raises(AddressError):
                push.dial(f"{link.transport}://{host}")


@item(165, transports=("tcp", "tls+tcp", "ws", "wss"))
async def test_impossible_addresses_fail_cleanly(link: Link) -> None:
    async with link:
        pull, push = link.first("Pull0"), link.first("Push0")
        for where in ("192.0.2.1:0", "[2001:db8::1]:0", "127.0.0.1:99999", "127.0.0.1:x", "host:name:1"):
            with pytest.raises(AddressError):
                await pull.listen(f"{link.transport}://{where}")
        for where in ("255.255.255.255:7", "127.0.0.1:99999", "127.0.0.1:-7", "a b:7"):
            with pytest.raises(AddressError):
                await push.dial_once(f"{link.transport}://{where}")


@item(166, transports=TRANSPORTS, pairs=(OURS_OURS,))
async def test_each_end_has_the_others_addresses(link: Link) -> None:
    async with link.pair("Pull0", "Push0") as (pull, push):
        (here,), (there,) = pull.pipes, push.pipes
        assert here.local_address == there.remote_address != ""
        assert here.remote_address == there.local_address
        if link.transport in ("tcp", "tls+tcp", *WEB):
            assert here.remote_address != here.local_address != ""


@item(167, transports=STREAMS)
async def test_closing_a_listener_drops_only_connections_without_a_header(link: Link) -> None:
    async with link.scripted("Pull0", PUSH) as (pull, peer):
        waiting = await link.dial_script()
        listener = pull.listeners[0]
        await until(lambda: listener.statistics().headerless == 1)
        await listener.aclose()
        await waiting.read_all()
        await peer.send(b"still here")
        assert await pull.recv() == b"still here"


@item(168, transports=STREAMS, pairs=EACH)
async def test_closing_ends_handshakes_that_are_half_done(link: Link) -> None:
    async with link:
        pull = link.first("Pull0")
        link.url = (await pull.listen(link.address())).url
        peer = await link.dial_script()
        await peer.write(GOOD[:5] if not peer.web else ws_request(link.url, TOKEN)[:30])
        await turns(20)
        await asyncio.wait_for(pull.aclose(), 5.0)
        await peer.read_all()


@item(169, transports=STREAMS, pairs=EACH)
async def test_a_peer_that_vanishes_inside_a_frame_costs_only_its_messages(link: Link) -> None:
    async with link.scripted("Push0", PULL) as (push, first):
        sending = await soon(push.send(bytes(20 << 20)))
        await first.reader.readexactly(1000)
        await first.aclose()
        await until(lambda: not push.pipes)
        await sending
        second = await link.script(PULL, push)
        await push.send(b"next")
        assert await second.recv() == b"next"


@item(174, transports=STREAMS, note="NNG after 10 s, nanomsg after 1 s, mangos never")
async def test_a_silent_peer_is_cut_at_the_deadline(link: Link) -> None:
    async with link:
        pull = link.first("Pull0", handshake_timeout_s=0.1)
        listener = await pull.listen(link.address())
        link.url = listener.url
        silent, slow = await link.dial_script(), await link.dial_script()
        begun = asyncio.get_running_loop().time()
        await slow.write(GOOD[:1] if not slow.web else b"G")
        await silent.read_all()
        await slow.read_all()
        assert 0.05 <= asyncio.get_running_loop().time() - begun < 5.0
        assert listener.statistics().handshake_timeouts == 2


@item(175, transports=STREAMS, pairs=EACH)
async def test_a_frame_cut_by_the_end_of_the_stream_is_not_delivered(link: Link) -> None:
    async with link.scripted("Pull0", PUSH) as (pull, first):
        await first.write(first.framed(b"whole") + first.framed(b"cut off")[:-1])
        assert await pull.recv() == b"whole"
        first.writer.close()
        await until(lambda: not pull.pipes)
        second = await link.script(PUSH, pull)
        await second.send(b"next")
        assert await pull.recv() == b"next"
