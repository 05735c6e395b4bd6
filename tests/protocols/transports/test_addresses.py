"""URLs: which are understood, what is bound, and the errors when an address is unavailable."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from protocols.dialling import dial_once
from protocols.errors import AddressError, AddressInUse, ConnectionRefused
from protocols.listening import Listener
from protocols.transports.ipc import PATH_SIZE_MAX
from protocols.transports.registry import check_dialable, check_url, is_wildcard
from protocols.transports.tcp import TcpAddress, format_address, parse_address
from tests.support.ports import free_port

from .support import FakeSocket, listen_url, raw_peer, until

SCHEMES = ["tcp", "ipc", "inproc"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:7770", TcpAddress("127.0.0.1", 7770)),
        ("localhost:0", TcpAddress("localhost", 0)),
        ("[::1]:7770", TcpAddress("::1", 7770)),
        (":7770", TcpAddress("", 7770)),
        ("*:7770", TcpAddress("", 7770)),
    ],
)
def test_tcp_addresses(address: str, expected: TcpAddress) -> None:
    assert parse_address("tcp", address) == expected


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("localhost:7770", "is not a URL"),
        ("", "is not a URL"),
        ("http://localhost", "no transport 'http'"),
        ("tcp://localhost", "has no port"),
        ("tcp://", "has no port"),
        ("tcp://localhost:", "number from 0 to 65535"),
        ("tcp://localhost:http", "number from 0 to 65535"),
        ("tcp://localhost:65536", "number from 0 to 65535"),
        ("tcp://localhost:" + "9" * 5000, "number from 0 to 65535"),
        ("tcp://local\0host:7770", "is not a host name"),
        ("tcp://localhost:-1", "number from 0 to 65535"),
        ("tcp://localhost:٣", "number from 0 to 65535"),
        ("tcp://::1:7770", "address in brackets"),
        ("tcp://eth0;localhost:7770", "is not a host name"),
        ("tcp://user@localhost:7770", "is not a host name"),
        ("tcp://local host:7770", "is not a host name"),
        ("ipc://", "needs a path"),
        ("ipc:///" + "x" * PATH_SIZE_MAX, "108 bytes"),
        ("ipc://a\0b", "zero byte"),
        ("inproc://", "needs a name"),
    ],
)
def test_a_bad_url_is_one_sentence_with_the_reason(url: str, hint: str) -> None:
    with pytest.raises(AddressError, match=hint) as caught:
        check_url(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["tcp://:7770", "tcp://*:7770", "tcp://0.0.0.0:7770", "tcp://[::]:7770", "tcp://127.0.0.1:0"]
)
def test_wildcards_and_port_0_are_for_listeners_only(url: str) -> None:
    assert check_url(url) == url
    with pytest.raises(AddressError, match="for listening"):
        check_dialable(url)


def test_a_wildcard_is_distinguished_from_an_address() -> None:
    assert [is_wildcard(f"tcp://{host}:1") for host in ("", "*", "0.0.0.0", "[::]")] == [True] * 4
    assert not is_wildcard("tcp://127.0.0.1:1")
    assert not is_wildcard("tcp://[::1]:1")
    assert not is_wildcard("ipc:///tmp/x")


def test_ipv6_urls_have_brackets() -> None:
    assert format_address("::1", 7) == "tcp://[::1]:7"


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_listener_names_its_bound_address_and_can_be_dialled_there(
    scheme: str, tmp_path: Path
) -> None:
    owner, dialer = FakeSocket(), FakeSocket()
    listener = Listener(owner, listen_url(scheme, tmp_path))
    await listener.start()
    check_dialable(listener.url)
    pipe = await dial_once(dialer, listener.url)
    assert pipe.remote_address == listener.url
    assert (pipe.url, pipe.dialed) == (listener.url, True)
    await until(lambda: owner.pipes)
    assert (owner.pipes[0].url, owner.pipes[0].dialed) == (listener.url, False)
    await listener.aclose()
    await dialer.aclose()
    await owner.aclose()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_an_address_in_use_is_named_in_the_error(scheme: str, tmp_path: Path) -> None:
    owner = FakeSocket()
    first = Listener(owner, listen_url(scheme, tmp_path))
    await first.start()
    second = Listener(owner, first.url)
    with pytest.raises(AddressInUse, match="is in use"):
        await second.start()
    dialer = FakeSocket()
    await dial_once(dialer, first.url)  # the first one is still there
    await second.aclose()
    await first.aclose()
    await dialer.aclose()
    await owner.aclose()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_an_address_is_free_again_after_close(scheme: str, tmp_path: Path) -> None:
    owner = FakeSocket()
    first = Listener(owner, listen_url(scheme, tmp_path))
    await first.start()
    await first.aclose()
    with pytest.raises(ConnectionRefused, match="nobody listens at"):
        await dial_once(FakeSocket(), first.url)
    second = Listener(owner, first.url)
    await second.start()
    assert second.url == first.url
    await second.aclose()


async def test_a_wildcard_listener_has_one_port_for_both_families() -> None:
    owner = FakeSocket()
    listener = Listener(owner, "tcp://*:0")
    await listener.start()
    assert is_wildcard(listener.url)
    port = listener.url.rpartition(":")[2]
    hosts = ["127.0.0.1"]
    with socket.socket(socket.AF_INET6) as probe:
        if probe.connect_ex(("::1", int(port))) == 0:
            hosts.append("[::1]")
    for host in hosts:
        dialer = FakeSocket()
        await dial_once(dialer, f"tcp://{host}:{port}")
        await dialer.aclose()
    await until(lambda: len(owner.all_pipes) == len(hosts))
    await listener.aclose()
    await owner.aclose()


async def test_one_family_only() -> None:
    owner, dialer = FakeSocket(), FakeSocket()
    listener = Listener(owner, "tcp4://localhost:0")
    await listener.start()
    assert listener.url.startswith("tcp://127.0.0.1:")
    await dial_once(dialer, listener.url.replace("tcp://", "tcp4://"))
    with pytest.raises(AddressError, match="cannot reach tcp6://127.0.0.1"):
        await dial_once(dialer, listener.url.replace("tcp://", "tcp6://"))
    await dialer.aclose()
    await listener.aclose()
    await owner.aclose()


async def test_a_host_that_does_not_resolve_is_one_sentence() -> None:
    with pytest.raises(AddressError, match=r"cannot reach tcp://no\.such\.host\.invalid:1: ") as caught:
        await dial_once(FakeSocket(), "tcp://no.such.host.invalid:1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "host",
    ["a..b", "x" * 64 + ".invalid", "\ud800", ".a", "ä" * 70],
    ids=["empty label", "long label", "surrogate", "empty first label", "long label when encoded"],
)
@pytest.mark.parametrize("scheme", ["tcp", "tcp6", "tls+tcp", "ws", "wss"])
def test_an_impossible_host_name_is_an_error_of_the_url(scheme: str, host: str) -> None:
    """Only each dial found it, so a dialer went on trying."""
    for check in (check_url, check_dialable):
        with pytest.raises(AddressError, match="is not a host name or an address; its labels"):
            check(f"{scheme}://{host}:1")


@pytest.mark.parametrize(
    "host", ["x" * 63 + ".invalid", "ä" * 50, "a.", "_http._tcp.local", "[fe80::1%eth0]"]
)
def test_a_name_that_the_resolver_may_know_is_a_host(host: str) -> None:
    assert check_dialable(f"tcp://{host}:1")


async def test_a_broadcast_address_is_one_sentence() -> None:
    with pytest.raises(AddressError, match=r"cannot reach tcp://255\.255\.255\.255:1: "):
        await dial_once(FakeSocket(), "tcp://255.255.255.255:1")


async def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    listener = Listener(FakeSocket(), f"tcp://192.0.2.1:{free_port()}")
    with pytest.raises(AddressError, match=r"cannot listen at tcp://192\.0\.2\.1"):
        await listener.start()


# --- ipc files


async def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.exists()
    owner, dialer = FakeSocket(), FakeSocket()
    listener = Listener(owner, f"ipc://{path}")
    await listener.start()
    await dial_once(dialer, listener.url)
    await listener.aclose()
    assert not path.exists()
    await dialer.aclose()
    await until(lambda: owner.lost)
    await owner.aclose()


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(AddressError, match="not a socket"):
        await Listener(FakeSocket(), f"ipc://{path}").start()
    assert path.read_text() == "data"


async def test_the_socket_file_is_for_its_user_only(tmp_path: Path) -> None:
    path = tmp_path / "private.sock"
    listener = Listener(FakeSocket(), f"ipc://{path}")
    await listener.start()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await listener.aclose()


async def test_close_leaves_a_file_of_another_program_at_its_path(tmp_path: Path) -> None:
    path = tmp_path / "taken.sock"
    listener = Listener(FakeSocket(), f"ipc://{path}")
    await listener.start()
    path.rename(tmp_path / "moved.sock")
    path.write_text("another's")
    await listener.aclose()
    assert path.read_text() == "another's"


async def test_a_missing_folder_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(AddressError, match=r"cannot listen at ipc://.*no such file or directory"):
        await Listener(FakeSocket(), f"ipc://{tmp_path / 'nowhere' / 'x.sock'}").start()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_an_unwritable_folder_is_named_in_the_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(AddressError, match="permission denied"):
        await Listener(FakeSocket(), f"ipc://{tmp_path / 'x.sock'}").start()


async def test_probing_a_live_listener_does_not_disturb_it(tmp_path: Path) -> None:
    owner = FakeSocket()
    listener = Listener(owner, f"ipc://{tmp_path / 'live.sock'}")
    await listener.start()
    with pytest.raises(AddressInUse):
        await Listener(FakeSocket(), listener.url).start()
    async with raw_peer(listener.url) as peer:
        assert await peer.reader.readexactly(8)
    await until(lambda: listener.statistics().refused == {"closed": 2})
    await listener.aclose()
