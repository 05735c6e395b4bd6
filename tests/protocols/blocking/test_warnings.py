"""Faults of the peers of a blocking socket are logged as on an event loop.

They were not: a dialer of the wrong protocol retried silently, ten times as often as it should.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocols import Closed, TlsConfig, blocking
from protocols.blocking.lock import BlockingLock
from protocols.blocking.log_thread import LINES_MAX, LogThread
from protocols.wire.framing import encode_frames
from protocols.wire.handshake import ProtocolNumber, encode_header
from tests.protocols.blocking.support import LIMIT_S, raw_peer, silent_listener, until
from tests.support.certificates import local
from tests.support.interrupts import ends
from tests.support.ports import free_port

FAST: dict[str, Any] = {"reconnect_min_s": 0.001, "reconnect_max_s": 0.01}


@pytest.fixture(autouse=True)
def _hear_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="protocols")


def lines(caplog: pytest.LogCaptureFixture, about: str = "") -> list[str]:
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    return [line for line in said if about in line]


def log_thread() -> LogThread:
    return LogThread("log", BlockingLock("socket"))


def test_a_failing_dial_is_logged_at_the_first_and_at_each_changed_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    with blocking.Req0(dial=url, **FAST) as req:
        until(lambda: req.dialers[0].attempts >= 5)
        until(lambda: lines(caplog))
        assert lines(caplog) == [
            f"dialling {url} failed: nobody listens at {url}; it is tried again, at least every 0.01 s"
        ]
        with blocking.Pull0(listen=url) as pull:
            until(lambda: pull.listeners[0].refused.get("wrong protocol", 0) >= 5)
            until(lambda: len(lines(caplog, f"dialling {url}")) == 2)
        assert "one of the two ends must be changed" in lines(caplog, f"dialling {url}")[1]
        with blocking.Rep0(listen=url):
            req.dialers[0].wait_connected(LIMIT_S)
    assert any(each.getMessage().startswith(f"connected to {url} after") for each in caplog.records)


def test_a_dialer_that_cannot_succeed_slows_down_at_once() -> None:
    """It dialled ten times in the first half second."""
    with blocking.Pull0(listen="tcp://127.0.0.1:0") as pull:
        with blocking.Pub0(dial=pull.listeners[0].url, reconnect_min_s=0.001, reconnect_max_s=1e6) as pub:
            until(lambda: pull.listeners[0].refused)
            until(lambda: pub.dialers[0].last_error)
            assert pub.dialers[0].pause_s >= 5e5


def test_a_refused_peer_is_logged_with_its_port_and_the_option(caplog: pytest.LogCaptureFixture) -> None:
    with blocking.Pull0(listen="tcp://127.0.0.1:0", peers_max=1) as pull:
        url = pull.listeners[0].url
        with blocking.Push0(dial=url), raw_peer(url) as second:
            pull.wait_for_peers(1, LIMIT_S)
            name = f"tcp://127.0.0.1:{second.getsockname()[1]}"
            second.sendall(encode_header(ProtocolNumber.PUSH0))
            while second.recv(100):
                pass
            until(lambda: lines(caplog, f"{url} refused {name}"))
    (line,) = lines(caplog, "refused")
    assert "peers is reached (peers_max)" in line


def test_a_stranger_is_logged_and_one_that_just_leaves_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with blocking.Pull0(listen="tcp://127.0.0.1:0") as pull:
        url = pull.listeners[0].url
        raw_peer(url).close()
        until(lambda: pull.listeners[0].refused == {"closed": 1})
        with raw_peer(url) as browser:
            browser.sendall(b"GET / HTTP/1.1\r\n\r\n")
            until(lambda: lines(caplog))
    (line,) = lines(caplog)
    assert "for WebSocket both use ws://, or wss:// with TLS" in line


def test_a_connection_lost_to_a_broken_rule_is_logged_on_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    with blocking.Pull0(listen="tcp://127.0.0.1:0", recv_size_max=1000) as pull:
        with raw_peer(pull.listeners[0].url) as bad:
            bad.sendall(encode_header(ProtocolNumber.PUSH0) + encode_frames([bytes(2000)]))
            until(lambda: lines(caplog, "above the limit of 1000 (recv_size_max)"))
    caplog.clear()
    with blocking.Pair0(listen="tcp://127.0.0.1:0") as one:
        with blocking.Pair0(dial=one.listeners[0].url, recv_size_max=1000, reconnect_min_s=10.0) as other:
            one.wait_for_peers(1, LIMIT_S)
            one.send(bytes(2000))
            until(lambda: lines(caplog, "above the limit of 1000 (recv_size_max)"))
            until(lambda: bool(other.dialers[0].last_error))


def test_a_rule_that_is_broken_with_the_header_does_not_end_the_dialer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The thread ended by the error, and the URL was dialled no more."""
    with silent_listener() as (url, server):
        with blocking.Pull0(dial=url, recv_size_max=1000, **FAST) as pull:
            for _ in range(2):
                peer, _ = server.accept()
                peer.sendall(encode_header(ProtocolNumber.PUSH0) + encode_frames([bytes(2000)]))
                until(lambda: lines(caplog, "above the limit of 1000 (recv_size_max)"))
                peer.close()
            assert pull.dialers[0]._thread.is_alive()


