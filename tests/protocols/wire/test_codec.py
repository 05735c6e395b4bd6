"""The common part of all codecs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.wire.codec import SMALL, Codec
from protocols.wire.framing import IPC_LEAD, TCP_LEAD
from protocols.wire.handshake import Greeting, ProtocolNumber, encode_header
from protocols.wire.sp import SpCodec
from protocols.wire.upgrade import AcceptingUpgrade, DiallingUpgrade, Route
from protocols.wire.websocket import WebSocketCodec
from tests.protocols.wire import test_tls as tls
from tests.protocols.wire import test_websocket as websocket

PAIR = ProtocolNumber.PAIR0


def plain(lead: bytes) -> tuple[Codec, Codec]:
    """Two ends, their handshake complete."""
    here, there = (SpCodec(Greeting.of(PAIR, PAIR), 0, lead) for _ in range(2))
    assert here.receive(there.begin()) == [] == there.receive(here.begin())
    return here, there


def over_tls() -> tuple[Codec, Codec]:
    ends = tls.Ends().shaken()
    return ends.client, ends.server


def over_websocket() -> tuple[Codec, Codec]:
    ends = websocket.Ends()
    return ends.dialer, ends.listener


@pytest.mark.parametrize(
    "ends",
    [lambda: plain(TCP_LEAD), lambda: plain(IPC_LEAD), over_tls, over_websocket],
    ids=["tcp", "ipc", "tls", "websocket"],
)
def test_a_small_frame_alone_arrives_as_those_beside_it(ends: Callable[[], tuple[Codec, Codec]]) -> None:
    here, there = ends()
    last = bytes(SMALL - 1)
    sent = here.encode_small(b"one") + b"".join(here.encode([b"two", b""])) + here.encode_small(last)
    assert there.receive(sent) == [b"one", b"two", b"", last]
    assert there.receive(here.encode_small(b"")) == [b""]


MAXIMAL = [(1 << 64) - 1, 1 << 63, (1 << 63) - 1, 1 << 62, 1 << 32, 1 << 31]


@pytest.mark.parametrize("size", MAXIMAL)
@pytest.mark.parametrize("size_max", [0, 1 << 20, (1 << 63) - 1])
@pytest.mark.parametrize("step", [1, 9, 4096])
@pytest.mark.parametrize("codec", ["plain", "ipc", "websocket dialled", "websocket accepted"])
def test_no_length_that_fits_in_its_field_raises(codec: str, step: int, size_max: int, size: int) -> None:
    """A length that no data follow is refused or waited for; no exception escapes."""
    receiver, claim = claiming(codec, size, size_max)
    for start in range(0, len(claim), step):
        assert receiver.receive(claim[start : start + step]) == []
    waits = receiver.failure is None
    assert waits == (not 0 < size_max < size and not (codec.startswith("websocket") and size >> 63))
    assert not waits or receiver.inside_frame


def claiming(codec: str, size: int, size_max: int) -> tuple[Codec, bytes]:
    """A codec whose handshake is complete, and the head of a frame of that size with a little of its
    payload.
    """
    push, pull = Greeting.of(0x50, 0x51), Greeting.of(0x51, 0x50)
    length = size.to_bytes(8, "big")
    if codec in ("plain", "ipc"):
        lead = b"" if codec == "plain" else b"\x01"
        plain = SpCodec(pull, size_max, lead)
        plain.receive(encode_header(0x50))
        return plain, lead + length + b"x" * 100
    route = Route(pull, size_max, (), ("127.0.0.1",))
    accepting = WebSocketCodec(AcceptingUpgrade(lambda path: route))
    dialling = WebSocketCodec(DiallingUpgrade(push, "127.0.0.1:1", "/", size_max))
    accepting.receive(dialling.begin())
    dialling.receive(accepting.reply)
    accepting.reply = b""
    if codec == "websocket accepted":
        return accepting, b"\x82\xff" + length + b"mask" + b"x" * 100
    return dialling, b"\x82\x7f" + length + b"x" * 100
