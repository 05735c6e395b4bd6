"""Every pattern against ``nngcat`` (NNG) and ``nanocat`` (nanomsg), as people type them: item 176."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from protocols import Bus0, Pair0, Pair1, Pub0, Pull0, Push0, Rep0, Req0, Respondent0, Socket, Sub0, Surveyor0
from tests.conformance.declaring import NANOCAT, NNGCAT, OURS, Case, item
from tests.support.certificates import authority, config, local
from tests.support.ports import free_port

from . import peers
from .peers import program

OPTIONS = replace(peers.OPTIONS, tls=config(local(), server_name="localhost"))

with_both = item(
    176,
    transports=("tcp", "ipc", "ws", "tls+tcp"),
    pairs=((OURS, NNGCAT), (NNGCAT, OURS), (OURS, NANOCAT), (NANOCAT, OURS)),
    note="nngcat has no bus, nanocat no pair1 and no TLS",
)
with_nngcat = item(176, transports=("tcp", "ipc", "ws", "tls+tcp"), pairs=((OURS, NNGCAT), (NNGCAT, OURS)))
with_nanocat = item(176, transports=("tcp", "ipc", "ws"), pairs=((OURS, NANOCAT), (NANOCAT, OURS)))


@pytest.fixture
def name(case: Case) -> str:
    """The program."""
    return next(engine for engine in case.pair if engine != OURS)


@pytest.fixture
def way(case: Case, tmp_path: Path) -> tuple[str, bool]:
    """An address, and whether we listen there."""
    host = "localhost" if case.transport == "tls+tcp" else "127.0.0.1"  # mbedTLS knows no addresses as names
    url = f"{case.transport}://{host}:{free_port()}"
    if case.transport == "ipc":
        url = f"ipc://{tmp_path / 'peer.sock'}"
    return url, case.pair[0] == OURS


@pytest.fixture
def tls(case: Case, name: str, tmp_path: Path) -> tuple[str, ...]:
    """nngcat's arguments for certificates."""
    if case.transport != "tls+tcp":
        return ()
    cert, key = local().write(tmp_path, "own")
    return ("--cert", cert, "--key", key, "--cacert", authority().write(tmp_path))


async def endpoint(socket: Socket, way: tuple[str, bool], tls: tuple[str, ...]) -> tuple[str, ...]:
    """Open our end; return the program's arguments for its end."""
    url, we_listen = way
    if we_listen:
        await socket.listen(url)
        return "--connect", url, *tls
    socket.dial(url)
    return "--bind", url, *tls


def role(name: str, pattern: str) -> str:
    """``--pair`` means Pair1 to nngcat."""
    return "--pair0" if (name, pattern) == ("nngcat", "pair") else f"--{pattern}"


@with_both
async def test_the_other_program_pulls_our_messages(
    name: str, way: tuple[str, bool], tls: tuple[str, ...]
) -> None:
    async with Push0(options=OPTIONS) as push:
        end = await endpoint(push, way, tls)
        async with program(name, "--pull", *end, "--quoted") as peer:
            await push.wait_for_peers(1, timeout=10.0)
            for number in range(20):
                await push.send(b"number %d" % number)
            assert await peer.lines(20) == [b'"number %d"' % number for number in range(20)]


@with_both
async def test_we_pull_the_other_programs_messages(
    name: str, way: tuple[str, bool], tls: tuple[str, ...]
) -> None:
    async with Pull0(options=OPTIONS) as pull:
        end = await endpoint(pull, way, tls)
        async with program(name, "--push", *end, "--data", "hello", "--interval", "1"):
            assert await pull.recv() == b"hello"


@with_both
async def test_the_other_program_receives_our_publications_of_its_topic(
    name: str, way: tuple[str, bool], tls: tuple[str, ...]
) -> None:
    async with Pub0(options=OPTIONS) as pub:
        end = await endpoint(pub, way, tls)
        async with program(name, "--sub", *end, "--subscribe", "a", "--quoted") as peer:
            await pub.wait_for_peers(1, timeout=10.0)
            await pub.send_many([b"b1", b"a1", b"a2"])
            assert await peer.lines(2) == [b'"a1"', b'"a2"']


