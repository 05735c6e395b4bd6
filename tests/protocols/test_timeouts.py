"""A ``timeout`` means the same everywhere: seconds from 0, None for no limit, by default the socket's own."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from protocols import DEFAULT, Pair0, Rep0, Req0, Socket, SocketOptions, Surveyor0, Timeout
from protocols.options import TIME_MAX_S, seconds
from tests.support.link import Link, Peer
from tests.support.waiting import turns

HASTY = SocketOptions(recv_timeout_s=0.001, send_timeout_s=0.001, send_queue=1, linger_s=0.0)


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
async def test_a_negative_timeout_is_refused(timeout: float) -> None:
    """-1 means no limit in NNG; here it timed out at once."""
    async with Pair0() as pair, Req0() as req, Rep0() as rep:
        Link(req, rep)
        peer = Peer(pair)
        peer.say(b"there")
        calls: list[Any] = [
            pair.recv(timeout),  # although a message is there
            pair.recv_many(timeout),
            pair.send_many([b"x"], timeout),
            rep.recv(timeout),
            pair.wait_for_peers(9, timeout),
            pair.dial_once("inproc://nobody", timeout),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="seconds from 0, or None to wait forever"):
                await call
        assert await pair.recv(0) == b"there"


@pytest.mark.parametrize("timeout", ["1", b"1", [1], 1j, Decimal(1)])
def test_a_timeout_that_is_no_number_is_refused_by_name(timeout: Any) -> None:
    """The error said that '>=' is not supported between 'str' and 'int'."""
    with pytest.raises(TypeError, match="^timeout is .*; it is seconds from 0, or None to wait forever"):
        seconds(timeout, None)


@pytest.mark.parametrize("timeout", [10**400, 1e12, float("inf")], ids=["400 digits", "1e12", "inf"])
async def test_a_timeout_beyond_the_clocks_range_is_thirty_years(timeout: float) -> None:
    """An integer of 400 digits was an OverflowError."""
    assert seconds(timeout, None) == TIME_MAX_S
    async with Pair0() as pair:
        waiting = asyncio.create_task(pair.recv(timeout))
        await turns(3)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
    with pytest.raises(ValueError, match=r"timeout is -1e\+09"):
        seconds(-(10**400), None)


@pytest.mark.parametrize("kind", [Pair0, Rep0])
async def test_recv_with_none_waits_past_the_sockets_own_timeout(kind: type[Socket]) -> None:
    async with kind(options=HASTY) as socket:
        for timeout in ((), (DEFAULT,)):
            with pytest.raises(Timeout, match=r"0\.001 s"):
                await socket.recv(*timeout)
        waiting = asyncio.create_task(socket.recv(None))
        await asyncio.wait([waiting], timeout=0.01)
        assert not waiting.done()
        Peer(socket).say(b"\x80\0\0\x01late")
        assert (await waiting).endswith(b"late")


async def test_send_with_none_waits_past_the_sockets_own_timeout() -> None:
    async with Pair0(options=HASTY) as pair:
        with pytest.raises(Timeout):
            await pair.send(b"x")
        waiting = asyncio.create_task(pair.send(b"late", None))
        await asyncio.wait([waiting], timeout=0.01)
        assert not waiting.done()
        peer = Peer(pair)
        await waiting
        await turns()
        assert peer.heard == [b"late"]


async def test_a_survey_has_an_end() -> None:
    async with Surveyor0() as surveyor:
        with pytest.raises(ValueError, match="a survey has an end"):
            surveyor.new_context(survey_s=None)  # type: ignore[arg-type]
