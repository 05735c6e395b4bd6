"""How a `BlockingClient` publishes more than fits at once, and its errors when a connection ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mesh import BlockingClient, MeshTimeout, NotAccepted, Unknown
from mesh.dataplane.options import ExchangeOptions
from tests.mesh.clients.simulated_connections import Broker, FakeWire, simulate
from tests.mesh.dataplane.neighbourhood import FakeMesh, Node

WINDOW = 20
MANY = [b"%04d" % number + bytes(6000) for number in range(200)]
"""Twenty blocks."""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    mesh = FakeMesh(1, ExchangeOptions(session_messages=WINDOW))
    broker = Broker(mesh, mesh.nodes[1])
    simulate(monkeypatch, broker)
    return broker


@pytest.fixture
def came(broker: Broker) -> Callable[[], list[bytes]]:
    """The bodies that a reader has got so far."""
    reader = broker.mesh.client(1, "reader")
    feed = reader.subscribe("#", window=4000)
    got: list[bytes] = []

    def take() -> list[bytes]:
        broker.carry()
        got.extend(body for _, body in reader.take(feed))
        return got

    return take


@pytest.mark.parametrize("level", ["accepted", "sent"])
def test_a_batch_above_one_window_goes_as_credit_comes(
    client: BlockingClient, came: Callable[[], list[bytes]], level: str
) -> None:
    """Once its first part was sealed, nothing flushed the rest: each such batch ended as `Unknown`."""
    receipt = client.publish_many("t", MANY, level=level, timeout=5.0)
    assert receipt.count == len(MANY) and came() == MANY


def test_messages_published_without_waiting_leave_with_any_waiting_call(client: BlockingClient) -> None:
    """Only another publish and `flush` sent it."""
    subscription = client.subscribe("t")
    assert client.publish_nowait("t", b"x")
    delivery = subscription.receive(1.0)
    assert delivery is not None and delivery.body == b"x"


def breaks_when_written(broker: Broker, patch: pytest.MonkeyPatch) -> None:
    """Break the connection so that only the next write finds out."""
    (wire,) = broker.wires

    def send(frames: list[bytes]) -> None:
        wire.broken = True
        wire.end()
        FakeWire.send(wire, frames)

    patch.setattr(wire, "send", send)


@pytest.mark.parametrize("call", ["publish", "flush"])
def test_a_connection_that_fails_in_a_write_is_made_again(
    broker: Broker,
    client: BlockingClient,
    came: Callable[[], list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    call: str,
) -> None:
    """The client went on polling the old connection:
    `ValueError: file descriptor cannot be a negative integer`."""
    client.publish_nowait("t", b"x")
    breaks_when_written(broker, monkeypatch)
    if call == "publish":
        assert client.publish("t", b"y").level == "accepted"
        assert came() == [b"y"]
    else:
        with pytest.raises(Unknown, match="may be lost"):
            client.flush()
        assert client.publish("t", b"y").level == "accepted"


def test_messages_lost_with_a_connection_are_not_reported_as_sent(
    broker: Broker, client: BlockingClient
) -> None:
    """Seven blocks of a body waited for the kernel. The next connection had nothing to send, so everything
    counted as sent."""
    broker.reads = False
    broker.plan(1.0, lambda: broker.cut(read=False, answered=False))
    broker.plan(1.0, lambda: setattr(broker, "reads", True))
    with pytest.raises(Unknown, match="was lost"):
        client.publish("t", bytes(600_000), level="sent")
    assert client.publish("t", b"y", level="sent").level == "sent"


def test_flush_waits_for_no_broker_when_there_is_nothing_to_send(
    broker: Broker, client: BlockingClient
) -> None:
    broker.away = "refused"
    broker.cut(read=True, answered=True)
    with pytest.raises(NotAccepted, match="nobody is there"):
        client.publish("t", b"x", timeout=0.5)
    began = broker.mesh.now
    client.flush(timeout=1.0)
    assert broker.mesh.now == began


@pytest.mark.parametrize("level", ["accepted", "sent"])
def test_the_topics_of_a_batch_share_one_timeout(
    broker: Broker, client: BlockingClient, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Each topic had the whole timeout."""
    carry = FakeWire.carry

    def rarely(self: FakeWire, node: Node) -> bool:
        """Have the broker read only once in three seconds."""
        moved = carry(self, node)
        if moved:
            broker.reads = False
            broker.plan(3.0, lambda: setattr(broker, "reads", True))
        return moved

    monkeypatch.setattr(FakeWire, "carry", rarely)
    began = broker.mesh.now
    with pytest.raises((NotAccepted, MeshTimeout, Unknown)):
        client.publish_many(
            [(f"t{number}", bytes(600_000)) for number in range(9)], level=level, timeout=10.0
        )
    assert 10.0 <= broker.mesh.now - began < 10.2


def test_the_rest_of_a_batch_that_timed_out_is_not_sent_later(
    broker: Broker, client: BlockingClient, came: Callable[[], list[bytes]]
) -> None:
    """The rest of its batch went with the next flush, which may be minutes later."""
    broker.reads = False
    with pytest.raises(Unknown, match="no acknowledgement"):
        client.publish_many("t", MANY, timeout=3.0)
    broker.reads = True
    broker.pass_time(300.0)
    began = came()[:]
    assert MANY[: len(began)] == began and len(began) < len(MANY)
    client.publish("t", b"later")
    assert came() == [*began, b"later"]


def test_a_message_that_timed_out_is_not_sent_again_by_the_next_session(
    broker: Broker, client: BlockingClient, came: Callable[[], list[bytes]]
) -> None:
    broker.reads = False
    with pytest.raises(Unknown, match="no acknowledgement"):
        client.publish("t", b"given up", timeout=3.0)
    broker.cut(read=False, answered=False)
    broker.reads = True
    broker.pass_time(300.0)
    client.publish("t", b"later")
    assert came() == [b"later"]
