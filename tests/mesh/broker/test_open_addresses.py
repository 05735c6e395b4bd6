"""The warning about addresses that strangers may use is true, even with a mesh key."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from mesh import Broker, Listen, Principal
from tests.support import certificates

CLIENTS = "anybody who reaches it may publish and read"
REFUSED = "refuses clients of other hosts at tcp://"
SETTING = "mesh broker --anonymous everywhere"
ALICE = Principal("alice", certificates=("alice",), publish=("#",))
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
        ({"listen": Listen(OPEN, serves=("clients",), require_proof=True)}, False, False),
    ],
)
async def test_a_broker_warns_that_strangers_may_be_clients_or_peers(
    options: dict[str, Any], clients: bool, peers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tls = certificates.config(certificates.local())
    async with Broker(name="alpha", tls=tls, anonymous="everywhere", **options):
        pass
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(CLIENTS in line for line in told) is clients, told
    assert any(PEERS in line for line in told) is peers, told
    assert len(told) == clients + peers
    keyed = "(only brokers are asked for the mesh key)"
    assert all((keyed in line) is ("mesh_key" in options) for line in told)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"listen": OPEN}, True),
        ({"listen": OPEN, "principals": ALICE}, False),
        ({"listen": OPEN, "anonymous": "nowhere"}, True),
        ({"listen": "tcp://127.0.0.1:0"}, False),
        ({"listen": Listen(OPEN, serves=("peers",))}, False),
    ],
)
async def test_a_broker_that_refuses_all_clients_of_other_hosts_names_the_setting(
    options: dict[str, Any], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(name="alpha", mesh_key="a secret", **options):
        pass
    found = [record.getMessage() for record in caplog.records if REFUSED in record.getMessage()]
    assert len(found) == told
    assert all(SETTING in line for line in found)
