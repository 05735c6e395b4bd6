"""A blocking client of a simulated broker, in virtual time."""

from __future__ import annotations

import pytest

from mesh import BlockingClient
from tests.mesh.clients.simulated_connections import Broker, simulate
from tests.mesh.dataplane.neighbourhood import FakeMesh


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """One of two brokers; modules that need other options have fixtures of their own."""
    mesh = FakeMesh(2)
    broker = Broker(mesh, mesh.nodes[1])
    simulate(monkeypatch, broker)
    return broker


@pytest.fixture
def client(broker: Broker) -> BlockingClient:
    client = BlockingClient("tcp://127.0.0.1:1", name="blocking")
    client.open()
    return client