def test_a_peer_that_sends_no_header_is_refused_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    with blocking.Pull0(listen="tcp://127.0.0.1:0", handshake_timeout_s=0.01) as pull:
        with raw_peer(pull.listeners[0].url):
            until(lambda: lines(caplog, "0 of 8 header bytes after 0.01 s"))
        assert pull.listeners[0].refused == {"timeout": 1}


def test_a_listener_without_descriptors_warns_and_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Each wake-up for a backlog that could not be accepted led to the next one: the thread used a whole
    core.
    """

    class Exhausted:
        asked = 0

        def accept(self) -> None:
            self.asked += 1
            raise OSError(errno.EMFILE, "too many open files")

    with blocking.Pull0(listen="tcp://127.0.0.1:0") as pull:
        listener = pull.listeners[0]
        exhausted = Exhausted()
        with pull._core.lock.held:
            listener.accept_from(exhausted)  # type: ignore[arg-type]
        assert exhausted.asked == 1
        until(lambda: lines(caplog))
        (line,) = lines(caplog)
        assert "ulimit -n" in line
        with blocking.Push0(dial=listener.url) as push:
            push.send(b"it accepts again after a while")
            assert pull.recv(LIMIT_S)


def test_the_oldest_connections_without_a_header_make_room(caplog: pytest.LogCaptureFixture) -> None:
    """A flood of silent connections kept honest peers out until the deadline."""
    with blocking.Pull0(listen="tcp://127.0.0.1:0") as pull:
        url = pull.listeners[0].url
        silent = [raw_peer(url) for _ in range(300)]
        with blocking.Push0(dial=url) as push:
            push.send(b"an honest peer")
            assert pull.recv(LIMIT_S) == b"an honest peer"
        assert pull.listeners[0].refused["crowded out"] >= 300 - 256
        for each in silent:
            each.close()
    assert lines(caplog, "newer connections wait too")


def test_the_last_descriptors_are_the_programs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of connections took them all: the program could open no file any more."""
    with blocking.Pull0(listen="tcp://127.0.0.1:0") as pull:
        url = pull.listeners[0].url
        monkeypatch.setattr("protocols.blocking.listening.descriptor_limit", lambda: 0)
        with raw_peer(url) as peer:
            assert peer.recv(100) in (b"", encode_header(ProtocolNumber.PULL0))
            until(lambda: pull.listeners[0].refused == {"no descriptors": 1})
        monkeypatch.undo()
        with blocking.Push0(dial=url) as push:
            push.send(b"there is room again")
            assert pull.recv(LIMIT_S)
    assert "ulimit -n" in lines(caplog, "refused")[0]


