"""The bytes in ``docs/reference/wire-format-sp.md``, against our sockets over every stream transport."""

from __future__ import annotations

import re

import pytest

from protocols import ProtocolNumber
from protocols.wire.handshake import PEER_OF, encode_header

from .declaring import EACH, PLAIN, STREAMS, item
from .links import Link
from .script import header
from .table import ROOT

PAGE = (ROOT / "docs" / "reference" / "wire-format-sp.md").read_text()
HEADERS = re.findall(r"^\| (\w+) \| (\d+) \| `([0-9a-f]{16})` \| (\w+) \|", PAGE, re.MULTILINE)
HELLOS = re.findall(r"^\| (\w+) \| `([0-9a-fx ]+)` \|$", PAGE, re.MULTILINE)
TRACES = re.findall(r"^([0-9a-f ]{30,}?)  +(?:question|answer):", PAGE, re.MULTILINE)


def test_the_page_has_all_vectors() -> None:
    assert len(HEADERS) == 12 and len(HELLOS) == 8 and len(TRACES) == 2


@pytest.mark.parametrize("name, number, bytes_, peer", HEADERS)
def test_headers(name: str, number: str, bytes_: str, peer: str) -> None:
    protocol = ProtocolNumber[name.upper()]
    assert int(number) == protocol
    assert encode_header(protocol) == header(protocol) == bytes.fromhex(bytes_)
    assert PEER_OF[protocol].name.lower() == peer


@pytest.mark.parametrize("kind, written", [(name.capitalize(), written) for name, written in HELLOS])
@item(162, transports=STREAMS, pairs=EACH)
async def test_hello_on_the_wire(kind: str, written: str, link: Link) -> None:
    async with link.scripted(kind, PEER_OF[ProtocolNumber[kind.upper()]]) as (socket, peer):
        await socket.send(b"hello")
        words = written.split()
        frame = await peer.recv()
        assert len(frame) == int(words[0], 16)
        for word in words[1:-1]:
            got, frame = frame[:4], frame[4:]
            assert (got[0] & 0x80) if word == "xxxxxxxx" else got == bytes.fromhex(word)
        assert frame == bytes.fromhex(words[-1]) == b"hello"


@pytest.mark.parametrize("kind, asker", [("Rep0", "REQ0"), ("Respondent0", "SURVEYOR0")])
@item(84, transports=PLAIN, pairs=EACH)
async def test_backtraces_on_the_page(kind: str, asker: str, link: Link) -> None:
    question, answer = map(bytes.fromhex, TRACES)
    async with link.scripted(kind, ProtocolNumber[asker]) as (socket, peer):
        await peer.send(question)
        assert await socket.recv() == b"hello"
        await socket.send(b"world")
        assert await peer.recv() == answer
