"""TLS from files and flags; clients that connect over it, and their errors when they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh import Client, Disconnected
from mesh.cluster.link_dialer import dial_options
from mesh.errors import ConfigError
from mesh.tls import tls_config
from protocols import SocketOptions, TlsConfig
from tests.mesh.loopback import Cluster, whole
from tests.support.certificates import LOCAL, alice, authority, config, local, stranger

pytestmark = pytest.mark.virtual

ANYWHERE = "tls+tcp://127.0.0.1:0"


def test_no_files_are_no_tls() -> None:
    assert tls_config() is None
    assert tls_config(ca="", cert="", key="", server_name="") is None


def test_files_and_flags_become_a_configuration() -> None:
    assert tls_config(ca="a", cert="c", key="k", server_name="n") == TlsConfig(
        ca_file="a", cert_file="c", key_file="k", server_name="n"
    )
    assert tls_config(insecure=True) == TlsConfig(verify="none")


def test_a_key_without_a_certificate_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(ConfigError, match="a key without a certificate"):
        tls_config(key="k")


async def test_a_client_publishes_over_tls_and_reconnects_after_its_broker_restarted() -> None:
    async with Cluster(tls=config(local())) as cluster:
        broker = await cluster.broker("one", listen=ANYWHERE)
        url = broker.url
        async with Client(url, tls=config()) as client, client.subscribe("t") as subscription:
            await client.publish("t", b"before")
            assert (await anext(subscription)).body == b"before"
            await broker.__aexit__(None, None, None)
            await cluster.broker("two", listen=url)
            await client.publish("t", b"after")
            assert (await anext(subscription)).body == b"after"


@pytest.mark.parametrize(
    ("server", "client", "sentence"),
    [
        (config(local()), None, "not signed by an authority trusted here"),
        (config(local()), config(trust=stranger()), "not signed by an authority trusted here"),
        (config(authority().expired(*LOCAL)), config(), "cannot be used now: certificate has expired"),
        (config(authority().sign("b.example")), config(), "is not for 127.0.0.1"),
        (config(local(), verify="required"), config(), "asks for a certificate and this end has none"),
        (config(local()), TlsConfig(ca_file="/nonexistent"), "/nonexistent cannot be read: no such file"),
    ],
)
async def test_a_client_that_cannot_connect_says_why(
    server: TlsConfig, client: TlsConfig | None, sentence: str
) -> None:
    async with Cluster(tls=server) as cluster:
        broker = await cluster.broker("one", listen=ANYWHERE)
        with pytest.raises(Disconnected, match=sentence) as caught:
            await Client(broker.url, tls=client).open()
        assert str(caught.value).startswith(f"no session at {broker.url}: ")


@pytest.fixture
def files_of_alice(tmp_path: Path) -> TlsConfig | None:
    cert, key = alice().write(tmp_path, "alice")
    return tls_config(ca=authority().write(tmp_path), cert=cert, key=key)


async def test_a_client_with_a_certificate_is_served_where_one_is_required(
    files_of_alice: TlsConfig | None,
) -> None:
    async with Cluster(tls=config(local(), verify="required")) as cluster:
        broker = await cluster.broker("one", listen=ANYWHERE)
        async with Client(broker.url, tls=files_of_alice) as client:
            assert (await client.status())["name"] == "one"


@pytest.mark.parametrize("tls", [None, TlsConfig()])
@pytest.mark.parametrize("url", ["tls+tcp://broker.example:7770", "wss://broker.example/mesh"])
def test_the_certificate_must_have_the_name_that_was_dialled_first(url: str, tls: TlsConfig | None) -> None:
    """The heartbeat connections go to the address that replaced it, even without a configuration."""
    options = dial_options(SocketOptions(tls=tls), url, 5.0)
    assert options.tls is not None and options.tls.server_name == "broker.example"


def test_a_configured_server_name_is_kept_and_plain_addresses_have_none() -> None:
    named = SocketOptions(tls=TlsConfig(server_name="mesh.example"))
    assert dial_options(named, "tls+tcp://broker.example:7770", 5.0).tls == named.tls
    plain = dial_options(SocketOptions(), "tcp://broker.example:7770", 5.0)
    assert plain == SocketOptions(handshake_timeout_s=5.0)


ONLY_A_NAME = authority().sign("localhost")  # the address itself is not in it


@pytest.fixture
def trusted_by_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority().write(tmp_path))


@pytest.mark.usefixtures("trusted_by_the_system")
async def test_brokers_link_by_name_with_the_systems_authorities() -> None:
    only_a_name = TlsConfig(cert=ONLY_A_NAME.cert, key=ONLY_A_NAME.key)
    async with Cluster() as cluster:
        host = await cluster.broker("host", listen=ANYWHERE, tls=only_a_name)
        port = host.url.rpartition(":")[2]
        guest = await cluster.broker("guest", [f"tls+tcp://localhost:{port}"])
        await whole([host, guest])
