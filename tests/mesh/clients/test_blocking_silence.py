"""A `BlockingClient` whose broker vanishes silently, in the time of a `FakeMesh`."""

from __future__ import annotations

from functools import partial

import pytest

from mesh import BlockingClient, Unknown
from mesh.clients.calls import KEEPALIVE_S
from tests.mesh.clients.simulated_connections import Broker, FakeWire
from tests.mesh.dataplane.neighbourhood import Node

GONE_S = 3 * KEEPALIVE_S


def vanish(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host behind all connections vanish: nothing arrives there and nothing comes from it. Another
    host answers at its address."""

    def lose(self: FakeWire, node: Node) -> bool:
        self.pipe.take()
        return False

    for wire in broker.wires:
        monkeypatch.setattr(wire, "carry", partial(lose, wire))
    broker.node = broker.mesh.nodes[2]


@pytest.mark.parametrize("timeout", [None, 100.0, 0.5, 0.0])
def test_a_client_that_only_receives_detects_a_vanished_broker(
    broker: Broker, client: BlockingClient, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    """It waited forever: no thread probed the broker, and TCP had nothing to send."""
    subscription = client.subscribe("t")
    vanish(broker, monkeypatch)
    publisher = broker.mesh.client(2)
    broker.plan(GONE_S + 5.0, lambda: publisher.publish("t", b"late"))
    while (delivery := subscription.receive(timeout)) is None:
        assert broker.mesh.now < 100.0, "it waits forever"
        broker.pass_time(0.05 if timeout == 0.0 else 0.0)
    assert delivery.body == b"late" and client.broker == "node2"
    assert subscription.interrupted == 1


def test_a_waiting_publisher_detects_a_vanished_broker(
    broker: Broker, client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.publish("t", b"before")
    vanish(broker, monkeypatch)
    began = broker.mesh.now
    assert client.publish("t", b"x", timeout=100.0).level == "accepted"
    assert GONE_S <= broker.mesh.now - began < GONE_S + 1.0 and client.broker == "node2"


def test_a_quiet_broker_keeps_its_client(broker: Broker, client: BlockingClient) -> None:
    subscription = client.subscribe("t")
    assert subscription.receive(10 * GONE_S) is None
    assert subscription.interrupted == 0 and len(broker.wires) == 1


def test_a_session_survives_an_hour_without_waiting_calls(broker: Broker, client: BlockingClient) -> None:
    """Everything that came meanwhile is read before the broker is given up, also the answer to a PING."""
    subscription = client.subscribe("t")
    publisher = broker.mesh.client(1)
    assert subscription.receive(KEEPALIVE_S) is None  # probed just at the end
    publisher.publish("t", b"meanwhile")
    broker.pass_time(3600.0)
    for _ in range(2):
        delivery = subscription.receive(1.0)
        assert delivery is None or delivery.body == b"meanwhile"
    assert subscription.interrupted == 0 and len(broker.wires) == 1


def test_the_error_and_the_log_say_that_nothing_was_heard(
    broker: Broker,
    client: BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    vanish(broker, monkeypatch)
    broker.away = "refused"
    with pytest.raises(Unknown, match="nobody is there|nothing heard from the broker for 15 s"):
        client.publish("t", b"x", timeout=GONE_S + 1.0)
    assert "nothing heard from the broker for 15 s" in caplog.records[0].getMessage()


def test_a_client_without_keepalive_waits(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = BlockingClient("tcp://127.0.0.1:1", keepalive_s=0)
    client.open()
    subscription = client.subscribe("t")
    asked: list[object] = []
    monkeypatch.setattr(FakeWire, "send", lambda self, frames: asked.extend(frames))
    assert subscription.receive(10 * GONE_S) is None and not asked
