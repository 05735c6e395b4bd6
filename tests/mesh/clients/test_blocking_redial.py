"""A `BlockingClient` gives up a connection without a session in time, in the time of a `FakeMesh`."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from mesh import BlockingClient, MeshError
from mesh.clients.calls import CONNECT_TIMEOUT_S
from protocols import Timeout
from tests.mesh.clients.simulated_connections import Broker, FakeDialer, FakeWire


def is_mute(broker: Broker, monkeypatch: pytest.MonkeyPatch, connections: int) -> list[float]:
    """Have a broker accept so many connections and say nothing on them. Returns when each was made."""
    connect: Callable[[FakeDialer, float], FakeWire] = FakeDialer.connect
    made: list[float] = []

    def connects(self: FakeDialer, timeout: float) -> FakeWire:
        wire = connect(self, timeout)
        if len(made) < connections:
            monkeypatch.setattr(wire, "carry", lambda node: False)
        made.append(broker.mesh.now)
        return wire

    monkeypatch.setattr(FakeDialer, "connect", connects)
    return made


def test_a_broker_that_says_no_welcome_after_a_redial_is_dialled_again(
    broker: Broker, client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client waited on the connection forever, and never probed the broker."""
    subscription = client.subscribe("t")
    made = is_mute(broker, monkeypatch, 2)
    broker.cut(read=True, answered=True)
    publisher = broker.mesh.client(1)
    broker.plan(30.0, lambda: publisher.publish("t", b"late"))
    delivery = subscription.receive(None)
    assert delivery is not None and delivery.body == b"late"
    assert len(made) == 3
    assert all(CONNECT_TIMEOUT_S <= b - a <= CONNECT_TIMEOUT_S + 0.5 for a, b in itertools.pairwise(made))


def test_calls_that_do_not_wait_give_a_mute_connection_up_too(
    broker: Broker, client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = client.subscribe("t")
    made = is_mute(broker, monkeypatch, 1)
    broker.cut(read=True, answered=True)
    while len(made) < 2:
        assert subscription.receive(0.0) is None
        assert broker.mesh.now < 60.0, "it waits forever"
        broker.pass_time(0.5)
    assert client.publish("t", b"x").level == "accepted"


def test_the_reason_for_giving_up_is_in_the_error_and_in_the_log(
    broker: Broker,
    client: BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_mute(broker, monkeypatch, 100)
    broker.cut(read=True, answered=True)
    why = f"no WELCOME from the broker in {CONNECT_TIMEOUT_S:g} s"
    with pytest.raises(Exception, match=why):
        client.publish("t", b"x", timeout=3 * CONNECT_TIMEOUT_S)
    assert [why in record.getMessage() for record in caplog.records] == [False, True], "once, after the loss"


def test_a_broker_without_a_handshake_causes_one_warning_for_any_timeout_of_calls(
    broker: Broker,
    client: BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The reason named the seconds that the call had left, so nearly every attempt had a new one."""

    def connect(self: FakeDialer, timeout: float) -> FakeWire:
        broker.pass_time(timeout)
        raise Timeout(f"no connection to tcp://127.0.0.1:1 within {timeout:g} s")

    monkeypatch.setattr(FakeDialer, "connect", connect)
    broker.cut(read=True, answered=True)
    for tenths in range(5, 15):
        with pytest.raises(MeshError, match=r"within [\d.]+ s"):
            client.publish("t", b"x", timeout=tenths / 10)
    lost, dialled = (record.getMessage() for record in caplog.records)
    assert "was lost" in lost and "no connection to tcp://127.0.0.1:1 in time" in dialled


def test_a_broker_that_said_bye_and_does_not_disconnect_is_left_in_time(
    broker: Broker, client: BlockingClient
) -> None:
    """Another process may already listen at its address."""
    subscription = client.subscribe("t")
    broker.node.exchange.leave("restart", broker.mesh.now)
    broker.carry()
    broker.node = broker.mesh.nodes[2]
    publisher = broker.mesh.client(2)
    broker.plan(30.0, lambda: publisher.publish("t", b"late"))
    delivery = subscription.receive(None)
    assert delivery is not None and delivery.body == b"late" and client.broker == "node2"


def test_a_session_that_is_back_is_reported_once(
    broker: Broker, client: BlockingClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker.cut(read=True, answered=True)
    for _ in range(5):
        client.publish("t", b"x")
        broker.pass_time(1.0)
    lost, back = [record.getMessage() for record in caplog.records]
    assert "was lost: cut" in lost and back.startswith(f"the session with the broker at {client.url} is back")
