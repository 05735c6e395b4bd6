"""A client's end of the session, alone: what it makes of a broker that sends nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.clients.conversation import Conversation
from mesh.errors import PeerError, SessionError
from mesh.wire import blocks
from mesh.wire.blocks import ACCEPTED
from mesh.wire.session_frames import Kind, encode
from tests.mesh.clients.brokerless import PREFIX, settled
from tests.mesh.dataplane.neighbourhood import FakeMesh


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x91",
        b"hello",
        b"\x93\x05",
        encode(Kind.HELLO, 1, 1, 1, "x", 0),
        encode(Kind.WELCOME, 99, 9, "alpha", "mesh", 1, 1, 1),
        encode(Kind.ERROR, "SessionError", "no"),
        encode(Kind.CREDIT, 0, 1 << 31, 1 << 40) * 1,
    ],
)
def test_a_broken_frame_of_a_broker_is_a_peer_error(frame: bytes) -> None:
    talk = settled()
    with pytest.raises(PeerError):
        talk.received([PREFIX + frame], 0.0)


def test_a_new_connection_begins_with_a_fresh_keepalive() -> None:
    talk = Conversation(secret=bytes(16), boot=2, name="me", prefix=PREFIX, keepalive_s=1.0, now=0.0)
    talk.connected(1000.0)
    assert not talk.tick(1001.0)


def test_frames_of_another_session_are_not_ours() -> None:
    talk = settled()
    assert talk.received([b"\x80\0\0\2" + encode(Kind.BYE, "x")], 0.0) == []
    assert talk.settled


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_frames_end_in_a_peer_error_at_either_end_or_are_read(draws: st.DataObject) -> None:
    """Every kind of frame, one byte changed: a broker never raises, a client raises nothing but
    `PeerError`."""
    mesh = FakeMesh(1)
    client, other = mesh.client(), mesh.client()
    other.subscribe("t", role=1)
    client.subscribe("t")
    client.talk.add_many("t", [b"a", b"bc"], draws.draw(st.integers(0, 1)))
    client.talk.add("t", bytes(70_000), ACCEPTED, blocks.pack_headers({"a": 1}))
    client.talk.ask("t", b"", b"", survey=True, timeout_s=1.0, now=0.0)
    client.talk.answer(1, b"x")
    client.talk.sync()
    client.talk.flush()
    frames = client.talk.take_control() + client.talk.take_frames()
    index = draws.draw(st.integers(0, len(frames) - 1))
    frame = bytearray(frames[index])
    at = draws.draw(st.integers(4, min(len(frame), 120) - 1))
    frame[at] = draws.draw(st.integers(0, 255))
    frames[index] = bytes(frame)
    node = mesh.nodes[1].exchange
    node.client_frames(client.pipe, frames, 0.0)
    back = client.pipe.take() + other.pipe.take()
    if back:
        position = draws.draw(st.integers(0, len(back) - 1))
        answer = bytearray(back[position])
        at = draws.draw(st.integers(4, min(len(answer), 120) - 1))
        answer[at] = draws.draw(st.integers(0, 255))
        back[position] = bytes(answer)
    for talk in (client.talk, other.talk):
        try:
            talk.received([talk.prefix + frame[4:] for frame in back], 0.0)
        except PeerError:
            pass
    bystander = mesh.client()
    feed = bystander.subscribe("u")
    bystander.publish("u", b"still here")
    assert [body for _, body in bystander.take(feed)] == [b"still here"]


def test_the_error_of_a_broker_is_remembered_for_whoever_asks_why() -> None:
    talk = settled()
    with pytest.raises(SessionError, match="too fast"):
        talk.received([PREFIX + encode(Kind.ERROR, "CreditExceeded", "too fast")], 0.0)
    assert talk.last_error == "CreditExceeded: too fast"
