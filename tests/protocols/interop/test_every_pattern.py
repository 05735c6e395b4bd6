"""Items 176 to 180: every pattern against NNG and nanomsg, either side listening, over all they have."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from protocols import Device, Push0
from tests.conformance.declaring import (
    CHILD,
    NANOCAT,
    OURS,
    OURS_PYNNG,
    PYNNG,
    PYNNG_OURS,
    item,
)
from tests.conformance.links import End, Link

from .child import child
from .peers import OPTIONS, Nng, address, program

TALKS = (
    ("Pair0", "Pair0"),
    ("Pair1", "Pair1"),
    ("Pub0", "Sub0"),
    ("Req0", "Rep0"),
    ("Push0", "Pull0"),
    ("Surveyor0", "Respondent0"),
    ("Bus0", "Bus0"),
)
"""The kinds by who speaks first."""
ANSWERS = ("Pair0", "Pair1", "Rep0", "Respondent0", "Bus0")
BODIES = [b"x", bytes(range(256)), b"y" * 300_000, b"\x00", b"\x80\x00\x00\x00", b"z" * 2_000_000]

roles = pytest.mark.parametrize("speaker, listener", TALKS)


async def talk(speaking: End, hearing: End, *, answers: bool) -> None:
    for body in BODIES:
        await speaking.send(body)
        assert await hearing.recv() == body
        if answers:
            await hearing.send(body[::-1])
            assert await speaking.recv() == body[::-1]


@roles
@item(176, transports=("tcp", "ipc", "abstract", "tls+tcp", "ws"), pairs=(OURS_PYNNG, PYNNG_OURS))
async def test_every_pattern_with_nng(speaker: str, listener: str, link: Link) -> None:
    """The speaker listens and dials in turn."""
    topics = {"topics": [b""]} if listener == "Sub0" else {}
    for speaker_listens in (True, False):
        async with Link(link.case, link.folder) as one:
            speaking, hearing = one.first(speaker), one.second(listener, **topics)
            await one.meet(*((speaking, hearing) if speaker_listens else (hearing, speaking)))
            await talk(speaking, hearing, answers=listener in ANSWERS)


@roles
@item(176, transports=("wss",), pairs=((OURS, CHILD), (CHILD, OURS)))
async def test_every_pattern_with_nng_in_a_process_of_its_own(
    speaker: str, listener: str, link: Link, tmp_path: Path
) -> None:
    """NNG speaks where it is first, and listens where we speak."""
    async with link:
        we_speak = link.case.pair[0] == OURS
        topics = {"topics": [b""]} if listener == "Sub0" and not we_speak else {}
        end = link.ours(speaker if we_speak else listener, **topics)
        url = link.address().replace("127.0.0.1", "localhost")
        if not we_speak:
            await end.listen(url)
        async with child(listener if we_speak else speaker, url, tmp_path, listen=we_speak) as nng:
            if we_speak:
                end.dial(url)
            await end.wait_for_peers(1, timeout=10.0)
            await talk(*((end, nng) if we_speak else (nng, end)), answers=listener in ANSWERS)


@item(177, transports=("tcp", "ipc", "ws"), pairs=((OURS, NANOCAT),))
async def test_nanomsg_gets_our_header_in_time_under_any_load(link: Link) -> None:
    """40 connections flood the loop, and every 50 ms something blocks it for 40."""
    async with link:
        drain, floods = link.ours("Pull0"), [link.ours("Push0", linger_s=0.0) for _ in range(40)]
        await link.meet(drain, *floods)
        pull = link.ours("Pull0")
        url = (await pull.listen(link.address())).url

        async def flood(push: End) -> None:
            while True:
                await push.send_many([bytes(1000)] * 100)
                await asyncio.sleep(0)

        async def drained() -> None:
            while True:
                await drain.recv_many()

        async def block() -> None:
            while True:
                await asyncio.sleep(0.01)
                time.sleep(0.04)

        busy = [asyncio.create_task(work) for work in (drained(), block(), *map(flood, floods))]
        try:
            async with program(NANOCAT, "--push", "--connect", url, "--data", "in time", "--interval", "1"):
                assert await pull.recv() == b"in time"
            assert pull.statistics().attached == 1, "it had to connect more than once"
        finally:
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)


@item(178, transports=("tcp",), pairs=(OURS_PYNNG,), note="we send nothing by ourselves, so nothing empty")
async def test_bare_pynng_gets_the_sent_messages_and_no_empty_ones_between(link: Link) -> None:
    import pynng

    url = address("tcp", link.folder)
    async with Push0(options=OPTIONS) as push:
        with Nng("Pull0", listen=url) as pull:
            push.dial(url)
            await push.wait_for_peers(1, timeout=10.0)
            for body in (b"one", b"two"):
                await push.send(body)
                assert await asyncio.to_thread(pull.socket.recv) == body
            with pytest.raises(pynng.TryAgain):
                pull.socket.recv(block=False)
            await push.send(b"")
            assert await pull.recv() == b""  # by `recv_msg`; its `recv` raises RuntimeError


@item(179, transports=("ws",), pairs=((OURS, NANOCAT), (NANOCAT, OURS)))
async def test_nanomsg_prints_the_sent_messages_and_no_ping(link: Link) -> None:
    """It hands pings to the application as messages, so a single one would be printed between ours."""
    url = link.address().removesuffix("/path")  # nanomsg binds no paths
    async with link, Push0(options=OPTIONS) as push:
        we_listen = link.case.pair[0] == OURS
        if we_listen:
            await push.listen(url)
        async with program(
            NANOCAT, "--pull", "--connect" if we_listen else "--bind", url, "--quoted"
        ) as peer:
            if not we_listen:
                push.dial(url)
            await push.wait_for_peers(1, timeout=10.0)
            for turn in range(3):
                await push.send(b"%d" % turn)
                assert await peer.lines(1) == [b'"%d"' % turn]
                await asyncio.sleep(0.3)  # nothing is to be printed while others ping


@item(180, transports=("tcp", "ipc", "tls+tcp", "ws"), pairs=((PYNNG, OURS, PYNNG),))
async def test_our_devices_between_sockets_of_nng(link: Link) -> None:
    async with link:
        req, rep = link.first("Req0"), link.second("Rep0")
        fronts = [link.ours("Rep0", raw=True) for _ in range(2)]
        backs = [link.ours("Req0", raw=True) for _ in range(2)]
        running = [
            asyncio.create_task(Device(front, back).run()) for front, back in zip(fronts, backs, strict=True)
        ]
        await link.meet(fronts[0], req)
        await link.meet(fronts[1], backs[0])
        await link.meet(rep, backs[1])
        for number in range(10):
            await req.send(b"%d" % number)
            assert await rep.recv() == b"%d" % number
            await rep.send(b"re %d" % number)
            assert await req.recv() == b"re %d" % number
        assert [task.done() for task in running] == [False, False]
        for front in fronts:
            await front.aclose()
        await asyncio.gather(*running)
