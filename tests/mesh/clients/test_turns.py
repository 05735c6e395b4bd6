"""Ctrl-C may end a turn of a blocking session at any place: other threads take it over, and the client goes
on.

No broker is needed: the other end is silent, or sends what the test has it send.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from mesh.clients.blocking_client import BlockingClient
from mesh.clients.blocking_connection import BlockingConnection
from mesh.clients.blocking_session import BlockingSession
from mesh.errors import Disconnected, NotAccepted, Unknown
from mesh.logs import log
from protocols.errors import ConnectionRefused
from protocols.wire.handshake import Greeting, ProtocolNumber
from protocols.wire.sp import SpCodec
from tests.mesh.clients.blocking_programs import start, until
from tests.mesh.clients.brokerless import data, settled
from tests.support.interrupts import LIMIT_S, ends, interrupted_at


class Talk:
    """An open client on one end of a socket pair; the test has the other end."""

    def __init__(self) -> None:
        self.client = BlockingClient("tcp://127.0.0.1:1")
        self.session = self.client._session
        self.session.conversation = settled()
        self.session._opened = self.session._established = True
        self.sock, self.theirs = socket.socketpair()
        self.sock.setblocking(False)
        codec = SpCodec(Greeting.of(ProtocolNumber.REQ0, ProtocolNumber.REP0), 1 << 20, b"")
        codec.begin()
        codec.receive(b"\0SP\0\0\x31\0\0")
        self.wire = self.session._wire = BlockingConnection(self.sock, codec)

    def say(self, frame: bytes) -> None:
        """Send as the broker."""
        self.theirs.sendall(len(frame).to_bytes(8, "big") + frame)

    def close(self) -> None:
        self.sock.close()
        self.theirs.close()


@pytest.fixture
def talk() -> Iterator[Talk]:
    made = Talk()
    yield made
    made.close()


def pumps(session: BlockingSession) -> None:
    with session.ours():
        session.pump(lambda: False, time.monotonic() + 0.001)


def waits_for_another_reader(session: BlockingSession) -> None:
    session._reading = True
    try:
        pumps(session)
    finally:
        session._reading = False


class Refusing:
    """Stands for the dialer of an address where nobody listens."""

    def connect(self, timeout: float) -> None:
        raise ConnectionRefused("nobody listens")


def dials(session: BlockingSession) -> None:
    session._wire = None
    session._retry_at = 0.0
    session._dialer = Refusing()  # type: ignore[assignment]
    pumps(session)


TURNS = {
    "read": lambda talk: pumps(talk.session),
    "wait for another reader": lambda talk: waits_for_another_reader(talk.session),
    "dial": lambda talk: dials(talk.session),
    "publish": lambda talk: talk.client.publish("t", b"body", timeout=0.001),
    "close": lambda talk: talk.client.close(),
}


@pytest.mark.parametrize("name", list(TURNS))
def test_a_call_that_is_interrupted_anywhere_gives_lock_and_turn_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the call took the lock, or took it back, left the lock taken or ended in ``cannot release
    un-acquired lock``. Between the two, it left no thread to read the connection."""
    monkeypatch.setattr("mesh.clients.blocking_session.LINGER_S", 0.001)
    monkeypatch.setattr(log, "disabled", True)  # an interrupt within logging leaves the handler's lock taken
    place, interrupted = 1, True
    while interrupted:
        talk = Talk()
        session, lock = talk.session, talk.session.lock
        interrupted = interrupted_at(place, partial(TURNS[name], talk), (NotAccepted, Unknown))
        assert ends(lambda lock=lock: lock.held.acquire() and lock.held.release()), place  # type: ignore[misc]
        assert not (session._reading or session._writing or session.dialling), f"taken forever at {place}"
        assert talk.wire.watchers == 0
        session.close()
        assert talk.sock.fileno() == -1 or name == "dial", f"open after an interrupt at place {place}"
        talk.close()
        place += 1
    assert place > 10


def test_a_publish_that_is_interrupted_anywhere_sends_whole_frames_once_or_loses_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C after the kernel had taken bytes had them sent again; the broker then read nonsense."""
    monkeypatch.setattr(log, "disabled", True)
    place, interrupted, kept = 1, True, 0
    while interrupted:
        talk = Talk()
        publish = partial(talk.client.publish, "t", bytes(100), timeout=0.001)
        interrupted = interrupted_at(place, publish, (NotAccepted, Unknown))
        if talk.session._wire is not None:
            kept += 1
            with talk.session.ours():
                talk.session.conversation.sync()
                talk.session.send()
            data, frames = talk.theirs.recv(1 << 16), list[bytes]()
            while data:
                size = int.from_bytes(data[:8], "big")
                assert 0 < size <= len(data) - 8, f"a torn frame after an interrupt at place {place}"
                frame, data = data[8 : 8 + size], data[8 + size :]
                assert frame not in frames, f"sent twice after an interrupt at place {place}"
                frames.append(frame)
        talk.close()
        place += 1
    assert place > 10 and kept > 5


@pytest.mark.parametrize("name", ["read", "publish"])
def test_a_signal_handler_may_close_the_client_anywhere_in_a_call(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection and the conversation ended under the call."""
    monkeypatch.setattr("mesh.clients.blocking_session.LINGER_S", 0.001)
    place, reached, deferred = 1, True, 0
    while reached:
        talk = Talk()
        session = talk.session

        def close(session: BlockingSession = session) -> None:
            nonlocal deferred
            before = session._wire
            owned = session.lock.owned
            session.close()
            if owned:
                deferred += 1
                assert session._wire is before and not session.closed

        call = partial(TURNS[name], talk)
        reached = interrupted_at(place, call, (NotAccepted, Unknown, Disconnected), close)
        if reached:
            until(lambda session=session: session.closed and session._wire is None)  # type: ignore[misc]
        assert talk.sock.fileno() == -1 or not reached
        talk.close()
        place += 1
    assert place > 10 and deferred > 5


def test_another_thread_continues_to_read_when_ctrl_c_ends_the_reading_one(talk: Talk) -> None:
    with talk.session.ours():
        feed = talk.session.conversation.subscribe(["t"], 0, 100, 1 << 20)
    results: list[object] = []

    def waits() -> object:
        with talk.session.ours():
            return talk.session.pump(lambda: bool(feed.runs), None)

    def presses() -> None:
        until(lambda: talk.session._reading)
        thread = start(waits, results)
        until(lambda: talk.session.lock._waiters)
        threads.append(thread)
        assert threading.main_thread().ident is not None
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threads: list[threading.Thread] = []
    pressing = threading.Thread(target=presses)
    pressing.start()
    with pytest.raises(KeyboardInterrupt), talk.session.ours():
        talk.session.pump(lambda: False, None)
    pressing.join(LIMIT_S)
    until(lambda: talk.session._reading)
    talk.say(data(feed.number, 1, b"body"))
    threads[0].join(LIMIT_S)
    assert results == [True]


def interrupted(*_: object) -> object:
    raise KeyboardInterrupt


def test_an_interrupted_close_still_closes(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection stayed open, and the broker kept the session."""
    monkeypatch.setattr(talk.wire, "poll", lambda events, beside: interrupted)
    with pytest.raises(KeyboardInterrupt):
        talk.client.close()
    assert talk.session.closed and talk.sock.fileno() == -1
