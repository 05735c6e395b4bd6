"""Peers that are disconnected at an address of brokers, and the log lines about them: no more than is
known."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mesh.wire.link_frames import TOKEN_SIZE, LinkKind, encode
from protocols.wire.backtrace import END_BIT, encode_word
from protocols.wire.handshake import ProtocolNumber, encode_header
from simulations import Mesh, Process, World

BIND_OF_A_LINK_THAT_ENDED = encode_word(END_BIT) + encode(LinkKind.BIND, bytes(TOKEN_SIZE))


def said_of(
    caplog: pytest.LogCaptureFixture, protocol: ProtocolNumber, frame: bytes, *, at: str, brokers: int = 2
) -> tuple[list[tuple[int, str]], dict[str, int]]:
    """A broker's log lines about a socket that connected twice from that host and sent that frame, or
    nothing, and its counters."""

    async def comes(process: Process) -> None:
        for _ in range(2):
            reader, writer = await asyncio.open_connection("broker-1", 7770)
            writer.write(encode_header(protocol))
            if frame:
                writer.write(len(frame).to_bytes(8, "big") + frame)
            while await reader.read(100):
                pass
            writer.close()

    caplog.set_level(logging.INFO, "mesh")
    with World(1) as world:
        mesh = Mesh(world, brokers=brokers)
        mesh.wait_whole()
        caplog.clear()
        world.add_node("comes", comes, once=True, host=at).start()
        world.run_for(60.0)
        assert mesh.whole
        refused = mesh.broker("broker-1").statistics()["refused"]
    said = [(record.levelno, record.getMessage()) for record in caplog.records if "socket" in record.msg]
    return said, refused


@pytest.mark.parametrize("protocol", [ProtocolNumber.SURVEYOR0, ProtocolNumber.RESPONDENT0])
def test_a_broker_with_an_expired_token_is_not_called_a_stranger(
    protocol: ProtocolNumber, caplog: pytest.LogCaptureFixture
) -> None:
    """A late broker under load caused a warning about a stock socket that is no broker."""
    said, refused = said_of(caplog, protocol, BIND_OF_A_LINK_THAT_ENDED, at="elsewhere")
    assert refused["token"] == 2
    assert [level for level, _ in said] == [logging.INFO]
    assert "admission had ended" in said[0][1] and "no broker" not in said[0][1]


def test_a_peer_that_sends_frames_unlike_a_brokers_is_called_no_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said, refused = said_of(caplog, ProtocolNumber.SURVEYOR0, b"\x80\0\0\1hello", at="elsewhere")
    assert refused["token"] == 2
    ((level, sentence),) = said
    assert level == logging.WARNING and "SURVEYOR0" in sentence and "REQ, PUSH, PUB or SUB" in sentence
    assert "is not a broker's and was disconnected" in sentence


@pytest.mark.parametrize(
    "protocol", [ProtocolNumber.BUS0, ProtocolNumber.SURVEYOR0, ProtocolNumber.RESPONDENT0]
)
@pytest.mark.parametrize(("at", "level"), [("elsewhere", logging.WARNING), ("broker-2", logging.INFO)])
def test_a_silent_peer_is_taken_for_a_late_broker_at_a_members_address(
    protocol: ProtocolNumber, at: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    said, refused = said_of(caplog, protocol, b"", at=at)
    assert refused["deadline"] == 2
    ((logged, sentence),) = said
    assert logged == level and protocol.name in sentence
    assert "a late broker, or a program that is not a broker" in sentence
