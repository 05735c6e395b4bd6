"""Reports of a blocking socket's stream: why it ended, and how many bytes it moved."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from protocols import NotSupported, blocking
from protocols.blocking.stream import Stream
from tests.protocols.blocking.support import LIMIT_S, until
from tests.support.certificates import config, local

REASONS = {
    "tcp": "the last large message sent has 2097156 bytes, is that above its limit?",
    "ws": r"1009 a message of \d+ bytes is above the limit of 1048576",
}


@pytest.mark.parametrize("scheme", list(REASONS))
def test_a_sender_learns_that_its_message_was_too_large(scheme: str) -> None:
    """It got "Connection reset by peer", or that the peer had closed."""
    with blocking.Rep0(listen=f"{scheme}://127.0.0.1:0") as rep, blocking.Req0(reconnect_min_s=1e3) as req:
        dialer = req.dial(rep.listeners[0].url)
        dialer.wait_connected(LIMIT_S)
        req.send(bytes(2 << 20), LIMIT_S)
        until(lambda: dialer.last_error)
        assert re.search(REASONS[scheme], dialer.last_error)


class Leaving:
    """A codec that receives its peer's reason for leaving."""

    reply = b""
    failure = None
    peer = 1
    inside_frame = False
    ended = False
    last_words = ""

    def receive(self, chunk: bytes) -> list[bytes]:
        self.ended, self.last_words = True, chunk.decode()
        return []

    def encode(self, frames: list[bytes]) -> list[bytes]:
        return frames


class OneFrame:
    """A pipe with something to write."""

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.frames_out = self.queued = 0
        self.ends: list[str] = []

    def move_output(self, taken: list[bytes]) -> None:
        taken += [] if self.ends else [b"a message"]

    def connection_lost(self, reason: str, cause: str) -> None:
        self.ends.append(reason)

    def connection_gone(self) -> None: ...

    def output_written(self) -> None: ...


class Still:
    """An I/O thread that does nothing by itself."""

    def watch(self, stream: Stream, events: int) -> None: ...

    def flush_at_the_end(self, stream: Stream) -> None: ...

    def call_at(self, deadline: float, callback: Any) -> None:
        callback()

    def time(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("words", "reason"),
    [(b"too large", "closed by the peer: too large"), (b"", "connection lost: Broken pipe")],
)
def test_a_write_that_fails_does_not_hide_why_the_peer_left(words: bytes, reason: str) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    codec: Any = Leaving()
    pipe: Any = OneFrame()
    stream = Stream(Still(), ours, codec, local_address="", remote_address="", identity=None)
    stream.start(pipe)
    theirs.sendall(words)
    theirs.close()
    stream.flush()
    assert pipe.ends == [reason]


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "inproc", "ws", "tls+tcp", "wss"])
def test_the_bytes_of_a_handshake_are_counted(scheme: str, tmp_path: Path) -> None:
    """A dialer counted none of them, and a listener those of its last read."""
    where = {"ipc": f"{tmp_path}/counted", "inproc": "counted"}.get(scheme, "127.0.0.1:0")
    with blocking.Pull0(listen=f"{scheme}://{where}", tls=config(local())) as pull:
        with blocking.Push0(dial=pull.listeners[0].url, tls=config()) as push:
            push.send(bytes(100), LIMIT_S)
            assert pull.recv(LIMIT_S) == bytes(100)
            sent, received = push.statistics(), pull.statistics()
            assert sent.bytes_out == received.bytes_in
            assert sent.bytes_in == received.bytes_out
    if scheme == "tcp":
        assert (sent.bytes_out, sent.bytes_in) == (8 + 8 + 100, 8)


def test_a_pattern_without_contexts_refuses_them() -> None:
    """It raised AttributeError."""
    with blocking.Push0() as push:
        with pytest.raises(NotSupported, match="push0 sockets have no contexts"):
            push.new_context()
