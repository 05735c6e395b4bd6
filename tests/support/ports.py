"""Ports for those who cannot listen at port 0 and say which they got."""

from __future__ import annotations

import socket
from random import SystemRandom
from typing import Final

PORTS: Final = range(20_000, 32_768)
"""Ports below those that the kernel gives to programs that connect, or listen at port 0. One of those that is
free now may be a stranger's before the test listens at it, and then the test meets that stranger.
"""


def free_port() -> int:
    """A port of this host that nobody listens at; two processes that ask at once hardly get the same."""
    while True:
        port = SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
