"""Our devices and hop counts between the sockets of other implementations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from protocols import (
    Bus0,
    Device,
    Pair0,
    Pair1,
    Pub0,
    Pull0,
    Push0,
    RawSocket,
    Rep0,
    Req0,
    Respondent0,
    Socket,
    SocketOptions,
    Sub0,
    Surveyor0,
)
from tests.support.waiting import until

from .peers import OPTIONS, Nng, address, program

pynng = pytest.importorskip("pynng")
pytestmark = [pytest.mark.interop, pytest.mark.isolated]


class Ends(NamedTuple):
    """The outermost sockets of a chain, and their addresses."""

    urls: list[str]
    first: Socket
    last: Socket


@asynccontextmanager
async def chain(front: type[Socket], back: type[Socket], length: int, folder: Path) -> AsyncIterator[Ends]:
    """Devices in a row over tcp and ipc in turn; both ends listen."""
    stops = [(RawSocket(front, options=OPTIONS), RawSocket(back, options=OPTIONS)) for _ in range(length)]
    first, last = stops[0][0], stops[-1][1]
    urls = [(await end.listen("tcp://127.0.0.1:0")).url for end in (first, last)]
    for number in range(length - 1):
        here, there = stops[number][1], stops[number + 1][0]
        url = "tcp://127.0.0.1:0" if number % 2 else f"ipc://{folder / str(number)}"
        here.dial((await there.listen(url)).url)
        await here.wait_for_peers(1, timeout=10.0)
    running = [asyncio.create_task(Device(*stop).run()) for stop in stops]
    try:
        yield Ends(urls, first, last)
    finally:
        for one, other in stops:
            await one.aclose()
            await other.aclose()
        await asyncio.gather(*running)


@asynccontextmanager
async def nng_ends(
    front: str, back: str, urls: Sequence[str], **options: object
) -> AsyncIterator[tuple[Nng, Nng]]:
    """Two sockets of NNG, one at each end of a chain."""
    with Nng(front) as one, Nng(back, **options) as other:
        for end, url in zip((one, other), urls, strict=True):
            end.socket.dial(url, block=False)
        await until(lambda: one.socket.pipes and other.socket.pipes)
        yield one, other


@pytest.mark.parametrize("length", [1, 3])
async def test_nng_asks_nng_across_our_devices(length: int, tmp_path: Path) -> None:
    async with (
        chain(Rep0, Req0, length, tmp_path) as ends,
        nng_ends("Req0", "Rep0", ends.urls) as (req, rep),
    ):
        for body in (b"x", b"", bytes(300_000)):
            await req.send(body)
            assert await rep.recv() == body
            await rep.send(body + b"!")
            assert await req.recv() == body + b"!"


@pytest.mark.parametrize("kind", ["Pair0", "Pair1"])
async def test_nng_pairs_talk_across_our_devices(kind: str, tmp_path: Path) -> None:
    ours: type[Socket] = Pair1 if kind == "Pair1" else Pair0
    async with chain(ours, ours, 3, tmp_path) as ends, nng_ends(kind, kind, ends.urls) as (one, other):
        await one.send(b"there")
        assert await other.recv() == b"there"
        await other.send(b"back")
        assert await one.recv() == b"back"


async def test_nng_publishes_across_our_devices(tmp_path: Path) -> None:
    async with (
        chain(Sub0, Pub0, 2, tmp_path) as ends,
        nng_ends("Pub0", "Sub0", ends.urls, topics=[b"a"]) as (pub, sub),
    ):
        received = asyncio.create_task(sub.recv_all(2))
        while not received.done():  # its subscription may come later than the first of these
            await pub.send(b"no")
            await pub.send(b"a1")
            await asyncio.sleep(0.01)
        assert await received == [b"a1", b"a1"]


async def test_nng_pushes_across_our_devices(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(3000)]
    async with (
        chain(Pull0, Push0, 2, tmp_path) as ends,
        nng_ends("Push0", "Pull0", ends.urls) as (push, pull),
    ):
        received = asyncio.create_task(pull.recv_all(len(bodies)))
        await push.send_all(bodies)
        assert await received == bodies


async def test_nng_surveys_nng_across_our_devices(tmp_path: Path) -> None:
    async with (
        chain(Respondent0, Surveyor0, 2, tmp_path) as ends,
        nng_ends("Surveyor0", "Respondent0", ends.urls) as (surveyor, respondent),
    ):
        surveyor.socket.survey_time = 10_000
        with Nng("Respondent0") as second:
            second.socket.dial(ends.urls[1], block=False)
            await ends.first.wait_for_peers(1, timeout=10.0)
            await ends.last.wait_for_peers(2, timeout=10.0)
            await surveyor.send(b"who?")
            for number, each in enumerate((respondent, second)):
                assert await each.recv() == b"who?"
                await each.send(b"%d" % number)
            assert sorted(await surveyor.recv_all(2)) == [b"0", b"1"]


async def test_our_bus_reflects_between_peers_of_nng() -> None:
    async with RawSocket(Bus0, options=OPTIONS) as bus:
        url = (await bus.listen("tcp://127.0.0.1:0")).url
        running = asyncio.create_task(Device(bus).run())
        with Nng("Bus0") as one, Nng("Bus0") as two, Nng("Bus0") as three:
            for peer in (one, two, three):
                peer.socket.dial(url, block=False)
            await bus.wait_for_peers(3, timeout=10.0)
            await until(lambda: all(peer.socket.pipes for peer in (one, two, three)))
            await one.send(b"from one")
            assert [await two.recv(), await three.recv()] == [b"from one"] * 2
            await two.send(b"from two")
            assert [await one.recv(), await three.recv()] == [b"from two"] * 2
        await bus.aclose()
        await running


@pytest.mark.parametrize("we_listen", [True, False])
@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
async def test_pair1_with_nng(scheme: str, we_listen: bool, tmp_path: Path) -> None:
    url = address(scheme, tmp_path)
    async with Pair1(options=OPTIONS) as ours:
        with Nng("Pair1", polyamorous=False) as theirs:
            if we_listen:
                await ours.listen(url)
                theirs.socket.dial(url, block=False)
            else:
                theirs.socket.listen(url)
                ours.dial(url)
            for body in (b"x", b"", bytes(300_000), b"\0\0\0\1"):
                await ours.send(body)
                assert await theirs.recv() == body
                await theirs.send(body)
                assert await ours.recv() == body


async def test_nng_drops_messages_that_crossed_too_many_of_our_devices(tmp_path: Path) -> None:
    """Nine devices are ten links; ours allow them, NNG's replier at the end counts its own eight."""
    far = SocketOptions(ttl=15, reconnect_min_s=0.02, reconnect_max_s=0.1)
    stops = [(RawSocket(Rep0, options=far), RawSocket(Req0, options=far)) for _ in range(9)]
    running = [asyncio.create_task(Device(*stop).run()) for stop in stops]
    urls = [
        (await front.listen(f"inproc://{tmp_path}/{number}")).url for number, (front, _) in enumerate(stops)
    ]
    for (_, back), url in zip(stops, urls[1:], strict=False):
        back.dial(url)
    last = (await stops[-1][1].listen("tcp://127.0.0.1:0")).url
    with Nng("Rep0") as rep:
        rep.socket.dial(last, block=False)
        await stops[-1][1].wait_for_peers(1, timeout=10.0)
        async with Req0(options=OPTIONS) as far_req, Req0(options=OPTIONS) as near_req:
            far_req.dial(urls[0])
            near_req.dial(urls[2])
            await far_req.send(b"ten links")
            await near_req.send(b"eight links")
            assert await rep.recv() == b"eight links"
            await rep.send(b"answer")
            assert await near_req.recv() == b"answer"
    for front, back in stops:
        await front.aclose()
        await back.aclose()
    await asyncio.gather(*running)


@pytest.mark.parametrize("name", ["nngcat", "nanocat"])
async def test_a_command_line_peer_asks_across_our_devices(name: str, tmp_path: Path) -> None:
    async with chain(Rep0, Req0, 2, tmp_path) as ends, Rep0(options=OPTIONS) as rep:
        rep.dial(ends.urls[1])
        await rep.wait_for_peers(1, timeout=10.0)
        arguments = ["--req", "--connect", ends.urls[0], "--data", "question", "--raw"]
        async with program(name, *arguments) as peer:
            assert await rep.recv() == b"question"
            await rep.send(b"answer\n")
            assert await peer.lines(1) == [b"answer"]
