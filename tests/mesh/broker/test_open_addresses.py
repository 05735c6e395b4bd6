"""The warning about addresses that strangers may use says what is true, also where there is a mesh key."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from mesh import Broker, Listen
from tests.support import certificates

CLIENTS = "anybody who reaches it may publish and read"
PEERS = "anybody who reaches it may join, publish and read"
OPEN = "tcp://:0"
SECURE = "tls+tcp://:0"


@pytest.mark.parametrize(
    ("options", "clients", "peers"),
    [
        ({"listen": OPEN}, True, True),
        ({"listen": OPEN, "mesh_key": "a secret"}, True, False),
        ({"listen": Listen(OPEN, serves=("peers",)), "mesh_key": "a secret"}, False, False),
        ({"listen": Listen(OPEN, serves=("peers",))}, False, True),
        ({"listen": Listen(OPEN, serves=("clients",))}, True, False),
        ({"listen": Listen(SECURE, require_certificate=("peers",))}, True, False),
        ({"listen": Listen(SECURE, require_certificate=("clients",))}, False, True),
        ({"listen": Listen(SECURE, require_certificate=("peers", "clients"))}, False, False),
        ({"listen": "tcp://127.0.0.1:0"}, False, False),
        ({"listen": ["tcp://127.0.0.1:0", Listen(OPEN, serves=("clients",))]}, True, False),
    ],
)
async def test_a_broker_warns_of_whom_strangers_may_be(
    options: dict[str, Any], clients: bool, peers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(name="alpha", tls=certificates.config(certificates.local()), **options):
        pass
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(CLIENTS in line for line in told) is clients, told
    assert any(PEERS in line for line in told) is peers, told
    assert len(told) == clients + peers
    keyed = "(the mesh key is asked of brokers only)"
    assert all((keyed in line) is ("mesh_key" in options) for line in told)
