"""``ws://`` and ``wss://`` against NNG (pynng, ``nngcat``) and nanomsg (``nanocat``), both ways round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocols import (
    Bus0,
    Pair0,
    Pub0,
    Pull0,
    Push0,
    Rep0,
    Req0,
    Respondent0,
    SharedListener,
    Sub0,
    Surveyor0,
)
from tests.protocols.transports.support import until
from tests.support.certificates import config, local
from tests.support.ports import free_port

from .child import child
from .peers import OPTIONS, Nng, program

pytestmark = [pytest.mark.interop, pytest.mark.isolated]

SERVER = replace(OPTIONS, tls=config(local()))
CLIENT = replace(OPTIONS, tls=config())
# One frame, the largest NNG takes in one, one more, and the fragments' own edges.
BODIES = [b"hello", bytes(65536), bytes(65537), b"m" * (1 << 20), b"x" * ((1 << 20) + 1), b"y" * 5_000_000]


@pytest.fixture(params=["ws", "wss"])
def scheme(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["nngcat", "nanocat"])
def name(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


def dialling(kind: str, url: str, **options: Any) -> Nng:
    """NNG's blocking dial waits for our answer to its request, which would wait for it to return."""
    nng = Nng(kind, **options)
    nng.socket.dial(url, block=False)
    return nng


async def test_nng_dials_us_and_large_messages_cross_both_ways(scheme: str, tmp_path: Path) -> None:
    async with Rep0(listen=f"{scheme}://127.0.0.1:0/a/path", options=SERVER) as rep:
        url = rep.listeners[0].url.replace("127.0.0.1", "localhost")  # mbedTLS knows no addresses as names
        async with child("Req0", url, tmp_path, listen=False) as req:
            for body in BODIES:
                await req.send(body)
                assert await rep.recv() == body
                await rep.send(body[::-1])
                assert await req.recv() == body[::-1]


async def test_we_dial_nng_and_large_messages_cross_both_ways(scheme: str, tmp_path: Path) -> None:
    url = f"{scheme}://localhost:{free_port()}/a/path"
    async with child("Rep0", url, tmp_path, listen=True) as rep:
        async with Req0(dial=url, options=CLIENT) as req:
            for body in BODIES:
                await req.send(body)
                assert await rep.recv() == body
                await rep.send(body[::-1])
                assert await req.recv() == body[::-1]


async def test_a_batch_crosses_in_order_both_ways(scheme: str, tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(500)]
    async with Pair0(listen=f"{scheme}://127.0.0.1:0", options=SERVER) as here:
        url = here.listeners[0].url.replace("127.0.0.1", "localhost")
        async with child("Pair0", url, tmp_path, listen=False) as there:
            await here.wait_for_peers(1, timeout=10.0)
            for body in bodies:
                await here.send(body)
            assert [await there.recv() for _ in bodies] == bodies
            for body in bodies:
                await there.send(body)
            assert [await here.recv() for _ in bodies] == bodies


async def test_nng_finds_another_path_refused_and_a_later_listener_there() -> None:
    async with Pull0(listen="ws://127.0.0.1:0/first", options=OPTIONS) as first:
        url = first.listeners[0].url.replace("/first", "/second")
        with dialling("Push0", url, reconnect_time_min=20, reconnect_time_max=50) as push:
            await until(lambda: first.listeners[0].statistics().refused.get("websocket: path"))
            async with Pull0(options=OPTIONS) as second:
                await second.listen(url)
                await push.send(b"found")
                assert await second.recv() == b"found"
                assert not first.pipes


async def test_nng_refuses_our_path_and_says_so() -> None:
    url = f"ws://127.0.0.1:{free_port()}/right"
    with Nng("Pull0", listen=url):
        async with Push0(dial=url.replace("right", "wrong"), options=OPTIONS) as push:
            await until(lambda: push.dialers[0].statistics().failed.get("websocket: refused"))
            assert "404" in push.dialers[0].last_error
            assert "nothing listens at this path" in push.dialers[0].last_error


async def test_nng_refuses_another_pattern_and_we_say_so() -> None:
    url = f"ws://127.0.0.1:{free_port()}/"
    with Nng("Pull0", listen=url):
        async with Req0(dial=url, options=OPTIONS) as req:
            await until(lambda: req.dialers[0].statistics().failed.get("websocket: refused"))
            assert "400" in req.dialers[0].last_error


async def test_one_path_serves_several_patterns_of_nng() -> None:
    async with Rep0(options=OPTIONS) as rep, Pull0(options=OPTIONS) as pull:
        shared = SharedListener("ws://127.0.0.1:0/all", options=OPTIONS)
        await rep.listen(shared)
        await pull.listen(shared)
        await shared.start()
        try:
            with dialling("Push0", shared.url) as push, dialling("Req0", shared.url) as req:
                await push.send(b"work")
                assert await pull.recv() == b"work"
                await req.send(b"question")
                assert await rep.recv() == b"question"
                await rep.send(b"answer")
                assert await req.recv() == b"answer"
        finally:
            await shared.aclose()