@with_both
async def test_we_receive_the_other_programs_publications_of_our_topic(
    name: str, way: tuple[str, bool], tls: tuple[str, ...]
) -> None:
    async with Sub0(topics=["he"], options=OPTIONS) as sub:
        end = await endpoint(sub, way, tls)
        async with program(name, "--pub", *end, "--data", "hello", "--interval", "1"):
            assert await sub.recv() == b"hello"


@with_both
async def test_the_other_program_answers_our_questions(
    name: str, way: tuple[str, bool], tls: tuple[str, ...]
) -> None:
    async with Req0(options=OPTIONS) as req:
        end = await endpoint(req, way, tls)
        async with program(name, "--rep", *end, "--data", "answer", "--quoted") as peer:
            for number in range(3):
                await req.send(b"question %d" % number)
                assert await req.recv() == b"answer"
            assert await peer.lines(3) == [b'"question %d"' % number for number in range(3)]


@with_both
async def test_we_answer_the_other_programs_question(
    name: str, way: tuple[str, bool], tls: tuple[str, ...]
) -> None:
    async with Rep0(options=OPTIONS) as rep:
        end = await endpoint(rep, way, tls)
        async with program(name, "--req", *end, "--data", "question", "--quoted") as peer:
            assert await rep.recv() == b"question"
            await rep.send(b"answer")
            assert await peer.lines(1) == [b'"answer"']


@with_both
async def test_the_other_program_responds_to_our_survey(
    name: str, way: tuple[str, bool], tls: tuple[str, ...]
) -> None:
    async with Surveyor0(options=OPTIONS) as surveyor:
        end = await endpoint(surveyor, way, tls)
        async with program(name, "--respondent", *end, "--data", "here", "--quoted") as peer:
            await surveyor.wait_for_peers(1, timeout=10.0)
            await surveyor.send(b"who?")
            assert await surveyor.recv() == b"here"
            assert await peer.lines(1) == [b'"who?"']


@with_both
async def test_we_respond_to_the_other_programs_survey(
    name: str, way: tuple[str, bool], tls: tuple[str, ...]
) -> None:
    async with Respondent0(options=OPTIONS) as respondent:
        end = await endpoint(respondent, way, tls)
        delay = ("--delay", "1", "--interval", "1")  # a survey before the link is up asks nobody
        async with program(name, "--surveyor", *end, "--data", "who?", "--quoted", *delay) as peer:
            assert await respondent.recv() == b"who?"
            await respondent.send(b"me")
            assert await peer.lines(1) == [b'"me"']


@with_both
async def test_a_pair_talks_both_ways(name: str, way: tuple[str, bool], tls: tuple[str, ...]) -> None:
    async with Pair0(options=OPTIONS) as pair:
        end = await endpoint(pair, way, tls)
        told = ("--data", "hello", "--interval", "1", "--quoted")
        async with program(name, role(name, "pair"), *end, *told) as peer:
            assert await pair.recv() == b"hello"
            await pair.send(b"hello yourself")
            assert await peer.lines(1) == [b'"hello yourself"']


@with_nanocat
async def test_a_bus_reaches_both_ways(way: tuple[str, bool], tls: tuple[str, ...]) -> None:
    """nanomsg's only: nngcat has no bus."""
    async with Bus0(options=OPTIONS) as bus:
        end = await endpoint(bus, way, tls)
        async with program(
            "nanocat", "--bus", *end, "--data", "hello", "--interval", "1", "--quoted"
        ) as peer:
            assert await bus.recv() == b"hello"
            await bus.send(b"hello yourself")
            assert await peer.lines(1) == [b'"hello yourself"']


@with_nngcat
async def test_a_pair_of_version_1_talks_both_ways(way: tuple[str, bool], tls: tuple[str, ...]) -> None:
    async with Pair1(options=OPTIONS) as pair:
        end = await endpoint(pair, way, tls)
        told = ("--data", "hello", "--interval", "1", "--quoted")
        async with program(NNGCAT, "--pair1", *end, *told) as peer:
            assert await pair.recv() == b"hello"
            await pair.send(b"hello yourself")
            assert await peer.lines(1) == [b'"hello yourself"']
