"""The state of a `BlockingClient` after Ctrl-C has ended a waiting call; no broker is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mesh.clients.blocking_client import BlockingClient
from mesh.wire.session_frames import Kind, decode, encode
from tests.mesh.clients.brokerless import PREFIX, opened, settled, welcomed


def interrupted(waits: int, *, flushes: bool) -> BlockingClient:
    """A client whose wait of that number is interrupted: before it flushed what is gathered, or after."""
    client = BlockingClient("tcp://127.0.0.1:1")
    session = client._session
    session._opened, session.conversation = True, settled()
    calls: list[object] = []

    def pump(until: Callable[[], bool], deadline: float | None) -> bool:
        calls.append(until)
        if len(calls) != waits:
            return until()
        if flushes:
            session.conversation.flush()
        raise KeyboardInterrupt

    session.pump = pump  # type: ignore[method-assign, assignment]
    return client


def test_an_interrupted_publish_takes_its_message_back() -> None:
    """It went out with the next call, although its caller had seen the interrupt."""
    client = interrupted(2, flushes=False)
    conversation = client._session.conversation
    ticket, index = conversation.add_many("t", [b"of another thread"], 1)
    with pytest.raises(KeyboardInterrupt) as caught:
        client.publish("t", b"mine")
    assert not hasattr(caught.value, "__notes__")
    conversation.flush()
    (block,) = opened(conversation)
    assert list(block.bodies) == [b"of another thread"]
    conversation.received([PREFIX + encode(Kind.ACK, 1, [[1, 1]], [])], 0.0)
    assert ticket is not None and ticket.receipt(index).seq == 1


def test_an_interrupt_says_that_the_message_was_on_its_way() -> None:
    client = interrupted(2, flushes=True)
    with pytest.raises(KeyboardInterrupt) as caught:
        client.publish("t", b"mine")
    assert caught.value.__notes__ == ["the message was on its way to the broker: it may have been accepted"]
    assert [list(block.bodies) for block in opened(client._session.conversation)] == [[b"mine"]]


def test_an_interrupted_request_is_not_sent_in_the_next_session() -> None:
    client = interrupted(1, flushes=False)
    conversation = client._session.conversation
    conversation.disconnected()
    with pytest.raises(KeyboardInterrupt):
        client.request("t", b"mine")
    welcomed(conversation)
    assert conversation.take_frames() == [] and list(conversation.questions) == []


def test_an_interrupted_subscribe_is_taken_back() -> None:
    """No reader had it, and its window held back the publishers of its topics."""
    client = interrupted(1, flushes=False)
    conversation = client._session.conversation
    with pytest.raises(KeyboardInterrupt):
        client.subscribe("t")
    kinds = [decode(frame, 4)[0] for frame in conversation.take_frames()]
    assert kinds == [Kind.SUBSCRIBE, Kind.UNSUBSCRIBE] and list(conversation.feeds) == []
