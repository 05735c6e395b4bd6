"""Makes one connection to a name that has several addresses (Happy Eyeballs, RFC 8305).

The addresses are tried in the order of the system's resolver, with the two families alternating (section 4).
When an attempt fails, the next address is tried at once. When it takes longer than ``delay_s``, the next
address is tried in parallel (section 5). The first address that accepts wins; all other attempts are given
up. Each attempt has its own ``limit_s`` seconds, so an address that never answers takes no time from others.

asyncio's own `create_connection` also does this, but not on uvloop and without a limit for each attempt, and
in Python 3.11 it loses errors.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

Factory = Callable[[], asyncio.BaseProtocol]


@dataclass(frozen=True, slots=True)
class Address:
    """A numeric address and its port."""

    family: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt; a TimeoutError without an errno is its time limit."""

    address: Address
    error: OSError

    @property
    def late(self) -> bool:
        return isinstance(self.error, TimeoutError) and self.error.errno is None


class NoneAccepted(OSError):
    """Every address failed; ``failures`` has at least one, in the order in which they failed."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__("no address accepts a connection")
        self.failures = failures


def is_numeric(host: str) -> bool:
    """True for an address, which needs no resolver."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


async def resolve(host: str, port: int, family: int, limit_s: float | None) -> list[Address]:
    """The addresses of a name from the running loop's resolver, families alternating.

    Raises OSError, and TimeoutError after ``limit_s``.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(limit_s):
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    return alternating([_address(each[0], each[4]) for each in found])


def _address(family: int, address: Any) -> Address:
    host, port = str(address[0]), int(address[1])
    if family == socket.AF_INET6 and len(address) == 4 and address[3] and "%" not in host:
        host = f"{host}%{address[3]}"  # a link-local address needs its interface
    return Address(int(family), host, port)


def alternating(addresses: Sequence[Address]) -> list[Address]:
    """Remove repetitions and alternate the two families while both have addresses left."""
    queues: dict[int, deque[Address]] = {}
    for address in dict.fromkeys(addresses):
        queues.setdefault(address.family, deque()).append(address)
    ordered: list[Address] = []
    while queues:
        for family in list(queues):
            ordered.append(queues[family].popleft())
            if not queues[family]:
                del queues[family]
    return ordered


async def connect_first(
    factory: Factory, addresses: Sequence[Address], *, delay_s: float | None, limit_s: float
) -> None:
    """Connect a protocol of ``factory`` to the first of ``addresses`` that accepts.

    With ``delay_s`` None, it tries one address after the other. Raises `NoneAccepted`. A cancelled call
    leaves nothing open except the object from ``factory``, which its maker closes.
    """
    race = Race(factory, limit_s)
    waiting = deque(addresses)
    running: dict[asyncio.Task[None], Address] = {}
    failures: list[Failure] = []
    loop = asyncio.get_running_loop()
    try:
        while waiting or running:
            if waiting:
                address = waiting.popleft()
                running[loop.create_task(race.attempt(address), name=f"connect {address}")] = address
            await asyncio.wait(
                running, timeout=delay_s if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in [task for task in running if task.done()]:
                address = running.pop(task)
                try:
                    task.result()
                except OSError as error:
                    failures.append(Failure(address, error))
                else:
                    return
    finally:
        await _given_up(list(running))
    raise NoneAccepted(failures)


async def _given_up(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieve it: nobody needs the result any more


class Race:
    """Attempts at several addresses, of which one may win."""

    def __init__(self, factory: Factory, limit_s: float) -> None:
        self._factory = factory
        self._limit_s = limit_s
        self._won = False

    async def attempt(self, address: Address) -> None:
        async with asyncio.timeout(self._limit_s):
            await asyncio.get_running_loop().create_connection(
                lambda: Candidate(self._connected),
                address.host,
                address.port,
                family=address.family,
                flags=socket.AI_NUMERICHOST,
            )

    def _connected(self, transport: asyncio.BaseTransport) -> None:
        """Give the protocol to the first transport. A second one can connect before it is given up."""
        if self._won:
            cast(asyncio.Transport, transport).abort()
            return
        self._won = True
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class Candidate(asyncio.Protocol):
    """The protocol of a connection until it is known whether it has won."""

    def __init__(self, connected: Callable[[asyncio.BaseTransport], None]) -> None:
        self._connected = connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connected(transport)
