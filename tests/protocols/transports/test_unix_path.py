"""A path has one listener at a time, even if others want it in the same instant."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocols import AddressError, AddressInUse, Pull0, Push0, SocketOptions
from protocols.transports import unix_path
from protocols.transports.unix_path import file_identity, is_dead, listening_socket, locked
from simulations import World
from simulations.world import Process

OPTIONS = SocketOptions()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/x"


def leave_dead(path: str) -> None:
    """The remains of a program that was killed."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        sock.listen()
    os.utime(path, (1e9, 1e9))  # some time ago


@pytest.fixture
def live(path: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        sock.listen()
        yield sock


# --- the winner


def test_exactly_one_of_many_takes_over_a_dead_file(path: str) -> None:
    count = 8
    with ThreadPoolExecutor(count) as threads:
        for _ in range(40):
            leave_dead(path)
            together = threading.Barrier(count)

            def take(together: threading.Barrier = together) -> socket.socket | None:
                together.wait()
                try:
                    return listening_socket(path, OPTIONS)[0]
                except AddressInUse:
                    return None

            winners = [sock for sock in threads.map(lambda _: take(), range(count)) if sock is not None]
            assert len(winners) == 1
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(path)
                winners[0].setblocking(True)
                winners[0].accept()[0].close()  # peers reach the winner
            winners[0].close()
            os.unlink(path)


def test_exactly_one_of_many_gets_a_fresh_path(path: str) -> None:
    """A file that is bound and does not listen yet looks dead."""
    count = 8
    with ThreadPoolExecutor(count) as threads:
        for _ in range(40):
            together = threading.Barrier(count)

            def take(together: threading.Barrier = together) -> socket.socket | None:
                together.wait()
                try:
                    return listening_socket(path, OPTIONS)[0]
                except AddressInUse:
                    return None

            winners = [sock for sock in threads.map(lambda _: take(), range(count)) if sock is not None]
            assert len(winners) == 1 and not is_dead(path)
            winners[0].close()
            os.unlink(path)


def test_a_program_that_began_to_listen_in_between_keeps_its_file(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ignores our lock: it removed the dead file and listens, after we had found that dead."""
    leave_dead(path)
    others = socket.socket(socket.AF_UNIX)
    real = unix_path.is_dead

    def raced(asked: str) -> bool:
        dead = real(asked)
        os.unlink(path)
        others.bind(path)
        others.listen()
        return dead

    monkeypatch.setattr(unix_path, "is_dead", raced)
    with others:
        with pytest.raises(AddressInUse):
            listening_socket(path, OPTIONS)
        assert not real(path), "it is still reached there"


def test_a_live_listener_is_left_alone(path: str, live: socket.socket) -> None:
    before = file_identity(path)
    with pytest.raises(AddressInUse, match="in use by another program"):
        listening_socket(path, OPTIONS)
    assert file_identity(path) == before


def test_a_listener_with_a_full_backlog_is_not_dead(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(path)
        busy.listen(0)
        peers = []
        for _ in range(3):
            peer = socket.socket(socket.AF_UNIX)
            peer.setblocking(False)
            peers.append(peer)
            if peer.connect_ex(path):
                break
        with pytest.raises(AddressInUse):
            listening_socket(path, OPTIONS)
        for peer in peers:
            peer.close()


def test_a_dead_file_is_taken_over(path: str) -> None:
    leave_dead(path)
    sock, identity = listening_socket(path, OPTIONS)
    with sock:
        assert file_identity(path) == identity and not is_dead(path)


@pytest.mark.parametrize("kind", ["file", "folder", "link to nothing"])
def test_a_file_that_is_no_socket_is_left_alone(path: str, kind: str) -> None:
    if kind == "file":
        Path(path).write_text("precious")
    elif kind == "folder":
        Path(path).mkdir()
    else:
        os.symlink("/nowhere/at/all", path)
    before = file_identity(path)
    with pytest.raises((AddressError, OSError)):
        listening_socket(path, OPTIONS)
    assert file_identity(path) == before
    assert os.listdir(os.path.dirname(path)) == ["x"], "nothing else is left behind"


# --- the lock


def test_the_lock_is_gone_when_the_listener_is_there(path: str) -> None:
    with listening_socket(path, OPTIONS)[0]:
        assert os.listdir(os.path.dirname(path)) == ["x"]


def test_a_path_that_another_takes_over_is_in_use(path: str) -> None:
    with locked(path), pytest.raises(AddressInUse):
        listening_socket(path, OPTIONS)
    with listening_socket(path, OPTIONS)[0]:
        pass


def test_a_lock_left_by_a_killed_program_blocks_no_other(path: str) -> None:
    Path(f"{path}.lock").touch()
    with listening_socket(path, OPTIONS)[0]:
        assert os.listdir(os.path.dirname(path)) == ["x"]


def test_a_lock_that_its_holder_removes_is_requested_again(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our opening of the file and our lock on it, the holder may remove it: then we lock nothing."""
    real = fcntl.flock
    opened = 0

    def removed_first(descriptor: int, how: int) -> None:
        nonlocal opened
        opened += 1
        if opened == 1:
            os.unlink(f"{path}.lock")
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with locked(path):
        assert opened == 2 and os.path.exists(f"{path}.lock")


def test_a_foreign_file_named_like_the_lock_is_kept(path: str) -> None:
    other = Path(f"{path}.lock")
    other.write_text("precious")
    with listening_socket(path, OPTIONS)[0]:
        pass
    assert other.read_text() == "precious"


def test_a_lock_that_cannot_be_made_is_an_error_with_the_path(path: str) -> None:
    os.symlink("/dev/null", f"{path}.lock")
    with pytest.raises(OSError):
        listening_socket(path, OPTIONS)
    assert not os.path.exists(path)


# --- with sockets


async def test_closing_does_not_remove_the_file_of_the_next_listener(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is removed while the listener is still there, so nobody can find it dead and take it over
    before.
    """
    alive: list[bool] = []
    real = os.unlink

    def watched(target: str) -> None:
        if target == path:
            alive.append(not is_dead(path))
        real(target)

    async with Pull0(listen=f"ipc://{path}"):
        monkeypatch.setattr(os, "unlink", watched)
    assert alive == [True]


async def test_a_listener_that_fails_half_way_leaves_the_path_free(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    async with Pull0() as pull:
        with monkeypatch.context() as patch:
            patch.setattr(os, "chmod", refuse)
            with pytest.raises(AddressError, match="operation not permitted"):
                await pull.listen(f"ipc://{path}")
        assert os.listdir(os.path.dirname(path)) == []
        await pull.listen(f"ipc://{path}")


async def test_a_missing_folder_is_named_in_the_error(tmp_path: Path) -> None:
    async with Pull0() as pull:
        with pytest.raises(AddressError, match=r"cannot listen at ipc://.*nowhere/x: no such file"):
            await pull.listen(f"ipc://{tmp_path}/nowhere/x")


def test_two_simulated_listeners_race_for_a_dead_file_and_one_wins() -> None:
    url = "ipc:///run/x.sock"

    async def listener(process: Process) -> None:
        async with Pull0(rng=process.stream("pull")) as pull:
            try:
                await pull.listen(url)
            except AddressInUse:
                process.exposed = "in use"
                await process.stopping.wait()
            process.exposed = await pull.recv()
            await process.stopping.wait()

    async def pusher(process: Process) -> None:
        async with Push0(dial=url, rng=process.stream("push")) as push:
            await push.send(b"to whoever won")
            await process.stopping.wait()

    async def victim(process: Process) -> None:
        async with Pull0(listen=url, rng=process.stream("pull")):
            process.exposed = "listening"
            await process.stopping.wait()

    with World(1) as world:
        world.add_node("victim", victim, host="one").start()
        world.run_for(1)
        world.inject("crash", ["victim"])
        for name in ("first", "second"):
            world.add_node(name, listener, host="one").start()
        world.run_for(1)
        world.add_node("pusher", pusher, host="one").start()
        world.run_for(1)
        results = sorted(str(world.node(name).exposed) for name in ("first", "second"))
        assert results == ["b'to whoever won'", "in use"]
        assert not world.failures and not world.fence.escapes
