"""The end of blocking sockets: they close at once in any state, and a forgotten one is reported."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from types import FrameType
from typing import Any

import pytest

from protocols import AddressError, Closed, Timeout, blocking
from tests.protocols.blocking.support import LIMIT_S, silent_listener, until

HUGE_S = 1e12


def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def test_closing_does_not_wait_for_a_handshake() -> None:
    """It waited for ``handshake_timeout_s``."""
    with silent_listener() as (url, server):
        socket = blocking.Pull0(dial=url, handshake_timeout_s=1000.0)
        peer, _ = server.accept()
        before = time.monotonic()
        socket.close()
        assert time.monotonic() - before < 500.0
        assert not socket.dialers[0]._thread.is_alive()
        peer.close()


def test_closing_does_not_wait_for_an_address_that_does_not_answer() -> None:
    """A connect is in progress: a listener whose backlog is full drops new connections."""
    import socket as sockets

    with sockets.socket() as full, sockets.socket() as one, sockets.socket() as two:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (one, two):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        socket = blocking.Pull0(dial=f"tcp://127.0.0.1:{full.getsockname()[1]}", handshake_timeout_s=1000.0)
        socket.close()
        assert not socket.dialers[0]._thread.is_alive()


def test_closing_ends_a_pause_between_attempts() -> None:
    socket = blocking.Pull0(dial="tcp://127.0.0.1:1", reconnect_min_s=1000.0, reconnect_max_s=1000.0)
    until(lambda: socket.dialers[0].last_error)
    socket.close()
    assert not socket.dialers[0]._thread.is_alive()


def test_any_finite_time_may_be_waited() -> None:
    """``wait_connected(1e12)`` raised OverflowError, and a deadline that far ended the I/O thread."""
    with blocking.Surveyor0(listen="tcp://127.0.0.1:0", survey_s=1e9, handshake_timeout_s=1e9) as surveyor:
        url = surveyor.listeners[0].url
        with blocking.Respondent0(dial=url, handshake_timeout_s=1e9) as one:
            one.dialers[0].wait_connected(HUGE_S)
            surveyor.wait_for_peers(1, HUGE_S)
            surveyor.send(b"who?", HUGE_S)
            assert one.recv(HUGE_S) == b"who?"
            one.send(b"me", HUGE_S)
            assert surveyor.recv(HUGE_S) == b"me"


def test_waiting_for_a_connection_takes_the_times_that_other_calls_take() -> None:
    with blocking.Pull0() as pull:
        dialer = pull.dial("tcp://127.0.0.1:1")
        with pytest.raises(ValueError, match="seconds from 0"):
            dialer.wait_connected(-1)
        with pytest.raises(Timeout, match="nobody listens|no connection"):
            dialer.wait_connected(timeout=0.05)


@pytest.mark.parametrize("busy", ["listening", "dialling", "connected"])
def test_a_socket_that_is_dropped_while_open_warns_and_is_freed(busy: str) -> None:
    """Its threads kept it alive, and nobody was told."""
    before = threads()
    with blocking.Pair0(listen="tcp://127.0.0.1:0") as other:
        there = threads()
        socket = blocking.Pair0()
        if busy == "listening":
            socket.listen("tcp://127.0.0.1:0")
        else:
            dialer = socket.dial(other.listeners[0].url if busy == "connected" else "tcp://127.0.0.1:1")
            if busy == "connected":
                dialer.wait_connected(LIMIT_S)
                socket.send(b"the last word")
            del dialer
        core = weakref.ref(socket._core)
        with pytest.warns(ResourceWarning, match=r"unclosed <blocking Pair0 with \d peers>; use with"):
            del socket
            gc.collect()
        until(lambda: threads() <= there)
        gc.collect()
        assert core() is None
        if busy == "connected":
            assert other.recv(LIMIT_S) == b"the last word"
    until(lambda: threads() <= before)


def test_a_socket_that_was_closed_or_never_used_is_dropped_silently() -> None:
    socket = blocking.Pair0()
    del socket
    with blocking.Pair0(listen="tcp://127.0.0.1:0") as socket:
        pass
    del socket
    gc.collect()  # a warning is an error here


def test_a_context_keeps_its_socket() -> None:
    with blocking.Rep0(listen="tcp://127.0.0.1:0") as rep:
        context = blocking.Req0(dial=rep.listeners[0].url).new_context()
        gc.collect()
        context.send(b"question", LIMIT_S)
        assert rep.recv(LIMIT_S) == b"question"
        context._socket.close()
        with pytest.raises(Closed):
            context.recv()


@pytest.mark.parametrize("kind", ["Req0", "Rep0", "Surveyor0", "Respondent0", "Sub0"])
def test_a_context_that_is_dropped_while_open_warns_and_is_freed(kind: str) -> None:
    """The socket kept its lane, with queued messages and pending calls, until the socket itself was
    closed.
    """
    with getattr(blocking, kind)(listen="tcp://127.0.0.1:0") as socket:
        core = socket._core
        context = socket.new_context()
        lane = weakref.ref(context._lane)
        lanes = len(core._lanes)
        with core.lock.held:
            with pytest.warns(ResourceWarning, match=rf"unclosed context of <blocking {kind} with 0 peers>"):
                del context
                gc.collect()
            assert lane() in core._lanes, "not while a pattern may be at work"
        until(lambda: len(core._lanes) == lanes - 1)
        gc.collect()
        until(lambda: lane() is None)


def test_a_reader_that_is_dropped_gets_no_more_messages() -> None:
    with blocking.Pub0(listen="inproc://dropped-reader") as pub:
        with blocking.Sub0(dial="inproc://dropped-reader", topics=["a"]) as sub:
            pub.wait_for_peers(1, LIMIT_S)
            context = sub.new_context()
            context.subscribe("")
            with pytest.warns(ResourceWarning):
                del context
                gc.collect()
            until(lambda: len(sub._core.pattern._lanes) == 1)  # type: ignore[attr-defined]
            pub.send(b"a1")
            assert sub.recv(LIMIT_S) == b"a1"


def test_contexts_of_a_socket_without_connections_are_dropped_silently_and_freed() -> None:
    socket = blocking.Req0()
    for _ in range(3):
        socket.new_context()
        gc.collect()  # a warning is an error here
    with socket.new_context():
        assert len(socket._core._lanes) == 2
    socket.close()


def test_a_closed_context_or_one_of_a_closed_socket_is_dropped_silently() -> None:
    with blocking.Req0(listen="tcp://127.0.0.1:0") as socket:
        with socket.new_context() as closed:
            pass
        left = socket.new_context()
    del closed, left
    gc.collect()  # a warning is an error here


def test_a_request_is_bounded_by_the_time_to_receive() -> None:
    """With only ``recv_timeout_s`` set, it waited for a peer without limit."""
    with blocking.Req0(recv_timeout_s=0.01) as req:
        with pytest.raises(Timeout, match="no answer in time"):
            req.request(b"nobody is there")


def test_a_peer_is_closed_under_the_lock_of_its_socket() -> None:
    """Any thread may close a peer; the pattern was called while another thread used it."""
    with blocking.Pull0(listen="inproc://peer") as pull:
        with blocking.Push0(dial="inproc://peer", reconnect_min_s=1000.0) as push:
            pull.wait_for_peers(1, LIMIT_S)
            (peer,) = pull.pipes
            closing = threading.Thread(target=peer.close, args=("not wanted",))
            with pull._core.lock.held:
                closing.start()
                assert pull.pipes == [peer], "nothing happens while another thread has the lock"
                closing.join(0.05)
                assert closing.is_alive()
            closing.join(LIMIT_S)
            assert peer.closed and peer.close_reason == "not wanted" and pull.pipes == []
            until(lambda: push.dialers[0].pipe is None)


def test_a_closed_dialer_has_no_peer() -> None:
    """``pipe`` still showed it, and ``wait_connected`` returned it."""
    with blocking.Pair0(listen="inproc://closed-dialer") as pair:
        with blocking.Pair0(dial="inproc://closed-dialer") as other:
            (dialer,) = other.dialers
            dialer.wait_connected(LIMIT_S)
            dialer.close()
            assert dialer.pipe is None
            with pytest.raises(Closed, match="nothing dials"):
                dialer.wait_connected(LIMIT_S)
            other.send(b"the connection lives on")
            assert pair.recv(LIMIT_S) == b"the connection lives on"


@pytest.mark.parametrize("line", range(1, 30))
def test_a_dialer_that_is_closed_at_any_line_ends_at_once(line: int) -> None:
    """If it was closed just before the thread cleared its event, it slept for the whole pause."""
    left = line

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_name in ("_run", "_one_round") and "dialling" in frame.f_code.co_filename:
            return at_line
        return None

    def at_line(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if not left:
                frame.f_locals["self"].close()
        return at_line

    long = {"reconnect_min_s": 1000.0, "reconnect_max_s": 1000.0}
    with blocking.Pair0(listen="inproc://any-line") as pair, blocking.Pair0(**long) as other:
        before = threading.gettrace()
        threading.settrace(trace)
        try:
            dialer = other.dial("inproc://any-line")
        finally:
            threading.settrace(before)  # type: ignore[arg-type]
        until(lambda: dialer._closed or (dialer.pipe and pair.pipes))
        for pipe in pair.pipes:
            pipe.close("begin again")
        until(lambda: dialer._closed or dialer.pause_s)
        if left > 0:
            dialer.close()  # it has fewer lines
        dialer._thread.join(LIMIT_S)
        assert not dialer._thread.is_alive()


def test_a_name_that_cannot_be_looked_up_is_an_address_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A UnicodeError ended the dialer's thread, and ``wait_connected`` never returned."""

    def look_up(*_: object, **__: object) -> Any:
        raise UnicodeError("label empty or too long")

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    with blocking.Pull0(dial="tcp://name.example:5") as pull:
        with pytest.raises(AddressError, match="is not a host name"):
            pull.listen("tcp://name.example:5")
        (dialer,) = pull.dialers
        until(lambda: "is not a host name" in dialer.last_error)
        assert dialer._thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dialer_that_a_defect_ends_says_so() -> None:
    """A call that waited for its connection never ended."""
    with blocking.Pull0() as pull:
        with pull._core.lock.held:
            dialer = pull.dial("inproc://nobody")

        dialer._schedule = None  # type: ignore[assignment]
        with pytest.raises(Closed, match="a defect ended the dialer: AttributeError"):
            dialer.wait_connected(LIMIT_S)
