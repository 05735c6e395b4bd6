"""`mesh device`: a forwarder as a process, with our sockets and strangers' at its ends."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mesh.cli import app as application
from tests.mesh.cli.cats import cat, finished
from tests.protocols.interop.peers import program

ROOT = Path(__file__).resolve().parents[3]


class Forwarder:
    """A running `mesh device` and the addresses it really listens at."""

    def __init__(self, process: asyncio.subprocess.Process, urls: list[str]) -> None:
        self.process = process
        self.front = urls[0]
        self.back = urls[-1]

    async def stopped(self, number: int = signal.SIGTERM) -> bytes:
        """The output of the device until it is stopped; it ends with 0."""
        self.process.send_signal(number)
        out, said = await asyncio.wait_for(self.process.communicate(), 10)
        first = b"mesh device: dialling "  # of two that were started together
        other = [line for line in said.splitlines() if not line.startswith(first)]
        assert (self.process.returncode, other) == (0, [])
        return out

    async def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(await self.stopped())
        return report


@asynccontextmanager
async def device(*arguments: str) -> AsyncIterator[Forwarder]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mesh", "device", *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = (await asyncio.wait_for(process.stderr.readline(), 15)).decode()
        assert said.startswith("mesh device: ready"), said
        yield Forwarder(process, re.findall(r"\w+://[^\s,]+", said))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def between(proto: str) -> tuple[str, ...]:
    return "--proto", proto, "--front", "tcp://127.0.0.1:0", "--back", "tcp://127.0.0.1:0", "--json"


@pytest.mark.process
@pytest.mark.parametrize(
    ("proto", "asker", "answerer"), [("req", "req", "rep"), ("survey", "surveyor", "respondent")]
)
async def test_questions_cross_a_device_and_answers_return(proto: str, asker: str, answerer: str) -> None:
    async with device(*between(proto)) as through:
        async with cat(f"--{answerer}", "--dial", through.back, "-D", "pong") as answering:
            await answering.ready()
            asked = await finished(f"--{asker}", "--dial", through.front, "-D", "ping")
            assert asked.shown == [b"pong\n"]
        report = await through.report()
    assert report["forward"]["frames"] == report["backward"]["frames"] == 1
    assert report["forward"]["waiting"] == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("proto", "sender", "receiver"),
    [
        ("push", "push", "pull"),
        ("pub", "pub", "sub"),
        ("pair", "pair", "pair"),
        ("pair1", "pair1", "pair1"),
        ("bus", "bus", "bus"),
        ("star", "star", "star"),
    ],
)
async def test_messages_cross_a_device(proto: str, sender: str, receiver: str) -> None:
    async with device(*between(proto)) as through:
        async with cat(f"--{receiver}", "--dial", through.back) as far:
            async with cat(f"--{sender}", "--dial", through.front, "-D", "hello", "-i", "0.05"):
                assert await far.printed(2) == [b"hello\n"] * 2
        report = await through.report()
    assert report["forward"]["frames"] >= 2


@pytest.mark.process
@pytest.mark.parametrize("proto", ["bus", "star"])
async def test_a_device_with_one_socket_reflects_to_the_other_peers(proto: str) -> None:
    async with device("--proto", proto, "--front", "tcp://127.0.0.1:0") as mirror:
        async with (
            cat(f"--{proto}", "--dial", mirror.front) as other,
            cat(f"--{proto}", "--dial", mirror.front, "-D", "hello", "-i", "0.05") as sender,
        ):
            assert await other.printed(1) == [b"hello\n"]
            assert sender.shown == []
        line = (await mirror.stopped(signal.SIGINT)).decode()
    assert re.fullmatch(r"forward \d+ messages, \d+ bytes; backward 0 messages, 0 bytes; dropped .+\n", line)


@pytest.mark.process
async def test_a_chain_ends_where_the_hops_do() -> None:
    """With a time to live of one hop, the second device drops what passed the first, and counts it."""
    async with device(*between("pair1")) as first:
        joined = ("--proto", "pair1", "--front-dial", first.back, "--back", "tcp://127.0.0.1:0")
        async with device(*joined, "--ttl", "1", "--json") as last:
            async with cat("--pair1", "--dial", last.back) as far:
                await far.ready()
                sent = await finished("--pair1", "--dial", first.front, "-D", "x", "-i", "0.02", "-C", "10")
                assert (await first.report())["forward"]["frames"] == 10
                report = await last.report()
    assert far.shown == sent.shown == []
    assert report["forward"]["frames"] == 0
    assert report["drops"]["over ttl"] >= 1


@pytest.mark.process
@pytest.mark.interop
async def test_other_implementations_work_at_both_ends() -> None:
    dialled = ("--proto", "req", "--front", "tcp://127.0.0.1:0")
    async with cat("--rep", "-L0", "-D", "unused") as spare:
        backs = ("--back", "tcp://127.0.0.1:0", "--back-dial", await spare.listening())
        async with device(*dialled, *backs) as through:
            url = through.front
            async with program("nngcat", "--req", "--dial", url, "-D", "ping", "-A") as peer:
                assert await peer.lines(1) == [b"unused"]
                assert spare.shown == [b"ping\n"]
            async with program("nanocat", "--req", "--connect", url, "-D", "pong", "-A") as peer:
                assert await peer.lines(1) == [b"unused"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--front", "tcp://127.0.0.1:0"], "--proto"),
        (["--proto", "req"], "say where the front is: --front URL or --front-dial URL"),
        (["--proto", "req", "--front", "tcp://127.0.0.1:0"], "say where the back is"),
        (["--proto", "bus", "--front", "tcp://127.0.0.1:x"], "the port must be a number"),
        (["--proto", "bus", "--front", "tcp://127.0.0.1:0", "--ttl", "0"], "--ttl"),
        (["--proto", "rq", "--front", "tcp://127.0.0.1:0"], "rq"),
    ],
)
def test_misuse_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert application.main(["device", *arguments]) == 64
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.startswith("mesh device: ")
    assert said.err.count("\n") == 1
    assert said.out == ""
