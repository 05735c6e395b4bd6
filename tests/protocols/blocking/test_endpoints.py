"""Dialers and listeners of blocking sockets: what starting one needs, and what closing one releases."""

from __future__ import annotations

import errno
import gc
import os
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocols import AddressError, Closed, blocking
from protocols.blocking.stream import Stream
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.blocking.support import LIMIT_S, raw_peer, until
from tests.support.interrupts import interrupted_at
from tests.support.ports import free_port

HEADER = encode_header(ProtocolNumber.PUSH0)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(params=["tcp", "ipc", "inproc"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "tcp": f"tcp://127.0.0.1:{free_port()}",
        "ipc": f"ipc://{tmp_path}/here",
        "inproc": "inproc://given-back",
    }[request.param]


# --- exhausted resources

SCARCE: dict[str, tuple[Any, str, Exception]] = {
    "selector": (selectors, "DefaultSelector", OSError(errno.EMFILE, "")),
    "pair": (socket, "socketpair", OSError(errno.EMFILE, "")),
    "pipe": (os, "pipe", OSError(errno.EMFILE, "")),
    "watch": (selectors.DefaultSelector, "register", OSError(errno.ENOSPC, "")),
    "thread": (threading.Thread, "start", RuntimeError("can't start new thread")),
}
WORDS = "too many open files|no space left on device|can't start new thread"


@contextmanager
def without(what: str, nth: int) -> Iterator[None]:
    """From the nth call on the resource is exhausted."""
    owner, name, error = SCARCE[what]
    real, left = getattr(owner, name), nth

    def scarce(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            raise error
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, scarce)
        yield


@pytest.mark.parametrize(
    ("what", "nth"), [("selector", 1), ("pair", 1), ("pipe", 1), ("watch", 1), ("thread", 1), ("thread", 2)]
)
def test_a_dial_without_resources_leaves_nothing_open(what: str, nth: int) -> None:
    """The call raised a bare OSError, and its dialer stayed alive: a second dial made two peers."""
    with blocking.Pull0(listen="inproc://scarce") as pull:
        before = descriptors()
        with blocking.Push0() as push:
            with without(what, nth), pytest.raises(AddressError, match=f"cannot dial inproc.*({WORDS})"):
                push.dial("inproc://scarce")
            assert push.dialers == []
            push.dial("inproc://scarce").wait_connected(LIMIT_S)
            pull.wait_for_peers(1, LIMIT_S)
            assert len(push.pipes) == len(pull.pipes) == 1
        until(lambda: not pull.pipes)
        assert descriptors() == before


@pytest.mark.parametrize(
    ("what", "nth"), [("selector", 1), ("pair", 1), ("watch", 1), ("watch", 2), ("thread", 1)]
)
def test_a_listen_without_resources_leaves_nothing_open(what: str, nth: int, url: str) -> None:
    """The name stayed in use, and the file of an ipc listener was left behind."""
    before = descriptors()
    with blocking.Pull0() as pull:
        if (what, nth) != ("watch", 2) or not url.startswith("inproc"):  # there is one thing to watch only
            with without(what, nth), pytest.raises(AddressError, match=f"cannot listen at.*({WORDS})"):
                pull.listen(url)
        assert pull.listeners == []
        pull.listen(url)
        with blocking.Push0(dial=url) as push:
            push.send(b"it listens", LIMIT_S)
            assert pull.recv(LIMIT_S) == b"it listens"
    assert descriptors() == before


# --- closed by hand


def test_dialers_and_listeners_closed_by_hand_are_forgotten(url: str) -> None:
    """Each was kept until the socket closed."""
    gone: list[weakref.ref[Any]] = []
    with blocking.Pull0() as pull, blocking.Push0() as push:
        for _ in range(3):
            listener = pull.listen(url)
            dialer = push.dial(url)
            peer = dialer.wait_connected(LIMIT_S)
            assert push.dialers == [dialer] and pull.listeners == [listener]
            listener.close()
            dialer.close()
            assert push.dialers == pull.listeners == []
            peer.close("enough")
            gone.extend([weakref.ref(dialer), weakref.ref(listener)])
            del dialer, listener, peer
            until(lambda: all(each.ended for each in push._core._dialling))
            push.dial(url).close()  # the next one forgets the threads that have ended
            until(lambda: collected(gone))


def collected(gone: list[weakref.ref[Any]]) -> bool:
    gc.collect()
    return [each() for each in gone] == [None] * len(gone)


def test_dialers_and_listeners_closed_with_their_socket_keep_their_statistics() -> None:
    with blocking.Pull0(listen="tcp://127.0.0.1:0") as pull, blocking.Push0() as push:
        push.dial(pull.listeners[0].url).wait_connected(LIMIT_S)
    assert pull.listeners[0].closed and push.dialers[0].attempts == 1


def test_a_closed_socket_waits_for_dialers_closed_by_hand() -> None:
    with blocking.Push0() as push:
        dialers = [push.dial("tcp://127.0.0.1:1") for _ in range(5)]
        for dialer in dialers:
            dialer.close()
    assert all(dialer.ended for dialer in dialers)


@pytest.mark.parametrize("call", ["listener.close", "socket.close"])
def test_a_close_that_is_interrupted_anywhere_is_done_by_the_next_one(call: str, url: str) -> None:
    """After Ctrl-C at 12 of its 86 places the address stayed in use until the process ended."""
    place = 1
    while True:
        pull = blocking.Pull0(linger_s=0.0)
        listener = pull.listen(url)
        interrupted = interrupted_at(place, listener.close if call == "listener.close" else pull.close)
        pull.close()
        with blocking.Pull0(listen=url):
            pass
        if not interrupted:
            break
        place += 1
    assert place > 10


def test_a_second_close_leaves_the_name_to_its_present_listener() -> None:
    with blocking.Pull0() as pull, blocking.Pull0() as other:
        first = pull.listen("inproc://taken-over")
        first.close()
        other.listen("inproc://taken-over")
        first.close()
        with blocking.Push0(dial="inproc://taken-over") as push:
            push.send(b"it listens", LIMIT_S)
            assert other.recv(LIMIT_S) == b"it listens"


# --- connections of an open listener


def test_a_listener_keeps_no_connection_that_has_ended() -> None:
    """Each stayed in memory until ``handshake_timeout_s`` was over."""
    with blocking.Pull0(listen="tcp://127.0.0.1:0", handshake_timeout_s=1e6) as pull:
        url = pull.listeners[0].url
        for says in (HEADER, b"", b"GET / HT"):
            for _ in range(5):
                with raw_peer(url) as peer:
                    peer.sendall(says)
                    if says:
                        peer.recv(8)
        until(lambda: pull.statistics().detached == 5 and not pull.pipes)
        until(lambda: sum(pull.listeners[0].refused.values()) == 10)
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, Stream)]
        assert not [each for each in kept if each._mover is pull._core.io]


