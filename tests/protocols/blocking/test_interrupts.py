"""Ctrl-C and signal handlers in the calls of blocking sockets: what is left can be used, and closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from protocols import Closed, Timeout, blocking
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.blocking.support import LIMIT_S, silent_listener, until
from tests.support.interrupts import ends, interrupted_at

CALLS: dict[str, Callable[[Any], object]] = {
    "send": lambda socket: socket.send(b"body"),
    "recv_nowait": lambda socket: socket.recv(0.0),
    "recv": lambda socket: socket.recv(0.001),
    "wait_for_peers": lambda socket: socket.wait_for_peers(1, 0.001),
    "statistics": lambda socket: socket.statistics(),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_that_is_interrupted_anywhere_leaves_the_lock_free(name: str) -> None:
    """Ctrl-C between taking the lock and knowing of it left it taken: ``close`` hung for ever."""
    with blocking.Bus0() as bus:
        place = 1
        while interrupted_at(place, lambda: CALLS[name](bus), Timeout):
            assert ends(lambda: bus.pipes), f"the lock is taken after an interrupt at place {place}"
            place += 1
        assert place > 5


AT_ONCE: dict[str, Any] = {"reconnect_min_s": 0.001, "reconnect_max_s": 0.001}


def test_a_send_that_is_interrupted_anywhere_leaves_whole_messages_on_the_wire() -> None:
    """Ctrl-C after the kernel had taken bytes had them written again, and one before the write was announced
    left it undone for ever: the peer got no message any more."""
    with blocking.Pull0(listen="tcp://127.0.0.1:0", recv_size_max=0) as pull:
        with blocking.Push0(dial=pull.listeners[0].url, **AT_ONCE) as push:
            push.wait_for_peers(1, LIMIT_S)
            place, interrupted = 1, True
            while interrupted:
                one, after = b"one %d" % place, b"after %d" % place
                interrupted = interrupted_at(place, partial(push.send, one))
                push.send(after, LIMIT_S)
                got = []
                while after not in got:
                    got.append(pull.recv(LIMIT_S))
                assert got in ([after], [one, after])
                place += 1
            assert place > 10


def stuck(url: str, server: Any, **options: Any) -> tuple[blocking.Push0, Any]:
    """A socket with more queued than its peer reads, and the peer."""
    push = blocking.Push0(dial=url, send_queue=1000, **options)
    peer, _ = server.accept()
    peer.sendall(encode_header(ProtocolNumber.PULL0))
    push.wait_for_peers(1, LIMIT_S)
    for _ in range(200):
        push.send(bytes(100_000), LIMIT_S)
    return push, peer


def read_all(peer: Any) -> None:
    peer.settimeout(LIMIT_S)
    while peer.recv(1 << 20):
        pass
    peer.close()


def while_it_waits(socket: Any, action: Callable[[], object]) -> None:
    """Do that at the next wait of this thread, as a signal handler does."""
    lock, thread, wait = socket._core.lock, threading.current_thread(), socket._core.lock.wait

    def waiting(*arguments: Any) -> None:
        if threading.current_thread() is thread:
            lock.wait = wait
            action()
        wait(*arguments)

    lock.wait = waiting


def press() -> None:
    raise KeyboardInterrupt


def test_an_interrupted_close_leaves_nothing_behind() -> None:
    """Its thread and descriptors stayed for ever, also when the peer was gone."""
    before = set(threading.enumerate())
    with silent_listener() as (url, server):
        push, peer = stuck(url, server, linger_s=None)
        while_it_waits(push, press)
        with pytest.raises(KeyboardInterrupt):
            push.close()
        until(lambda: set(threading.enumerate()) <= before)
        push.close()
        peer.close()


def test_a_second_close_waits_for_the_first() -> None:
    """It returned while the first one still gave the peers time to read."""
    with silent_listener() as (url, server):
        push, peer = stuck(url, server, linger_s=None)
        first = threading.Thread(target=push.close)
        first.start()
        until(lambda: push.closed)
        second = threading.Thread(target=push.close)
        second.start()
        second.join(0.05)
        assert second.is_alive() and first.is_alive()
        read_all(peer)
        first.join(LIMIT_S)
        second.join(LIMIT_S)
        assert not first.is_alive() and not second.is_alive()


def test_a_signal_handler_may_close_a_socket_in_the_middle_of_a_call() -> None:
    """The handler waited for the I/O thread, and that for the lock, which the interrupted call had."""
    rep = blocking.Rep0(listen="inproc://handler")
    req = blocking.Req0(dial="inproc://handler")
    req.wait_for_peers(1, LIMIT_S)
    before = req._core.now
    sender: list[threading.Thread] = []

    def now() -> float:  # `send` asks for the time while it has the lock
        if [threading.current_thread()] == sender:
            sender.clear()
            req.close()
        return before()

    req._core.now = now  # type: ignore[method-assign]

    def send() -> None:
        sender.append(threading.current_thread())
        with pytest.raises(Closed):
            req.send(b"question")

    assert ends(send) and req.closed
    rep.close()


def test_a_signal_handler_may_close_a_socket_that_closes() -> None:
    with silent_listener() as (url, server):
        push, peer = stuck(url, server, linger_s=None)
        reading = threading.Thread(target=read_all, args=(peer,))

        def handler() -> None:
            reading.start()
            push.close()

        def close() -> None:
            while_it_waits(push, handler)
            push.close()

        assert ends(close)
        reading.join(LIMIT_S)
