"""The common part of dialers and listeners.

An endpoint opens connections and hands each one, handshake done, to its `EndpointOwner` (a socket), which
makes a pipe of it or refuses it. Pipes belong to the socket: closing an endpoint ends dialling
(`protocols.dialling`) or accepting (`protocols.listening`), no pipe.

Failures are counted, and logged as warnings by `protocols.peer_warnings`: a dialer's first failure and each
one of another kind, a refused peer, a connection that is closed because the peer broke a rule. A listener
with ``on_refused`` reports its refusals there instead.
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
        """The number of the protocol we talk to."""

    @property
    def options(self) -> SocketOptions: ...

    @property
    def rng(self) -> random.Random: ...

    def attach(self, connection: Connection, *, url: str, dialed: bool) -> Pipe:
        """Make a pipe, call ``connection.start(pipe)``. Raises `PipeRefused`; the endpoint then closes."""


async def turns(count: int) -> None:
    """Let the loop run what it has been given."""
    for _ in range(count):
        await asyncio.sleep(0)


async def dropped(connection: Connection) -> None:
    """Drop a connection and wait until it is gone, a few turns of the loop."""
    connection.abort()
    await connection.wait_closed()