def test_each_connection_without_a_header_has_its_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """One timer serves them all."""
    with blocking.Pull0(listen="tcp://127.0.0.1:0", handshake_timeout_s=100.0) as pull:
        (listener,) = pull.listeners
        io = pull._core.io
        passed = 0.0
        monkeypatch.setattr(io, "time", lambda: time.monotonic() + passed)
        first = raw_peer(listener.url)
        until(lambda: len(listener._opening) == 1)
        passed = 60.0
        second = raw_peer(listener.url)
        until(lambda: len(listener._opening) == 2)
        passed = 101.0
        io.wake()
        until(lambda: listener.refused == {"timeout": 1})
        assert len(listener._opening) == 1
        passed = 161.0
        io.wake()
        until(lambda: listener.refused == {"timeout": 2})
        first.close()
        second.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_that_ends_the_io_thread_ends_the_connections() -> None:
    """They stayed open, and peers connected to a listener without a thread, until ``close`` was called."""

    def defect() -> None:
        raise AssertionError("a defect")

    pull = blocking.Pull0(listen="tcp://127.0.0.1:0")
    url = pull.listeners[0].url
    with raw_peer(url) as pipe, raw_peer(url) as opening:
        pipe.sendall(HEADER)
        pull.wait_for_peers(1, LIMIT_S)
        assert pipe.recv(8) and opening.recv(8)
        pull._core.io.call_at(0.0, defect)
        assert pipe.recv(8) == opening.recv(8) == b""
    with pytest.raises(ConnectionRefusedError):
        raw_peer(url)
    with pytest.raises(Closed):
        pull.recv(LIMIT_S)
    pull.close()