@pytest.mark.parametrize(
    ("pattern", "number", "frame"),
    [
        (blocking.Rep0, ProtocolNumber.REQ0, b""),
        (blocking.Respondent0, ProtocolNumber.SURVEYOR0, b""),
        (blocking.Req0, ProtocolNumber.REP0, b"\x00"),
        (blocking.Surveyor0, ProtocolNumber.RESPONDENT0, b""),
        (blocking.Pair1, ProtocolNumber.PAIR1, b"\x00"),
        (blocking.Pub0, ProtocolNumber.SUB0, b"news"),
    ],
)
def test_a_connection_lost_to_a_rule_of_the_pattern_is_logged(
    pattern: Any, number: ProtocolNumber, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A request without a backtrace cost its connection, and nothing was logged."""
    with pattern(listen="tcp://127.0.0.1:0") as socket, raw_peer(socket.listeners[0].url) as bad:
        bad.sendall(encode_header(number) + encode_frames([frame]))
        until(lambda: lines(caplog, f" at {socket.listeners[0].url} was closed: "))
        assert socket.statistics().closed == {"bad message": 1}


@contextlib.contextmanager
def inside_handler(handler: logging.Handler) -> Iterator[None]:
    """The logger has the handler, and this thread is in it."""
    logging.getLogger("protocols").addHandler(handler)
    try:
        with handler.lock:  # type: ignore[union-attr]
            yield
    finally:
        logging.getLogger("protocols").removeHandler(handler)


class Publishing(logging.Handler):
    """Sends each log record."""

    def __init__(self, pub: blocking.Pub0) -> None:
        super().__init__()
        self._pub = pub

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Closed):
            self._pub.send(record.getMessage().encode())


def test_a_logging_handler_may_send_by_the_socket_that_logs() -> None:
    """The I/O thread logged while it held the socket's lock, and waited for the handler's. A thread in the
    handler held that, and waited for the socket's.
    """
    pub = blocking.Pub0(listen="tcp://127.0.0.1:0")
    (listener,) = pub.listeners
    with inside_handler(Publishing(pub)):
        with raw_peer(listener.url) as stranger:
            stranger.sendall(b"GET / HT")
            until(lambda: listener.refused)
        assert ends(lambda: pub.send(b"what is logged"))
        assert ends(pub.close)


@pytest.mark.parametrize("taken", [True, False])
def test_new_certificates_are_logged_without_the_lock(
    taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The I/O thread checks for them when a peer connects; it waited for the handler with the lock held."""
    monkeypatch.setattr("protocols.transports.certificates.LOOK_EVERY_S", 0.0)
    cert, key = local().write(tmp_path, "own")
    pub = blocking.Pub0(listen="tls+tcp://127.0.0.1:0", tls=TlsConfig(cert_file=cert, key_file=key))
    (listener,) = pub.listeners
    certificates = listener._certificates
    assert certificates is not None
    with inside_handler(Publishing(pub)):
        with open(cert, "a" if taken else "w") as file:
            file.write("a comment")
        with raw_peer(listener.url.removeprefix("tls+")):
            until(lambda: certificates.statistics().loaded == 2 or certificates.statistics().refused)
            assert ends(lambda: pub.send(b"what is logged"))
        assert ends(pub.close)
    assert (certificates.statistics().loaded == 2) == taken


@pytest.mark.parametrize("printed", [True, False])
def test_a_filter_or_a_handler_that_raises_costs_its_line_only(
    printed: bool,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error ended the thread, and nothing more was logged. `logging` decides whether its errors are
    printed.
    """
    monkeypatch.setattr("logging.raiseExceptions", printed)

    def raising(record: logging.LogRecord) -> bool:
        if record.getMessage() == "filter":
            raise ValueError("a bug in a filter")
        return True

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "handler":
                raise ValueError("a bug in a handler")

    logger, handler = logging.getLogger("protocols"), Raising()
    logger.addFilter(raising)
    logger.addHandler(handler)
    try:
        said = log_thread()
        for line in ("filter", "handler", "the last"):
            said.warning(line)
        said.stop()
        said.join(LIMIT_S)
    finally:
        logger.removeFilter(raising)
        logger.removeHandler(handler)
    assert lines(caplog)[-1] == "the last"
    told = capsys.readouterr().err
    assert [f"ValueError: a bug in a {where}" in told for where in ("filter", "handler")] == [printed] * 2


def test_a_log_thread_that_cannot_start_does_so_at_a_later_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error ended the I/O thread, and with it the socket."""

    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    said = log_thread()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        said.warning("the first")
        said.join(LIMIT_S)
    said.warning("the second")
    said.stop()
    said.join(LIMIT_S)
    assert lines(caplog) == ["the first", "the second"]


def test_a_slow_logging_handler_gets_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The lines that it misses are counted."""
    enough = threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            enough.wait(LIMIT_S)

    handler = Slow()
    logging.getLogger("protocols").addHandler(handler)
    try:
        said = log_thread()
        said.info("line %d", 0)
        until(lambda: said._lines.empty())
        for number in range(1, LINES_MAX + 6):
            said.info("line %d", number)
        enough.set()
        until(lambda: said._lines.empty())
        said.info("the last")
        said.stop()
        said.join(LIMIT_S)
    finally:
        logging.getLogger("protocols").removeHandler(handler)
    heard = [each.getMessage() for each in caplog.records]
    assert heard[: LINES_MAX + 1] == [f"line {number}" for number in range(LINES_MAX + 1)]
    assert heard[LINES_MAX + 1 :] == ["5 lines left out: a logging handler was slow", "the last"]
