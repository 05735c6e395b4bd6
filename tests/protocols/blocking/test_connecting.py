"""The choice among a name's addresses when a blocking socket connects."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from protocols import blocking
from tests.protocols.blocking.support import LIMIT_S


def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a delay between the attempts, the first address used up all the time, at each attempt."""
    with blocking.Pull0(listen="tcp://127.0.0.1:0") as pull, socket.socket() as full, socket.socket() as one:
        with socket.socket() as two:
            full.bind(("127.0.0.2", 0))
            full.listen(0)
            for filler in (one, two):
                filler.setblocking(False)
                filler.connect_ex(full.getsockname())
            good = int(pull.listeners[0].url.rpartition(":")[2])
            found = [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
                for address in (full.getsockname(), ("127.0.0.1", good))
            ]
            monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
            options: dict[str, Any] = {"handshake_timeout_s": 0.5, "happy_eyeballs_delay_s": None}
            with blocking.Push0(dial=f"tcp://two.example:{good}", **options) as push:
                push.dialers[0].wait_connected(LIMIT_S)


def test_a_system_without_a_family_connects_by_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """``localhost`` was never reached if the system has no IPv6 and the name has an IPv6 address."""
    with blocking.Pull0(listen="tcp://127.0.0.1:0") as pull:
        port = int(pull.listeners[0].url.rpartition(":")[2])

        class Without(socket.socket):
            def __init__(self, family: int = -1, *arguments: Any, **keywords: Any) -> None:
                if family == socket.AF_INET6:
                    raise OSError(errno.EAFNOSUPPORT, "no IPv6")
                super().__init__(family, *arguments, **keywords)

        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
        monkeypatch.setattr("socket.socket", Without)
        with blocking.Push0(dial=f"tcp://localhost:{port}") as push:
            push.dialers[0].wait_connected(LIMIT_S)
