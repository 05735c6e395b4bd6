"""The address that a broker announces as its own."""

from __future__ import annotations

import pytest

from mesh.broker.listeners import beyond_loopback
from mesh.cluster.link_dialer import same_address
from mesh.cluster.own_address import OwnAddress, host_of, with_host
from protocols import check_dialable

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize(
    ("urls", "advertised"),
    [
        (["tcp://127.0.0.1:7770", "ipc:///run/m.sock"], "tcp://127.0.0.1:7770"),
        (["ipc:///run/m.sock", "tcp://127.0.0.1:7770", "tcp://10.0.0.5:7770"], "tcp://10.0.0.5:7770"),
        (["ipc:///run/m.sock"], "ipc:///run/m.sock"),
        (["tcp://127.0.0.1:7770", "tcp://0.0.0.0:7771"], ""),
        ([], ""),
    ],
)
def test_tcp_goes_before_ipc_and_other_hosts_before_loopback(urls: list[str], advertised: str) -> None:
    assert OwnAddress(None).listening(urls) == advertised


def test_a_wildcard_takes_the_address_of_its_first_link_and_leaves_loopback_for_a_better_one() -> None:
    address = OwnAddress(None)
    assert address.listening(["tcp://0.0.0.0:7771"]) == ""
    assert address.on_loopback() == "tcp://127.0.0.1:7771"
    assert address.learned("tcp://127.0.0.1:50123", "") == "tcp://127.0.0.1:7771"
    assert address.learned("tcp://10.0.0.5:50124", "tcp://127.0.0.1:7771") == "tcp://10.0.0.5:7771"
    assert address.learned("tcp://10.0.0.6:50125", "tcp://10.0.0.5:7771") == ""
    assert address.learned("tcp://127.0.0.1:50126", "tcp://10.0.0.5:7771") == ""
    assert address.learned("ipc:///run/m.sock", "") == ""


def test_a_configured_address_never_changes() -> None:
    address = OwnAddress("tcp://broker.example:7770")
    assert address.listening(["tcp://0.0.0.0:7770"]) == "tcp://broker.example:7770"
    assert address.learned("tcp://10.0.0.5:50124", "tcp://broker.example:7770") == ""


def test_a_bind_to_an_address_never_changes_by_a_link() -> None:
    address = OwnAddress(None)
    address.listening(["tcp://127.0.0.1:7770"])
    assert address.learned("tcp://10.0.0.5:50124", "tcp://127.0.0.1:7770") == ""
    assert address.on_loopback() == ""


@pytest.mark.parametrize(
    ("url", "host", "elsewhere"),
    [
        ("tcp://broker.example:7770", "broker.example", "tcp://10.0.0.7:7770"),
        ("tls+tcp6://[::1]:7770", "[::1]", "tls+tcp://10.0.0.7:7770"),
        ("ws://broker.example:80/mesh", "broker.example", "ws://10.0.0.7:80/mesh"),
        ("wss://broker.example/mesh", "broker.example", "wss://10.0.0.7/mesh"),
        ("wss4://broker.example", "broker.example", "wss://10.0.0.7"),
        ("ws://[2001:db8::1]/mesh/a:b", "[2001:db8::1]", "ws://10.0.0.7/mesh/a:b"),
    ],
)
def test_a_url_has_a_host_with_and_without_a_port(url: str, host: str, elsewhere: str) -> None:
    """A broker dials the address that a join URL led to a second time, and WebSocket has default ports."""
    assert host_of(url) == host
    assert with_host(url, "10.0.0.7") == elsewhere
    assert check_dialable(same_address(url, "ws://10.0.0.7:50123")) == elsewhere


@pytest.mark.parametrize(
    ("url", "reachable"),
    [
        ("tcp://127.0.0.1:7770", False),
        ("tcp://127.1.2.3:7770", False),
        ("tcp://localhost:7770", False),
        ("ws://LocalHost/mesh", False),
        ("tls+tcp://[::1]:7770", False),
        ("ipc:///run/127.sock", False),
        ("tcp://127.evil.example:7770", True),
        ("tcp://localhost.evil.example:7770", True),
        ("ws://[::1:2]:80/mesh", True),
        ("tcp://10.0.0.5:7770", True),
        ("tcp://*:7770", True),
        ("tcp://:7770", True),
    ],
)
def test_loopback_is_a_whole_address_and_no_beginning_of_a_name(url: str, reachable: bool) -> None:
    assert beyond_loopback(url) is reachable
