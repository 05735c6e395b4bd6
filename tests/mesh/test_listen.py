"""The roles that an address serves, and the roles that must show a certificate."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from mesh import Broker, Client, ConfigError, Listen, MeshError
from mesh.listen import separate_urls
from protocols import (
    Bus0,
    Pub0,
    RawSocket,
    Req0,
    Respondent0,
    SocketOptions,
    SPError,
    Sub0,
    Surveyor0,
    TlsConfig,
)
from tests.mesh.loopback import LOCAL, Cluster, eventually, whole
from tests.support import certificates

pytestmark = pytest.mark.virtual

SECURE = "tls+tcp://127.0.0.1:0"


@pytest.fixture
def tls() -> TlsConfig:
    """A broker's TLS: a certificate, and trust in all others with one."""
    return certificates.config(certificates.local())


def trusting() -> SocketOptions:
    """The options of a client without a certificate."""
    return SocketOptions(tls=certificates.config(), resend_s=None)


def refused(broker: Broker) -> dict[str, int]:
    counts: dict[str, int] = broker.statistics()["refused"]
    return counts


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Listen("nonsense"), "is not a URL"),
        (lambda: Listen(LOCAL, serves=()), "serves nobody"),
        (lambda: Listen(LOCAL, serves=("friends",)), "the roles are peers and clients"),  # type: ignore
        (lambda: Listen(LOCAL, require_certificate=("peers",)), "has no TLS"),
        (lambda: Listen(LOCAL, tls=TlsConfig()), "has no TLS"),
        (
            lambda: Listen(SECURE, serves=("clients",), require_certificate=("peers",)),
            "does not serve peers, so it cannot ask them",
        ),
        (lambda: Broker(listen=SECURE), "needs a certificate"),
        (
            lambda: Broker(
                listen=Listen(SECURE, require_certificate=("clients",)),
                tls=TlsConfig(cert="a certificate", key="its key"),
            ),
            "trusts no authority",
        ),
    ],
)
async def test_an_invalid_address_is_one_sentence(make, sentence: str) -> None:  # type: ignore
    with pytest.raises(ConfigError, match=sentence):
        make()


async def test_brokers_link_at_the_peers_address_and_announce_the_other_to_clients() -> None:
    listen = [Listen(LOCAL, serves=("peers",)), Listen(LOCAL, serves=("clients",))]
    async with Cluster(listen=listen) as cluster:
        first, second = await cluster.mesh("first", "second")
        status = first.statistics()
        assert [status["url"], status["client_url"]] == status["listeners"]
        seen = next(member for member in second.members() if member["name"] == "first")
        assert seen["url"] == status["url"]
        async with Req0(dial=status["client_url"]) as client:
            await client.send(b"news hello", timeout=5)
            assert (await client.recv(timeout=5)).startswith(b"accepted")


async def test_a_broker_at_the_clients_address_is_refused_with_a_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listen = [Listen(LOCAL, serves=("clients",)), Listen(LOCAL, serves=("peers",))]
    async with Cluster() as cluster:
        host = await cluster.broker("host", listen=listen)
        await cluster.broker("guest", [host.statistics()["client_url"]])
        await eventually(lambda: refused(host).get("role"), "a refusal for the role")
        sentence = f"does not serve peers; peers are served at {host.url}"
        told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert any(sentence in message for message in told), "the host says whom it refused"
        await eventually(
            lambda: sum(sentence in record.getMessage() for record in caplog.records) >= 2,
            "the guest says why",
        )


async def test_heartbeat_connections_are_for_the_peers_address_too() -> None:
    async with Cluster() as cluster, RawSocket(Surveyor0) as asks, RawSocket(Respondent0) as answers:
        host = await cluster.broker("host", listen=[Listen(LOCAL, ("peers",)), Listen(LOCAL, ("clients",))])
        clients_url = host.statistics()["client_url"]
        for count, socket in enumerate((asks, answers), 1):
            pipe = await socket.dial_once(clients_url, timeout=5)
            await eventually(lambda: pipe.closed, "disconnected")  # noqa: B023
            assert refused(host) == {"role": count}


async def test_a_client_at_the_peers_address_is_refused_with_a_sentence() -> None:
    async with Cluster() as cluster, Req0() as stock:
        host = await cluster.broker("host", listen=[Listen(LOCAL, ("peers",)), Listen(LOCAL, ("clients",))])
        sentence = (
            f"{host.url} does not serve clients; clients are served at {host.statistics()['client_url']}"
        )
        with pytest.raises(MeshError, match="does not serve clients; clients are served at"):
            async with Client(host.url, connect_timeout=2):
                pass
        pipe = await stock.dial_once(host.url, timeout=5)
        await stock.send(b"news hello")
        assert await stock.recv(timeout=5) == f"error: {sentence}".encode()
        await eventually(lambda: pipe.closed, "the client to be disconnected")
        assert refused(host)["role"] >= 2


