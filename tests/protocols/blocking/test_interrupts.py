"""Ctrl-C and signal handlers in the calls of blocking sockets: the sockets remain usable, and can be
closed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protocols import Closed, Timeout, blocking
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.blocking.support import LIMIT_S, silent_listener, until
from tests.support.interrupts import ends, interrupted_at, press

CALLS: dict[str, Callable[[Any], object]] = {
    "send": lambda socket: socket.send(b"body"),
    "recv_nowait": lambda socket: socket.recv(0.0),
    "recv": lambda socket: socket.recv(0.001),
    "wait_for_peers": lambda socket: socket.wait_for_peers(1, 0.001),
    "statistics": lambda socket: socket.statistics(),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_that_is_interrupted_anywhere_leaves_the_lock_free(name: str) -> None:
    """Ctrl-C between taking the lock and recording it left it taken: ``close`` hung."""
    with blocking.Bus0() as bus:
        place = 1
        while interrupted_at(place, lambda: CALLS[name](bus), Timeout):
            assert ends(lambda: bus.pipes), f"the lock is taken after an interrupt at place {place}"
            place += 1
        assert place > 5


AT_ONCE: dict[str, Any] = {"reconnect_min_s": 0.001, "reconnect_max_s": 0.001}


def test_a_send_that_is_interrupted_anywhere_leaves_whole_messages_on_the_wire() -> None:
    """After Ctrl-C, bytes that the kernel had taken were written again, or the write never happened: the peer
    got no further message.
    """
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


Pair = tuple[Any, Any]
"""The socket whose call is interrupted, and its peer."""


def push_one(pair: Pair, body: bytes) -> object:
    return pair[0].send(body, LIMIT_S)


def push_many(pair: Pair, body: bytes) -> object:
    return pair[0].send_many([body] * 3, LIMIT_S)


def pull_one(pair: Pair, body: bytes) -> object:
    return pair[1].recv(LIMIT_S)


def pull_all(pair: Pair, body: bytes) -> object:
    return pair[1].recv_many(LIMIT_S)


def delivers(pair: Pair, last: bytes) -> list[bytes]:
    """The bodies that the peer gets up to this one."""
    push, pull = pair
    push.send(last, LIMIT_S)
    got = [pull.recv(LIMIT_S)]
    while got[-1] != last:
        got.append(pull.recv(LIMIT_S))
    return got


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("call", [push_one, push_many, pull_one, pull_all])
def test_a_call_that_is_interrupted_anywhere_leaves_its_peers_alive(call: Any, size: int) -> None:
    """The peer never got another message, or was never read again; the last message arrived twice."""
    with blocking.Pull0(listen="inproc://alive", recv_queue=2) as pull:
        with blocking.Push0(dial="inproc://alive", reconnect_min_s=1000.0) as push:
            push.wait_for_peers(1, LIMIT_S)
            place, interrupted = 1, True
            while interrupted:
                before = [b"%d %d " % (place, number) + bytes(size) for number in range(3)]
                inbox = pull._queue().inbox
                for body in before:
                    push.send(body, LIMIT_S)
                until(lambda inbox=inbox: len(inbox) >= 2)  # type: ignore[misc]
                body = b"%d last" % place + bytes(size)
                interrupted = interrupted_at(place, partial(call, (push, pull), body))
                got = delivers((push, pull), b"end of %d" % place)
                if call in (push_one, push_many):
                    taken = len(got) - 4
                    assert got == [*before, *[body] * taken, got[-1]], place
                    assert taken <= (1 if call is push_one else 3), f"twice, at place {place}"
                else:  # the call may have taken the first, or all
                    assert got == [*before, got[-1]][-len(got) :], place
                place += 1
            assert place > 10 and push.statistics().attached == 1


@pytest.mark.parametrize("scheme", ["ws", "inproc"])
def test_a_request_that_is_interrupted_anywhere_leaves_the_socket_for_the_next(scheme: str) -> None:
    """The next request never ended, or got the answer to the interrupted one."""
    with blocking.Rep0(listen="ws://127.0.0.1:0/" if scheme == "ws" else "inproc://next") as rep:
        serving = threading.Thread(target=rep.serve, args=(lambda question: question,))
        serving.start()
        with blocking.Req0(dial=rep.listeners[0].url, **AT_ONCE) as req:
            req.wait_for_peers(1, LIMIT_S)
            place, interrupted = 1, True
            while interrupted:
                interrupted = interrupted_at(place, partial(req.send, b"first %d" % place))
                req.send(b"second %d" % place, LIMIT_S)
                assert req.recv(LIMIT_S) == b"second %d" % place
                place += 1
            assert place > 10
        rep.close()
        serving.join(LIMIT_S)


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
    """Call it at the next wait of this thread, like a signal handler."""
    lock, thread, wait = socket._core.lock, threading.current_thread(), socket._core.lock.wait

    def waiting(*arguments: Any) -> None:
        if threading.current_thread() is thread:
            lock.wait = wait
            action()
        wait(*arguments)

    lock.wait = waiting


def test_an_interrupted_close_leaves_nothing_behind() -> None:
    """Its thread and descriptors remained, even when the peer was gone."""
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
    """The handler waited for the I/O thread, which waited for the lock that the interrupted call held."""
    rep = blocking.Rep0(listen="inproc://handler")
    req = blocking.Req0(dial="inproc://handler")
    req.wait_for_peers(1, LIMIT_S)
    before = req._core.now
    sender: list[threading.Thread] = []

    def now() -> float:  # `send` reads the clock while it has the lock
        if [threading.current_thread()] == sender:
            sender.clear()
            req.close()
        return before()

    req._core.now = now  # type: ignore[method-assign]

    def send() -> None:
        sender.append(threading.current_thread())
        with suppress(Closed):
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


CLOSING: dict[str, tuple[str, str, Callable[[Any], object]]] = {
    "push": ("Push0", "Pull0", lambda socket: socket.send(b"body", LIMIT_S)),
    "push many": ("Push0", "Pull0", lambda socket: socket.send_many([b"body"] * 3, LIMIT_S)),
    "survey": ("Surveyor0", "Respondent0", lambda socket: socket.send(b"body")),
    "request": ("Req0", "Rep0", lambda socket: socket.request(b"body", 0.001)),
    "context": ("Req0", "Rep0", lambda socket: socket.new_context().close()),
    "subscribe": ("Sub0", "Pub0", lambda socket: socket.subscribe(b"topic")),
    "receive": ("Pull0", "Push0", lambda socket: socket.recv(0.001)),
    "dial": ("Pair0", "Pair0", lambda socket: socket.dial("inproc://nobody")),
    "peers": ("Bus0", "Bus0", lambda socket: socket.pipes),
}


@pytest.mark.parametrize("name", list(CLOSING))
def test_a_handler_that_closes_the_socket_anywhere_in_a_call_changes_nothing_under_it(name: str) -> None:
    """The pattern lost its peers while the call iterated over them: RuntimeError, AssertionError,
    KeyError.
    """
    kind, other, call = CLOSING[name]
    before = set(threading.enumerate())
    place, reached = 1, True
    while reached:
        with getattr(blocking, kind)(listen="inproc://closing", linger_s=LIMIT_S) as socket:
            with getattr(blocking, other)(dial="inproc://closing", linger_s=0.0) as peer:
                socket.wait_for_peers(1, LIMIT_S)
                reached = interrupted_at(place, partial(call, socket), (Closed, Timeout), socket.close)
                socket.close()
                until(lambda peer=peer: not peer.pipes)  # type: ignore[misc]
                if kind == "Push0":
                    assert len(peer._queue().inbox) <= (3 if name == "push many" else 1), f"twice, at {place}"
        place += 1
    assert place > 5
    until(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("size", [10, 300_000])
def test_a_handler_that_sends_anywhere_in_a_send_mixes_no_messages(size: int) -> None:
    """One message was written between the head and the body of another, and the peer hung up."""
    with blocking.Pull0(listen="inproc://mixing", recv_size_max=0) as pull:
        with blocking.Push0(dial="inproc://mixing", reconnect_min_s=1000.0) as push:
            push.wait_for_peers(1, LIMIT_S)
            place, reached = 1, True
            while reached:
                here, there = b"call %d" % place + bytes(size), b"handler %d" % place + bytes(size)
                reached = interrupted_at(
                    place, partial(push.send, here), handler=partial(push.send_nowait, there)
                )
                got = [pull.recv(LIMIT_S) for _ in range(1 + reached)]
                assert sorted(got) == sorted([here, there] if reached else [here]), place
                place += 1
            assert place > 10 and push.statistics().attached == 1


def test_waking_a_thread_that_has_ended_meanwhile_writes_to_no_file(tmp_path: Path) -> None:
    """It wrote to a descriptor by its number, which one of the program's files had by then."""
    place, reached = 1, True
    while reached:
        with blocking.Pull0(listen="inproc://waking") as pull:
            files: list[Any] = []

            def close(socket: Any = pull, files: list[Any] = files) -> None:
                socket.close()
                files += [(tmp_path / str(number)).open("wb") for number in range(40)]

            reached = interrupted_at(place, pull._core.io.wake, handler=close)
        for file in files:
            file.close()
        assert not any(path.stat().st_size for path in tmp_path.iterdir()), place
        place += 1
    assert place > 2
