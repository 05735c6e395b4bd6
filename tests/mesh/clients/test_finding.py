"""The places where clients look for a broker, and their errors if there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh import BlockingClient, Client, Disconnected
from mesh.broker.broker import Broker
from mesh.clients import blocking_session
from mesh.clients.addresses import Place
from mesh.clients.finding import broker_place, default_place, why_no_session
from protocols import AddressError, ConnectionRefused, HandshakeError, TlsConfigError
from tests.mesh.clients import simulated_connections as simulated
from tests.mesh.dataplane.neighbourhood import FakeMesh


def test_the_default_url_is_the_variables_then_the_local_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MANGROVE_URL", "tcp://somewhere:1")
    assert default_place() == Place(("tcp://somewhere:1",))
    monkeypatch.delenv("MANGROVE_URL")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_place() == Place(("tcp://127.0.0.1:7770",))
    folder = tmp_path / "mangrove"
    folder.mkdir()
    (folder / "broker.sock").touch()
    assert default_place() == Place((f"ipc://{folder}/broker.sock", "tcp://127.0.0.1:7770"))


def test_a_url_that_can_never_be_dialled_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client dialled a misspelt one forever."""
    monkeypatch.setenv("MANGROVE_URL", "tcp://somewhere:1")
    assert broker_place(None) == Place(("tcp://somewhere:1",))
    assert broker_place("tcp://a:1") == Place(("tcp://a:1",))
    for wrong in (
        "tcp://host:1/",
        "tcp://host",
        "host:1",
        "tcp://a..b:5",
        "tcp://*:1",
        "tcp://host:0",
        "news://a",
    ):
        with pytest.raises(AddressError):
            broker_place(wrong)
    with pytest.raises(TypeError, match="a URL is a string"):
        broker_place(b"tcp://a:1")  # type: ignore[arg-type]
    monkeypatch.setenv("MANGROVE_URL", "tcp://host:1/")
    with pytest.raises(AddressError, match="MANGROVE_URL cannot be used: tcp://host:1/: the port"):
        broker_place(None)


def test_errors_tell_a_failed_handshake_from_a_missing_broker() -> None:
    for error in (HandshakeError("it speaks another protocol"), TlsConfigError("there is no such file")):
        assert why_no_session("tcp://a:1", error) == f"no session at tcp://a:1: {error}"
    said = why_no_session("tcp://a:1", ConnectionRefusedError("refused"))
    assert said == "no broker at tcp://a:1 (refused); start one with `mesh broker` or give another url"


TCP = "tcp://127.0.0.1:7770"


@pytest.fixture
def stale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The default ipc address, with the file that a killed broker left behind."""
    monkeypatch.delenv("MANGROVE_URL", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "mangrove").mkdir()
    (tmp_path / "mangrove" / "broker.sock").touch()
    return f"ipc://{tmp_path}/mangrove/broker.sock"


@pytest.mark.virtual
async def test_the_ipc_file_of_a_killed_broker_does_not_hide_the_broker_at_the_default_port(
    stale: str,
) -> None:
    """No client without a URL found a broker, until the file was removed."""
    async with Broker(name="alpha", listen=TCP) as broker:
        async with Client() as client:
            assert (client.broker, client.url) == ("alpha", TCP)
            assert (await client.status())["name"] == "alpha"
        assert broker._node is not None
        (bound,) = broker._node.listeners._listeners.values()
        assert bound.listener.statistics().accepted == 1, "it is dialled once"
        with pytest.raises(Disconnected, match=rf"^no broker at {stale} \(nobody listens at {stale}\)"):
            await Client(stale).open()
    with pytest.raises(
        Disconnected, match=rf"^nobody listens at {stale}, and no broker at {TCP} \(.*\); start one with"
    ):
        await Client().open()


@pytest.mark.virtual
async def test_a_live_broker_at_the_default_ipc_address_is_the_only_one_that_is_dialled(
    stale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(name="beta", listen=stale), Broker(name="alpha", listen=TCP) as other:
        async with Client() as client:
            assert (client.broker, client.url) == ("beta", stale)
        assert other._node is not None
        (bound,) = other._node.listeners._listeners.values()
        assert bound.listener.statistics().accepted == 0


def test_a_blocking_client_looks_in_the_same_two_places(stale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = FakeMesh(2)
    broker = simulated.Broker(mesh, mesh.nodes[1])
    simulated.simulate(monkeypatch, broker)
    dialled: list[str] = []
    there = {TCP}

    class Dialer(simulated.FakeDialer):
        def __init__(self, url: str, *_: object) -> None:
            super().__init__(broker)
            self.url = url

        def connect(self, timeout: float) -> simulated.FakeWire:
            dialled.append(self.url)
            if self.url not in there:
                raise ConnectionRefused(f"nobody listens at {self.url}")
            return super().connect(timeout)

    monkeypatch.setattr(blocking_session, "BrokerDialer", Dialer)
    with BlockingClient() as client:
        assert client.url == TCP and dialled == [stale, TCP]
        broker.cut(read=True, answered=True)
        client.publish("t", b"again")
        assert dialled == [stale, TCP, TCP], "the broker it had is dialled again, and no other"
    with pytest.raises(Disconnected, match=rf"^no broker at {stale} \("):
        BlockingClient(stale).open()
    there.clear()
    with pytest.raises(Disconnected, match=rf"^nobody listens at {stale}, and no broker at {TCP} \("):
        BlockingClient().open()
    there.add(stale)
    dialled.clear()
    with BlockingClient() as client:
        assert client.url == stale and dialled == [stale]