@pytest.mark.parametrize("socket", [Sub0, Pub0], ids=["sub", "pub"])
async def test_a_stock_subscriber_or_publisher_at_the_peers_address_is_refused_and_counted(
    socket: type[Sub0] | type[Pub0],
) -> None:
    async with Cluster() as cluster, socket() as client:
        host = await cluster.broker("host", listen=Listen(LOCAL, serves=("peers",)))
        try:
            await client.dial_once(host.url, timeout=5)
        except SPError:
            pass
        await eventually(lambda: refused(host).get("role") == 1, "a refusal for the role")
        await eventually(lambda: not client.pipes, "the client to be disconnected")


async def test_brokers_with_certificates_make_a_mesh_and_clients_need_none(tls: TlsConfig) -> None:
    async with Cluster(listen=SECURE, tls=tls) as cluster:
        brokers = await cluster.mesh("alpha", "bravo", "charlie")
        assert all(broker.url.startswith("tls+tcp://127.0.0.1:") for broker in brokers)
        async with Req0(dial=brokers[0].url, options=trusting()) as client:
            await client.send(b"news hello", timeout=5)
            assert (await client.recv(timeout=5)).startswith(b"accepted")


async def test_a_broker_without_a_certificate_is_refused_at_an_address_that_admits_clients(
    tls: TlsConfig,
) -> None:
    async with Cluster() as cluster, Bus0(options=trusting()) as stranger:
        host = await cluster.broker("host", listen=SECURE, tls=tls)
        pipe = await stranger.dial_once(host.url, timeout=5)
        await eventually(lambda: refused(host).get("certificate") == 1, "a refusal for the certificate")
        await eventually(lambda: pipe.closed, "the stranger to be disconnected")


async def test_tls_itself_refuses_when_all_roles_must_show_a_certificate(tls: TlsConfig) -> None:
    async with Cluster() as cluster, Req0(options=trusting()) as client:
        listen = Listen(SECURE, require_certificate=("peers", "clients"))
        host = await cluster.broker("host", listen=listen, tls=tls)
        with pytest.raises(SPError):
            await client.dial_once(host.url, timeout=5)
        await eventually(lambda: any(reason.startswith("tls") for reason in refused(host)), "TLS to refuse")


async def test_an_address_may_ask_clients_for_certificates_and_another_not(tls: TlsConfig) -> None:
    strict = Listen(SECURE, serves=("clients",), require_certificate=("clients",))
    async with Cluster() as cluster, Req0(options=trusting()) as client:
        host = await cluster.broker("host", listen=[strict, SECURE], tls=tls)
        with pytest.raises(SPError):
            await client.dial_once(host.statistics()["client_url"], timeout=5)
        await client.dial_once(host.url, timeout=5)
        own = replace(trusting(), tls=tls)
        await client.dial_once(host.statistics()["client_url"], timeout=5, options=own)


@pytest.fixture
def other() -> TlsConfig:
    """The TLS of a broker whose certificate another authority has signed."""
    return certificates.config(certificates.stranger().sign(*certificates.LOCAL), certificates.stranger())


async def test_a_broker_of_another_authority_is_refused_and_both_ends_say_why(
    tls: TlsConfig, other: TlsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster() as cluster:
        host = await cluster.broker("host", listen=SECURE, tls=tls)
        guest = await cluster.broker("guest", host, listen=SECURE, tls=other)
        await eventually(
            lambda: any(reason.startswith("tls") for reason in refused(host)), "the host counts it"
        )
        await eventually(lambda: "certificate" in caplog.text, "the guest says why it has no link")
        assert len(host.members()) == len(guest.members()) == 1


async def test_brokers_link_over_websocket_at_one_path() -> None:
    async with Cluster(listen="ws://127.0.0.1:0/mesh") as cluster:
        brokers = await cluster.mesh("alpha", "bravo")
        await whole(brokers)
        assert brokers[0].url.endswith("/mesh")


async def test_brokers_link_over_websocket_inside_tls(tls: TlsConfig) -> None:
    async with Cluster(listen="wss://127.0.0.1:0/mesh", tls=tls) as cluster:
        await cluster.mesh("alpha", "bravo")


def test_addresses_are_separated_at_commas_before_a_scheme() -> None:
    assert separate_urls("tcp://a:1, tls+tcp://b:2 ,ws://c/,") == ("tcp://a:1", "tls+tcp://b:2", "ws://c/")
    assert separate_urls("ipc:///run/a,b.sock,tcp://c:1") == ("ipc:///run/a,b.sock", "tcp://c:1")
    assert separate_urls("") == ()
