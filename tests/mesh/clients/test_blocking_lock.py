"""Ctrl-C in the waits of a `BlockingClient`, and again while its lock is taken back."""

from __future__ import annotations

import _thread
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mesh.clients.blocking_connection import BlockingConnection
from mesh.clients.blocking_session import BlockingSession
from protocols.wire.handshake import Greeting, ProtocolNumber
from protocols.wire.sp import SpCodec
from tests.mesh.clients.brokerless import settled


class InterruptedLock(_thread.RLock):
    """A lock whose taking is interrupted that often, as by Ctrl-C while another thread has it."""

    interrupts = 0

    def _interrupt(self) -> None:
        if self.interrupts and not self._is_owned():  # type: ignore[attr-defined]
            self.interrupts -= 1
            raise KeyboardInterrupt

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        self._interrupt()
        return super().acquire(*args, **kwargs)

    def _acquire_restore(self, state: Any) -> None:
        self._interrupt()
        super()._acquire_restore(state)  # type: ignore[misc]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[BlockingSession, InterruptedLock]]:
    """A session on one end of a socket pair, whose other end is silent, and its lock."""
    lock = InterruptedLock()
    with monkeypatch.context() as patch:
        patch.setattr(threading, "RLock", lambda: lock)
        session = BlockingSession("tcp://127.0.0.1:1", "", None, 1.0)
    session.conversation = settled()
    session._opened = session._established = True
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    codec = SpCodec(Greeting.of(ProtocolNumber.REQ0, ProtocolNumber.REP0), 1 << 20, b"")
    session._wire = BlockingConnection(ours, codec)
    with ours, theirs:
        yield session, lock


def interrupted(lock: InterruptedLock) -> Callable[..., object]:
    """Something that waits without the lock, until Ctrl-C; then it comes twice more."""

    def wait(*_: object) -> object:
        assert not lock._is_owned(), "others can use the client"  # type: ignore[attr-defined]
        lock.interrupts = 2
        raise KeyboardInterrupt

    return wait


class Waiter:
    """What `threading.Condition` makes for each wait: it takes it, and waits until it can take it again."""

    def __init__(self, wait: Callable[..., object]) -> None:
        self._wait = wait
        self._taken = False

    def acquire(self, *args: object) -> object:
        taken, self._taken = self._taken, True
        return self._wait() if taken else True

    def release(self) -> None: ...


def usable(session: BlockingSession, lock: InterruptedLock) -> bool:
    """The lock is free, and the next call works."""
    free = not lock._is_owned()  # type: ignore[attr-defined]
    with session.ours():
        return free and not session.pump(lambda: False, 0.0)


def test_interrupts_while_the_lock_is_taken_back_after_a_poll_leave_the_client_usable(
    session: tuple[BlockingSession, InterruptedLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended as RuntimeError, `cannot release un-acquired lock`, and nobody read the connection again."""
    one, lock = session
    poll = type("Poll", (), {"poll": staticmethod(interrupted(lock))})
    monkeypatch.setattr(one._wire, "watch", lambda events: poll)
    monkeypatch.setattr(one._wire, "unwatch", lambda: None)
    with pytest.raises(KeyboardInterrupt), one.ours():
        one.pump(lambda: False, None)
    assert not one._reading and usable(one, lock)


def test_interrupts_after_an_attempt_to_connect_leave_the_client_usable(
    session: tuple[BlockingSession, InterruptedLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, lock = session
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), one.ours():
        patch.setattr(one, "_wire", None)
        patch.setattr(one._dialer, "connect", interrupted(lock))
        one._dial(float("inf"))
    assert not one._dialling and usable(one, lock)


def test_interrupts_after_a_wait_for_other_threads_leave_the_client_usable(
    session: tuple[BlockingSession, InterruptedLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, lock = session
    one._reading = True
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), one.ours():
        patch.setattr(threading, "_allocate_lock", lambda: Waiter(interrupted(lock)))
        one.pump(lambda: False, None)
    one._reading = False
    assert usable(one, lock)
