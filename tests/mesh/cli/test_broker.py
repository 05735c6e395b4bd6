"""How ``mesh broker`` reads its options before anything runs."""

from __future__ import annotations

import pytest

from mesh.cli.broker import listens
from mesh.config import BrokerConfig
from mesh.errors import ConfigError

SECURE = ("tls+tcp://127.0.0.1:0",)
PLAIN = ("tcp://127.0.0.1:0",)


def test_each_tls_address_requires_certificates_of_the_roles_it_serves() -> None:
    config = BrokerConfig(
        listen=PLAIN, listen_peers=SECURE, listen_clients=SECURE, tls_require=("clients", "peers")
    )
    assert [(one.serves, one.require_certificate) for one in listens(config)] == [
        (("peers", "clients"), None),
        (("peers",), ("peers",)),
        (("clients",), ("clients",)),
    ]


def test_an_address_for_roles_without_required_certificates_requires_none() -> None:
    peers, clients = listens(
        BrokerConfig(listen=(), listen_peers=SECURE, listen_clients=SECURE, tls_require=("clients",))
    )
    assert (peers.require_certificate, clients.require_certificate) == ((), ("clients",))


def test_a_role_that_must_show_a_certificate_is_served_at_a_tls_address() -> None:
    config = BrokerConfig(listen=(), listen_peers=SECURE, listen_clients=PLAIN, tls_require=("clients",))
    with pytest.raises(
        ConfigError, match="names clients, but no TLS address serves them; add --listen-clients"
    ):
        listens(config)
