"""`mesh cat` against nngcat and nanocat: every protocol they have, both ways, over tcp and ipc."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mesh.cli.formats import FORMATS
from tests.mesh.cli.cats import cat, finished
from tests.protocols.interop.peers import address, program

pytestmark = [pytest.mark.interop, pytest.mark.process]


@pytest.fixture(params=["nngcat", "nanocat"])
def name(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture(params=["tcp-native", "ipc-native", pytest.param("tcp-nng", marks=pytest.mark.isolated)])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """An address, and the engine that meets them there."""
    scheme, _, engine = request.param.partition("-")
    if engine == "nng":
        pytest.importorskip("pynng")
    return address(scheme, tmp_path), engine


def pair(name: str) -> str:
    """The other program's flag for version 0; nngcat takes no ``--pair``, although its help names it."""
    return "--pair0" if name == "nngcat" else "--pair"


SENDER_TO_RECEIVER = [("push", "pull"), ("pub", "sub"), ("pair", "pair"), ("bus", "bus")]
ASKER_TO_ANSWERER = [("req", "rep"), ("surveyor", "respondent")]


def theirs(name: str, protocol: str) -> str:
    return pair(name) if protocol == "pair" else f"--{protocol}"


@pytest.mark.parametrize(("sender", "receiver"), SENDER_TO_RECEIVER)
async def test_the_other_program_prints_our_message(
    name: str, way: tuple[str, str], sender: str, receiver: str
) -> None:
    url, engine = way
    async with program(name, theirs(name, receiver), "--bind", url, "--quoted") as peer:
        body = 'two words\t"\x01'
        async with cat(f"--{sender}", "--dial", url, "-D", body, "-i", "0.1", "--engine", engine):
            [line] = await peer.lines(1)
    tab = b"\\x09" if name == "nanocat" else b"\\t"
    assert line == b'"two words' + tab + b'\\"\\x01"'


@pytest.mark.parametrize(("sender", "receiver"), SENDER_TO_RECEIVER)
async def test_we_print_the_other_programs_message(
    name: str, way: tuple[str, str], sender: str, receiver: str
) -> None:
    url, engine = way
    arguments = (f"--{receiver}", "--listen", url, "--quoted", "--count", "1", "--engine", engine)
    async with cat(*arguments) as we:
        await we.listening()
        async with program(name, theirs(name, sender), "--connect", url, "-D", "two words", "-i", "1"):
            assert await we.printed(1) == [b'"two words"\n']


@pytest.mark.parametrize(("asker", "answerer"), ASKER_TO_ANSWERER)
async def test_the_other_program_answers_our_question(
    name: str, way: tuple[str, str], asker: str, answerer: str
) -> None:
    url, engine = way
    async with program(name, f"--{answerer}", "--bind", url, "-D", "the answer", "-A") as peer:
        we = await finished(f"--{asker}", "--dial", url, "-D", "question", "-A", "--engine", engine)
        assert we.shown == [b"the answer\n"]
        assert peer.process.returncode is None


@pytest.mark.parametrize(("asker", "answerer"), ASKER_TO_ANSWERER)
async def test_we_answer_the_other_programs_question(
    name: str, way: tuple[str, str], asker: str, answerer: str
) -> None:
    url, engine = way
    arguments = (f"--{answerer}", "--listen", url, "-D", "the answer", "--count", "1", "--engine", engine)
    async with cat(*arguments) as we:
        await we.listening()
        options = ("-d", "1") if asker == "surveyor" else ()
        async with program(
            name, f"--{asker}", "--connect", url, "-D", "question", "--quoted", *options
        ) as peer:
            assert await peer.lines(1) == [b'"the answer"']
            assert await we.printed(1) == [b"question\n"]


async def test_pair_version_1_works_with_nngcat(way: tuple[str, str]) -> None:
    url, engine = way
    async with cat("--pair1", "--listen", url, "--quoted", "--engine", engine) as we:
        await we.listening()
        async with program("nngcat", "--pair1", "--dial", url, "-D", "hello", "-i", "1"):
            assert await we.printed(1) == [b'"hello"\n']


async def output_of(name: str, url: str, form: str, bodies: list[Path]) -> bytes:
    """The lines that the program prints for these bodies."""
    async with program(name, "--pull", "--bind", url, "--format", form, "--recv-timeout", "1") as peer:
        await asyncio.gather(pushed(url, bodies))
        assert peer.process.stdout is not None
        out = await peer.process.stdout.read()
    return out


async def pushed(url: str, bodies: list[Path]) -> None:
    for body in bodies:
        await finished("--push", "--dial", url, "-F", str(body))


@pytest.mark.parametrize("form", ["raw", "ascii", "quoted", "hex", "msgpack"])
async def test_formats_are_the_same_bytes(form: str, tmp_path: Path) -> None:
    """Every byte value, nothing at all, and both longer kinds of msgpack's lengths."""
    contents = [bytes(range(256)), b"", b"x" * 255, bytes(range(251)) * 3, b"y" * 70_000, "grüße\n".encode()]
    bodies = []
    for number, content in enumerate(contents):
        bodies.append(tmp_path / f"body{number}")
        bodies[-1].write_bytes(content)
    # ascii: nngcat prints no line feed, so its messages run into each other; nanocat and macat print one
    name = "nanocat" if form == "ascii" else "nngcat"
    expected = await output_of(name, address("tcp", tmp_path), form, bodies)
    assert b"".join(map(FORMATS[form], contents)) == expected


async def test_messages_from_many_addresses_come_together(tmp_path: Path) -> None:
    first, second = address("tcp", tmp_path), address("ipc", tmp_path)
    async with cat("--pull", "--listen", first, "--bind", second, "-Q") as we:
        await we.listening()
        for url, word in ((first, "one"), (second, "two")):
            async with program("nngcat", "--push", "--dial", url, "-D", word) as peer:
                assert await peer.ended() == 0
        assert sorted(await we.printed(2)) == [b'"one"\n', b'"two"\n']


async def test_a_message_above_the_limit_costs_the_sender_its_connection(tmp_path: Path) -> None:
    url = address("tcp", tmp_path)
    async with cat("--pull", "--listen", url, "-Z", "10", "-Q") as we:
        await we.listening()
        for body in ("x" * 11, "x" * 10):
            async with program("nngcat", "--push", "--dial", url, "-D", body) as peer:
                await peer.ended()
        assert await we.printed(1) == [b'"xxxxxxxxxx"\n']