# --- the command lines


@pytest.mark.process
async def test_a_program_receives_our_pushed_and_published_messages(name: str) -> None:
    async with Push0(listen="ws://127.0.0.1:0", options=OPTIONS) as push:
        async with program(name, "--pull", "--connect", push.listeners[0].url, "--quoted") as peer:
            await push.wait_for_peers(1, timeout=10.0)
            await push.send_many([b"number %d" % number for number in range(20)])
            assert await peer.lines(20) == [b'"number %d"' % number for number in range(20)]
    url = f"ws://127.0.0.1:{free_port()}"
    async with Pub0(options=OPTIONS) as pub:
        async with program(name, "--sub", "--bind", url, "--subscribe", "a", "--quoted") as peer:
            pub.dial(url)
            await pub.wait_for_peers(1, timeout=10.0)
            await pub.send_many([b"b1", b"a1", b"a2"])
            assert await peer.lines(2) == [b'"a1"', b'"a2"']


@pytest.mark.process
async def test_we_receive_messages_that_a_program_pushes_and_publishes(name: str) -> None:
    url = f"ws://127.0.0.1:{free_port()}"
    async with Pull0(dial=url, options=OPTIONS) as pull:
        async with program(name, "--push", "--bind", url, "--data", "hello", "--interval", "1"):
            assert await pull.recv() == b"hello"
    async with Sub0(topics=["he"], listen="ws://127.0.0.1:0/x", options=OPTIONS) as sub:
        there = sub.listeners[0].url
        async with program(name, "--pub", "--connect", there, "--data", "hello", "--interval", "1"):
            assert await sub.recv() == b"hello"


@pytest.mark.process
async def test_questions_and_answers_cross_both_ways(name: str) -> None:
    url = f"ws://127.0.0.1:{free_port()}"
    async with Req0(dial=url, options=OPTIONS) as req:
        async with program(name, "--rep", "--bind", url, "--data", "answer", "--quoted") as peer:
            await req.send(b"question")
            assert await req.recv() == b"answer"
            assert await peer.lines(1) == [b'"question"']
    async with Rep0(listen="ws://127.0.0.1:0", options=OPTIONS) as rep:
        there = rep.listeners[0].url
        async with program(name, "--req", "--connect", there, "--data", "question", "--quoted") as peer:
            assert await rep.recv() == b"question"
            await rep.send(b"answer")
            assert await peer.lines(1) == [b'"answer"']


@pytest.mark.process
async def test_surveys_cross_both_ways(name: str) -> None:
    url = f"ws://127.0.0.1:{free_port()}"
    async with Surveyor0(dial=url, options=OPTIONS) as surveyor:
        async with program(name, "--respondent", "--bind", url, "--data", "here"):
            await surveyor.wait_for_peers(1, timeout=10.0)
            await surveyor.send(b"who?")
            assert await surveyor.recv() == b"here"
    async with Respondent0(listen="ws://127.0.0.1:0", options=OPTIONS) as respondent:
        ask = ("--surveyor", "--data", "who?", "--interval", "1")  # nanocat asks before it is connected
        async with program(name, *ask, "--connect", respondent.listeners[0].url, "--quoted") as peer:
            assert await respondent.recv() == b"who?"
            await respondent.send(b"me")
            assert await peer.lines(1) == [b'"me"']


@pytest.mark.process
async def test_a_bus_is_one_over_both(name: str) -> None:
    async with Bus0(listen="ws://127.0.0.1:0", options=OPTIONS) as bus:
        url = bus.listeners[0].url
        async with program(name, "--bus", "--connect", url, "--quoted"):
            await bus.wait_for_peers(1, timeout=10.0)
            async with Bus0(dial=url, options=OPTIONS) as other:
                await bus.wait_for_peers(2, timeout=10.0)
                await other.wait_for_peers(1, timeout=10.0)
                await other.send(b"to all")
                assert await bus.recv() == b"to all"


@pytest.mark.process
async def test_nanomsg_refuses_another_pattern_without_a_blank_line_and_we_do_not_wait_for_it() -> None:
    url = f"ws://127.0.0.1:{free_port()}"
    async with program("nanocat", "--pull", "--bind", url):
        patient = replace(OPTIONS, handshake_timeout_s=60.0)
        async with Req0(dial=url, options=patient) as req:
            await until(lambda: req.dialers[0].statistics().failed.get("websocket: refused"))
            assert "400" in req.dialers[0].last_error
