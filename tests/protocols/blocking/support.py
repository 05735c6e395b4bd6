"""Support for tests of blocking sockets: a wait, and misbehaving peers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LIMIT_S = 60.0


def until(condition: Callable[[], object]) -> None:
    """Return once another thread has made it true."""
    late = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < late, "it never came true"
        time.sleep(0.001)


@contextmanager
def silent_listener() -> Iterator[tuple[str, socket.socket]]:
    """A listener that accepts, if the test does, and never sends a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT_S)
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}", server


def raw_peer(url: str) -> socket.socket:
    """A plain connection to a listener of ours."""
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    peer = socket.create_connection((host, int(port)))
    peer.settimeout(LIMIT_S)
    return peer
