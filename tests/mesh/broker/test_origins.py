"""The origin of a connection: the names in its certificate, and whether it is on this machine."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mesh.broker.origins import address_of, certificate_names, is_near
from protocols.identity import PeerIdentity
from protocols.wire.tls import rfc4514


@dataclass(frozen=True)
class Connected:
    url: str
    remote_address: str
    local_address: str = "tcp://10.0.0.1:7770"
    identity: PeerIdentity | None = None


@pytest.mark.parametrize(
    ("url", "remote", "near"),
    [
        ("tcp://:7770", "tcp://127.0.0.1:5000", True),
        ("tcp://:7770", "tcp://127.9.9.9:5000", True),
        ("tcp://:7770", "tcp://[::1]:5000", True),
        ("tcp://:7770", "tcp://[::ffff:127.0.0.1]:5000", True),
        ("tcp://:7770", "tcp://10.0.0.1:5000", True),
        ("tcp://:7770", "tcp://[::ffff:10.0.0.1]:5000", True),
        ("tcp://:7770", "tcp://10.0.0.2:5000", False),
        ("wss://:7770", "wss://10.0.0.2:5000", False),
        ("tls+tcp://:7770", "tls+tcp://[fe80::1%eth0]:5000", False),
        ("tcp://:7770", "", False),
        ("ipc:///run/a.sock", "", True),
        ("inproc://a", "", True),
    ],
)
def test_a_connection_is_near_if_it_does_not_leave_this_machine(url: str, remote: str, near: bool) -> None:
    assert is_near(Connected(url, remote)) is near


def test_different_spellings_of_an_address_are_one() -> None:
    assert address_of("tcp://[::ffff:10.0.0.1]:5") == address_of("tls+tcp://10.0.0.1:9") == "10.0.0.1"
    assert address_of("tcp://[fe80::1%eth0]:5") == "fe80::1"


@pytest.mark.parametrize(
    ("subject", "names", "found"),
    [
        ((), (), None),
        (
            ((("organizationName", "Example"),), (("commonName", "alice"),)),
            ("alice.example.org",),
            ("CN=alice,O=Example", "alice", "alice.example.org"),
        ),
        (((("commonName", "a, b"),),), (), ("CN=a\\, b", "a, b")),
        ((), ("10.0.0.9",), ("10.0.0.9",)),
    ],
)
def test_a_certificate_names_its_owner(
    subject: tuple[tuple[tuple[str, str], ...], ...],
    names: tuple[str, ...],
    found: tuple[str, ...] | None,
) -> None:
    assert certificate_names(PeerIdentity(subject=rfc4514(subject), names=names)) == found


@pytest.mark.parametrize("other", ["Example,CN=admin", "Example+CN=admin", "x\\,CN=admin", ",CN=admin"])
def test_an_organisation_cannot_pass_for_a_common_name(other: str) -> None:
    subject = rfc4514(((("organizationName", other),), (("commonName", "mallory"),)))
    names = certificate_names(PeerIdentity(subject=subject))
    assert names is not None and "admin" not in names and "mallory" in names


def test_a_process_that_the_kernel_names_has_no_certificate() -> None:
    assert certificate_names(None) is None
    assert certificate_names(PeerIdentity(pid=7, uid=0, gid=0)) is None
