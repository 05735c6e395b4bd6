"""What all codecs have in common."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.wire.codec import SMALL, Codec
from protocols.wire.framing import IPC_LEAD, TCP_LEAD
from protocols.wire.handshake import Greeting, ProtocolNumber
from protocols.wire.sp import SpCodec
from tests.protocols.wire import test_tls as tls
from tests.protocols.wire import test_websocket as websocket

PAIR = ProtocolNumber.PAIR0


def plain(lead: bytes) -> tuple[Codec, Codec]:
    """Two ends, their handshake done."""
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
