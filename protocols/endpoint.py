"""The common part of dialers and listeners.

An endpoint opens connections. After the handshake it hands each one to its `EndpointOwner` (a socket), which
makes a pipe of it or refuses it. Pipes belong to the socket: closing an endpoint ends dialling
(`protocols.dialling`) or accepting (`protocols.listening`), but no pipe.

Failures are counted, and `protocols.peer_warnings` logs some as warnings: a dialer's first failure and each
one of another kind, a refused peer, and a connection closed because the peer broke a rule. A listener with
``on_refused`` reports its refusals there instead.
"""

from __future__ import annotations

import asyncio
import random
from typing import Protocol

from protocols.options import SocketOptions
from protocols.pipe import Connection, Pipe


class EndpointOwner(Protocol):
    """A socket, as its endpoints see it."""

    @property
    def protocol(self) -> int:
        """Our protocol number."""

    @property
    def peer(self) -> int:
        """The protocol number of our peers."""

    @property
    def options(self) -> SocketOptions: ...

    @property
    def rng(self) -> random.Random: ...

    def attach(self, connection: Connection, *, url: str, dialed: bool) -> Pipe:
        """Make a pipe and call ``connection.start(pipe)``. Raises `PipeRefused`; the endpoint then closes the
        connection.
        """


async def turns(count: int) -> None:
    """Let the loop run the callbacks that it already has."""
    for _ in range(count):
        await asyncio.sleep(0)


async def dropped(connection: Connection) -> None:
    """Drop a connection and wait until it is gone, a few turns of the loop."""
    connection.abort()
    await connection.wait_closed()
