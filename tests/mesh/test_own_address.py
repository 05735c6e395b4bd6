"""Which address a broker gives as its own."""

from __future__ import annotations

import pytest

from mesh.own_address import OwnAddress


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


def test_what_the_operator_says_stands() -> None:
    address = OwnAddress("tcp://broker.example:7770")
    assert address.listening(["tcp://0.0.0.0:7770"]) == "tcp://broker.example:7770"
    assert address.learned("tcp://10.0.0.5:50124", "tcp://broker.example:7770") == ""


def test_a_bind_to_an_address_never_changes_by_a_link() -> None:
    address = OwnAddress(None)
    address.listening(["tcp://127.0.0.1:7770"])
    assert address.learned("tcp://10.0.0.5:50124", "tcp://127.0.0.1:7770") == ""
    assert address.on_loopback() == ""
