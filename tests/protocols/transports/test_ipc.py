"""Unix sockets: names without a file, the mode of a file, and the identity of the peer."""

from __future__ import annotations

import os
import socket
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from protocols import (
    AddressError,
    AddressInUse,
    ConnectionRefused,
    PeerIdentity,
    Pull0,
    Push0,
    SocketOptions,
    check_dialable,
    check_url,
)
from protocols.transports.ipc import PATH_SIZE_MAX, describe, parse_path
from tests.support.waiting import until

linux = pytest.mark.skipif(sys.platform != "linux", reason="abstract names exist on Linux only")
NAME = f"mangrove-test-{os.getpid()}"


async def crosses(listen: str, dial: str | None = None) -> str:
    """One message goes through; returns the listener's URL."""
    async with Pull0() as pull, Push0() as push:
        listener = await pull.listen(listen)
        await push.dial_once(dial or listener.url)
        await push.send(b"through")
        assert await pull.recv(timeout=10) == b"through"
        assert push.pipes[0].remote_address == pull.pipes[0].local_address == listener.url
        assert push.pipes[0].local_address == pull.pipes[0].remote_address == ""
        return listener.url


# --- abstract names


@linux
@pytest.mark.parametrize(
    ("listen", "bound"),
    [
        ("abstract://NAME", "abstract://NAME"),
        ("abstract://NAME%00%ff%2fend", "abstract://NAME%00%FF/end"),
        ("ipc://@NAME", "abstract://NAME"),
        ("unix://@NAME", "abstract://NAME"),
        ("abstract://" + "x" * 70 + "NAME", "abstract://" + "x" * 70 + "NAME"),
    ],
)
async def test_an_abstract_name_is_bound_and_dialled(listen: str, bound: str) -> None:
    listen, bound = listen.replace("NAME", NAME), bound.replace("NAME", NAME)
    assert await crosses(listen) == bound
    assert await crosses(listen, listen) == bound


@linux
async def test_an_empty_abstract_name_gets_one_from_the_kernel() -> None:
    first = await crosses("abstract://")
    assert first.startswith("abstract://") and len(first) > len("abstract://")
    async with Pull0(listen=["abstract://", "abstract://", "ipc://@"]) as pull:
        assert len({listener.url for listener in pull.listeners}) == 3
    with pytest.raises(AddressError, match="dialling needs a name"):
        check_dialable("abstract://")


@linux
async def test_an_abstract_name_is_taken_refused_and_free_again() -> None:
    url = f"abstract://{NAME}-busy"
    async with Pull0(listen=url) as pull:
        with pytest.raises(AddressInUse, match="is in use"):
            await pull.listen(url)
    async with Push0() as push:
        with pytest.raises(ConnectionRefused, match=f"nobody listens at {url}"):
            await push.dial_once(url)
    async with Pull0(listen=url):
        pass


@linux
def test_an_abstract_name_may_be_too_long() -> None:
    check_url(f"abstract://{'x' * PATH_SIZE_MAX}")
    with pytest.raises(AddressError, match="the name has 108 bytes"):
        check_url(f"abstract://{'x' * (PATH_SIZE_MAX + 1)}")
    check_url("abstract://" + "%00" * PATH_SIZE_MAX)


def test_a_url_that_cannot_be_encoded_is_an_address_error() -> None:
    for scheme in ("ipc", "unix", "abstract"):
        with pytest.raises(AddressError, match="cannot be written in UTF-8"):
            check_url(f"{scheme}://\ud800")


def test_abstract_names_are_refused_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(AddressError, match="exist on Linux only; use ipc://"):
        parse_path("name", "abstract")


def test_addresses_read_as_urls() -> None:
    assert describe("/tmp/x") == "ipc:///tmp/x"
    assert describe(b"/tmp/x") == "ipc:///tmp/x"
    assert describe(b"\0a\0b") == "abstract://a%00b"
    assert describe("") == describe(b"") == describe(None) == ""


# --- files


async def test_unix_is_another_word_for_ipc(tmp_path: Path) -> None:
    assert await crosses(f"unix://{tmp_path}/x") == f"ipc://{tmp_path}/x"
    assert await crosses(f"ipc://{tmp_path}/x", f"unix://{tmp_path}/x") == f"ipc://{tmp_path}/x"


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
async def test_the_file_has_the_configured_mode(tmp_path: Path, mode: int) -> None:
    old = os.umask(0o077)
    try:
        options = SocketOptions(ipc_permissions=mode)
        async with Pull0(listen=f"ipc://{tmp_path}/x", options=options):
            assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode
    finally:
        os.umask(old)


async def test_the_file_is_given_to_a_group(tmp_path: Path) -> None:
    options = SocketOptions(ipc_group=os.getgid(), ipc_owner=os.getuid(), ipc_permissions=0o660)
    async with Pull0(listen=f"ipc://{tmp_path}/x", options=options):
        found = (tmp_path / "x").stat()
        assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())


async def test_a_file_that_cannot_be_given_away_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, uid: int, gid: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    async with Pull0() as pull:
        with pytest.raises(AddressError, match=r"cannot listen at ipc://.*: operation not permitted"):
            await pull.listen(f"ipc://{tmp_path}/x", options=replace(pull.options, ipc_group=12345))
    assert list(tmp_path.iterdir()) == []


# --- the peer's identity


@linux
@pytest.mark.parametrize("abstract", [False, True])
async def test_the_process_of_a_peer_comes_from_the_kernel(tmp_path: Path, abstract: bool) -> None:
    url = f"abstract://{NAME}-who" if abstract else f"ipc://{tmp_path}/x"
    me = PeerIdentity(pid=os.getpid(), uid=os.getuid(), gid=os.getgid())
    known: list[PeerIdentity | None] = []
    async with (
        Pull0(listen=url, admit=lambda pipe: known.append(pipe.identity)) as pull,
        Push0(dial=url) as push,
    ):
        await push.wait_for_peers()
        await pull.wait_for_peers()
        assert push.pipes[0].identity == pull.pipes[0].identity == me
        assert known == [me], "the hook can decide by it"


@linux
async def test_the_identity_of_another_process_is_that_process(tmp_path: Path) -> None:
    async with Pull0(listen=f"ipc://{tmp_path}/x") as pull:
        pid = os.fork()
        if pid == 0:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(f"{tmp_path}/x")
                peer.sendall(b"\0SP\0\0\x50\0\0")
                peer.recv(9)
                peer.recv(9)
            os._exit(0)
        await pull.wait_for_peers()
        identity = pull.pipes[0].identity
        assert identity is not None and identity.pid == pid
        pull.pipes[0].close("seen")
        await until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid)


async def test_peers_over_tcp_and_inproc_have_no_identity() -> None:
    for url in ("tcp://127.0.0.1:0", "inproc://who"):
        async with Pull0(listen=url) as pull, Push0() as push:
            await push.dial_once(pull.listeners[0].url)
            await pull.wait_for_peers()
            assert pull.pipes[0].identity is push.pipes[0].identity is None
