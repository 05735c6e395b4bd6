"""Which web pages may connect to a blocking ws listener."""

from __future__ import annotations

from typing import Any

import pytest

from protocols import blocking
from tests.protocols.blocking.support import raw_peer, until

PAGE = """GET / HTTP/1.1\r
Host: {host}:{port}\r
Upgrade: websocket\r
Connection: Upgrade\r
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
Sec-WebSocket-Version: 13\r
Sec-WebSocket-Protocol: pair.sp.nanomsg.org\r
{origin}\r
"""


def status(listening: blocking.Pair0, host: str, origin: str) -> str:
    """The status for a page that calls the listener by that host."""
    port = listening.listeners[0].url.removesuffix("/").rpartition(":")[2]
    line = f"Origin: {origin.format(port=port)}\r\n" if origin else ""
    with raw_peer(f"tcp://127.0.0.1:{port}") as peer:
        peer.sendall(PAGE.format(host=host, port=port, origin=line).encode())
        answer = b""
        while b"\r\n" not in answer:
            answer += (chunk := peer.recv(1000))
            assert chunk, "closed without an answer"
        return answer.split()[1].decode()


@pytest.mark.parametrize(
    ("host", "origin", "options", "answer"),
    [
        ("localhost", "", {}, "101"),
        ("127.0.0.1", "http://127.0.0.1:{port}", {}, "101"),
        ("localhost", "http://localhost:{port}", {}, "403"),
        ("localhost", "http://localhost:{port}", {"ws_hosts": ("localhost",)}, "101"),
        ("127.0.0.1", "https://app.example", {}, "403"),
        ("127.0.0.1", "https://app.example", {"ws_origins": ("https://app.example",)}, "101"),
        ("localhost", "https://app.example", {"ws_origins": ("*",)}, "101"),
    ],
)
def test_a_page_must_be_of_our_host_called_by_a_name_that_is_ours_or_be_listed(
    host: str, origin: str, options: dict[str, Any], answer: str
) -> None:
    """Any name can be made to point here, and the browser then sends equal Origin and Host."""
    with blocking.Pair0(listen="ws://127.0.0.1:0/", **options) as pair:
        assert status(pair, host, origin) == answer


def test_the_host_of_the_listeners_url_is_its_own() -> None:
    with blocking.Pair0(listen="ws4://localhost:0") as pair:
        assert status(pair, "localhost", "http://localhost:{port}") == "101"
        assert status(pair, "LOCALHOST", "http://localhost:{port}") == "101"
        assert status(pair, "evil.example", "http://evil.example:{port}") == "403"
        (listener,) = pair.listeners
        until(lambda: listener.refused.get("websocket: host"))
