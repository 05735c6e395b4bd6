"""A `BlockingSubscription` that its broker ends hands out what came before, in the time of a `FakeMesh`."""

from __future__ import annotations

import pytest

from mesh import BlockingClient, NotAccepted
from mesh.clients.blocking_subscription import BlockingSubscription
from mesh.wire.session_frames import Kind, encode
from tests.mesh.clients.simulated_connections import Broker, simulate
from tests.mesh.dataplane.neighbourhood import FakeMesh

MESSAGES = [b"1", b"2", b"3"]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> BlockingSubscription:
    """Three messages have arrived, and then the broker's refusal to continue the subscription."""
    mesh = FakeMesh(1)
    broker = Broker(mesh, mesh.nodes[1])
    simulate(monkeypatch, broker)
    client = BlockingClient("tcp://127.0.0.1:1", name="blocking")
    client.open()
    subscription = client.subscribe("t")
    mesh.client(1).publish("t", *MESSAGES)
    broker.carry()
    (wire,) = broker.wires
    prefix = client._session.conversation.prefix
    wire.inbox.append(prefix + encode(Kind.UNSUBSCRIBED, 1, "above a limit"))
    while wire.inbox:
        client._session.catch_up()
    return subscription


def test_messages_before_a_refusal_are_received(refused: BlockingSubscription) -> None:
    """It was dropped."""
    for body in MESSAGES:
        delivery = refused.receive(0.0)
        assert delivery is not None and delivery.body == body
    for _ in range(2):
        with pytest.raises(NotAccepted, match="above a limit"):
            refused.receive(0.0)


def test_messages_before_a_refusal_come_as_a_batch(refused: BlockingSubscription) -> None:
    batches = refused.batches()
    assert list(next(batches).bodies) == MESSAGES
    with pytest.raises(NotAccepted, match="above a limit"):
        next(batches)
